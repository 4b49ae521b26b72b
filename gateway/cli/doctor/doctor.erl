%% What `postdate doctor` asks in the broker, by `rabbitmqctl eval`: one program, for each run costs a second. It judges what RabbitMQ
%% alone knows, and answers with findings, as the queries sql/query/health_….sql do. Queues with a policy, or whose refused messages
%% Postdate gets, are told as the management API tells them, and doctor_rabbitmq.c judges them. It gives the variables that are not
%% bound here values. The answer is JSON, as base64 on a line. The calls are the broker's own, the same in the sources of 3.10 to 4.2.
%% At most 1,000 of a kind are told.
Text = fun(Format, Values) -> iolist_to_binary(io_lib:format(Format, Values)) end,
%% What stands behind \v says what to do about it.
Finding = fun(Status) -> fun(Check, Format, Values) -> [Status, list_to_binary(Check), base64:encode(Text(Format, Values))] end end,
[Ok, Warn, Fail, Skip] = [Finding(S) || S <- [<<"ok">>, <<"warn">>, <<"fail">>, <<"skip">>]],
Cut = fun(Most, B) -> binary:part(B, 0, min(Most, byte_size(B))) end,
Short = fun(B, _) when byte_size(B) < 1000 -> B; (_, Else) -> Else end,
Join = fun(Parts) -> iolist_to_binary(lists:join(", ", Parts)) end,
Plural = fun(1) -> ""; (_) -> "s" end,
Starts = fun(B, With) -> binary:longest_common_prefix([B, With]) =:= byte_size(With) end,
%% Not <<Begin/binary, …>>: a fun of erl_eval does not keep what it uses in a binary alone.
Mine = fun(N) -> iolist_to_binary([Begin, N]) end,
Is_shards = fun(X) -> Starts(X, Mine("shards.")) end,
Own = fun(N) -> re:run(N, Pattern) =/= nomatch end,
%% Names and arguments may be any bytes, JSON may not.
T = fun(X) when is_atom(X) -> atom_to_binary(X, utf8);
       (X) -> case is_binary(X) andalso unicode:characters_to_binary(X) of X -> X; _ -> iolist_to_binary(io_lib:format("~0p", [X])) end end,
Name = fun(Q) -> element(4, amqqueue:get_name(Q)) end,
Some = fun(L) -> lists:sublist(L, 1000) end,
Queues = rabbit_amqqueue:list(V),
Nodes = case erlang:function_exported(rabbit_nodes, list_running, 0) of
    true -> rabbit_nodes:list_running();
    false -> rabbit_nodes:all_running()
end,
%% Nodes of one cluster may give themselves different names.
Clusters = [T(C) || N <- Nodes, C <- [rpc:call(N, rabbit_nodes, cluster_name, [], 5000)], is_binary(C)],

%% info/1 of an exchange also asks its type, and the plugin answers with messages_delayed.
To = fun(N) -> [[T(P) || {_, P} <- rabbit_binding:info(B, [destination_kind, destination_name, routing_key])]
                || B <- Some(rabbit_binding:list_for_source(N))] end,
Owned = fun(XV, XN) ->
    S = max(0, byte_size(XN) - 8),
    case XN of
        <<A:S/binary, ".delayed">> -> element(1, rabbit_exchange:lookup({resource, XV, exchange, <<A/binary, ".owner">>})) =:= ok;
        _ -> false
    end end,
Waiting = fun(Node, X) ->
    case catch rpc:call(Node, rabbit_exchange, info, [X], 5000) of
        L when is_list(L) -> proplists:get_value(messages_delayed, L, -1);
        _ -> -1
    end end,
Granted = [L || L <- case catch rabbit_auth_backend_internal:list_user_permissions(U) of Ls when is_list(Ls) -> Ls; _ -> [] end,
                proplists:get_value(vhost, L) =:= V],
Writes = fun(N) ->
    case [proplists:get_value(write, L) || L <- Granted] of
        [] -> true;
        [<<>>] -> false;
        [W | _] -> re:run(N, W) =/= nomatch
    end end,

