%% Patterns of topic exchanges: what exchange-type/ matches, against what the words mean, written down as plainly as
%% possible. topic_fuzz:run(Count, Seed) prints the first difference, or how long a pattern takes that is made to be slow.
-module(topic_fuzz).
-export([run/2]).

run(Count, Seed) ->
    rand:seed(exsss, {Seed, Seed, Seed}),
    case differences(Count) of
        [] -> io:format("~b pairs, ~b matched~nslow: ~b reductions~n", [Count, get(matched), slow()]);
        [D | _] -> io:format("different: ~p~n", [D])
    end.

differences(Count) ->
    put(matched, 0),
    [D || D <- [try_one() || _ <- lists:seq(1, Count)], D =/= same].

%% Few words, so that many match; empty ones, and such that begin alike, too.
try_one() ->
    Pattern = words([<<"#">>, <<"*">>, <<"a">>, <<"b">>, <<"ab">>, <<>>], 6),
    Key = words([<<"a">>, <<"b">>, <<"ab">>, <<"a">>, <<"#">>, <<"*">>, <<>>], 7),
    Is = postdate_exchange_topic:matches(Pattern, [postdate_exchange_topic:words(Key)]),
    case plain(split(Pattern), split(Key)) of
        Is -> put(matched, get(matched) + if Is -> 1; true -> 0 end), same;
        _ -> {Pattern, Key, Is}
    end.

words(From, Most) ->
    iolist_to_binary(lists:join(<<".">>, [lists:nth(rand:uniform(length(From)), From) || _ <- lists:seq(1, rand:uniform(Most + 1) - 1)])).

split(<<>>) -> [];
split(B) -> binary:split(B, <<".">>, [global]).

plain([], Ws) -> Ws =:= [];
plain([<<"#">> | P], Ws) -> lists:any(fun(N) -> plain(P, lists:nthtail(N, Ws)) end, lists:seq(0, length(Ws)));
plain([<<"*">> | P], [_ | Ws]) -> plain(P, Ws);
plain([W | P], [W | Ws]) -> plain(P, Ws);
plain(_, _) -> false.

%% 60 times # against a key of 127 words that just does not match.
slow() ->
    Pattern = iolist_to_binary([<<"#.a.">> || _ <- lists:seq(1, 60)] ++ [<<"b">>]),
    Words = split(iolist_to_binary(lists:join(<<".">>, [<<"a">> || _ <- lists:seq(1, 127)]))),
    {reductions, Before} = process_info(self(), reductions),
    false = postdate_exchange_topic:matches(Pattern, [Words]),
    {reductions, After} = process_info(self(), reductions),
    After - Before.
