#!/bin/bash
# chart.sh: checks the Helm chart (`make chart`): lint, render with several sets of values, validate, and look at what came out.
#
#   CRD_SCHEMAS=dir    also validates objects of other operators: dir/GROUP/KIND_VERSION.json, the layout of
#                      datreeio/CRDs-catalog. Without, Prometheus' two are compared in tools/check_chart.py only
# Helm and kubeconform are taken from PATH, else built with Go into build/chart. The schemas of Kubernetes come from the
# Python package kubernetes-validate.
# Exit: 0 all well, 1 something is wrong, 69 a tool is missing and could not be had; it says which in one line.
set -u
cd "$(dirname "$0")/.." || exit

helm_version=v3.22.0
kubeconform_version=v0.7.0
schemas_package='kubernetes-validate==1.37.0 --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9'
kubernetes=(1.31.0 1.37.0)
chart=packaging/helm/postdate
work=$PWD/build/chart
schemas=$work/schemas
PATH=$work/bin:$PATH

missing() { echo "make chart: $*" >&2; exit 69; }
wrong() { echo "make chart: $*" >&2; failed=1; }

# --- tools --------------------------------------------------------------------------------------------------------
program() { # name, module, version
    command -v "$1" >/dev/null && return
    command -v go >/dev/null || missing "$1 is missing: install it, or Go to build it"
    echo "Building $1 $3 with Go (once; a few minutes) ..." >&2
    GOBIN=$work/bin nice go install "$2@$3" >"$work/$1.log" 2>&1 ||
        missing "$1 is missing, and Go could not build it: $(tail -n 1 "$work/$1.log")"
}

# Of the package's files those of $kubernetes, strict: a field that does not exist is an error. They refer to one common
# file by a path that kubeconform does not find, so each gets what it needs of it. Made under another name first: what is
# there is whole.
fetch_schemas() {
    [[ -e $schemas ]] && return
    local new=$work/schemas.new
    rm -rf "$new" && mkdir -p "$new"
    echo "$schemas_package" >"$new/requirements"
    python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d "$new" -r "$new/requirements" >"$work/pip.log" 2>&1 ||
        missing "the schemas of Kubernetes are missing, and pip could not fetch them: $(tail -n 1 "$work/pip.log")"
    python3 - "$new" "${kubernetes[@]}" <<'PY' || missing "the schemas of Kubernetes could not be unpacked"
import glob, json, os, re, sys, zipfile

folder, versions = sys.argv[1], sys.argv[2:]
COMMON = re.compile(r'"(?:/api/)?_definitions\.json#/')
KINDS = 'configmap-v1 deployment-apps-v1 job-batch-v1 networkpolicy-networking-v1 pod-v1 poddisruptionbudget-policy-v1 service-v1 serviceaccount-v1'


def reachable(text, definitions, found):
    for name in set(re.findall(r'"#/\$defs/([^"]*)"', text)) - found.keys():
        found[name] = definitions[name]
        reachable(json.dumps(found[name]), definitions, found)
    return found


with zipfile.ZipFile(glob.glob(folder + '/*.whl')[0]) as wheel:
    for version in versions:
        inside = f'kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/'
        definitions = json.loads(wheel.read(inside + '_definitions.json'))['$defs']
        os.mkdir(f'{folder}/v{version}')
        for kind in KINDS.split():
            text = COMMON.sub('"#/', wheel.read(f'{inside}{kind}.json').decode())
            schema = {**json.loads(text), '$defs': reachable(text, definitions, {})}
            with open(f'{folder}/v{version}/{kind}.json', 'w', encoding='utf-8') as f:
                json.dump(schema, f)
PY
    rm "$new"/*.whl
    mv "$new" "$schemas"
}

mkdir -p "$work"
program kubeconform github.com/yannh/kubeconform/cmd/kubeconform "$kubeconform_version"
program helm helm.sh/helm/v3/cmd/helm "$helm_version"
fetch_schemas
python=/usr/bin/python3
"$python" -c 'import yaml' 2>/dev/null || tools/deps.sh --only python3-yaml || missing "Python's yaml is missing: install python3-yaml"

# --- what comes out -----------------------------------------------------------------------------------------------
# Helm says of each link that it follows it.
quietly() { "$@" 2> >(grep -v 'found symbolic link' >&2); }
render() { quietly helm template shop "$chart" --namespace demo --kube-version "${kubernetes[-1]}" "$@"; }

operators=(RabbitmqCluster User Permission Cluster)
validate() { # files
    local version other=(-skip "$(IFS=,; echo "${operators[*]},ServiceMonitor,PrometheusRule")")
    [[ ! ${CRD_SCHEMAS:-} ]] || other=(-schema-location "$CRD_SCHEMAS/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")
    for version in "${kubernetes[@]}"; do
        echo "Kubernetes $version:"
        kubeconform -strict -summary -kubernetes-version "$version" \
            -schema-location "$schemas/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json" \
            "${other[@]}" "$@" || failed=1
    done
}

failed=0
rm -rf "$work/out" && mkdir -p "$work/out"
for file in packaging/helm/values/*.yaml packaging/helm/example/values.yaml; do
    name=$(basename "${file/example\/values/example}" .yaml)
    said=$(helm lint --strict --quiet --kube-version "${kubernetes[-1]}" "$chart" -f "$file" 2>&1) || wrong "helm lint with $file: $said"
    render -f "$file" >"$work/out/$name.yaml" || wrong "helm template with $file failed"
done
validate "$work"/out/*.yaml packaging/helm/example/{rabbitmq,postgres}.yaml

rm -f "$work"/*.tgz
quietly helm package -d "$work" "$chart" >/dev/null || wrong "helm package failed"
tar -xOf "$work"/postdate-*.tgz postdate/files/postdate.rules.yml | cmp - packaging/monitoring/postdate.rules.yml ||
    wrong "the packed chart has other rules than packaging/monitoring/postdate.rules.yml"

# --- what must be refused, and by what text -----------------------------------------------------------------------
least=packaging/helm/values/minimal.yaml
refused() { # text, arguments of helm template
    local said
    if said=$(render "${@:2}" 2>&1 >/dev/null); then
        wrong "accepted: ${*:2}"
    elif [[ $said != *"$1"* ]]; then
        wrong "${*:2}: \"$1\" was expected, it said: $said"
    fi
}
refused 'postgres.existingSecret: name the secret'
refused 'amqp.existingSecret: name the secret' --set postgres.existingSecret=x
refused 'amqp.hosts: name the broker' --set postgres.existingSecret=x --set amqp.existingSecret=x
refused 'not allowed' -f "$least" --set amqp.password=secret
refused 'not allowed' -f "$least" --set config.handover.windows=1h
refused 'not allowed' -f "$least" --set config.postgres.url=postgresql://u:p@h/d
refused 'config' -f "$least" --set config.http.listen=127.0.0.1:8480
refused 'config' -f "$least" --set config.handover.transport=none
refused 'config.http.listen' -f "$least" --set config.http=null

# A number is not cut to a whole one: the program says what is allowed.
render -f "$least" --set-json config.retry.attempts=2.5 | grep -q '"2.5"' || wrong "retry.attempts: 2.5 comes as another number"
render -f "$least" --set-json config.handover.max_messages=2000000 | grep -q '"2000000"' || wrong "handover.max_messages: 2000000 comes as another number"

"$python" tools/check_chart.py "$work/out" || failed=1
[[ $failed -eq 0 ]] || { echo "make chart: see above" >&2; exit 1; }
echo "The chart is well."
