%% A TEST DOUBLE, for Postdate's own tests only: see postdate_double.erl and README.md.
%%
%% This module knows what a message is: a delivery with a record of AMQP 0-9-1 until RabbitMQ 3.12, a container (mc) of any
%% protocol since.
-module(postdate_double_message).

-include_lib("rabbit_common/include/rabbit.hrl").
-include_lib("rabbit_common/include/rabbit_framing.hrl").

-export([delay_ms/1, deliver/2]).

-define(HEADER, <<"x-delay">>).

%% What can't be read closes the connection, as it does with the plugin: decimals and texts that are not whole numbers; with
%% containers also "no value". A signed byte does not count there, an array of bytes does not count without them.
delay_ms(#delivery{message = Message}) ->
    delay_ms(Message);
delay_ms(#basic_message{} = Message) ->
    case rabbit_misc:table_lookup(headers(Message), ?HEADER) of
        {longstr, Text} -> whole(Text);
        {decimal, _} -> refuse("x-delay is a decimal", []);
        {timestamp, _} -> 0;
        {_, N} when is_number(N) -> trunc(N);
        _ -> 0
    end;
delay_ms(Container) ->
    case mc:x_header(?HEADER, Container) of
        undefined -> 0;
        {Type, Text} when Type =:= utf8; Type =:= binary -> whole(Text);
        {Type, _} when Type =:= timestamp; Type =:= byte -> 0;
        {_, N} when is_number(N) -> trunc(N);
        {_, _} -> 0;
        null -> refuse("x-delay has no value", [])
    end.

whole(Text) ->
    try
        binary_to_integer(Text)
    catch
        error:badarg -> refuse("x-delay ~p is not a whole number", [Text])
    end.

refuse(Format, Args) ->
    rabbit_misc:protocol_error(internal_error, Format, Args).

headers(#basic_message{content = Content}) ->
    #content{properties = #'P_basic'{headers = Headers}} = rabbit_binary_parser:ensure_content_decoded(Content),
    case Headers of
        undefined -> [];
        _ -> Headers
    end.

%% Negative, so that it is not delayed again at the next exchange of this type. Of a record the encoded properties stay as they
%% came: a classic queue of RabbitMQ 3.10 hands those out, with x-delay as sent.
negate(#basic_message{content = Content} = Message, Ms) ->
    #content{properties = P} = Decoded = rabbit_binary_parser:ensure_content_decoded(Content),
    Headers = lists:keyreplace(?HEADER, 1, headers(Message), {?HEADER, signedint, -Ms}),
    Message#basic_message{content = Decoded#content{properties = P#'P_basic'{headers = Headers}}};
negate(Container, Ms) ->
    mc:set_annotation(?HEADER, -Ms, Container).

%% One attempt, as the exchange was declared when the message came, by the bindings there are now. What does not route is
%% dropped; a deleted exchange has no bindings.
deliver(Exchange, #delivery{message = Message}) ->
    deliver(Exchange, Message);
deliver(Exchange, #basic_message{} = Message) ->
    Delivery = rabbit_basic:delivery(false, false, negate(Message, delay_ms(Message)), undefined),
    rabbit_amqqueue:deliver(rabbit_amqqueue:lookup(rabbit_exchange:route(Exchange, Delivery)), Delivery);
deliver(Exchange, Container) ->
    rabbit_queue_type:publish_at_most_once(Exchange, negate(Container, delay_ms(Container))).