Quorum = fun(Q) -> amqqueue:get_type(Q) =:= rabbit_quorum_queue end,
Key = fun(Q, K) ->
    case lists:keyfind(<<"x-", K/binary>>, 1, amqqueue:get_arguments(Q)) of
        {_, _, X} -> T(X);
        _ -> case rabbit_policy:get(K, Q) of undefined -> <<>>; X -> T(X) end
    end end,
%% Of these a policy counts before an argument, in a quorum queue.
Policy_first = fun(Q, K) ->
    case Quorum(Q) andalso rabbit_policy:get(K, Q) of
        X when X =:= false; X =:= undefined -> Key(Q, K);
        X -> T(X)
    end end,
%% RabbitMQ 4.3's delayed retry is for quorum queues; without a minimum it is off.
Native = fun(Q) ->
    Quorum(Q) andalso Key(Q, <<"delayed-retry-min">>) =/= <<>>
        andalso lists:member(Policy_first(Q, <<"delayed-retry-type">>), [<<"all">>, <<"failed">>, <<"returned">>]) end,
Dead_letters_to = fun(Q) -> Key(Q, <<"dead-letter-exchange">>) end,
%% Who routes for exchanges of that type on a node, and what is to at its next boot. Both are asked of the node itself.
Of_node = fun(Node, M, F, A) -> case catch rpc:call(Node, M, F, A, 5000) of {badrpc, _} -> unknown; {'EXIT', _} -> unknown; X -> X end end,
Knows = fun(Node, Type) ->
    case catch binary_to_existing_atom(Type, utf8) of
        T0 when is_atom(T0) -> case Of_node(Node, rabbit_registry, lookup_module, [exchange, T0]) of {ok, M} -> M; _ -> none end;
        _ -> none
    end end,
Enabled = fun(Node) ->
    case Of_node(Node, rabbit_plugins, enabled_plugins_file, []) of
        unknown -> [];
        File -> case Of_node(Node, rabbit_plugins, read_enabled, [File]) of L when is_list(L) -> L; _ -> [] end
    end end,
Argument = fun(X, N) -> case rabbit_misc:table_lookup(element(7, X), N) of {_, A} when is_binary(A) -> A; _ -> <<>> end end,
Leads_to = fun(R = {_, XV, _, XN}) ->
    [T(element(4, element(2, B))) || B <- rabbit_binding:list_for_destination(R)]
        ++ [element(4, element(2, X)) || X <- rabbit_exchange:list(XV),
            rabbit_policy:get_arg(<<"alternate-exchange">>, <<"alternate-exchange">>, X) =:= XN] end,
Prefix = fun(X) -> case Argument(X, <<"x-postdate-prefix">>) of <<>> -> <<"postdate">>; A -> A end end,

%% As GET /api/queues tells it.
Definition = fun(Q) ->
    case rabbit_policy:effective_definition(Q) of
        M when is_map(M) -> M;
        L when is_list(L) -> maps:from_list(L);
        _ -> #{}
    end end,
Policy = fun(none) -> <<>>; (P) -> T(P) end,
%% The arguments that doctor_rabbitmq.c judges.
Judged = [<<"x-dead-letter-exchange">>, <<"x-dead-letter-strategy">>, <<"x-overflow">>, <<"x-delivery-limit">>],
Told = fun(Q) ->
    #{name => T(Name(Q)), type => case Quorum(Q) of true -> <<"quorum">>; false -> <<>> end, policy => Policy(rabbit_policy:name(Q)),
      operator_policy => Policy(rabbit_policy:name_op(Q)), effective_policy_definition => maps:map(fun(_, X) -> T(X) end, Definition(Q)),
      arguments => maps:from_list([{K, T(X)} || {K, _, X} <- amqqueue:get_arguments(Q), lists:member(K, Judged)]), native => Native(Q), writes => Writes(Name(Q))} end,
{Retries, Others} = lists:partition(fun(Q) -> Dead_letters_to(Q) =:= Retry orelse Native(Q) end, Queues),
Changed = [Q || Q <- Others, rabbit_policy:name(Q) =/= none orelse rabbit_policy:name_op(Q) =/= none, Name(Q) =:= I orelse Own(Name(Q))],

