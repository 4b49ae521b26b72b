/* What AMQP cannot show, asked of the broker's administration, where this user may: what waits in the plugin,
 * bindings, policies, the broker's clock. */
#include "gateway/cli/doctor/doctor_management.h"

#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/names.h"
#include "gateway/cli/program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MS 20000
#define OUT_MAX ((size_t)4 * 1024 * 1024)
#define NAMES_MAX ((size_t)64 * 1024)
#define WORDS_MAX ((size_t)4096)
#define SHIFT 2000000

/* One expression, for each run costs a second. Names come in as base64, so that none can end a string. The
 * answer is JSON, each byte as a number above all characters: `eval` would print text with escapes and cut it
 * into lines. The calls are the broker's own, the same in the sources of 3.10 to 4.2; info/1 of an exchange
 * also asks its type, and the plugin answers with messages_delayed. RabbitMQ 4.3's delayed retry is for
 * quorum queues; of its type a policy counts before an argument, and without a minimum it is off. Of their
 * overflow a policy counts first, too. At most 1,000 queues are told, and how many there are. Nodes of one
 * cluster may give themselves different names. Whether a quorum queue has a majority shows only when it is
 * asked for something that takes one. Ra takes a fun for that, and 4.3's only a tuple; the fun comes
 * first, for 4.3's refuses it before it asks the queue. An exit of a probe tells of the queue; an error,
 * which has a stack trace, tells of the probe. */
