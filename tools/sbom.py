#!/usr/bin/python3
"""sbom.py VERSION PROGRAM ...: what the programs are made of, as SPDX 2.3 in JSON (`make sbom`).

The packages are those of the libraries that are loaded, as dpkg knows them here; so it is about the system on which the
programs were linked, for whichever machine that was. What a program names itself is DYNAMIC_LINK, what comes with that DEPENDS_ON. Time is
SOURCE_DATE_EPOCH: the same programs on the same system give the same bytes.
"""
import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys

LICENCE = 'Apache-2.0'


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, 'LC_ALL': 'C'}).stdout


def checksum(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


def identifier(name):
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', name)


def package_of(path):
    """The Debian package with that file. Where /lib is a link, dpkg may know it by either name."""
    real = os.path.realpath(path)
    for name in (path, real, re.sub(r'^/usr(?=/lib)', '', real), re.sub(r'^(?=/lib)', '/usr', path)):
        found = subprocess.run(['dpkg', '-S', name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
                               env={**os.environ, 'LC_ALL': 'C'})
        # From Debian 13 on the loader has a diversion, too, which is named first.
        package = re.search(r'^(?!diversion by )([^,\s]+)(?:,.*)?: /', found.stdout, re.M)
        if package:
            return package[1]
    sys.exit(f'sbom.py: {path} belongs to no package')


def machine(path):
    """What an ELF file is for: class, byte order, machine."""
    with open(path, 'rb') as f:
        head = f.read(20)
    return head[4:6] + head[18:20]


def find_library(name, kind):
    """Where the loader of that machine finds it."""
    for folder in ('/usr/local/lib', '/usr/local/lib/*-linux-*', '/lib/*-linux-*', '/usr/lib/*-linux-*'):
        for path in sorted(glob.glob(f'{folder}/{name}')):
            if os.path.isfile(path) and machine(path) == kind:
                return path
    sys.exit(f'sbom.py: {name} is not installed')


def libraries(program):
    """path of each that is loaded, and whether the program itself names it."""
    kind, found, left = machine(program), {}, [program]
    while left:
        of = left.pop(0)
        for name in re.findall(r'\(NEEDED\).*\[(\S+)\]', output('readelf', '-d', of)):
            if name not in found:
                path = find_library(name, kind)
                found[name] = (path, of == program)
                left.append(path)
    return found.values()


def distribution():
    with open('/etc/os-release', encoding='utf-8') as f:
        values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', f.read(), re.M))
    return values.get('ID', 'debian'), values.get('VERSION_ID', values.get('VERSION_CODENAME', ''))


def describe_package(name):
    version, architecture, source, homepage = output(
        'dpkg-query', '-W', '-f', '${Version}\n${Architecture}\n${source:Package}\n${Homepage}', name).split('\n')
    vendor, release = distribution()
    plain = name.split(':')[0]
    purl_version = version.replace('+', '%2B').replace(':', '%3A')
    purl = f'pkg:deb/{vendor}/{plain}@{purl_version}?arch={architecture}' + (f'&distro={vendor}-{release}' if release else '')
    described = {
        'SPDXID': identifier('Package-' + plain), 'name': plain, 'versionInfo': version, 'supplier': 'NOASSERTION',
        'sourceInfo': f'built from the source package {source}', 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
        'licenseConcluded': 'NOASSERTION', 'licenseDeclared': 'NOASSERTION', 'copyrightText': 'NOASSERTION',
        'externalRefs': [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl', 'referenceLocator': purl}],
    }
    if homepage:
        described['homepage'] = homepage
    return described


def verification_code(files):
    """SPDX 2.3, 7.9: over the sorted SHA-1 sums of all files."""
    sums = sorted(sum['checksumValue'] for f in files for sum in f['checksums'] if sum['algorithm'] == 'SHA1')
    return hashlib.sha1(''.join(sums).encode()).hexdigest()


def main():
    version, programs = sys.argv[1], sys.argv[2:]
    linked = {}  # package: by a program itself?
    files = []
    for program in programs:
        files.append({'SPDXID': identifier('File-' + os.path.basename(program)), 'fileName': './' + os.path.basename(program),
                      'fileTypes': ['BINARY'], 'licenseConcluded': LICENCE, 'licenseInfoInFiles': ['NOASSERTION'],
                      'copyrightText': 'NOASSERTION',
                      'checksums': [{'algorithm': 'SHA1', 'checksumValue': hashlib.sha1(open(program, 'rb').read()).hexdigest()},
                                    {'algorithm': 'SHA256', 'checksumValue': checksum(program)}]})
        for path, named in libraries(program):
            package = package_of(path)
            linked[package] = linked.get(package, False) or named
    own = {
        'SPDXID': 'SPDXRef-Package-postdate', 'name': 'postdate', 'versionInfo': version, 'supplier': 'NOASSERTION',
        'downloadLocation': 'NOASSERTION', 'filesAnalyzed': True, 'packageVerificationCode': {'packageVerificationCodeValue': verification_code(files)},
        'licenseConcluded': LICENCE, 'licenseDeclared': LICENCE, 'licenseInfoFromFiles': ['NOASSERTION'],
        'copyrightText': 'NOASSERTION', 'primaryPackagePurpose': 'APPLICATION',
    }
    related = [('SPDXRef-DOCUMENT', 'DESCRIBES', own['SPDXID'])]
    related += [(own['SPDXID'], 'CONTAINS', f['SPDXID']) for f in files]
    described = [describe_package(name) for name in sorted(linked)]
    for name, package in zip(sorted(linked), described):
        related.append((own['SPDXID'], 'DYNAMIC_LINK' if linked[name] else 'DEPENDS_ON', package['SPDXID']))
    body = {
        'packages': [own, *described], 'files': files,
        'relationships': [{'spdxElementId': a, 'relationshipType': kind, 'relatedSpdxElement': b} for a, kind, b in related],
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(int(os.environ.get('SOURCE_DATE_EPOCH', '0')), datetime.timezone.utc)
    document = {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': f'postdate-{version}',
        'documentNamespace': f'urn:postdate:spdx:{version}:{digest}',
        'creationInfo': {'created': created.strftime('%Y-%m-%dT%H:%M:%SZ'), 'creators': ['Tool: postdate-sbom.py']}, **body,
    }
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)
    print()


main()