%% Exchanges of the type x-delayed-message: whose that type is on each node, and what Postdate's would refuse.
Types = [{T(Node), Knows(Node, <<"x-delayed-message">>), Enabled(Node)} || Node <- Nodes],
Modules = [M || {_, M, _} <- Types, M =/= none],
Delayed = [begin
    R = {_, XV, _, XN} = proplists:get_value(name, rabbit_exchange:info(X, [name])),
    {R, Owned(XV, XN), X}
end || X <- rabbit_exchange:list(), proplists:get_value(type, rabbit_exchange:info(X, [type])) =:= 'x-delayed-message'],
Bindings = fun(R) ->
    All = To(R),
    Shown = [[K, " ", N, case Key_of of <<>> -> ""; _ -> [" (", Key_of, ")"] end] || [K, N, Key_of] <- lists:sublist(All, 5)],
    Values = [length(All), Plural(length(All)), [": " || All =/= []], Join(Shown), [", …" || length(All) > 5]],
    Short(Text("~w binding~s~s~s~s", Values), <<"many bindings">>) end,
Plugin = fun({{_, XV, _, XN} = R, Is_owned, X}) ->
    Counts = [Waiting(Node, X) || Node <- Nodes],
    Count = lists:sum(Counts),
    Is_here = XN =:= Mine("delayed") andalso XV =:= V,
    Of = Text("x-delayed-message exchange '~s' in vhost '~s'", [XN, XV]),
    case lists:any(fun(C) -> C < 0 end, Counts) of
        true -> Warn("plugin.messages",
            "~s: a node does not report how many wait; ~s\v"
            "is the plugin enabled on every node? rabbitmq-plugins list -e on each", [Of, Bindings(R)]);
        false when Is_here ->
            Ok("plugin.messages", "'~s', used by Postdate: ~w wait; ~s", [XN, Count, Bindings(R)]);
        false when Is_owned -> %% beside X.delayed it has X.owner
            Ok("plugin.messages", "'~s' in vhost '~s', used by another Postdate: ~w wait; ~s", [XN, XV, Count, Bindings(R)]);
        false when Count > 0 -> Warn("plugin.messages",
            "~s: ~w messages wait in the plugin; ~s\v"
            "switch its publishers to Postdate, then run `postdate import plugin` before the plugin is "
            "disabled~s: docs/migrate.md",
            [Of, Count, Bindings(R), case Version >= 403 of true -> ""; false -> ", khepri_db enabled, or RabbitMQ upgraded to 4.3" end]);
        false -> Ok("plugin.messages", "~s: no messages wait; ~s", [Of, Bindings(R)])
    end end,
Plugin_findings = case lists:usort(Modules) of
    _ when Delayed =:= [] -> [Ok("plugin.messages", "there is no x-delayed-message exchange", [])];
    [postdate_exchange] -> [Ok("plugin.messages", "none: the type x-delayed-message is Postdate's", [])];
    _ -> [Plugin(X) || X <- Delayed]
end,
%% "'a', 'b' and 3 more"
Listed = fun(Names) ->
    [Join([["'", Cut(80, N), "'"] || N <- lists:sublist(Names, 5)]), [Text(" and ~w more", [length(Names) - 5]) || length(Names) > 5]] end,
