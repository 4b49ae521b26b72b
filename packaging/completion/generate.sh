#!/bin/sh
# Writes shell completion for `postdate`, from the tables of its commands, or for `postdated`, from its --help: so it
# can't forget a command, an option or a word.
#   generate.sh bash|zsh build/postdate|build/postdated >FILE
# EMULATOR is what runs the program, if it is for another machine.
set -eu
shell=$1 program=$2 name=${2##*/}
case $shell in bash | zsh) ;; *) echo "generate.sh: allowed are bash and zsh, not $shell" >&2; exit 64 ;; esac

run() { ${EMULATOR:-} "$program" "$@"; }

# What is before any command, as cli_describe in gateway/cli/command.c prints the rest.
of_help() {
    run --help | awk -v OFS='\t' '
        /^$/ { options = options || blocks++ }
        match($0, /^  (-[a-z], |    )--[a-z-]+/) {
            letter = substr($0, 3, 1) == "-" ? substr($0, 3, 2) : "-"
            rest = substr($0, 9)
            long = rest; sub(/[^a-z-].*/, "", long)
            rest = substr(rest, length(long) + 1)
            value = match(rest, /^ [A-Z]+ /) ? substr(rest, 2, RLENGTH - 2) : "-"
            if (value != "-") rest = substr(rest, RLENGTH + 1)
            sub(/^ +/, "", rest); sub(/^, .*/, "", rest)
            print "option", "-", "-", letter, long, value, value == "FILE" ? "FILE" : "-", rest
            if ($0 ~ /--help, --version/) print "option", "-", "-", "-", "version", "-", "-", "the version"
        }'
}
tables=$(of_help; [ "$name" = postdated ] || run --print-commands)
case $tables in *option*) ;; *) echo "generate.sh: $program names no options" >&2; exit 1 ;; esac

# key: "" before any command, "list", "recur", "recur set".
read_tables='
    BEGIN { FS = "\t"; key_count = 1; keys[1] = "" }
    function add_key(k) { keys[++key_count] = k }
    $1 == "command" { add_key($2); commands[++command_count] = $2; summary[$2] = $3 }
    $1 == "verb" { add_key($2 " " $3); verbs[$2] = verbs[$2] (verbs[$2] == "" ? "" : " ") $3; if ($4 == "FILE") file[$2 " " $3] = 1 }
    $1 == "option" {
        k = $2 == "-" ? "" : $3 == "-" ? $2 : $2 " " $3
        n = ++options[k]
        letter[k, n] = $4 == "-" ? "" : $4; long[k, n] = "--" $5; value[k, n] = $6 == "-" ? "" : $6
        words[k, n] = $7 == "-" ? "" : $7; help[k, n] = $8
    }'

