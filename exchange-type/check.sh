#!/bin/sh
# check.sh FILE.ez: does the Erlang of this machine load it? A RabbitMQ that cannot load a plugin that is enabled does not start,
# so this comes before the file is put into a plugins folder. Exit: 0 it does; 1 it does not, or the file is none.
set -u
[ $# -eq 1 ] && [ -f "$1" ] || { echo "usage: check.sh FILE.ez" >&2; exit 64; }
command -v erl >/dev/null || { echo "check.sh: erl is missing" >&2; exit 69; }
POSTDATE_EZ=$1 exec erl -noshell -boot start_clean -eval '
    File = os:getenv("POSTDATE_EZ"),
    Load = fun(Name, Beam) ->
        Module = list_to_atom(filename:basename(Name, ".beam")),
        case code:load_binary(Module, Name, Beam) of
            {module, _} -> ok;
            {error, Why} -> io:format(standard_error, "~ts: Erlang ~s does not load ~s: ~p~n", [File, erlang:system_info(otp_release), Module, Why]), wrong
        end
    end,
    Loaded = case zip:extract(File, [memory]) of
        {ok, Files} -> [Load(N, B) || {N, B} <- Files, filename:extension(N) =:= ".beam"];
        {error, Reason} -> io:format(standard_error, "~ts: ~p~n", [File, Reason]), []
    end,
    halt(case lists:usort(Loaded) of [ok] -> 0; _ -> 1 end).'
