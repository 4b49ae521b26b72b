%% Patterns of topic exchanges, in which * stands for one word and # for any number of them, none included. Pure.
-module(postdate_exchange_topic).

-export([words/1, matches/2]).

%% The words of a routing key, as RabbitMQ has them: an empty key has none.
words(<<>>) -> [];
words(Key) -> binary:split(Key, <<".">>, [global]).

%% Does the pattern match one of these keys, of which the words are given?
matches(Pattern, Keys) -> lists:any(fun(Words) -> match(Pattern, Words) end, Keys).

match(<<>>, Words) -> Words =:= [];
match(Pattern, Words) -> match(Pattern, Words, none).

%% The third: where to go on if this does not match, behind the last # and with one word more for it. What an earlier #
%% took is final then, for the last one can take whatever it gives back. So it takes, at most, as many steps as the key
%% has words times those of the pattern.
match(<<"#">>, _, _) -> true;
match(<<"#.", Rest/binary>>, Words, _) -> match(Rest, Words, {Rest, Words});
match(<<"*">>, [_], _) -> true;
match(<<"*.", Rest/binary>>, [_ | Words], Back) -> match(Rest, Words, Back);
match(Pattern, [Word | Words], Back) ->
    Size = byte_size(Word),
    case Pattern of
        <<Word:Size/binary>> when Words =:= [] -> true;
        <<Word:Size/binary, ".#">> -> true;
        <<Word:Size/binary, ".", Rest/binary>> -> match(Rest, Words, Back);
        _ -> back(Back)
    end;
match(_, _, Back) -> back(Back).

back({Pattern, [_ | Words]}) -> match(Pattern, Words, {Pattern, Words});
back(_) -> false.
