#!/bin/sh
# Writes shell completion for `postdate`, from what its --help says: so it can't forget a command or an option.
#   generate.sh bash|zsh build/postdate >FILE
set -eu
shell=$1 postdate=$2
case $shell in bash | zsh) ;; *) echo "generate.sh: allowed are bash and zsh, not $shell" >&2; exit 64 ;; esac

commands=$("$postdate" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\)  *\(.*\)$/\1 \2/p')
[ -n "$commands" ] || { echo "generate.sh: $postdate --help names no commands" >&2; exit 1; }

# One line for each option: command, short one or -, long one, argument or -, description. Tabs between.
options() {
    echo "$commands" | while read -r command _; do
        "$postdate" "$command" --help | awk -v OFS='\t' -v command="$command" '
            match($0, /^  (-[a-zA-Z], |    )--[a-z-]+/) {
                short = substr($0, 3, 1) == "-" ? substr($0, 3, 2) : "-"
                rest = substr($0, 7)
                long = rest; sub(/[^a-z-].*/, "", long)
                rest = substr(rest, length(long) + 1)
                argument = "-"
                if (match(rest, /^ [A-Z][A-Z=]*/)) { argument = substr(rest, 2, RLENGTH - 1); rest = substr(rest, RLENGTH + 1) }
                sub(/^ +/, "", rest)
                if (!((command, long) in seen)) print command, short, long, argument, rest
                seen[command, long] = 1
            }'
    done
}

# What may follow, where it is more than a text: words, or the word FILES.
values='
    if (long == "--config" || long == "--cells" || long == "--file" || long == "--batch" || long == "--rabbitmqctl") return "FILES"
    if (long == "--state") return "scheduled claimed handed delivered cancelled superseded failed expired"
    if (long == "--on-conflict") return "keep replace reject"
    if (long == "--hold") return "gateway broker"
    if (long == "--on") return "rejected delivery_limit expired maxlen"
    if (long == "--reason") return "rejected delivery_limit expired maxlen deadline return_failed"
    if (long == "--missed") return "one all none"
    if (long == "--dst") return "run skip"
    if (long == "--overlap") return "allow skip"
    return ""'

# What a command does, where that is its first word.
verbs='
function verbs(command) {
    if (command == "token") return "create list revoke"
    if (command == "dead") return "list show requeue drop"
    if (command == "recur") return "set list show pause resume remove run apply export preview"
    if (command == "retry-policy") return "set list show remove"
    if (command == "rate") return "set list show pause resume remove"
    return ""
}'

if [ "$shell" = bash ]; then
    options | awk -F '\t' -v names="$(echo "$commands" | sed 's/ .*//' | tr '\n' ' ')" '
    function values(long) {'"$values"'}
    '"$verbs"'
    {
        if (!($1 in words)) command[++commands] = $1
        words[$1] = words[$1] " " $3 ($2 != "-" ? " " $2 : "")
        if ($4 != "-" && !($3 in takes)) {
            takes[$3] = values($3)
            option[++count] = $2 != "-" ? $2 " | " $3 : $3
            kind[count] = takes[$3]
        }
    }
    END {
        print "# Completion of postdate for bash; made from its --help."
        print "_postdate() {"
        print "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i"
        print "    COMPREPLY=()"
        print "    for ((i = 1; i < COMP_CWORD; i++)); do"
        print "        case ${COMP_WORDS[i]} in"
        print "            -c | --config) ((i++)) ;;"
        print "            -*) ;;"
        print "            *) command=${COMP_WORDS[i]}; break ;;"
        print "        esac"
        print "    done"
        print "    case $prev in"
        for (i = 1; i <= count; i++) {
            if (kind[i] == "FILES") print "        " option[i] ") compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;"
            else if (kind[i] != "") print "        " option[i] ") mapfile -t COMPREPLY < <(compgen -W \"" kind[i] "\" -- \"$cur\"); return ;;"
            else print "        " option[i] ") return ;;"
        }
        print "    esac"
        print "    local words="
        print "    case $command in"
        print "        \"\") words=\"" names "--config --help --version\" ;;"
        for (i = 1; i <= commands; i++) {
            c = command[i]
            print "        " c ") words=\"" verbs(c) words[c] "\" ;;"
        }
        print "    esac"
        print "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")"
        print "}"
        print "complete -F _postdate postdate"
    }'
    exit
fi

quote='function quoted(s) { gsub(/\047/, "\047\\\047\047", s); gsub(/[\[\]:]/, "\\\\&", s); return s }'
cat <<'END'
#compdef postdate
# Completion of postdate for zsh; made from its --help.
_postdate() {
    local context state line curcontext=$curcontext
    local -A opt_args
    _arguments -C '(-c --config)'{-c,--config}'[configuration file]:file:_files' '(-h --help)'{-h,--help}'[help]' \
        '--version[the version]' '1:command:->command' '*::argument:->rest' && return
    case $state in
    command)
        local -a commands=(
END
echo "$commands" | awk "$quote"'{ name = $1; sub(/^[^ ]+ */, ""); print "            \047" name ":" quoted($0) "\047" }'
cat <<'END'
        )
        _describe command commands
        ;;
    rest)
        case $words[1] in
END
options | awk -F '\t' "$quote"'
    function values(long) {'"$values"'}
    '"$verbs"'
    $1 != last {
        if (last != "") print "\n            ;;"
        printf "        %s)\n            _arguments", $1
        if (verbs($1) != "") printf " \047*:order:(%s)\047", verbs($1)
        last = $1
    }
    {
        v = values($3)
        what = $4 == "-" ? "" : ":" $4 ":" (v == "FILES" ? "_files" : v != "" ? "(" v ")" : "")
        many = $3 == "--header" || $3 == "--property" || ($1 == "token" && $3 == "--exchange") ? "*" : ""
        if ($2 != "-") printf " \\\n                \047(%s %s)\047{%s,%s}\047[%s]%s\047", $2, $3, $2, $3, quoted($5), what
        else printf " \\\n                \047%s%s[%s]%s\047", many, $3, quoted($5), what
    }
    END { print "\n            ;;" }'
cat <<'END'
        esac
        ;;
    esac
}
_postdate "$@"
END