if [ "$shell" = bash ]; then
    echo "$tables" | awk -v name="$name" "$read_tables"'
    END {
        print "# Completion of " name " for bash; made by packaging/completion/generate.sh."
        print "# The words that the value of an option may be, FILE, or nothing. Not 0: it takes none."
        print "_" name "_value() {\n    case $1:$2 in"
        for (i = 1; i <= key_count; i++) {
            k = keys[i]
            for (n = 1; n <= options[k]; n++) {
                if (value[k, n] == "") continue
                printf "    \"%s:%s\"", k, long[k, n]
                if (letter[k, n] != "") printf " | \"%s:%s\"", k, letter[k, n]
                print ") echo \"" words[k, n] "\" ;;"
            }
        }
        print "    *) return 1 ;;\n    esac\n}"
        print "_" name "_words() { # key, what"
        print "    case $2:$1 in"
        for (i = 1; i <= key_count; i++) {
            k = keys[i]
            what = k == "" ? "" : verbs[k]
            if (k == "") for (n = 1; n <= command_count; n++) what = what (n > 1 ? " " : "") commands[n]
            if (k in file) what = "FILE"
            if (what != "") print "    \"first:" k "\") echo \"" what "\" ;;"
            printf "    \"options:%s\") echo \"", k
            for (n = 1; n <= options[k]; n++) printf "%s%s%s", (n > 1 ? " " : ""), long[k, n], (letter[k, n] == "" ? "" : " " letter[k, n])
            print "\" ;;"
        }
        print "    esac\n}"
        print "_" name "() {"
        print "    local cur=${COMP_WORDS[COMP_CWORD]} key= words i=1 last=$((COMP_CWORD - 1)) before="
        print "    COMPREPLY=()"
        print "    # --option=value is three words of bash"
        print "    if [ \"$cur\" = = ]; then cur=; last=$((COMP_CWORD - 1)); elif [ \"${COMP_WORDS[last]}\" = = ]; then last=$((COMP_CWORD - 2)); fi"
        print "    while ((i < COMP_CWORD)); do"
        print "        case ${COMP_WORDS[i]} in"
        print "        -*)"
        print "            if words=$(_" name "_value \"$key\" \"${COMP_WORDS[i]}\"); then"
        print "                if ((i == last)); then before=value; break; fi"
        print "                ((i++))"
        print "                if [ \"${COMP_WORDS[i]}\" = = ]; then ((i++)); fi"
        print "            fi ;;"
        print "        *) case \" $(_" name "_words \"$key\" first) \" in *\" ${COMP_WORDS[i]} \"*) key=${key:+$key }${COMP_WORDS[i]} ;; esac ;;"
        print "        esac"
        print "        ((i++))"
        print "    done"
        print "    if [ -z \"$before\" ]; then"
        print "        words=$(_" name "_words \"$key\" first)"
        print "        if [ -z \"$words\" ] || [[ $cur == -* ]]; then words=$(_" name "_words \"$key\" options); fi"
        print "    fi"
        print "    case $words in"
        print "    FILE) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;"
        print "    ,*) before=; [[ $cur == *,* ]] && before=${cur%,*},"
        print "        mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"${words#,}\" -- \"${cur##*,}\") ;;"
        print "    *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;"
        print "    esac"
        print "}"
        print "complete -F _" name " " name
    }'
    exit
fi

echo "$tables" | awk -v name="$name" "$read_tables"'
    function quoted(s) { gsub(/\047/, "\047\\\047\047", s); gsub(/[\[\]:]/, "\\\\&", s); return s }
    function list(k,   n, what, many, s) {
        s = ""
        for (n = 1; n <= options[k]; n++) {
            what = value[k, n] == "" ? "" : ":" quoted(value[k, n]) ":"
            if (words[k, n] == "FILE") what = what "_files"
            else if (words[k, n] ~ /^,/) what = what "_values -s , " value_name(value[k, n]) " " substr(words[k, n], 2)
            else if (words[k, n] != "") what = what "(" words[k, n] ")"
            many = help[k, n] ~ /again|repeat/ ? "*" : ""
            if (letter[k, n] != "" && many == "") s = s sprintf(" \\\n                \047(%s %s)\047{%s,%s}\047[%s]%s\047", letter[k, n], long[k, n], letter[k, n], long[k, n], quoted(help[k, n]), what)
            else s = s sprintf(" \\\n                \047%s%s[%s]%s\047", many, long[k, n], quoted(help[k, n]), what)
        }
        return s
    }
    function value_name(v) { return v ~ /,/ ? "words" : v }
    END {
        print "#compdef " name
        print "# Completion of " name " for zsh; made by packaging/completion/generate.sh."
        print "_" name "() {"
        print "    local context state line curcontext=$curcontext key"
        print "    local -A opt_args"
        if (command_count == 0) {
            print "    _arguments" list("")
            print "}\n_" name " \"$@\""
            exit
        }
        print "    _arguments -C" list("") " \\\n        \0471:command:->command\047 \047*::argument:->rest\047 && return"
        print "    case $state in\n    command)\n        local -a commands=("
        for (n = 1; n <= command_count; n++) print "            \047" commands[n] ":" quoted(summary[commands[n]]) "\047"
        print "        )\n        _describe command commands\n        ;;\n    rest)\n        key=$words[1]"
        print "        # What a command does is its first word; what it takes depends on that."
        print "        if (( CURRENT > 2 )); then\n            case \"$words[1] $words[2]\" in"
        for (i = 1; i <= key_count; i++)
            if (keys[i] ~ / /) printf "%s\"%s\"", any++ ? " | " : "            ", keys[i]
        print ") key=\"$words[1] $words[2]\"; shift words; (( CURRENT-- )) ;;\n            esac\n        fi"
        print "        case $key in"
        for (i = 2; i <= key_count; i++) {
            k = keys[i]
            printf "        %s)\n            _arguments%s", k ~ / / ? "\"" k "\"" : k, list(k)
            if (verbs[k] != "") printf " \\\n                \0471:order:(%s)\047", verbs[k]
            print " \\\n                \047*:" (k in file ? "file:_files" : "word:()") "\047\n            ;;"
        }
        print "        esac\n        ;;\n    esac\n}\n_" name " \"$@\""
    }'