static const char program[] =
    "V = base64:decode(\"%s\"), U = base64:decode(\"%s\"), I = base64:decode(\"%s\"), D = "
    "base64:decode(\"%s\"),"
    " Pattern = base64:decode(\"%s\"), Retry = base64:decode(\"%s\"),"
    " Own = fun(N) -> re:run(N, Pattern) =/= nomatch end,"
    " XS = [base64:decode(E) || E <- [%s]],"
    " T = fun(X) when is_binary(X) -> X; (X) when is_atom(X) -> atom_to_binary(X, utf8);"
    " (X) -> iolist_to_binary(io_lib:format(\"~0p\", [X])) end,"
    " Nodes = case erlang:function_exported(rabbit_nodes, list_running, 0) of"
    " true -> rabbit_nodes:list_running(); false -> rabbit_nodes:all_running() end,"
    " To = fun(N) -> [[T(P) || {_, P} <- rabbit_binding:info(B, [destination_kind, destination_name, "
    "routing_key])]"
    " || B <- lists:sublist(rabbit_binding:list_for_source(N), 1000)] end,"
    " Owned = fun(XV, XN) -> S = max(0, byte_size(XN) - 8), case XN of <<A:S/binary, \".delayed\">> ->"
    " element(1, rabbit_exchange:lookup({resource, XV, exchange, <<A/binary, \".owner\">>})) =:= ok;"
    " _ -> false end end,"
    " Delayed = [begin Name = {_, XV, _, XN} = proplists:get_value(name, rabbit_exchange:info(X, [name])),"
    " #{vhost => XV, name => XN, owned => Owned(XV, XN), bindings => To(Name), nodes => [#{node => T(Node), "
    "count =>"
    " case catch rpc:call(Node, rabbit_exchange, info, [X], 5000) of"
    " L when is_list(L) -> proplists:get_value(messages_delayed, L, -1); _ -> -1 end} || Node <- Nodes]} end"
    " || X <- rabbit_exchange:list(),"
    " proplists:get_value(type, rabbit_exchange:info(X, [type])) =:= 'x-delayed-message'],"
    " Policies = [#{queue => element(4, amqqueue:get_name(Q)), policy => T(rabbit_policy:name(Q)),"
    " operator => T(rabbit_policy:name_op(Q)), keys => [T(element(1, E)) || E <- case"
    " rabbit_policy:effective_definition(Q) of M when is_map(M) -> maps:to_list(M); L when is_list(L) -> L;"
    " _ -> [] end]} || Q <- rabbit_amqqueue:list(V), rabbit_policy:name(Q) =/= none orelse"
    " rabbit_policy:name_op(Q) =/= none, (N = element(4, amqqueue:get_name(Q))) =:= I orelse"
    " Own(N)],"
    " Permissions = [maps:from_list([{K, T(P)} || {K, P} <- L]) || L <- case catch"
    " rabbit_auth_backend_internal:list_user_permissions(U) of Ls when is_list(Ls) -> Ls; _ -> [] end,"
    " proplists:get_value(vhost, L) =:= V],"
    " Key = fun(Q, K) -> case lists:keyfind(<<\"x-\", K/binary>>, 1, amqqueue:get_arguments(Q)) of"
    " {_, _, X} -> T(X); _ -> case rabbit_policy:get(K, Q) of undefined -> <<>>; X -> T(X) end end end,"
    " Native = fun(Q) -> amqqueue:get_type(Q) =:= rabbit_quorum_queue andalso Key(Q, "
    "<<\"delayed-retry-min\">>)"
    " =/= <<>> andalso lists:member(case rabbit_policy:get(<<\"delayed-retry-type\">>, Q) of undefined ->"
    " Key(Q, <<\"delayed-retry-type\">>); X -> T(X) end, [<<\"all\">>, <<\"failed\">>, <<\"returned\">>]) "
    "end,"
    " Writes = fun(N) -> case [proplists:get_value(write, L) || L <- case catch"
    " rabbit_auth_backend_internal:list_user_permissions(U) of Ls when is_list(Ls) -> Ls; _ -> [] end,"
    " proplists:get_value(vhost, L) =:= V] of [] -> true; [<<>>] -> false; [W | _] -> re:run(N, W) =/= "
    "nomatch"
    " end end,"
    " Quorum = fun(Q) -> amqqueue:get_type(Q) =:= rabbit_quorum_queue end,"
    " Overflow = fun(Q) -> case Quorum(Q) andalso rabbit_policy:get(<<\"overflow\">>, Q) of"
    " X when is_binary(X) -> X; _ -> Key(Q, <<\"overflow\">>) end end,"
    " Retries = [#{queue => element(4, amqqueue:get_name(Q)), type => T(amqqueue:get_type(Q)),"
    " retried => Key(Q, <<\"dead-letter-exchange\">>) =:= Retry,"
    " strategy => Key(Q, <<\"dead-letter-strategy\">>), overflow => Overflow(Q), limit => Key(Q, "
    "<<\"delivery-limit\">>),"
    " native => Native(Q), writes => Writes(element(4, amqqueue:get_name(Q)))}"
    " || Q <- rabbit_amqqueue:list(V), Key(Q, <<\"dead-letter-exchange\">>) =:= Retry orelse"
    " Native(Q)],"
    " Feeds = fun F([], Seen) -> Seen; F([N | R], Seen) -> New = lists:usort([S || B <- "
    "rabbit_binding:list_for_destination(N), S <- [element(2, B)], not lists:member(S, Seen)]),"
    " F(R ++ New, Seen ++ New) end,"
    " Exchanges = [begin R = {resource, V, exchange, X}, #{name => X, to => To(R), from =>"
    " [element(4, S) || S <- Feeds([R], [R]), S =/= R]} end || X <- XS],"
    " Deaths = [#{queue => element(4, amqqueue:get_name(Q)), exchange => E} || Q <- rabbit_amqqueue:list(V),"
    " E <- [Key(Q, <<\"dead-letter-exchange\">>)], lists:member(E, XS)],"
    " Intake = [element(4, element(2, B)) || B <- rabbit_binding:list_for_destination({resource, V, queue, "
    "I})],"
    " Ours = [Q || Q <- rabbit_amqqueue:list(V) ++ case catch rabbit_amqqueue:list_down(V) of"
    " L when is_list(L) -> L; _ -> [] end, amqqueue:get_exclusive_owner(Q) =:= none,"
    " N <- [element(4, amqqueue:get_name(Q))], Own(N) orelse"
    " lists:member(N, [I, <<I/binary, \".expired\">>, <<I/binary, \".timed\">>])],"
    " Members = fun(Q, K) -> case Quorum(Q) of true -> proplists:get_value(K, rabbit_quorum_queue:info(Q, "
    "[K]));"
    " false -> [N || N <- [node(amqqueue:get_pid(Q))], K =:= members orelse lists:member(N, Nodes)] end end,"
    " Consistent = fun(Ids) -> try ra:consistent_query(Ids, fun erlang:is_atom/1, 2000)"
    " catch error:function_clause -> ra:consistent_query(Ids, {erlang, is_atom, []}, 2000) end end,"
    " Asked = [{Q, case Quorum(Q) of true -> rpc:async_call(node(), erlang, apply, [Consistent, [[{element(1,"
    " amqqueue:get_pid(Q)), N} || N <- Members(Q, members)]]]);"
    " false -> rpc:async_call(node(), rabbit_amqqueue, stat, [Q]) end} || Q <- Ours],"
    " Until = erlang:monotonic_time(millisecond) + 5000,"
    " Answers = [{Q, case rpc:nb_yield(K, max(0, Until - erlang:monotonic_time(millisecond))) of"
    " {value, {ok, _, _}} -> up; {value, {badrpc, {'EXIT', {R, S}}}} when is_list(S) -> {unknown, R};"
    " _ -> down end} || {Q, K} <- Asked],"
    " Down = [#{queue => element(4, amqqueue:get_name(Q)), quorum => Quorum(Q), members => [T(N) || N <-"
    " Members(Q, members)], online => [T(N) || N <- Members(Q, online)]} || {Q, down} <- Answers],"
    " Unknown = [T(R) || {_, {unknown, R}} <- Answers],"
    " [2000000 + C || <<C>> <= iolist_to_binary(rabbit_json:encode(#{clusters => "
    "[T(C) || N <- Nodes, C <- [rpc:call(N, rabbit_nodes, cluster_name, [], 5000)], is_binary(C)],"
    " ours => length(Ours), down => lists:sublist(Down, 1000), unknown => lists:sublist(Unknown, 1000),"
    " now => erlang:system_time(millisecond), delayed => Delayed, policies => Policies, permissions => "
    "Permissions,"
    " exchanges => Exchanges, deaths => lists:sublist(Deaths, 1000), intake => Intake, retries => "
    "lists:sublist(Retries, 1000), retry_queues => length(Retries), delivery "
    "=> length(rabbit_binding:list_for_source({resource, V, "
    "exchange, D}))}))].";

