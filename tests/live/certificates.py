"""Certificates of all kinds, made with the openssl program in a fresh folder: good ones, and what must be refused."""
import os
import shutil
import subprocess
import tempfile

NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
CA_CONFIG = """
[ca]
default_ca = d
[d]
database = {dir}/index
new_certs_dir = {dir}
rand_serial = yes
default_md = sha256
policy = p
copy_extensions = copy
unique_subject = no
[p]
commonName = supplied
"""


def openssl(*args):
    done = subprocess.run(['openssl', *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f'openssl {args[:1]}: {done.stdout.decode()}')


class Certificates:
    """good, expired, early, wrong_host, self_signed, wrong_ca: for servers; client, wrong_client; ca, other_ca: authorities.
    Each has NAME.pem and NAME.key."""
    SERVERS = ('good', 'expired', 'early', 'wrong_host', 'self_signed', 'wrong_ca')

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix='postdate-tls-', dir='/var/tmp')
        os.chmod(self.directory, 0o755)
        for ca in ('ca', 'other_ca'):
            openssl('req', '-x509', *NEW_KEY, '-keyout', self.key(ca), '-out', self.pem(ca), '-subj', f'/CN={ca}', '-days', '2')
        here = 'DNS:localhost,IP:127.0.0.1,IP:0.0.0.0'
        self.sign('good', here)
        self.sign('expired', here, dates=('20200101000000Z', '20200202000000Z'))
        self.sign('early', here, dates=('20900101000000Z', '20910101000000Z'))
        self.sign('wrong_host', 'DNS:elsewhere.example,IP:10.1.2.3')
        self.sign('wrong_ca', here, ca='other_ca')
        openssl('req', '-x509', *NEW_KEY, '-keyout', self.key('self_signed'), '-out', self.pem('self_signed'), '-subj',
                '/CN=localhost', '-addext', f'subjectAltName={here}', '-days', '2')
        self.sign('client', 'DNS:client', common_name='postdate')
        self.sign('wrong_client', 'DNS:client', ca='other_ca', common_name='postdate')

    def pem(self, name):
        return os.path.join(self.directory, name + '.pem')

    def key(self, name):
        return os.path.join(self.directory, name + '.key')

    def sign(self, name, names, ca='ca', dates=None, common_name='localhost'):
        request, config = self.pem(name) + '.csr', os.path.join(self.directory, 'ca.conf')
        with open(config, 'w', encoding='utf-8') as f:
            f.write(CA_CONFIG.format(dir=self.directory))
        with open(os.path.join(self.directory, 'index'), 'w', encoding='utf-8'):
            pass
        openssl('req', *NEW_KEY, '-keyout', self.key(name), '-out', request, '-subj', f'/CN={common_name}', '-addext',
                f'subjectAltName={names}', '-addext', 'basicConstraints=critical,CA:FALSE')
        when = ['-startdate', dates[0], '-enddate', dates[1]] if dates else ['-days', '2']
        openssl('ca', '-batch', '-notext', '-config', config, '-cert', self.pem(ca), '-keyfile', self.key(ca), '-in', request,
                '-out', self.pem(name), *when)

    def give_keys_to(self, uid):
        """Servers want their keys to be readable by nobody else."""
        for name in self.SERVERS:
            os.chmod(self.key(name), 0o600)
            os.chown(self.key(name), uid, -1)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)
