%% A TEST DOUBLE, for Postdate's own tests only: stamps messages on arrival, as RabbitMQ 3.12 and later do with
%% message_interceptors.incoming.set_header_timestamp.overwrite. Written from the documented behaviour, for RabbitMQ 3.10.
%% Only in the vhosts that set/2 names, because tests share a broker.
-module(postdate_stamp).
-behaviour(rabbit_channel_interceptor).

-include_lib("rabbit_common/include/rabbit.hrl").
-include_lib("rabbit_common/include/rabbit_framing.hrl").

-export([set/2, description/0, init/1, intercept/3, applies_to/0]).

-define(HEADER, <<"timestamp_in_ms">>).

%% Overwrite is true or false; its clock is that many ms ahead. From the next channel on.
set(VHost, {_Overwrite, _AheadMs} = How) ->
    application:set_env(postdate_stamp, VHost, How, [{persistent, true}]),
    rabbit_registry:register(channel_interceptor, <<"postdate_stamp">>, ?MODULE).

description() ->
    [{description, <<"TEST DOUBLE of the time stamp interceptor">>}].

applies_to() ->
    ['basic.publish'].

init(Channel) ->
    application:get_env(postdate_stamp, rabbit_channel:get_vhost(Channel), none).

intercept(#'basic.publish'{} = Method, Content, {Overwrite, AheadMs}) ->
    Decoded = rabbit_binary_parser:ensure_content_decoded(Content),
    #content{properties = #'P_basic'{headers = Headers} = P} = Decoded,
    Ms = erlang:system_time(millisecond) + AheadMs,
    case {Overwrite, rabbit_misc:table_lookup(headers(Headers), ?HEADER)} of
        {false, {_, _}} ->
            {Method, Content};
        _ ->
            Stamped = rabbit_misc:set_table_value(headers(Headers), ?HEADER, long, Ms),
            New = Decoded#content{properties = P#'P_basic'{headers = Stamped, timestamp = Ms div 1000}},
            {Method, rabbit_binary_generator:clear_encoded_content(New)}
    end;
intercept(Method, Content, _) -> % every method comes along
    {Method, Content}.

headers(undefined) -> [];
headers(Headers) -> Headers.
