%% A TEST DOUBLE, for Postdate's own tests only: it stands in for RabbitMQ's delayed-message plugin on machines that do
%% not have it. Never install it on a broker that matters. README.md says what it does and does not do.
%%
%% This module keeps the waiting messages, in a Mnesia table of this node, and lets them go when they are due.
%% Keys are {due, arrival, tie}, so the order of the table is the order of release.
-module(postdate_double).
-behaviour(gen_server).

-include_lib("rabbit_common/include/rabbit.hrl").

-export([start/0, stop/0, start_link/0, delay/3, count/0, count/1, lose/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% After `recovery`: the queues must be there before overdue messages are let go. Before clients are let in.
-rabbit_boot_step({?MODULE, [
    {description, "test double of the delayed-message plugin: waiting messages"},
    {mfa, {?MODULE, start, []}},
    {cleanup, {?MODULE, stop, []}},
    {requires, recovery},
    {enables, routing_ready}
]}).

-define(TABLE, ?MODULE).
%% Released between two looks at the mailbox, so that publishers are not kept waiting by a crowd due at once.
-define(BATCH, 200).

-record(?TABLE, {key, exchange, message}).

start() ->
    rabbit_sup:start_child(?MODULE).

%% Disabling the plugin deletes what waits; a stopping broker does not come by here.
stop() ->
    ok = rabbit_sup:stop_child(?MODULE),
    {atomic, ok} = mnesia:delete_table(?TABLE),
    ok.

start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Returns when the message is in the table: in memory, and on disk soon, which is all that a confirm says then.
delay(Exchange, Message, DelayMs) ->
    gen_server:call(?MODULE, {delay, Exchange, Message, DelayMs}, infinity).

count() ->
    mnesia:table_info(?TABLE, size).

count(ExchangeName) ->
    OfExchange = #?TABLE{exchange = #exchange{name = ExchangeName, _ = '_'}, _ = '_'},
    length(mnesia:dirty_select(?TABLE, [{OfExchange, [], [true]}])).

%% For tests: everything that waits is gone, as if this node's disk were. Returns how many messages that were.
lose() ->
    gen_server:call(?MODULE, lose, infinity).

init([]) ->
    ok = ensure_table(),
    ok = mnesia:wait_for_tables([?TABLE], infinity),
    {ok, wake_for(mnesia:dirty_first(?TABLE), undefined)}.

%% Each node of a cluster has one of its own; that there is such a table at all they know from each other.
ensure_table() ->
    Created = mnesia:create_table(?TABLE, [
        {type, ordered_set},
        {local_content, true},
        {disc_copies, [node()]},
        {attributes, record_info(fields, ?TABLE)}
    ]),
    case Created =:= {atomic, ok} orelse lists:member(node(), mnesia:table_info(?TABLE, disc_copies)) of
        true ->
            ok;
        false ->
            {atomic, ok} = mnesia:add_table_copy(?TABLE, node(), disc_copies),
            ok
    end.

%% The state is the timer and what it is for: {timer, due} or undefined.
handle_call({delay, Exchange, Message, DelayMs}, _From, Timer) ->
    Now = erlang:system_time(millisecond),
    Key = {Now + DelayMs, Now, erlang:unique_integer([monotonic])},
    ok = mnesia:dirty_write(#?TABLE{key = Key, exchange = Exchange, message = Message}),
    {reply, ok, wake_for(Key, Timer)};
handle_call(lose, _From, Timer) ->
    N = count(),
    {atomic, ok} = mnesia:clear_table(?TABLE),
    {reply, N, Timer}.

handle_cast(_, Timer) ->
    {noreply, Timer}.

handle_info(release, _Timer) ->
    {noreply, wake_for(release(?BATCH), undefined)};
handle_info(_, Timer) ->
    {noreply, Timer}.

%% Keeps the sooner of the timer there is and the one that this key needs.
wake_for('$end_of_table', Timer) ->
    Timer;
wake_for({Due, _, _}, {_, Sooner} = Timer) when Sooner =< Due ->
    Timer;
wake_for({Due, _, _}, Timer) ->
    case Timer of
        undefined -> ok;
        {Ref, _} -> erlang:cancel_timer(Ref)
    end,
    %% Later ones look again when the longest timer that Erlang has is over.
    Ms = min(max(Due - erlang:system_time(millisecond), 0), 16#FFFFFFFF),
    {erlang:send_after(Ms, self(), release), Due}.

%% Lets go of up to N due messages; returns the key that is first then.
release(N) ->
    Key = mnesia:dirty_first(?TABLE),
    case Key of
        {Due, _, _} when N > 0 ->
            case Due =< erlang:system_time(millisecond) of
                true ->
                    [#?TABLE{exchange = Exchange, message = Message}] = mnesia:dirty_read(?TABLE, Key),
                    postdate_double_message:deliver(Exchange, Message),
                    ok = mnesia:dirty_delete(?TABLE, Key),
                    release(N - 1);
                false ->
                    Key
            end;
        _ ->
            Key
    end.