static int put_name(struct buf *b, const char *name)
{
    base64_encode(bytes_of_str(name), b);
    buf_put_u8(b, '\0');
    return b->failed ? -1 : 0;
}

/* "\"cG9zdGRhdGU=\",\"b3JkZXJz\"", the intake exchanges. */
static int put_intake_exchanges(struct buf *b, const struct config *c)
{
    buf_printf(b, "\"");
    base64_encode(bytes_of_str(c->intake.exchange), b);
    for (size_t i = 0; i < c->route_count; i++) {
        buf_printf(b, "\",\"");
        base64_encode(bytes_of_str(c->routes[i].intake_exchange), b);
    }
    buf_printf(b, "\"");
    buf_put_u8(b, '\0');
    return b->failed ? -1 : 0;
}

/* The expression with the names in it; owned by the caller, NULL without memory. */
static char *make_expression(const struct doctor *d)
{
    enum { NAMES = 6 };
    struct buf pattern, encoded[NAMES + 1];
    char *text = NULL;
    int failed = 0;
    buf_init(&pattern, 1024);
    names_put_pattern(&pattern);
    buf_put_u8(&pattern, '\0');
    const char *const names[NAMES] = {d->target.vhost,
                                      d->target.user,
                                      d->config->intake.queue,
                                      d->config->delivery.exchange,
                                      pattern.failed ? "" : (const char *)pattern.data,
                                      broker_names.retry};
    for (int i = 0; i < NAMES; i++) {
        buf_init(&encoded[i], 2048);
        failed |= put_name(&encoded[i], names[i]);
    }
    buf_init(&encoded[NAMES], NAMES_MAX);
    failed |= put_intake_exchanges(&encoded[NAMES], d->config);
    if (!failed && asprintf(&text, program, (char *)encoded[0].data, (char *)encoded[1].data,
                            (char *)encoded[2].data, (char *)encoded[3].data, (char *)encoded[4].data,
                            (char *)encoded[5].data, (char *)encoded[6].data) < 0)
        text = NULL;
    for (int i = 0; i <= NAMES; i++)
        buf_free(&encoded[i]);
    buf_free(&pattern);
    return text;
}

