%% A TEST DOUBLE, for Postdate's own tests only: see postdate_double.erl and README.md.
%%
%% This module is the exchange type x-delayed-message: it decides which messages wait, and routes the others as the type
%% named by x-delayed-type would. RabbitMQ calls route/2 and delete/3 until 3.12, route/3 and delete/2 since; the binding
%% functions are handed on as they come.
-module(postdate_double_exchange).
-behaviour(rabbit_exchange_type).

-include_lib("rabbit_common/include/rabbit.hrl").

-export([description/0, serialise_events/0, route/2, route/3, validate/1, validate_binding/2, create/2, delete/2, delete/3]).
-export([policy_changed/2, add_binding/3, remove_bindings/3, assert_args_equivalence/2, info/1, info/2]).

-rabbit_boot_step({?MODULE, [
    {description, "test double of the delayed-message plugin: exchange type"},
    {mfa, {rabbit_registry, register, [exchange, <<"x-delayed-message">>, ?MODULE]}},
    {cleanup, {rabbit_registry, unregister, [exchange, <<"x-delayed-message">>]}},
    {requires, rabbit_registry},
    {enables, kernel_ready}
]}).

-define(LONGEST_MS, 16#FFFFFFFF).

description() ->
    [{description, <<"TEST DOUBLE of the delayed-message exchange">>}].

serialise_events() ->
    false.

route(X, Delivery) ->
    case waits(X, Delivery) of
        true -> [];
        false -> (underlying(X)):route(X, Delivery)
    end.

route(X, Message, Options) ->
    case waits(X, Message) of
        true -> [];
        false -> (underlying(X)):route(X, Message, Options)
    end.

%% A waiting message routes to nowhere for now: with `mandatory` it is returned as unroutable, then acknowledged.
waits(X, Message) ->
    case postdate_double_message:delay_ms(Message) of
        Ms when Ms > 0, Ms =< ?LONGEST_MS ->
            ok = postdate_double:delay(X, Message, Ms),
            true;
        _ ->
            false
    end.

validate(#exchange{arguments = Args}) ->
    case rabbit_misc:table_lookup(Args, <<"x-delayed-type">>) of
        {longstr, <<"x-delayed-message">>} ->
            refuse(precondition_failed, "x-delayed-type cannot be x-delayed-message itself", []);
        {longstr, Type} ->
            _ = rabbit_exchange:check_type(Type),
            ok;
        _ ->
            refuse(precondition_failed, "x-delayed-message needs x-delayed-type, the name of an exchange type", [])
    end.

refuse(Kind, Format, Args) ->
    rabbit_misc:protocol_error(Kind, Format, Args).

underlying(#exchange{arguments = Args}) ->
    {longstr, Type} = rabbit_misc:table_lookup(Args, <<"x-delayed-type">>),
    {ok, Module} = rabbit_registry:lookup_module(exchange, rabbit_registry:binary_to_type(Type)),
    Module.

validate_binding(X, Binding) ->
    (underlying(X)):validate_binding(X, Binding).

create(Tx, X) ->
    (underlying(X)):create(Tx, X).

delete(Serial, X) ->
    (underlying(X)):delete(Serial, X).

delete(Tx, X, Bindings) ->
    (underlying(X)):delete(Tx, X, Bindings).

policy_changed(Old, New) ->
    (underlying(New)):policy_changed(Old, New).

add_binding(Tx, X, Binding) ->
    (underlying(X)):add_binding(Tx, X, Binding).

remove_bindings(Tx, X, Bindings) ->
    (underlying(X)):remove_bindings(Tx, X, Bindings).

assert_args_equivalence(X, Args) ->
    rabbit_exchange:assert_args_equivalence(X, Args).

info(X) ->
    info(X, [messages_delayed]).

info(#exchange{name = Name}, Items) ->
    case lists:member(messages_delayed, Items) of
        true -> [{messages_delayed, postdate_double:count(Name)}];
        false -> []
    end.
