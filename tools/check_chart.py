#!/usr/bin/python3
"""check_chart.py DIR: what the chart must render, looked for in DIR/*.yaml (tools/chart.sh puts it there). Prints what is wrong.

Of each set of values: all pods confined, no secret in clear, selectors that meet, names of probes that the gateway answers.
Of the sets by name: what their values ask for. The rules are those of packaging/monitoring, also for promtool, and the
configuration is one that postdated accepts.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
CHART = os.path.join(TOP, 'packaging/helm/postdate')
wrong = []
looked = 0


def expect(true, text):
    global looked
    looked += 1
    if not true:
        wrong.append(text)


def read(*path):
    with open(os.path.join(TOP, *path), encoding='utf-8') as f:
        return f.read()


class Rendered:
    """One set of values, rendered."""

    def __init__(self, path):
        self.name = os.path.basename(path).removesuffix('.yaml')
        self.text = read(path)
        self.all = [o for o in yaml.safe_load_all(self.text) if o]

    def of(self, kind):
        return next((o for o in self.all if o['kind'] == kind), None)

    def expect(self, true, text):
        expect(true, f'{self.name}: {text}')

    def pods(self):
        for o in self.all:
            if o['kind'] in ('Deployment', 'Job'):
                yield o['kind'], o['spec']['template']['spec'], o['spec']['template']['metadata']
            elif o['kind'] == 'Pod':
                yield 'Pod', o['spec'], o['metadata']

    def gateway(self):
        return self.of('Deployment')['spec']['template']['spec']['containers'][0]

    def env(self, container=None):
        return {e['name']: e.get('value', e.get('valueFrom')) for e in (container or self.gateway())['env']}


# --- of each set --------------------------------------------------------------------------------------------------
def check_pods(r):
    kinds = [kind for kind, _, _ in r.pods()]
    r.expect(kinds.count('Deployment') == 1 and 'Pod' in kinds, 'no gateways, or no test')
    for kind, pod, _ in r.pods():
        inside = pod['securityContext']
        r.expect(inside['runAsNonRoot'] is True and inside['runAsUser'] == inside['fsGroup'] == 10001, f'{kind}: not user 10001')
        r.expect(inside['seccompProfile'] == {'type': 'RuntimeDefault'}, f'{kind}: no seccomp profile')
        r.expect(pod['automountServiceAccountToken'] is False, f'{kind}: mounts a token')
        r.expect(pod['enableServiceLinks'] is False, f'{kind}: gets variables of services, which look like options')
        r.expect('emptyDir' not in str(pod['volumes']) and 'hostPath' not in str(pod['volumes']), f'{kind}: has something to write to')
        for c in pod['containers']:
            context = c['securityContext']
            r.expect(context['readOnlyRootFilesystem'] is True and context['allowPrivilegeEscalation'] is False and
                     context['capabilities'] == {'drop': ['ALL']}, f'{kind}: container not confined')
            r.expect('memory' in c['resources'].get('limits', {}), f'{kind}: no limit of memory')
            r.expect(c['command'][0] in ('postdate', 'postdated'), f'{kind}: {c["command"]} is no program of ours')
            r.expect(c['image'] == r.gateway()['image'], f'{kind}: another image')
            r.expect(r.env(c) == r.env(), f'{kind}: another configuration than the gateways')
            names = [e['name'] for e in c['env']]
            r.expect(len(names) == len(set(names)), f'{kind}: a variable twice in {names}')
        for v in pod['volumes']:
            modes = [s.get('defaultMode') for s in (v.get('projected'), v.get('secret')) if s]
            r.expect(modes == [0o440], f'{kind}: volume {v["name"]}: its mode is not 0440')


def check_secrets(r):
    r.expect(not re.search(r'(?m)^kind: Secret$', r.text), 'makes a secret')
    addresses = re.findall(r'\w+://[^\s"]*:[^\s"]*@', r.text)
    r.expect(all('$(AMQP_PASSWORD)' in a for a in addresses), f'a password in clear: {addresses}')


def check_probes(r):
    routes = read('gateway/http/route.c')
    ports = {p['name']: p['containerPort'] for p in r.gateway()['ports']}
    r.expect(str(ports['http']) == r.env()['POSTDATE_HTTP_LISTEN'].rsplit(':', 1)[1], 'the port is not that of http.listen')
    for probe, path in (('livenessProbe', '/livez'), ('readinessProbe', '/readyz')):
        got = r.gateway()[probe]['httpGet']
        r.expect(got == {'path': path, 'port': 'http'}, f'{probe} asks {got}')
        r.expect(f'"{path}"' in routes, f'gateway/http/route.c has no {path}')


def check_stop(r):
    """Who is to stop goes on until no service leads to it, and has its time besides; and a secret that changes replaces it."""
    template = r.of('Deployment')['spec']['template']
    before = r.gateway().get('lifecycle', {}).get('preStop', {}).get('sleep', {}).get('seconds', 0)
    r.expect(before > 0, 'callers are refused from the first moment of a stop on')
    r.expect(template['spec']['terminationGracePeriodSeconds'] >= before + 30, 'no time is left to finish')
    r.expect(re.fullmatch('[0-9a-f]{64}', template['metadata']['annotations']['checksum/secrets']), 'no checksum of the secrets')


def check_selectors(r):
    labels = r.of('Deployment')['spec']['template']['metadata']['labels']
    service = r.of('Service')
    selectors = {'Deployment': r.of('Deployment')['spec']['selector']['matchLabels'], 'Service': service['spec']['selector']}
    for kind in ('PodDisruptionBudget', 'NetworkPolicy', 'ServiceMonitor'):
        if r.of(kind):
            spec = r.of(kind)['spec']
            selectors[kind] = spec.get('selector', spec.get('podSelector'))['matchLabels']
    for kind, selector in selectors.items():
        meets = service['metadata']['labels'] if kind == 'ServiceMonitor' else labels
        r.expect(selector and selector.items() <= meets.items(), f'{kind}: its selector meets nothing')
    for kind, _, metadata in r.pods():
        # The service and the budget are for gateways, the network policy is for all.
        r.expect((selectors['Service'].items() <= metadata['labels'].items()) == (kind == 'Deployment'), f'{kind}: is taken for a gateway')
        if r.of('NetworkPolicy'):
            r.expect(selectors['NetworkPolicy'].items() <= metadata['labels'].items(), f'{kind}: the network policy is not for it')


def check_migration(r):
    job = r.of('Job')
    if not job:
        return
    notes = job['metadata']['annotations']
    r.expect(notes['helm.sh/hook'] == 'pre-install,pre-upgrade', 'the migration is at another time')
    pod = job['spec']['template']['spec']
    r.expect(pod['containers'][0]['command'] == ['postdate', 'migrate'], 'the job does not migrate')
    codes = job['spec']['podFailurePolicy']['rules'][0]['onExitCodes']
    r.expect(codes['values'] == [64, 78] and codes['containerName'] == pod['containers'][0]['name'], f'gives up at {codes}')
    made = r.of('ServiceAccount')
    r.expect(pod.get('serviceAccountName') != (made and made['metadata']['name'] or '-'), 'the first job runs before its account is there')


def check_config(r):
    """postdated reads what the pods get; where it wants files, they have an address of each kind."""
    program = os.path.join(TOP, os.environ.get('BUILD', 'build'), 'postdated')
    with tempfile.TemporaryDirectory() as folder:
        env = {'PATH': os.environ['PATH'], 'POSTDATE_CONFIG': '/dev/null'}
        for name, value in r.env().items():
            value = value if isinstance(value, str) else 'user'
            if name.endswith('_URL_FILE'):
                value = os.path.join(folder, name)
                with open(value, 'w', encoding='utf-8') as f:
                    f.write('postgresql://u:p@h/d\n' if 'POSTGRES' in name else 'amqp://u:p@h:5672/\n')
            elif name.endswith('_FILE'):
                value = '/dev/null'
            env[name] = value.replace('$(AMQP_USERNAME)', 'user').replace('$(AMQP_PASSWORD)', 'pass')
        done = subprocess.run([program, '--check-config'], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, timeout=60)
        said = done.stdout.decode()
        r.expect(done.returncode == 0 and 'no options' not in said, f'postdated --check-config: exit {done.returncode}: {said}')


# --- of the sets by name ------------------------------------------------------------------------------------------
def rules():
    return yaml.safe_load(read('packaging/monitoring/postdate.rules.yml'))['groups']


def check_rules(r, without=()):
    made = r.of('PrometheusRule')['spec']
    wanted = [{**g, 'rules': [x for x in g['rules'] if x.get('alert') not in without]} for g in rules()]
    r.expect(made == {'groups': wanted}, 'the rules are not those of packaging/monitoring')
    promtool = shutil.which('promtool')
    if promtool:
        with tempfile.NamedTemporaryFile('w', suffix='.yml') as f:
            yaml.safe_dump(made, f)
            f.flush()
            done = subprocess.run([promtool, 'check', 'rules', f.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False, timeout=60)
            r.expect(done.returncode == 0, done.stdout.decode())
    else:
        print('promtool is missing: the rules were compared, not read')


def check_minimal(r):
    r.expect([o['kind'] for o in r.all].count('NetworkPolicy') == 1 and r.of('PodDisruptionBudget'), 'no network policy or no budget')
    r.expect(r.of('Deployment')['spec']['replicas'] == 2, 'not two gateways')
    r.expect(r.of('ServiceAccount')['automountServiceAccountToken'] is False, "the account's token is mounted")
    r.expect(r.of('ServiceMonitor') is None and r.of('PrometheusRule') is None, 'needs the Prometheus operator')
    r.expect(r.env()['POSTDATE_HTTP_TOKENS'] == 'on', 'HTTP asks for no token')
    r.expect('POSTDATE_AMQP_URL' not in r.env() and 'AMQP_PASSWORD' not in r.env(), 'the password is in the environment')
    spread = r.of('Deployment')['spec']['template']['spec']['topologySpreadConstraints']
    r.expect({s['topologyKey'] for s in spread} == {'kubernetes.io/hostname', 'topology.kubernetes.io/zone'}, 'no spread')
    policy = r.of('NetworkPolicy')['spec']
    r.expect(policy['policyTypes'] == ['Ingress', 'Egress'] and policy['ingress'][0]['from'] == [{'podSelector': {}}], 'anybody may come in')


def check_everything(r):
    env = r.env()
    wanted = {'POSTDATE_HANDOVER_MAX_MESSAGES': '1000000', 'POSTDATE_HTTP_CONSOLE': 'off', 'POSTDATE_HTTP_TOKENS': 'on',
              'POSTDATE_ROUTE': 'invoices.delayed=invoices,orders.delayed=orders', 'PGSSLMODE': 'verify-full',
              'POSTDATE_AMQP_URL': 'amqps://$(AMQP_USERNAME):$(AMQP_PASSWORD)@n1:5671,n2:5671/my%20shop%2Feu',
              'AMQP_PASSWORD': {'secretKeyRef': {'name': 'broker', 'key': 'pass'}}, 'PGCONNECT_TIMEOUT': '3'}
    for name, value in wanted.items():
        r.expect(env.get(name) == value, f'{name} is {env.get(name)!r}')
    r.expect(list(env).index('AMQP_PASSWORD') < list(env).index('POSTDATE_AMQP_URL'), 'Kubernetes puts in what stands before only')
    r.expect(r.gateway()['image'].endswith('postdate@sha256:' + '0123456789abcdef' * 4), 'the digest does not win')
    r.expect(all(pod['serviceAccountName'] == 'shared' for _, pod, _ in r.pods()) and not r.of('ServiceAccount'), 'another account')
    r.expect(r.of('NetworkPolicy')['spec']['ingress'] == [], 'somebody may come in')
    monitor = r.of('ServiceMonitor')
    r.expect(monitor['metadata']['labels']['release'] == 'prometheus', 'the monitor has no label')
    r.expect(monitor['spec']['endpoints'] == [{'port': 'http', 'path': '/metrics', 'interval': '30s'}], 'another endpoint')
    r.expect(r.of('Service')['spec']['ports'][0]['name'] == 'http', "the monitor's port has another name")
    check_rules(r)


def check_least(r):
    kinds = sorted(o['kind'] for o in r.all)
    r.expect(kinds == ['Deployment', 'Pod', 'Service', 'ServiceAccount'], f'has {kinds}')
    r.expect(r.of('Deployment')['metadata']['name'] == 'delayed', 'another name')


def check_example(r):
    """The secrets and keys are those that the operators write for the objects beside it."""
    made = {o['kind']: o['metadata']['name'] for name in ('rabbitmq', 'postgres')
            for o in yaml.safe_load_all(read('packaging/helm/example', name + '.yaml'))}
    pod = r.of('Deployment')['spec']['template']['spec']
    sources = {s['secret']['name']: s['secret']['items'][0]['key'] for s in pod['volumes'][0]['projected']['sources']}
    r.expect(sources == {made['Cluster'] + '-app': 'uri', made['Cluster'] + '-ca': 'ca.crt'}, f'files from {sources}')
    user = r.env()['AMQP_USERNAME']['secretKeyRef']
    r.expect(user == {'name': made['User'] + '-user-credentials', 'key': 'username'}, f'the user is from {user}')
    r.expect(f'@{made["RabbitmqCluster"]}:5672/%2F' in r.env()['POSTDATE_AMQP_URL'], 'another broker')
    check_rules(r, ['PostdateDatabaseDiskFills'])


def check_files():
    link = os.path.join(CHART, 'files/postdate.rules.yml')
    expect(os.path.islink(link) and os.path.realpath(link) == os.path.realpath(os.path.join(TOP, 'packaging/monitoring/postdate.rules.yml')),
           'files/postdate.rules.yml of the chart is no link to packaging/monitoring')


BY_NAME = {'minimal': check_minimal, 'everything': check_everything, 'least': check_least, 'example': check_example}


def main():
    sets = [Rendered(os.path.abspath(path)) for path in sorted(glob.glob(os.path.join(sys.argv[1], '*.yaml')))]
    expect({r.name for r in sets} == set(BY_NAME), f'sets of values without checks, or missing: {[r.name for r in sets]}')
    check_files()
    for r in sets:
        for check in (check_pods, check_secrets, check_probes, check_stop, check_selectors, check_migration, check_config, BY_NAME[r.name]):
            check(r)
    for text in wrong:
        print(text, file=sys.stderr)
    print(f'{looked} checks of what {len(sets)} sets of values render, {len(wrong)} failed')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
