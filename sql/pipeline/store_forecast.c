/* What a batch adds to the forecast: how many of it are due in which minute, by exchange. One row for a batch
 * (sql/schema/001_83_forecast.sql), in its transaction. */
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE_MS 60000

static int compare_bytes(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* By minute and exchange. */
static int compare_due(const void *a, const void *b)
{
    const struct store_item *x = *(const struct store_item *const *)a,
                            *y = *(const struct store_item *const *)b;
    int64_t mx = x->message.due_ms / MINUTE_MS, my = y->message.due_ms / MINUTE_MS;
    return mx != my ? (mx > my) - (mx < my) : compare_bytes(x->message.exchange, y->message.exchange);
}

static bool is_same(const struct store_item *x, const struct store_item *y)
{
    return compare_due(&x, &y) == 0;
}

/* sorted has n items. */
static int note_sorted(struct pg *c, const struct store_item **sorted, size_t n, struct err *e)
{
    struct pg_params p = {0};
    size_t distinct = n > 0;
    for (size_t i = 1; i < n; i++)
        distinct += !is_same(sorted[i - 1], sorted[i]);
    struct buf *exchanges = pg_add_array(&p, PG_OID_TEXT, distinct);
    struct buf *minutes = pg_add_array(&p, PG_OID_INT4, distinct);
    struct buf *counts = pg_add_array(&p, PG_OID_INT4, distinct);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && is_same(sorted[i], sorted[next]);)
            next++;
        pg_array_bytes(exchanges, sorted[i]->message.exchange);
        pg_array_int4(minutes, (int32_t)(sorted[i]->message.due_ms / MINUTE_MS));
        pg_array_int4(counts, (int32_t)(next - i));
    }
    return pg_do(c, sql_query_store_forecast_note, &p, e);
}

int note_due(struct pg *c, const struct store_item *items, size_t count, struct err *e)
{
    const struct store_item **sorted = calloc(count + 1, sizeof(const struct store_item *));
    size_t n = 0;
    if (!sorted)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (items[i].result == STORE_ACCEPTED)
            sorted[n++] = &items[i];
    qsort(sorted, n, sizeof(const struct store_item *), compare_due);
    int rc = n > 0 ? note_sorted(c, sorted, n, e) : 0;
    free(sorted);
    return rc;
}