Type_is_ours = lists:member(postdate_exchange, Modules ++ lists:append([E || {_, _, E} <- Types])),
Foreign = [X || {{_, _, _, XN}, false, _} = X <- Delayed, not Starts(XN, Begin)],
Exchange_type = fun({{_, XV, _, XN} = R, _, X}) ->
    Inner = Argument(X, <<"x-delayed-type">>),
    Lacking = [T(Node) || Node <- Nodes, Knows(Node, Inner) =:= none],
    From = Some(Leads_to(R)),
    [Fail("exchange.type",
        "exchange '~s' in vhost '~s': its x-delayed-type '~s' is not known on ~s\v"
        "enable the plugin that has this type on each node", [XN, XV, Inner, Listed(Lacking)]) || Lacking =/= []] ++
    [Warn("exchange.type",
        "exchange '~s' in vhost '~s': ~s route to it, by a binding or as alternate exchange; "
        "Postdate's type rejects messages with x-delay that are published to those\v"
        "publish delayed messages to '~s' itself", [XN, XV, Listed(From), XN]) || From =/= []] ++
    [Warn("exchange.type",
        "exchange '~s': no gateway has served vhost '~s', so messages with x-delay are rejected\v"
        "start a gateway of Postdate for that vhost", [XN, XV])
        || Type_is_ours, not rabbit_amqqueue:exists({resource, XV, queue, iolist_to_binary([Prefix(X), ".intake.delayed"])})] ++
    [Warn("exchange.type",
        "exchange '~s': '~s' has no write permission on it, so delayed messages cannot be delivered\v"
        "rabbitmqctl set_permissions, with '~s' in the second pattern", [XN, U, XN]) || XV =:= V, not Writes(XN)] end,
Type_needed = Foreign =/= [] orelse (Type_is_ours andalso Modules =/= []),
Node_type = fun({Node, Module, On_node}) ->
    case lists:member(postdate_exchange, On_node) andalso lists:member(rabbitmq_delayed_message_exchange, On_node) of
        true -> [Fail("exchange.type",
            "~s: both postdate_exchange and rabbitmq_delayed_message_exchange are enabled; the type x-delayed-message belongs to "
            "~s now, and to the plugin after the next boot\v"
            "rabbitmq-plugins disable one of them, then enable the other one again",
            [Node, case Module of postdate_exchange -> "Postdate"; _ -> "the plugin" end])];
        false -> [Fail("exchange.type",
            "~s does not know the type x-delayed-message: clients connected there cannot publish to its "
            "exchanges, and queues there that dead-letter to one crash and lose the message\v"
            "rabbitmq-plugins enable postdate_exchange on each node: docs/migrate.md", [Node]) || Type_needed, Module =:= none]
    end end,
Type_findings = case [F || X <- Foreign, F <- Exchange_type(X)] ++ [F || X <- Types, F <- Node_type(X)] of
    [] when Type_is_ours ->
        Dead = [Name(Q) || {{_, XV, _, XN}, _, _} <- Foreign, Q <- Some(rabbit_amqqueue:list(XV)), Dead_letters_to(Q) =:= XN],
        [Ok("exchange.type", "Postdate's, on each node; ~w exchange~s~s",
            [length(Foreign), Plural(length(Foreign)), [["; queues dead-letter to them: ", Listed(Dead)] || Dead =/= []]])];
    Found -> Found
end,

%% What leads into Postdate and out of it, past what the gateway declares. Routes: intake and delivery exchange of each, in turn.
Pairs = fun P([X, To_x | Rest]) -> [{X, To_x} | P(Rest)]; P([]) -> [] end,
Ways = [{Intake, D} | _] = Pairs(binary:split(Routes, <<0>>, [global])),
Feeds = fun F([], Seen) -> Seen;
            F([N | R], Seen) ->
                New = lists:usort([element(2, B) || B <- rabbit_binding:list_for_destination(N), not lists:member(element(2, B), Seen)]),
                F(R ++ New, Seen ++ New) end,
Bound = lists:any(fun(X) -> X =:= Front orelse Is_shards(X) end,
                  [element(4, element(2, B)) || B <- rabbit_binding:list_for_destination({resource, V, queue, I})]),
Delivery = length(rabbit_binding:list_for_source({resource, V, exchange, D})),
Own_findings = [Warn("broker.bindings",
        "queue '~s' is not bound to exchange '~s': messages published there are lost\v"
        "start or restart a gateway: it binds them", [I, Intake]) || not Bound] ++
    [Warn("broker.bindings",
        "nothing is bound to '~s': messages that are due fail as unroutable, unless they name another exchange\v"
        "bind the consumers' queues to it: channel.queue_bind(QUEUE, '~s', ROUTING_KEY)", [D, D]) || D =/= <<>>, Delivery =:= 0] ++
    [Ok("broker.bindings", "'~s' is bound to '~s'; bindings of '~s': ~w", [Intake, I, D, Delivery])
        || D =/= <<>>, Delivery > 0, Bound],
