%% The exchange type x-delayed-message, held by Postdate: what is to wait goes to a queue that the gateway reads, and
%% everything else where the exchange's x-delayed-type leads it. When its time has come the gateway publishes it to the
%% same exchange, with x-delay negated.
%%
%% Nothing is kept here, no process runs, and no callback throws but validate/1, and route/2,3 in the process of a
%% publisher: the others run while a virtual host recovers, in transactions, and in queues that dead-letter, which would
%% all die of it. RabbitMQ's headers are not included: the few fields that are needed are taken by their places, which
%% are the same from 3.10 to 4.3.
-module(postdate_exchange).

-behaviour(rabbit_exchange_type).

-rabbit_boot_step({?MODULE,
                   [{description, "exchange type x-delayed-message, held by Postdate"},
                    {mfa, {?MODULE, enable, []}},
                    {cleanup, {?MODULE, disable, []}},
                    {requires, rabbit_registry},
                    {enables, recovery}]}).

-export([enable/0, disable/0]).
-export([description/0, serialise_events/0, info/1, info/2]).
-export([route/2, route/3]).
-export([validate/1, validate_binding/2, create/2, delete/2, delete/3, policy_changed/2, add_binding/3,
         remove_bindings/3, assert_args_equivalence/2]).

-define(TYPE, <<"x-delayed-message">>).
-define(TYPE_ATOM, 'x-delayed-message').
-define(INNER_TYPE, <<"x-delayed-type">>).
%% With another prefix (amqp.prefix) than the usual one, the exchange says which.
-define(PREFIX, <<"x-postdate-prefix">>).
%% The gateway's own exchanges, in which RabbitMQ is to wait, say this: they are the archived plugin's, or nobody's.
-define(TRANSPORT, <<"x-postdate-transport">>).
-define(WARN_MS, 60000).

-record(resource, {virtual_host, kind, name}).
-define(NAME(X), element(2, X)). % of an #exchange{} …
-define(IS_OF_TYPE(X), (element(3, X) =:= ?TYPE_ATOM)).
-define(ARGUMENTS(X), element(7, X)).

%% --- on and off

%% If the archived plugin is enabled, too, the type is that one's. Who enables ours on a node that runs is told; a node
%% that boots is not stopped by it.
enable() ->
    case rabbit_registry:lookup_module(exchange, ?TYPE_ATOM) of
        {ok, Other} when Other =/= ?MODULE ->
            log(error, "the exchange type x-delayed-message belongs to ~p: disable that plugin, then enable this "
                       "one again", [Other]),
            case rabbit:is_running() of
                true -> {error, {exchange_type_belongs_to, Other}};
                false -> ok
            end;
        _ ->
            rabbit_registry:register(exchange, ?TYPE, ?MODULE),
            case rabbit:is_running() of
                true -> route_first(), recover();
                false -> ok
            end
    end.

disable() ->
    case rabbit_registry:lookup_module(exchange, ?TYPE_ATOM) of
        {ok, ?MODULE} -> rabbit_registry:unregister(exchange, ?TYPE);
        _ -> ok
    end,
    case rabbit:is_running() of
        true -> route_first();
        false -> ok
    end.

