%% Which bindings of a topic exchange match. RabbitMQ keeps a trie for exchanges of its own type alone, and its search for
%% others copies each binding of the exchange, or looks at those of the whole broker (Khepri).
-module(postdate_exchange_bindings).

-export([matching/2]).

-record(binding, {source, key, destination, args}).
-record(route_by_source, {source, key, destination, args}).
-define(MNESIA, rabbit_route).
-define(KHEPRI, rabbit_khepri_route_by_source). % for fanout exchanges, and for types that RabbitMQ does not know

%% Destinations of the bindings of exchange Name that match one of the keys. A destination may be there more than once.
matching(Name, Keys) ->
    try
        case in_mnesia() of
            true -> lists:append([in_order(before(Name, <<>>), postdate_exchange_topic:words(Key), []) || Key <- Keys]);
            false -> from_khepri(Name, [postdate_exchange_topic:words(Key) || Key <- Keys])
        end
    catch
        %% From Mnesia to Khepri just now, or tables that are not what they are until 4.3.
        error:_ -> search(Name, [postdate_exchange_topic:words(Key) || Key <- Keys])
    end.

in_mnesia() ->
    ets:whereis(?MNESIA) =/= undefined andalso
        (not erlang:function_exported(rabbit_khepri, get_feature_state, 0) orelse rabbit_khepri:get_feature_state() =:= disabled).

%% The table of Mnesia is in the order of exchange, pattern, destination. So a pattern that cannot match says from which
%% pattern on to look further, and it matters little how many there are. Of what stands behind a # each is looked at.
in_order(After, Words, Found) ->
    case ets:next(?MNESIA, After) of
        #binding{source = Name, key = Pattern, destination = Destination} = Binding when Name =:= After#binding.source ->
            case postdate_exchange_topic:compare(Pattern, Words) of
                match -> in_order(Binding, Words, [Destination | Found]);
                next -> in_order(Binding, Words, Found);
                none -> Found;
                From -> in_order(before(Name, From), Words, Found)
            end;
        _ ->
            Found
    end.

%% A number comes before each destination.
before(Name, Pattern) -> #binding{source = Name, key = Pattern, destination = 0, args = 0}.

from_khepri(Name, Keys) ->
    [_ | _] = Rows = ets:lookup(?KHEPRI, Name),
    [R#route_by_source.destination || R <- Rows, postdate_exchange_topic:matches(R#route_by_source.key, Keys)].

search(Name, Keys) ->
    rabbit_router:match_bindings(Name, fun(#binding{key = Pattern}) -> postdate_exchange_topic:matches(Pattern, Keys) end).
