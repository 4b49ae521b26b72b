%% What the exchange type asks of a message. That is a #delivery{} until RabbitMQ 3.12, and a message container from 3.13.
-module(postdate_exchange_message).

-export([keys/1, published_to/1, delay/1, unfit/3]).

-define(DIGITS_MAX, 64). % as the gateway reads them

-record(resource, {virtual_host, kind, name}).
-define(IS_DELIVERY(M), (element(1, M) =:= delivery)).
-define(MESSAGE(M), element(5, M)). % of a #delivery{}: a #basic_message{}

keys(M) when ?IS_DELIVERY(M) -> element(3, ?MESSAGE(M));
keys(M) ->
    case erlang:function_exported(mc, routing_keys, 1) of
        true -> mc:routing_keys(M);
        false -> mc:get_annotation(routing_keys, M)
    end.

%% The name of the exchange, which is not the one that routes where a binding or an alternate exchange led there.
published_to(M) when ?IS_DELIVERY(M) ->
    #resource{name = Name} = element(2, ?MESSAGE(M)),
    Name;
published_to(M) ->
    case erlang:function_exported(mc, exchange, 1) of
        true -> mc:exchange(M);
        false -> mc:get_annotation(exchange, M)
    end.

header(Name, M) when ?IS_DELIVERY(M) ->
    case rabbit_basic:extract_headers(element(4, ?MESSAGE(M))) of
        undefined -> undefined;
        Headers -> rabbit_misc:table_lookup(Headers, Name)
    end;
header(Name, M) -> mc:x_header(Name, M).

%% The milliseconds of x-delay. As the plugin reads it: numbers, and texts of digits; what is neither is no delay. What
%% made the plugin fail is not_a_number: other texts, and decimals, for which 4.x has no words.
delay(M) ->
    try number(header(<<"x-delay">>, M))
    catch error:_ -> not_a_number
    end.

number({timestamp, _}) -> 0;
number({binary, _}) -> not_a_number;
number({decimal, _}) -> not_a_number;
number({as_is, _, _}) -> not_a_number; % the decimals of AMQP 1.0
number({_, Number}) when is_integer(Number) -> Number;
number({_, Number}) when is_float(Number) -> trunc(Number);
number({_, Text}) when is_binary(Text), byte_size(Text) =< ?DIGITS_MAX -> binary_to_integer(Text);
number({_, Text}) when is_binary(Text) -> not_a_number;
number(_) -> 0.

%% Why a message that is to wait, so many ms, cannot; false: it can.
unfit(M, Delay, Intake) ->
    Checks = [{fun() -> has_bcc(M) end, "x-delay and BCC do not go together: a message that waits loses its BCC"},
              %% From 4.4 on a quorum queue itself keeps such a message, until another time.
              {fun() -> header(<<"x-opt-delivery-time">>, M) =/= undefined end,
               "x-delay and x-opt-delivery-time do not go together"},
              %% Before 4.0 RabbitMQ takes a mark that a publisher wrote for its own, and the gateway would believe it.
              {fun() -> mentions(Intake, header(<<"x-death">>, M)) end,
               "its x-death is about Postdate's queue, which a message that Postdate delivers is not"},
              {fun() -> not is_readable(M, Delay) end, "it has values that AMQP 0-9-1, which Postdate speaks, has not"}],
    hd([Why || {Is, Why} <- Checks, Is()] ++ [false]).

%% What AMQP 0-9-1 has no type for RabbitMQ leaves out when the gateway reads the message, or the gateway's channel dies
%% of it each time (before 4.2).
is_readable(M, _) when ?IS_DELIVERY(M); element(2, M) =:= mc_amqpl -> true;
is_readable(M, Delay) ->
    try delay(mc:convert(mc_amqpl, M)) =:= Delay
    catch error:_ -> false
    end.

%% A channel takes the header BCC away and keeps its keys, beside the routing key and those of CC.
has_bcc(M) ->
    case keys(M) of
        [_] -> false;
        [_ | More] -> More -- (texts(header(<<"CC">>, M)) ++ texts(header(<<"x-cc">>, M))) =/= []
    end.

%% What else is in such a header is no key.
texts({List, Keys}) when List =:= array; List =:= list -> [K || {_, K} <- Keys, is_binary(K)];
texts(_) -> [].

mentions(Name, Name) -> true;
mentions(Name, Value) when is_tuple(Value) -> mentions(Name, tuple_to_list(Value));
mentions(Name, [First | Rest]) -> mentions(Name, First) orelse mentions(Name, Rest);
mentions(_, _) -> false.