%% From 3.13 on whoever routes first after a change of types decides for the whole node which module routes. It asks what
%% its own process remembers, then the registry. A channel that was open before remembers the module of then: that of a
%% plugin that is disabled now, without code. Each publisher would be closed until the type changes again. So the first
%% one is this process, which remembers none. Before 3.13 there is no route/3, and each process goes by its own memory.
route_first() ->
    Exchanges = [X || X <- rabbit_exchange:list(), ?IS_OF_TYPE(X)],
    erase({xtype_to_module, ?TYPE_ATOM}),
    persistent_term:erase(?TYPE_ATOM),
    [try rabbit_exchange:route(hd(Exchanges), ?MODULE, #{}) catch _:_ -> ok end || Exchanges =/= []],
    erase({xtype_to_module, ?TYPE_ATOM}),
    ok.

%% A type that keeps a state of its own, as x-consistent-hash does, has not heard of the exchanges that are there when
%% this is enabled on a node that runs. A node that boots recovers its exchanges when the type is there already.
recover() ->
    [recover(X, M) || X <- rabbit_exchange:list(), ?IS_OF_TYPE(X), {ok, M} <- [inner(X)],
                      not lists:member(M, [rabbit_exchange_type_direct, rabbit_exchange_type_topic,
                                           rabbit_exchange_type_fanout, rabbit_exchange_type_headers])],
    ok.

recover(X, M) ->
    Bindings = lists:usort(rabbit_binding:list_for_source(?NAME(X))),
    Tell = fun(Serial) ->
               M:create(Serial, X),
               [M:add_binding(Serial, X, B) || B <- Bindings],
               ok
           end,
    %% Where all is in Mnesia (3.10, 3.11) it wants to be told in a transaction.
    try
        case code:ensure_loaded(rabbit_db_exchange) of
            {module, _} -> Tell(none);
            _ -> rabbit_misc:execute_mnesia_transaction(fun() -> Tell(transaction) end)
        end
    catch
        Class:Reason -> log(error, "~ts: not recovered: ~p", [rabbit_misc:rs(?NAME(X)), {Class, Reason}])
    end.

%% --- what it is

description() -> [{name, ?TYPE}, {description, <<"Delayed message exchange, held by Postdate">>}].
serialise_events() -> false.

%% None waits in RabbitMQ.
info(X) -> info(X, [messages_delayed]).
info(_X, Items) -> [{messages_delayed, 0} || lists:member(messages_delayed, Items)].

%% --- routing

route(X, Message) -> route(X, Message, #{}).

route(_, ?MODULE, _) -> []; % of route_first()
route(X, Message, Options) ->
    case is_own(X) of
        true -> route_now(X, Message, Options);
        false ->
            case postdate_exchange_message:delay(Message) of
                not_a_number -> refuse(X, "x-delay is no whole number of milliseconds");
                Delay when Delay =< 0 -> route_now(X, Message, Options);
                Delay -> route_later(X, Message, Delay)
            end
    end.

route_later(X, Message, Delay) ->
    #resource{virtual_host = VHost, name = Name} = ?NAME(X),
    Intake = <<(prefix(X))/binary, ".intake.delayed">>,
    Queue = #resource{virtual_host = VHost, kind = queue, name = Intake},
    case {postdate_exchange_message:published_to(Message), rabbit_amqqueue:exists(Queue)} of
        {Name, true} ->
            case postdate_exchange_message:unfit(Message, Delay, Intake) of
                false -> [Queue];
                Why -> refuse(X, Why)
            end;
        {Name, false} ->
            refuse(X, "there is no queue '" ++ binary_to_list(Intake) ++
                      "': no gateway of Postdate serves this virtual host");
        _ ->
            refuse(X, "a message with x-delay has to be published to it, not to an exchange that leads to it")
    end.

route_now(X, Message, Options) ->
    case inner(X) of
        %% Both keep what they know of bindings for exchanges of their own type alone.
        {ok, rabbit_exchange_type_direct} ->
            rabbit_router:match_routing_key(?NAME(X), postdate_exchange_message:keys(Message));
        {ok, rabbit_exchange_type_topic} ->
            postdate_exchange_bindings:matching(?NAME(X), postdate_exchange_message:keys(Message));
        {ok, Module} ->
            case erlang:function_exported(Module, route, 3) of
                true -> Module:route(X, Message, Options);
                false -> Module:route(X, Message)
            end;
        _ ->
            refuse(X, "its x-delayed-type is not known here: a plugin is not enabled")
    end.

%% A publisher learns of it. A queue that dead-letters must not: it would crash, so to it the message is one that routes
%% nowhere. It may have thousands, hence one warning a minute of each queue.
refuse(X, Why) ->
    case {is_publisher(), get('$initial_call')} of
        {true, {rabbit_amqp_session, _, _}} ->
            %% An #amqp_error{} of 0-9-1 would be an internal error there, with a stack trace.
            Text = unicode:characters_to_binary(io_lib:format("~ts: ~ts", [rabbit_misc:rs(?NAME(X)), Why])),
            exit({'v1_0.error', {symbol, <<"amqp:precondition-failed">>}, {utf8, Text}, undefined});
        {true, _} -> rabbit_misc:protocol_error(precondition_failed, "~ts: ~ts", [rabbit_misc:rs(?NAME(X)), Why]);
        {false, _} -> warn(X, Why), []
    end.

warn(X, Why) ->
    Now = erlang:monotonic_time(millisecond),
    case get(?MODULE) of
        {Until, Unsaid} when Now < Until ->
            put(?MODULE, {Until, Unsaid + 1});
        Before ->
            put(?MODULE, {Now + ?WARN_MS, 0}),
            log(warning, "~ts: ~ts. A message that a queue dead-letters to it has no way~ts",
                [rabbit_misc:rs(?NAME(X)), Why, unsaid(Before)])
    end.

unsaid({_, N}) when N > 0 -> io_lib:format(", like ~b since the last such line", [N]);
unsaid(_) -> "".

%% Without RabbitMQ's domain it does not reach its log.
log(Level, Format, Arguments) ->
    logger:log(Level, "Postdate: " ++ Format, Arguments, #{domain => [rabbitmq, exchange]}).

is_publisher() ->
    case {get(process_name), get('$initial_call')} of
        {{rabbit_channel, _}, _} -> true;
        {_, {Module, _, _}} ->
            lists:member(Module, [rabbit_amqp_session, rabbit_mqtt_reader, rabbit_web_mqtt_handler, rabbit_shovel_worker]);
        _ -> false
    end.

%% --- exchanges and bindings

%% An import of definitions that has the gateway's own exchange would end over it, and at a boot the boot. It has no
%% effect then: such an exchange never keeps back.
validate(X) ->
    case {is_own(X) andalso is_publisher(), argument(X, ?INNER_TYPE)} of
        {true, _} ->
            rabbit_misc:protocol_error(precondition_failed,
                                       "this is Postdate's own x-delayed-message: its gateway can not use it", []);
        {_, ?TYPE} ->
            rabbit_misc:protocol_error(precondition_failed,
                                       "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'", []);
        {_, Type} when is_binary(Type) ->
            rabbit_exchange:check_type(Type),
            {ok, Module} = inner(X),
            Module:validate(X);
        _ ->
            rabbit_misc:protocol_error(precondition_failed,
                                       "Invalid argument, 'x-delayed-type' must be an existing exchange type", [])
    end.

validate_binding(X, Binding) ->
    case inner(X) of
        {ok, Module} -> Module:validate_binding(X, Binding);
        _ -> ok
    end.

create(Serial, X) -> tell(X, create, [Serial, X]).
delete(Serial, X) -> tell(X, delete, [Serial, X]).
delete(Serial, X, Bindings) -> tell(X, delete, [Serial, X, Bindings]).
policy_changed(Old, New) -> tell(Old, policy_changed, [Old, New]).
add_binding(Serial, X, Binding) -> tell(X, add_binding, [Serial, X, Binding]).
remove_bindings(Serial, X, Bindings) -> tell(X, remove_bindings, [Serial, X, Bindings]).

assert_args_equivalence(X, Arguments) ->
    case inner(X) of
        {ok, Module} -> Module:assert_args_equivalence(X, Arguments);
        _ -> rabbit_exchange:assert_args_equivalence(X, Arguments)
    end.

%% Of topic exchanges the bindings are looked through, so they need no trie. What belongs to a type that is not known any
%% more can still be unbound and deleted.
tell(X, Function, Arguments) ->
    case inner(X) of
        {ok, Module} when Module =/= rabbit_exchange_type_topic -> apply(Module, Function, Arguments);
        _ -> ok
    end.

%% The gateway's own, of whatever prefix. It never waits in one, nor may it take this for the plugin.
is_own(X) ->
    case ?NAME(X) of
        #resource{name = <<"postdate.", _/binary>>} -> true;
        _ -> argument(X, ?TRANSPORT) =/= undefined
    end.

prefix(X) ->
    case argument(X, ?PREFIX) of
        Prefix when is_binary(Prefix) -> Prefix;
        _ -> <<"postdate">>
    end.

inner(X) ->
    try rabbit_registry:lookup_module(exchange, rabbit_registry:binary_to_type(argument(X, ?INNER_TYPE)))
    catch error:_ -> {error, not_found}
    end.

argument(X, Name) ->
    case rabbit_misc:table_lookup(?ARGUMENTS(X), Name) of
        {_, Value} -> Value;
        _ -> undefined
    end.
