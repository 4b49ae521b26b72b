%% What `postdate doctor` asks in the broker, by `rabbitmqctl eval`: one program, for each run costs a second. doctor_management.c
%% gives V (the vhost), U (the gateway's user), I, D, Pattern, Retry and Intake_exchanges values. The answer is JSON, as base64 on a
%% line. The calls are the broker's own, the same in the sources of 3.10 to 4.2. At most 1,000 of a kind are told.
Own = fun(N) -> re:run(N, Pattern) =/= nomatch end,
T = fun(X) when is_binary(X) -> X; (X) when is_atom(X) -> atom_to_binary(X, utf8); (X) -> iolist_to_binary(io_lib:format("~0p", [X])) end,
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
Policy_keys = fun(Q) ->
    case rabbit_policy:effective_definition(Q) of
        M when is_map(M) -> maps:keys(M);
        L when is_list(L) -> [element(1, E) || E <- L];
        _ -> []
    end end,
Policies = [#{queue => Name(Q), policy => T(rabbit_policy:name(Q)), operator => T(rabbit_policy:name_op(Q)),
              keys => [T(K) || K <- Policy_keys(Q)]}
            || Q <- Queues, rabbit_policy:name(Q) =/= none orelse rabbit_policy:name_op(Q) =/= none,
               Name(Q) =:= I orelse Own(Name(Q))],

Granted = [L || L <- case catch rabbit_auth_backend_internal:list_user_permissions(U) of Ls when is_list(Ls) -> Ls; _ -> [] end,
                proplists:get_value(vhost, L) =:= V],
Permissions = [maps:from_list([{K, T(P)} || {K, P} <- L]) || L <- Granted],
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
Types = [#{node => T(Node), module => T(Knows(Node, <<"x-delayed-message">>)),
           enabled => [T(P) || P <- Enabled(Node), P =:= postdate_exchange orelse P =:= rabbitmq_delayed_message_exchange]} || Node <- Nodes],
Argument = fun(X, N) -> case rabbit_misc:table_lookup(element(7, X), N) of {_, A} when is_binary(A) -> A; _ -> <<>> end end,
Leads_to = fun(R = {_, XV, _, XN}) ->
    [T(element(4, element(2, B))) || B <- rabbit_binding:list_for_destination(R)]
        ++ [element(4, element(2, X)) || X <- rabbit_exchange:list(XV),
            rabbit_policy:get_arg(<<"alternate-exchange">>, <<"alternate-exchange">>, X) =:= XN] end,
Prefix = fun(X) -> case Argument(X, <<"x-postdate-prefix">>) of <<>> -> <<"postdate">>; A -> A end end,

Delayed = [begin
    R = {_, XV, _, XN} = proplists:get_value(name, rabbit_exchange:info(X, [name])),
    #{vhost => XV, name => XN, owned => Owned(XV, XN), bindings => To(R), from => Some(Leads_to(R)),
      inner => Argument(X, <<"x-delayed-type">>), unknown => [T(Node) || Node <- Nodes, Knows(Node, Argument(X, <<"x-delayed-type">>)) =:= none],
      served => rabbit_amqqueue:exists({resource, XV, queue, <<(Prefix(X))/binary, ".intake.delayed">>}),
      writes => XV =/= V orelse Writes(XN), deaths => [Name(Q) || Q <- Some(rabbit_amqqueue:list(XV)), Dead_letters_to(Q) =:= XN],
      nodes => [#{node => T(Node), count => Waiting(Node, X)} || Node <- Nodes]}
end || X <- rabbit_exchange:list(), proplists:get_value(type, rabbit_exchange:info(X, [type])) =:= 'x-delayed-message'],

Retries = [#{queue => Name(Q), type => T(amqqueue:get_type(Q)), retried => Dead_letters_to(Q) =:= Retry,
             strategy => Key(Q, <<"dead-letter-strategy">>), overflow => Policy_first(Q, <<"overflow">>),
             limit => Key(Q, <<"delivery-limit">>), native => Native(Q), writes => Writes(Name(Q))}
           || Q <- Queues, Dead_letters_to(Q) =:= Retry orelse Native(Q)],

Xs = binary:split(Intake_exchanges, <<0>>, [global]),
Feeds = fun F([], Seen) -> Seen;
            F([N | R], Seen) ->
                New = lists:usort([element(2, B) || B <- rabbit_binding:list_for_destination(N), not lists:member(element(2, B), Seen)]),
                F(R ++ New, Seen ++ New) end,
Exchanges = [begin
    R = {resource, V, exchange, X},
    #{name => X, to => To(R), from => [element(4, S) || S <- Feeds([R], [R]), S =/= R]}
end || X <- Xs],
Deaths = [#{queue => Name(Q), exchange => Dead_letters_to(Q)} || Q <- Queues, lists:member(Dead_letters_to(Q), Xs)],
Intake = [element(4, element(2, B)) || B <- rabbit_binding:list_for_destination({resource, V, queue, I})],
Delivery = length(rabbit_binding:list_for_source({resource, V, exchange, D})),

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
Down = [#{queue => Name(Q), quorum => Quorum(Q), members => [T(N) || N <- Members(Q, members)],
          online => [T(N) || N <- Members(Q, online)]} || {Q, down} <- Answers],
Unknown = [T(R) || {_, {unknown, R}} <- Answers],

io:put_chars([base64:encode(iolist_to_binary(rabbit_json:encode(#{
    clusters => Clusters, ours => length(Ours), down => Some(Down), unknown => Some(Unknown), now => erlang:system_time(millisecond),
    delayed => Delayed, types => Types, policies => Policies, permissions => Permissions, exchanges => Exchanges, deaths => Some(Deaths),
    intake => Intake, retries => Some(Retries), retry_queues => length(Retries), delivery => Delivery}))), $\n]),
ok.