%% Everything that is bound to an intake exchange gets what comes in, at once. Twenty are named.
Strangers = [{X, B} || {X, _} <- Ways, [K, N, _] = B <- To({resource, V, exchange, X}),
                       N =/= case K of <<"queue">> -> I; _ -> Mine("sort") end,
                       not (K =:= <<"exchange">> andalso Is_shards(N))],
Stranger = fun(X, [K, N, Key_of]) -> Warn("broker.foreign",
    "~s '~s' is bound to the intake exchange '~s' with the key '~s': it gets every message at once, before the delay\v"
    "bind it to the delivery exchange instead, and remove this binding: "
    "channel.~s_unbind('~s', '~s', '~s'); remove its user's read permission on '~s': docs/migrate.md",
    [K, N, X, Key_of, K, N, X, Key_of, X]) end,
Circle = fun(X, Source) -> Fail("broker.circles",
    "the delivery exchange '~s' routes to the intake exchange '~s': delivered messages come back, until they are rejected\v"
    "remove the binding: rabbitmqctl list_bindings -p '~s' shows what is bound to '~s'", [Source, X, V, Source]) end,
Bound_findings = Own_findings ++ lists:append([
    [Stranger(X, B) || {X_of, B} <- lists:sublist(Strangers, 20), X_of =:= X] ++
    [Circle(X, N) || {_, _, _, N} = Source <- Feeds([R], [R]), Source =/= R, N =/= <<>>, lists:keymember(N, 2, Ways)]
    || {X, _} <- Ways, R <- [{resource, V, exchange, X}]]) ++
    [Warn("broker.foreign", "~w more are bound to intake exchanges\vrabbitmqctl list_bindings -p '~s'", [length(Strangers) - 20, V])
        || length(Strangers) > 20] ++
    [Warn("broker.circles",
        "queue '~s' dead-letters to the intake exchange '~s': messages that Postdate delivered "
        "there and a consumer rejects end in ~s\v"
        "make it dead-letter to ~s: `postdate retry-policy show '~s'` prints the command",
        [Name(Q), Dead_letters_to(Q), Mine("rejected"), Retry, Name(Q)])
        || Q <- lists:sublist([Q || Q <- Queues, lists:keymember(Dead_letters_to(Q), 1, Ways)], 20)],

Pattern_findings = case Granted of
    [] -> [Ok("broker.patterns", "'~s' has no permissions of its own in vhost '~s': another authorization backend decides", [U, V])];
    [L1 | _] -> [Ok("broker.patterns", "'~s': configure \"~s\", write \"~s\", read \"~s\"",
                    [U | [T(proplists:get_value(K, L1, <<>>)) || K <- [configure, write, read]]])]
end,

%% Whether a quorum queue has a majority shows only when it is asked for something that takes one. Ra takes a fun for that, and
%% 4.3's only a tuple; the fun comes first, for 4.3's refuses it before it asks the queue. An exit of a probe tells of the queue;
%% an error, which has a stack trace, tells of the probe.
Ours = [Q || Q <- Queues ++ case catch rabbit_amqqueue:list_down(V) of L when is_list(L) -> L; _ -> [] end,
             amqqueue:get_exclusive_owner(Q) =:= none,
             Own(Name(Q)) orelse lists:member(Name(Q), [I, <<I/binary, ".expired">>, <<I/binary, ".timed">>])],
Members = fun(Q, K) ->
    case Quorum(Q) of
        true -> proplists:get_value(K, rabbit_quorum_queue:info(Q, [K]));
        false -> [N || N <- [node(amqqueue:get_pid(Q))], K =:= members orelse lists:member(N, Nodes)]
    end end,
Consistent = fun(Ids) ->
    try ra:consistent_query(Ids, fun erlang:is_atom/1, 2000)
    catch error:function_clause -> ra:consistent_query(Ids, {erlang, is_atom, []}, 2000)
    end end,
