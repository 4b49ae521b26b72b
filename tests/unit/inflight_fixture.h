/* Messages in flight, as the claimer makes them. */
#ifndef POSTDATE_TESTS_INFLIGHT_FIXTURE_H
#define POSTDATE_TESTS_INFLIGHT_FIXTURE_H

#include "gateway/deliver/inflight.h"
#include "tests/unit/unit.h"

/* Number and budget are the caller's to look at: each message has an id of its own, and memory that counts.
 */
static inline struct inflight *make_inflight(struct inflight_budget *budget, int number, const char *exchange,
                                             const char *routing_key)
{
    const uint8_t random[10] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16)};
    struct claimed_row row = {.message = {.id = message_id_make(1000, random),
                                          .exchange = bytes_of_str(exchange),
                                          .routing_key = bytes_of_str(routing_key),
                                          .body = bytes_of_str("body")},
                              .attempts = number};
    struct inflight *h = inflight_new(&row, 1, budget);
    assert_non_null(h);
    return h;
}

/* All of them were freed. */
static inline void assert_budget_is_free(struct inflight_budget *budget)
{
    assert_int_equal(atomic_load(&budget->count), 0);
    assert_int_equal(atomic_load(&budget->bytes), 0);
}

#endif
