%% The part of `postdate import plugin` that runs in the broker, by `rabbitmqctl eval`: one call does what is asked by
%% the variables that cmd_import.c gives values, for each call costs a second. What it prints are lines of JSON;
%% bytes are base64. The calls are the same in the sources of RabbitMQ 3.8 to 4.2, and the records in those of
%% the plugin: {delay_entry, {delay_key, Due, Exchange}, Message, Ref} in a bag, its keys in an ordered index.
%%
%% Entries of its own in the plugin's table are keys whose due time is no number, and not in the index: the plugin never
%% meets them. One is the token of the run that may take, of each Owner, with those of the runs before it on this table;
%% the other has the ids that it took last, until it has said that they are awake (docs/internals/import.md).
T = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())),
I = list_to_atom(atom_to_list(T) ++ "_index"),
Token = {delay_key, {postdate, run, Owner}, postdate},
Taken = {delay_key, {postdate, taken, Owner}, postdate},
Batch_read = list_to_atom("postdate_import_" ++ binary_to_list(Owner)),
Now = erlang:system_time(millisecond),
Number = fun(N) -> integer_to_list(N) end,
Text = fun(X) -> [$", X, $"] end,
Bytes = fun(X) -> Text(base64:encode(X)) end,
List = fun(Xs) -> [$[, lists:join($,, Xs), $]] end,
Say = fun(Lines) -> io:put_chars(iolist_to_binary(Lines)) end,
Line = fun(Members) -> [${, lists:join($,, [[$", atom_to_list(Name), $", $:, Value] || {Name, Value} <- Members]), $}, $\n] end,
Tell = fun(Name, Value) -> Say(Line([{Name, Value}])) end,

%% Inside the plugin's process nothing of the plugin runs meanwhile, and calls are in the order in which they came:
%% what an earlier run asked for too late finds another token.
Inside = fun(F) ->
    case whereis(rabbit_delayed_message) of
        undefined -> F();
        Pid ->
            Self = self(), Tag = make_ref(),
            _ = sys:replace_state(Pid, fun(S) -> Self ! {Tag, (catch F())}, S end, 120000),
            receive {Tag, Answer} -> Answer after 0 -> no_answer end
    end end,
Has_timer = whereis(rabbit_delayed_message) =/= undefined,
Is_soon = fun(Due, Ms) -> Has_timer andalso Due >= Now - Ms andalso Due =< Now + Ms end,
Id_of = fun({delay_entry, {delay_key, Due, X}, _, Ref}) ->
    erlang:md5(term_to_binary({Due, element(2, X), Ref}, [{minor_version, 1}])) end,
%% What a Postdate itself handed over to the plugin, this one or another one in the vhost, is its gateways' to look after:
%% beside its exchange PREFIX.delayed there is PREFIX.owner.
Is_named = fun({resource, V, exchange, N}) ->
    S = max(0, byte_size(N) - 8),
    V =:= Vhost andalso N =/= Own andalso case N of
        <<P:S/binary, ".delayed">> -> element(1, rabbit_exchange:lookup({resource, V, exchange, <<P/binary, ".owner">>})) =:= error;
        _ -> true
    end end,
Is_asked = fun(X) -> Is_named(element(2, X)) end,

Fence = fun() ->
    {atomic, {Before, Marks}} = mnesia:transaction(fun() ->
        Runs = case mnesia:read(T, Token) of [{delay_entry, _, {Last, More}, run}] -> [Last | More]; [] -> [] end,
        ok = mnesia:delete({T, Token}),
        ok = mnesia:write(T, {delay_entry, Token, {Run, lists:sublist(Runs, 50)}, run}, write),
        {Runs, mnesia:read(T, Taken)} end),
    application:unset_env(rabbit, Batch_read),
    {Before, [Ids || {delay_entry, _, Ids, taken} <- Marks]} end,

%% All of it is one entry of Mnesia's log, so a crash leaves the messages or the mark that they were taken.
Take_out = fun(Keys) ->
    Wanted = maps:from_list([{X, []} || <<X:16/binary>> <= Take]),
    {Deletes, Ids} = lists:foldl(fun({delay_key, Due, _} = K, {Ds, Is} = Acc) ->
        Pairs = case Is_soon(Due, Margin div 2) of
            true -> [];
            false -> [{X, E} || E <- ets:lookup(T, K), X <- [Id_of(E)]]
        end,
        case [Pair || {X, _} = Pair <- Pairs, maps:is_key(X, Wanted)] of
            [] -> Acc;
            Pairs -> {[K | Ds], [X || {X, _} <- Pairs] ++ Is};
            Some -> {[E || {_, E} <- Some] ++ Ds, [X || {X, _} <- Some] ++ Is}
        end end, {[], []}, Keys),
    All = iolist_to_binary(lists:sort(Ids)),
    {atomic, ok} = mnesia:transaction(fun() ->
        mnesia:write_lock_table(T), mnesia:write_lock_table(I),
        [{delay_entry, _, {Run, _}, run}] = mnesia:read(T, Token), %% again, for without the plugin's process there is no order
        %% An index key without entries stops the plugins before 3.12 for ever.
        lists:foreach(fun({delay_key, _, _} = K) -> ok = mnesia:delete({T, K}), ok = mnesia:delete({I, K});
                         (E) -> ok = mnesia:delete_object(T, E, write) end, Deletes),
        ok = mnesia:delete({T, Taken}),
        ok = mnesia:write(T, {delay_entry, Taken, All, taken}, write) end),
    {taken, All} end,