Ask = fun(Q) ->
    case Quorum(Q) of
        true -> rpc:async_call(node(), erlang, apply, [Consistent, [[{element(1, amqqueue:get_pid(Q)), N} || N <- Members(Q, members)]]]);
        false -> rpc:async_call(node(), rabbit_amqqueue, stat, [Q])
    end end,
Asked = [{Q, Ask(Q)} || Q <- Ours],
Until = erlang:monotonic_time(millisecond) + 5000,
Answers = [{Q, case rpc:nb_yield(K, max(0, Until - erlang:monotonic_time(millisecond))) of
    {value, {ok, _, _}} -> up;
    {value, {badrpc, {'EXIT', {R, S}}}} when is_list(S) -> {unknown, R};
    _ -> down
end} || {Q, K} <- Asked],
Kind = fun(Q) -> {Quorum(Q), Members(Q, members), Members(Q, online)} end,
%% Queues of the same kind on the same nodes are one finding: its first one, how many they are.
Alike = fun A([]) -> [];
            A([{First, K} | _] = All) ->
                {Same, Rest} = lists:partition(fun({_, X}) -> X =:= K end, All),
                [{First, length(Same), K} | A(Rest)] end,
On = fun(Nodes_on) -> Short(Join([Cut(80, T(N)) || N <- Nodes_on]), <<"many nodes">>) end,
Down = Some([{Name(Q), Kind(Q)} || {Q, down} <- Answers]),
Unknown = Some([T(R) || {_, {unknown, R}} <- Answers]),
Down_findings = [begin
    Which = case Count of
        1 -> Text("queue '~s' does not answer", [Cut(120, First)]);
        _ -> Text("~w queues do not answer, among them '~s'", [Count, Cut(120, First)])
    end,
    Up = [N || N <- All, lists:member(N, Online)],
    case {All -- Up, Is_quorum} of
        {[], _} -> Fail("broker.down",
            "~s on ~s: its process has ended or hangs\v"
            "RabbitMQ's log on that node has the reason; if it is not busy, restart it (rabbitmqctl -n NODE "
            "stop_app, then start_app). rabbitmqctl list_queues may leave such a queue out", [Which, On(Up)]);
        {Off, true} -> Fail("broker.down",
            "~s: ~w of ~w members of the quorum queue run, which is no majority; none runs on ~s\v"
            "start RabbitMQ on ~s; if it runs, the queue's process has ended: restart that node (rabbitmqctl -n "
            "NODE stop_app, then start_app). Messages in the queue are not delivered until then",
            [Which, length(Online), length(All), On(Off), On(Off)]);
        {Off, false} -> Fail("broker.down",
            "~s on node ~s, which is down\v"
            "start RabbitMQ on ~s: the queue's messages are on that node only. If the node is lost "
            "for good: rabbitmqctl forget_cluster_node ~s; gateways declare the queues again, and "
            "deliver from the database the messages that RabbitMQ held there", [Which, On(Off), On(Off), On(Off)])
    end
end || {First, Count, {Is_quorum, All, Online}} <- Alike(Down)]
++ case {Unknown, Down} of
    {[Why | _], _} -> [Skip("broker.down",
        "cannot check whether ~w of ~w queues of Postdate answer: this RabbitMQ does not support it (~s)\v"
        "use rabbitmq-queues check_if_node_is_quorum_critical, and rabbitmqctl list_queues name state",
        [length(Unknown), length(Ours), Cut(60, Why)])];
    {[], []} -> [Ok("broker.down", "all ~w queues of Postdate answer", [length(Ours)])];
    _ -> []
end,

io:put_chars([base64:encode(iolist_to_binary(rabbit_json:encode(#{
    clusters => Clusters, now => erlang:system_time(millisecond), servers => Down_findings ++ Plugin_findings ++ Type_findings,
    bindings => Bound_findings, patterns => Pattern_findings, queues => [Told(Q) || Q <- Changed ++ Some(Retries)],
    retry_queues => length(Retries)}))), $\n]),
ok.
