%% Patterns of topic exchanges: what exchange-type/ matches, against what the words mean, written down as plainly as
%% possible. topic_fuzz:run(Count, Seed) prints the first difference, or how long a pattern takes that is made to be slow, and
%% how long a search among many.
-module(topic_fuzz).
-export([run/2]).

run(Count, Seed) ->
    rand:seed(exsss, {Seed, Seed, Seed}),
    case differences(Count) ++ searches(Count div 100) of
        [] -> io:format("~b pairs, ~b matched~nslow: ~b reductions~namong 1000: ~b reductions~n", [Count, get(matched), slow(), among()]);
        [D | _] -> io:format("different: ~p~n", [D])
    end.

differences(Count) ->
    put(matched, 0),
    [D || D <- [try_one() || _ <- lists:seq(1, Count)], D =/= same].

%% Searches among many patterns, in a table as RabbitMQ has it with Mnesia; another exchange's are before and behind.
searches(Count) ->
    new_table(),
    [D || D <- [search() || _ <- lists:seq(1, Count)], D =/= same].

new_table() -> ets:new(rabbit_route, [named_table, ordered_set, {keypos, 2}]).

search() ->
    ets:delete_all_objects(rabbit_route),
    Patterns = lists:usort([pattern() || _ <- lists:seq(1, rand:uniform(150))]),
    [bind(Exchange, P) || P <- [<<>>, <<"a">>, <<"~">> | Patterns], Exchange <- [a, c]],
    [bind(b, P) || P <- Patterns],
    Keys = [key() || _ <- lists:seq(1, rand:uniform(2))],
    Wanted = [P || P <- Patterns, lists:any(fun(K) -> plain(split(P), split(K)) end, Keys)],
    case lists:usort(postdate_exchange_bindings:matching(b, Keys)) of
        Wanted -> same;
        Found -> {Patterns, Keys, {found, Found, wanted, Wanted}}
    end.

bind(Exchange, Pattern) -> ets:insert(rabbit_route, {route, {binding, Exchange, Pattern, Pattern, []}, const}).

%% It may not depend on how many there are.
among() ->
    ets:delete_all_objects(rabbit_route),
    [bind(b, <<"a.", (integer_to_binary(N))/binary, ".*">>) || N <- lists:seq(1, 1000)],
    {reductions, Before} = process_info(self(), reductions),
    [<<"a.500.*">>] = postdate_exchange_bindings:matching(b, [<<"a.500.x">>]),
    {reductions, After} = process_info(self(), reductions),
    After - Before.

%% Few words, so that many match; empty ones, such that begin alike, and with what comes before a dot, too.
try_one() ->
    Pattern = pattern(),
    Key = key(),
    Is = postdate_exchange_topic:matches(Pattern, [postdate_exchange_topic:words(Key)]),
    case plain(split(Pattern), split(Key)) of
        Is -> put(matched, get(matched) + if Is -> 1; true -> 0 end), same;
        _ -> {Pattern, Key, Is}
    end.

pattern() -> words([<<"#">>, <<"*">>, <<"a">>, <<"b">>, <<"ab">>, <<"a-b">>, <<"!">>, <<>>], 6).
key() -> words([<<"a">>, <<"b">>, <<"ab">>, <<"a">>, <<"#">>, <<"*">>, <<"a-b">>, <<"!">>, <<>>], 7).

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
