%% Patterns of topic exchanges, in which * stands for one word and # for any number of them, none included. Pure.
-module(postdate_exchange_topic).

-export([words/1, matches/2, compare/2]).

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

%% For a search through patterns in the order of bytes: match; or, if it does not, where in this order the next one can be
%% that does: a binary, below which there is none any more; next: anywhere behind it; none: nowhere.
compare(Pattern, Words) ->
    case match(Pattern, Words) of
        true -> match;
        false -> compare(Pattern, 0, Words, [])
    end.

%% Whatever stands behind #, and what ends here, says nothing about the next one.
compare(Pattern, At, [Word | Words] = Left, Above) ->
    Size = byte_size(Word),
    case Pattern of
        <<_:At/binary, "#.", _/binary>> -> next;
        <<_:At/binary, "*.", _/binary>> -> compare(Pattern, At + 2, Words, [{At, Left} | Above]);
        <<_:At/binary, Word:Size/binary, ".", _/binary>> -> compare(Pattern, At + Size + 1, Words, [{At, Left} | Above]);
        _ -> further(Pattern, [{At, Left} | Above])
    end;
compare(Pattern, At, [], Above) ->
    case Pattern of
        <<_:At/binary, "#.", _/binary>> -> next;
        _ -> further(Pattern, [{At, []} | Above])
    end.

%% A pattern that begins like this one and matches has #, * or the key's word at the first place at which they differ. What
%% they have in common should be as long as can be, for what has less of it comes later.
further(_, []) -> none;
further(Pattern, [{At, Left} | Above]) ->
    <<Common:At/binary, Rest/binary>> = Pattern,
    case [Begin || Begin <- lists:append([[W, <<W/binary, ".">>] || W <- [<<"#">> | at(Left)]]), Begin > Rest] of
        [] -> further(Pattern, Above);
        Begins -> <<Common/binary, (lists:min(Begins))/binary>>
    end.

at([Word | _]) -> [<<"*">>, Word];
at([]) -> [].
