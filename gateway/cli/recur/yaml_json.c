#include "gateway/cli/recur/yaml_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX 64
#define VALUES_MAX 500000
#define QUOTES_HINT " (in YAML a text that begins with * or @ needs quotes: cron: \"*/5 * * * *\")"

struct reader {
    yaml_parser_t parser;
    struct bytes text;
    struct buf *out;
    int values;
    struct err *e;
};

static int refuse_event(struct reader *r, const yaml_event_t *event, const char *why)
{
    return err_set(r->e, ERR_REJECT, "line %zu: %s", event->start_mark.line + 1, why);
}

/* What cron expressions begin with and YAML keeps for itself: aliases (*name), and @. */
static bool wants_quotes(const struct reader *r)
{
    size_t at = r->parser.problem_mark.index;
    return (at < r->text.len && r->text.data[at] == '@') ||
           (at > 0 && at <= r->text.len && r->text.data[at - 1] == '*');
}

static int next_event(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return 0;
    bool quotes = r->parser.error == YAML_SCANNER_ERROR && wants_quotes(r);
    return err_set(r->e, r->parser.error == YAML_MEMORY_ERROR ? ERR_BUG : ERR_REJECT, "line %zu: %s%s",
                   r->parser.problem_mark.line + 1,
                   r->parser.problem != NULL ? r->parser.problem : "it is no YAML",
                   quotes ? QUOTES_HINT : "");
}

/* A text, as JSON has it. */
static int put_text(struct reader *r, const yaml_event_t *event)
{
    json_auto_t *text = json_stringn((const char *)event->data.scalar.value, event->data.scalar.length);
    if (memchr(event->data.scalar.value, '\0', event->data.scalar.length) != NULL)
        return refuse_event(r, event, "a text has a zero byte (\\0) in it");
    char *written = json_dumps(text, JSON_ENCODE_ANY);
    buf_put_str(r->out, written != NULL ? written : "");
    bool failed = written == NULL;
    free(written);
    return failed ? err_set(r->e, ERR_BUG, "out of memory") : 0;
}

/* null, true, a number: plain words that JSON has, too. */
static bool is_json(struct bytes text)
{
    json_error_t why;
    json_auto_t *v =
        json_loadb((const char *)text.data, text.len, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    return v != NULL ? !json_is_string(v) && !json_is_array(v) && !json_is_object(v)
                     : json_error_code(&why) == json_error_numeric_overflow;
}

static bool has_foreign_tag(const yaml_char_t *tag)
{
    return tag != NULL && strcmp((const char *)tag, "!") != 0 &&
           strcmp((const char *)tag, "tag:yaml.org,2002:str") != 0;
}

static int put_node(struct reader *r, const yaml_event_t *event, int depth);

/* A sequence, or a mapping, up to its end. */
static int put_items(struct reader *r, bool mapping, int depth)
{
    yaml_event_type_t end = mapping ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    for (size_t i = 0;; i++) {
        yaml_event_t event;
        if (next_event(r, &event) != 0)
            return -1;
        bool done = event.type == end, key = mapping && i % 2 == 0;
        int rc = 0;
        if (!done)
            buf_put_str(r->out, i == 0 ? "" : mapping && !key ? ":" : ",");
        if (!done && key && event.type != YAML_SCALAR_EVENT)
            rc = refuse_event(r, &event, "a name is no text");
        else if (!done && key)
            rc = put_text(r, &event);
        else if (!done)
            rc = put_node(r, &event, depth + 1);
        yaml_event_delete(&event);
        if (done || rc != 0)
            return rc;
    }
}

static int put_node(struct reader *r, const yaml_event_t *event, int depth)
{
    bool mapping = event->type == YAML_MAPPING_START_EVENT;
    if (depth > DEPTH_MAX || ++r->values > VALUES_MAX)
        return refuse_event(r, event,
                            depth > DEPTH_MAX ? "it is nested too deep" : "there are too many values");
    if (event->type == YAML_SCALAR_EVENT) {
        struct bytes text = bytes_of(event->data.scalar.value, event->data.scalar.length);
        bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && event->data.scalar.tag == NULL;
        if (has_foreign_tag(event->data.scalar.tag))
            return refuse_event(r, event, "tags are not supported here");
        if (plain && (text.len == 0 || bytes_equal_str(text, "~")))
            buf_put_str(r->out, "null");
        else if (plain && is_json(text))
            buf_put_bytes(r->out, text);
        else
            return put_text(r, event);
        return 0;
    }
    if (event->type == YAML_ALIAS_EVENT)
        return refuse_event(r, event, "aliases (*name) are not supported here" QUOTES_HINT);
    if (!mapping && event->type != YAML_SEQUENCE_START_EVENT)
        return refuse_event(r, event, "there is no value");
    if (has_foreign_tag(mapping ? event->data.mapping_start.tag : event->data.sequence_start.tag))
        return refuse_event(r, event, "tags are not supported here");
    buf_put_str(r->out, mapping ? "{" : "[");
    if (put_items(r, mapping, depth) != 0)
        return -1;
    buf_put_str(r->out, mapping ? "}" : "]");
    return 0;
}

/* The beginning, one document, the end. */
static int put_stream(struct reader *r)
{
    static const yaml_event_type_t frame[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                              YAML_NO_EVENT, YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT};
    for (size_t i = 0; i < sizeof frame / sizeof frame[0]; i++) {
        yaml_event_t event;
        int rc = 0;
        if (next_event(r, &event) != 0)
            return -1;
        if (frame[i] == YAML_NO_EVENT)
            rc = put_node(r, &event, 0);
        else if (event.type != frame[i])
            rc = refuse_event(r, &event, i == 1 ? "there is nothing" : "a second document begins");
        yaml_event_delete(&event);
        if (rc != 0)
            return -1;
    }
    return 0;
}

int yaml_to_json(struct bytes text, struct buf *out, struct err *e)
{
    struct reader r = {.text = text, .out = out, .e = e};
    if (!yaml_parser_initialize(&r.parser))
        return err_set(e, ERR_BUG, "out of memory");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, text.data, text.len);
    int rc = put_stream(&r);
    yaml_parser_delete(&r.parser);
    if (rc == 0 && out->failed)
        rc = err_set(e, ERR_REJECT, "it is longer than %zu bytes", out->limit);
    return rc;
}
