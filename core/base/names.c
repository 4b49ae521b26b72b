#include "core/base/names.h"

#include "core/base/random.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_LEN (sizeof NAMES_PREFIX - 1)

#define NAMES_TEXT_OF_FIELD(field, name) .field = (name),
struct names broker_names = {NAMES_LIST(NAMES_TEXT_OF_FIELD)};

/* What follows the prefix in each of them: "", ".", ".intake", … */
#define NAMES_REST(field, name) &(name)[PREFIX_LEN],
static const char *const rests[] = {NAMES_LIST(NAMES_REST)};
#define COUNT (sizeof rests / sizeof rests[0])

void names_make(struct names *out, const char *prefix)
{
    char(*fields)[NAMES_SIZE] = (void *)out;
    _Static_assert(sizeof *out == COUNT * NAMES_SIZE, "nothing but names");
    for (size_t i = 0; i < COUNT; i++)
        snprintf(fields[i], NAMES_SIZE, "%.*s%s", NAMES_PREFIX_MAX, prefix, rests[i]);
}

void names_set_prefix(const char *prefix)
{
    names_make(&broker_names, prefix);
}

struct names_intake intake_names = {"postdate.intake", "postdate.intake.expired", "postdate.intake.timed"};

void names_set_intake(const char *queue)
{
    snprintf(intake_names.queue, sizeof intake_names.queue, "%s", queue);
    snprintf(intake_names.expired, sizeof intake_names.expired, "%s.expired", queue);
    snprintf(intake_names.timed, sizeof intake_names.timed, "%s.timed", queue);
}

const char *names_random(const char *name, char out[NAMES_SIZE])
{
    snprintf(out, NAMES_SIZE, "%s.%08" PRIx32 "%08" PRIx32, name, random_u32(), random_u32());
    return out;
}

/* The word behind the prefix of the name number i, as "ttl"; a view, empty for those that have none. */
static struct bytes word_of(size_t i)
{
    const char *word = rests[i] + (rests[i][0] == '.');
    return bytes_of(word, strcspn(word, "."));
}

static bool is_word(struct bytes part)
{
    for (size_t i = 0; i < COUNT; i++)
        if (part.len > 0 && bytes_equal(part, word_of(i)))
            return true;
    return bytes_equal_str(part, "delivery"); /* consumers listen there, whatever the prefix */
}

static int refuse(const char *prefix, const char *why, struct err *e)
{
    return err_set(
        e, ERR_CONFIG,
        "\"%.60s\" is no prefix of names: %s (allowed: 1 to %d of the characters A-Z a-z 0-9 . _ -)", prefix,
        why, NAMES_PREFIX_MAX);
}

int names_check_prefix(const char *prefix, struct err *e)
{
    size_t len = strlen(prefix);
    char why[120];
    if (len < 1 || len > NAMES_PREFIX_MAX) {
        snprintf(why, sizeof why, "it has %zu bytes", len);
        return refuse(prefix, why, e);
    }
    for (const char *c = prefix; *c != '\0'; c++)
        if (!isascii((unsigned char)*c) || (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL))
            return refuse(prefix, "it has another character", e);
    if (strcmp(prefix, "amq") == 0 || strncmp(prefix, "amq.", 4) == 0)
        return refuse(prefix, "names that begin with \"amq.\" are RabbitMQ's", e);
    for (const char *part = prefix;; part++) {
        size_t part_len = strcspn(part, ".");
        if (part_len == 0)
            return refuse(prefix, "a part between dots is empty", e);
        if (part != prefix && is_word(bytes_of(part, part_len))) {
            snprintf(why, sizeof why, "\".%.*s\" ends names of a Postdate with a shorter prefix",
                     (int)part_len, part);
            return refuse(prefix, why, e);
        }
        part += part_len;
        if (*part == '\0')
            return 0;
    }
}

bool names_is_own(struct bytes name)
{
    size_t own = strlen(broker_names.own);
    if (bytes_equal_str(name, broker_names.prefix))
        return true;
    if (!bytes_start_with_str(name, broker_names.own))
        return false;
    const uint8_t *word = name.data + own, *dot = memchr(word, '.', name.len - own);
    return is_word(bytes_of(word, dot != NULL ? (size_t)(dot - word) : name.len - own));
}

void names_put_pattern(struct buf *out)
{
    buf_put_u8(out, '^');
    for (const char *c = broker_names.own; *c != '\0'; c++)
        buf_printf(out, *c == '.' ? "\\%c" : "%c", *c);
    buf_put_str(out, "(delivery");
    for (size_t i = 0; i < COUNT; i++)
        if (word_of(i).len > 0 && (i == 0 || !bytes_equal(word_of(i), word_of(i - 1))))
            buf_printf(out, "|%.*s", (int)word_of(i).len, (const char *)word_of(i).data);
    buf_put_str(out, ")(\\.|$)");
}