/* "[2000123,2000034, …]" to text. NULL: that is not what came. */
static json_t *decode_answer(const struct buf *out)
{
    struct buf text;
    json_t *answer = NULL;
    size_t i = 0;
    buf_init(&text, OUT_MAX);
    while (i < out->len) {
        long n = 0;
        for (; i < out->len && out->data[i] >= '0' && out->data[i] <= '9' && n < SHIFT * 10L; i++)
            n = n * 10 + (out->data[i] - '0');
        if (n >= SHIFT && n < SHIFT + 256)
            buf_put_u8(&text, (uint8_t)(n - SHIFT));
        i++;
    }
    if (!text.failed && text.len > 0)
        answer = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    buf_free(&text);
    return answer;
}

static void skip_blanks(struct doctor *d, const char *why)
{
    bool told = d->rabbitmqctl == NULL && doctor_management_report(d);
    /* Asked for, it has to work. */
    doctor_report(
        d, d->rabbitmqctl != NULL ? FINDING_FAIL : FINDING_SKIP, "rabbitmqctl",
        "%s; so not checked: messages in the delayed-message plugin, bindings, %sthe broker's clock" REMEDY
        "run `postdate doctor` as root, or as the user rabbitmq, on a node of the broker; if its "
        "rabbitmqctl is elsewhere, with --rabbitmqctl PATH",
        why, told ? "rights, " : "policies, ");
}

static void ask_rabbitmqctl(struct doctor *d, const char *path, struct buf *out, struct buf *words)
{
    struct err e;
    char why[600];
    char *expression = make_expression(d);
    const char *const arguments[] = {"eval", expression, NULL};
    const struct program p = {.path = path, .arguments = arguments, .timeout_ms = RUN_MS};
    int64_t from_ms = clock_wall_ms();
    int code = expression != NULL ? program_run(&p, out, words, &e) : err_set(&e, ERR_BUG, "out of memory");
    int64_t to_ms = clock_wall_ms();
    free(expression);
    if (code != 0) {
        snprintf(why, sizeof why, "%.100s: %.480s", path,
                 code < 0 ? e.text : program_rabbitmqctl_reason(out, words));
        skip_blanks(d, why);
        return;
    }
    json_t *answer = decode_answer(out);
    const json_t *clusters = json_object_get(answer, "clusters");
    const char *first = json_string_value(json_array_get(clusters, 0));
    if (first == NULL) {
        snprintf(why, sizeof why, "%.100s gave an answer that is not understood", path);
        skip_blanks(d, why);
    } else if (!doctor_has_name(clusters, broker_cluster_name(d->broker))) {
        snprintf(why, sizeof why, "%.100s speaks to another broker, cluster '%.200s'", path, first);
        skip_blanks(d, why);
    } else {
        doctor_ok(d, "rabbitmqctl", "%s answers", path);
        doctor_admin_report(d, answer, from_ms, to_ms);
    }
    json_decref(answer);
}

void doctor_check_rabbitmqctl(struct doctor *d)
{
    struct buf out, words;
    buf_init(&out, OUT_MAX);
    buf_init(&words, WORDS_MAX);
    ask_rabbitmqctl(d, program_rabbitmqctl(d->rabbitmqctl), &out, &words);
    buf_free(&out);
    buf_free(&words);
}
