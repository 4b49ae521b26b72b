#!/bin/bash
# check_layers.sh: who may include which library, and which functions nobody may call (docs/internals/architecture.md says why).
# Which room may include which: tools/check_rooms.py.
# Prints every line that breaks a rule; exit 1 when there is any.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0

# rule TEXT PATTERN FILE ...: no line of these files matches the pattern (extended regular expression).
rule() {
    local text=$1 pattern=$2 found
    shift 2
    [[ $# -gt 0 ]] || return
    found=$(grep -nHE "$pattern" "$@") || return
    echo "$text:" >&2
    printf '  %s\n' "${found//$'\n'/$'\n  '}" >&2
    bad=1
}

# files DIR ... [! PATTERN ...]: the C files below the folders, without those that match a pattern.
files() {
    local dirs=() skip=()
    while [[ $# -gt 0 && $1 != '!' ]]; do dirs+=("$1"); shift; done
    [[ $# -eq 0 ]] || shift
    while [[ $# -gt 0 ]]; do skip+=(! -path "$1"); shift; done
    find "${dirs[@]}" -name '*.[ch]' "${skip[@]}" 2>/dev/null | sort
}

ours='^[[:space:]]*#[[:space:]]*include[[:space:]]+'
# shellcheck disable=SC2046
{
    rule "Only sql/ may include <libpq-fe.h>" "${ours}[<\"](postgresql/)?libpq" $(files core amqp gateway tests)
    rule "Only amqp/ may include <amqp.h> (and the chaos suite's witness, which must not depend on it)" \
        "${ours}<(rabbitmq-c/)?amqp" $(files core sql gateway tests ! 'tests/chaos/witness.c')
    rule "Only core/base/base64.c, core/base/hash.c, amqp/connection/broker_tls.c and sql/connection/pg_connect.c may include OpenSSL" "${ours}<openssl/" \
        $(files core sql amqp gateway tests ! core/base/base64.c core/base/hash.c amqp/connection/broker_tls.c sql/connection/pg_connect.c)
    rule "JSON belongs in gateway/json/, gateway/ops/, gateway/cli/, to the description of HTTP, and in their tests" "${ours}[<\"]jansson" \
        $(files core sql amqp gateway tests ! 'gateway/json/*' 'gateway/ops/*' 'gateway/cli/*' gateway/http/openapi.c 'tests/unit/*json*' 'tests/fuzz/*')
    rule "core/ does no I/O" "${ours}<(sys/socket|netdb|poll|sys/epoll|pthread|fcntl|sys/stat|arpa/.*)\.?h?>" $(files core)
    rule "Only gateway/cli/recur/yaml_json.c may include <yaml.h>" "${ours}<yaml" \
        $(files core sql amqp gateway tests ! gateway/cli/recur/yaml_json.c)
    rule "Includes are written from the top of the tree" "${ours}\"\\.\\.?/" $(files core sql amqp gateway tests)
    rule "These functions are not used here" \
        '(^|[^[:alnum:]_>.])(strcpy|strncpy|strcat|strncat|v?sprintf|strtok|strtok_r|ato[ifl]|atoll|gets)[[:space:]]*\(' \
        $(files core sql amqp gateway tests)
}
exit $bad