Taking = fun() ->
    case {mnesia:dirty_read(T, Token), application:get_env(rabbit, Batch_read)} of
        {[{delay_entry, _, {Run, _}, run}], {ok, {Run, Seq, Keys}}} -> Take_out(Keys);
        {[{delay_entry, _, {Run, _}, run}], _} -> gone;
        _ -> fenced
    end end,
Ending = fun() ->
    case mnesia:dirty_read(T, Token) of
        [{delay_entry, _, {Run, _}, run}] ->
            {atomic, ok} = mnesia:transaction(fun() -> mnesia:delete({T, Taken}), mnesia:delete({T, Token}) end),
            application:unset_env(rabbit, Batch_read),
            ended;
        _ -> fenced
    end end,

%% {routing keys, #content{}} of what the plugin keeps: a #delivery{} until 3.12, then a container, which may still be
%% a #basic_message{}.
Content = fun C(M) ->
    case element(1, M) of
        basic_message -> {element(3, M), element(4, M)};
        delivery -> [X] = [E || E <- tuple_to_list(M), is_tuple(E), lists:member(element(1, E), [basic_message, mc])], C(X);
        mc -> {mc:routing_keys(M), mc:protocol_state(mc:convert(mc_amqpl, M))}
    end end,
Properties = fun(C) ->
    case element(4, C) of
        P when is_binary(P) -> P;
        _ -> rabbit_framing_amqp_0_9_1:encode_properties(element(3, C))
    end end,
Show = fun({delay_entry, {delay_key, Due, X}, M, _} = E) ->
    {resource, _, _, Name} = element(2, X),
    Head = [{id, Bytes(Id_of(E))}, {due, Number(min(Due, 1 bsl 62))}, {exchange, Bytes(Name)}],
    try
        {All_keys, C} = Content(M),
        Keys = case All_keys of [] -> [<<>>]; _ -> All_keys end,
        Body = lists:reverse(element(6, C)),
        Size = iolist_size(Body),
        Shown = case Bodies andalso Size =< Body_max of true -> Bytes(iolist_to_binary(Body)); false -> "null" end,
        {Size, Line(Head ++ [{size, Number(Size)}, {properties, Bytes(Properties(C))}, {keys, List([Bytes(K) || K <- Keys])}, {body, Shown}])}
    catch _:Why ->
        {0, Line(Head ++ [{unknown, Bytes(iolist_to_binary(io_lib:format("~0p of ~0P", [Why, catch element(1, M), 5])))}])}
    end end,
Show_key = fun(K) ->
    lists:foldl(fun(E, {N, S, Ls}) -> {Size, L} = Show(E), {N + 1, S + Size, [L | Ls]} end, {0, 0, []}, ets:lookup(T, K)) end,

%% Each output is a question and an answer, so there are few.
Put = fun(Lines, Size) when Size > 500000 -> Say(Lines), {[], 0}; (Lines, Size) -> {Lines, Size} end,
%% Whole due times, in their order.
Walk = fun W(K0, Last, Count, Size, Keys, {Lines, Held}) ->
    case ets:next(I, K0) of
        '$end_of_table' -> Say(Lines), {done, Count, Keys};
        {delay_key, Due, _} when Due =/= Last, Count >= Batch -> Say(Lines), {Last, Count, Keys};
        {delay_key, Due, _} when Due =/= Last, Size >= Limit -> Say(Lines), {Last, Count, Keys};
        {delay_key, Due, X} = K ->
            case Is_soon(Due, Margin) of
                true -> W({delay_key, Now + Margin, <<>>}, Last, Count, Size, Keys, {Lines, Held});
                false ->
                    case Is_asked(X) of
                        false -> W(K, Due, Count, Size, Keys, {Lines, Held});
                        true ->
                            {N, S, More} = Show_key(K),
                            W(K, Due, Count + N, Size + S, [K | Keys], Put([Lines, More], Held + S + N * 500))
                    end
            end
    end end,
Each = fun E({Rows, More}, F, Acc) -> E(ets:select(More), F, F(Rows, Acc));
           E('$end_of_table', _, Acc) -> Acc end,
Select = fun(Pattern, F, Acc) ->
    ets:safe_fixtable(T, true),
    try Each(ets:select(T, Pattern, 1000), F, Acc) after ets:safe_fixtable(T, false) end end,
%% What no key of the index leads to waits for ever. Whole due times behind After, in their order, too: some may be refused,
%% and stay. {done or lost, the last due time, keys}.
Lost = fun(After, Most) ->
    All = lists:usort(Select([{{delay_entry, {delay_key, '$1', '$2'}, '_', '_'}, [{is_integer, '$1'}, {'>', '$1', After}],
                               [{{delay_key, '$1', '$2'}}]}],
        fun(Rows, Acc) -> [K || {delay_key, _, X} = K <- Rows, Is_asked(X), not ets:member(I, K)] ++ Acc end, [])),
    Shown = fun S([{delay_key, Due, _} = K | More], Last, Count, Size, Ks) when Due =:= Last; Count < Most, Size < Limit ->
                    {N, Bytes_shown, Lines} = Show_key(K),
                    Say(Lines),
                    S(More, Due, Count + N, Size + Bytes_shown, [K | Ks]);
                S([], Last, _, _, Ks) -> {done, Last, Ks};
                S(_, Last, _, _, Ks) -> {lost, Last, Ks} end,
    Shown(All, After, 0, 0, []) end,
Read_on = fun() ->
    case Read of
        {lost, After} -> Lost(After, Batch);
        _ ->
            case Walk({delay_key, Read, <<>>}, Read, 0, 0, [], {[], 0}) of
                {done, Count, Keys} -> {Where, Last, More} = Lost(0, max(Batch - Count, 1)), {Where, Last, Keys ++ More};
                {Last, _, Keys} -> {from, Last, Keys}
            end
    end end,
Survey = fun() ->
    Counts = Select([{{delay_entry, {delay_key, '$1', '$2'}, '_', '_'}, [{is_integer, '$1'}],
                      [{{{'div', '$1', 3600000}, {element, 2, '$2'},
                         {'andalso', {'>=', '$1', Now - Margin}, {'=<', '$1', Now + Margin}}}}]}],
        fun(Rows, Acc) -> lists:foldl(fun(R, A) -> maps:update_with(R, fun(N) -> N + 1 end, 1, A) end, Acc, Rows) end, #{}),
    Say([Line([{exchange, Bytes(N)}, {hour, Number(Hour)}, {soon, atom_to_list(Soon andalso Has_timer)}, {count, Number(Count)}])
         || {{Hour, {resource, _, _, N} = X, Soon}, Count} <- maps:to_list(Counts), Is_named(X)]) end,
%% Which of these ids the plugin still has.
Find = fun() ->
    Wanted = maps:from_list([{X, []} || <<X:16/binary>> <= Look]),
    Found = Select([{{delay_entry, {delay_key, '$1', '_'}, '_', '_'}, [{is_integer, '$1'}, {'>=', '$1', Look_from}, {'=<', '$1', Look_to}],
                     ['$_']}],
        fun(Rows, Acc) -> [Y || Y <- [Id_of(E) || E <- Rows], maps:is_key(Y, Wanted)] ++ Acc end, []),
    Tell(present, Bytes(iolist_to_binary(lists:sort(Found)))) end,

Say(Line([{node, Text(atom_to_list(node()))}, {now, Number(Now)}])),
%% That there is no table says something only of a node that is up, whose Mnesia knows of none.
Is_up = case erlang:function_exported(rabbit, is_booted, 0) of true -> rabbit:is_booted(); false -> rabbit:is_running() end
    andalso mnesia:system_info(is_running) =:= yes,
case Is_up andalso [X || X <- [T, I], lists:member(X, mnesia:system_info(tables))] of
    false -> Tell(down, "true");
    [] -> Tell(table, "false");
    Tables when length(Tables) < 2 -> Tell(down, "true");
    _ ->
        case Begin of
            false -> ok;
            true ->
                Marks = case Is_dry of
                    true -> [Ids || {delay_entry, _, Ids, taken} <- mnesia:dirty_read(T, Taken)];
                    false ->
                        {Runs_before, L} = Inside(Fence),
                        ok = mnesia:sync_log(),
                        Tell(before, Text(lists:join($,, Runs_before))),
                        L
                end,
                [Tell(mark, Bytes(Ids)) || Ids <- Marks], %% one at most
                Running = case erlang:function_exported(rabbit_nodes, list_running, 0) of
                    true -> rabbit_nodes:list_running();
                    false -> rabbit_nodes:all_running()
                end,
                Tell(nodes, List([Text(atom_to_list(N)) || N <- Running])),
                Survey()
        end,
        Goes_on = case Seq > 0 andalso Inside(Taking) of
            false -> true;
            {taken, Gone} -> ok = mnesia:sync_log(), Tell(taken, Bytes(Gone)), true;
            gone -> Tell(gone, "true"), false;
            fenced -> Tell(fenced, "true"), false
        end,
        case Look of <<>> -> ok; _ -> Find() end,
        case Goes_on andalso Read of
            false -> ok;
            none -> ok;
            _ ->
                {Where, Last, Read_keys} = Read_on(),
                case Is_dry of true -> ok; false -> application:set_env(rabbit, Batch_read, {Run, Next_seq, Read_keys}) end,
                Say(Line([{next, Text(atom_to_list(Where))}, {next_ms, Number(Last)}]))
        end,
        case Goes_on andalso Is_end andalso Inside(Ending) of
            false -> ok;
            ended -> ok = mnesia:sync_log();
            fenced -> Tell(fenced, "true")
        end
end,
Tell('end', "true"),
ok.
