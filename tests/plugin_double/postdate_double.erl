%% A TEST DOUBLE, for Postdate's own tests only: it stands in for RabbitMQ's delayed-message plugin on machines that do
%% not have it. Never install it on a broker that matters. README.md says what it does and does not do.
%%
%% This module keeps the waiting messages where the plugin keeps them, in two Mnesia tables of this node that look like the
%% plugin's: a bag of entries, and the keys of it in the order of their due times. Whoever reads or changes the plugin's
%% tables, as `postdate import plugin` does, finds the same here, also the process by its name.
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

-define(SERVER, rabbit_delayed_message).
%% Keys released between two looks at the mailbox, so that publishers are not kept waiting by a crowd due at once.
-define(BATCH, 200).

-record(delay_key, {timestamp, exchange}).
-record(delay_entry, {delay_key, delivery, ref}).
-record(delay_index, {delay_key, const}).

start() ->
    rabbit_sup:start_child(?MODULE).

%% Disabling the plugin deletes what waits; a stopping broker does not come by here.
stop() ->
    ok = rabbit_sup:stop_child(?MODULE),
    {atomic, ok} = mnesia:delete_table(index()),
    {atomic, ok} = mnesia:delete_table(table()),
    ok.

start_link() ->
    gen_server:start_link({local, ?SERVER}, ?MODULE, [], []).

%% Returns when the message is in the table: in memory, and on disk soon, which is all that a confirm says then.
delay(Exchange, Message, DelayMs) ->
    gen_server:call(?SERVER, {delay, Exchange, Message, DelayMs}, infinity).

%% Only messages have a time for a key.
count() ->
    count_of('_').

count(ExchangeName) ->
    count_of(#exchange{name = ExchangeName, _ = '_'}).

count_of(Exchange) ->
    Entry = #delay_entry{delay_key = #delay_key{timestamp = '$1', exchange = Exchange}, _ = '_'},
    length(mnesia:dirty_select(table(), [{Entry, [{is_integer, '$1'}], [true]}])).

%% For tests: everything that waits is gone, as if this node's disk were. Returns how many messages that were.
lose() ->
    gen_server:call(?SERVER, lose, infinity).

table() ->
    list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())).

index() ->
    list_to_atom(atom_to_list(table()) ++ "_index").

init([]) ->
    ok = ensure_table(table(), delay_entry, record_info(fields, delay_entry), bag),
    ok = ensure_table(index(), delay_index, record_info(fields, delay_index), ordered_set),
    ok = mnesia:wait_for_tables([table(), index()], infinity),
    {ok, wake_for(mnesia:dirty_first(index()), undefined)}.

ensure_table(Name, Record, Fields, Type) ->
    case mnesia:create_table(Name, [{record_name, Record}, {attributes, Fields}, {type, Type}, {disc_copies, [node()]}]) of
        {atomic, ok} -> ok;
        {aborted, {already_exists, Name}} -> ok
    end.

%% The state is the timer and what it is for: {timer, due} or undefined.
handle_call({delay, Exchange, Message, DelayMs}, _From, Timer) ->
    Key = #delay_key{timestamp = erlang:system_time(millisecond) + DelayMs, exchange = Exchange},
    ok = mnesia:dirty_write(index(), #delay_index{delay_key = Key, const = true}),
    ok = mnesia:dirty_write(table(), #delay_entry{delay_key = Key, delivery = Message, ref = make_ref()}),
    {reply, ok, wake_for(Key, Timer)};
handle_call(lose, _From, Timer) ->
    N = count(),
    {atomic, ok} = mnesia:clear_table(index()),
    {atomic, ok} = mnesia:clear_table(table()),
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
wake_for(#delay_key{timestamp = Due}, {_, Sooner} = Timer) when Sooner =< Due ->
    Timer;
wake_for(#delay_key{timestamp = Due}, Timer) ->
    case Timer of
        undefined -> ok;
        {Ref, _} -> erlang:cancel_timer(Ref)
    end,
    %% Later ones look again when the longest timer that Erlang has is over.
    Ms = min(max(Due - erlang:system_time(millisecond), 0), 16#FFFFFFFF),
    {erlang:send_after(Ms, self(), release), Due}.

%% Lets go of what is due under up to N keys; returns the key that is first then.
release(N) ->
    Key = mnesia:dirty_first(index()),
    case Key of
        #delay_key{timestamp = Due, exchange = Exchange} when N > 0 ->
            case Due =< erlang:system_time(millisecond) of
                true ->
                    Entries = mnesia:dirty_read(table(), Key),
                    [postdate_double_message:deliver(Exchange, M) || #delay_entry{delivery = M} <- Entries],
                    ok = mnesia:dirty_delete(table(), Key),
                    ok = mnesia:dirty_delete(index(), Key),
                    release(N - 1);
                false ->
                    Key
            end;
        _ ->
            Key
    end.
