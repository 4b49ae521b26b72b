%% A TEST DOUBLE, for Postdate's own tests only: see postdate_double.erl and README.md.
%%
%% This module is the exchange type x-delayed-message: it decides which messages wait, and routes the others as the type
%% named by x-delayed-type would.
-module(postdate_double_exchange).
-behaviour(rabbit_exchange_type).

-include_lib("rabbit_common/include/rabbit.hrl").
-include_lib("rabbit_common/include/rabbit_framing.hrl").

-export([description/0, serialise_events/0, route/2, validate/1, validate_binding/2, create/2, delete/3]).
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

%% A waiting message routes to nowhere for now: with `mandatory` it is returned as unroutable, then acknowledged.
route(X, #delivery{message = Message} = Delivery) ->
    case delay_ms(Message) of
        Ms when Ms > 0, Ms =< ?LONGEST_MS ->
            ok = postdate_double:delay(X, negate(Message, Ms), Ms),
            [];
        _ ->
            (underlying(X)):route(X, Delivery)
    end.

%% Texts that are not whole numbers, and decimals, close the connection, as they do with the plugin.
delay_ms(Message) ->
    case rabbit_misc:table_lookup(headers(Message), <<"x-delay">>) of
        {longstr, Text} -> number(Text);
        {decimal, _} -> refuse(internal_error, "x-delay is a decimal", []);
        {timestamp, _} -> 0;
        {_, N} when is_number(N) -> trunc(N);
        _ -> 0
    end.

number(Text) ->
    try
        binary_to_integer(Text)
    catch
        error:badarg -> refuse(internal_error, "x-delay ~p is not a whole number", [Text])
    end.

headers(#basic_message{content = Content}) ->
    #content{properties = #'P_basic'{headers = Headers}} = rabbit_binary_parser:ensure_content_decoded(Content),
    case Headers of
        undefined -> [];
        _ -> Headers
    end.

%% Negative, so that it is not delayed again, here or at the next exchange of this type. The encoded properties stay as
%% they came: a classic queue of RabbitMQ 3.10 hands those out, with x-delay as sent.
negate(#basic_message{content = Content} = Message, Ms) ->
    #content{properties = P} = Decoded = rabbit_binary_parser:ensure_content_decoded(Content),
    Headers = lists:keyreplace(<<"x-delay">>, 1, headers(Message), {<<"x-delay">>, signedint, -Ms}),
    Message#basic_message{content = Decoded#content{properties = P#'P_basic'{headers = Headers}}}.

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
