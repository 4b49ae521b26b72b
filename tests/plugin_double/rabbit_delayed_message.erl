%% A TEST DOUBLE, for Postdate's own tests only: see postdate_double.erl and README.md.
%%
%% This module has the one function of the plugin's that administrators call by its name (docs/migrate.md).
-module(rabbit_delayed_message).

-include_lib("rabbit_common/include/rabbit.hrl").

-export([messages_delayed/1]).

messages_delayed(#exchange{name = Name}) ->
    postdate_double:count(Name).
