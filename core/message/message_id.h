/* Message ids: UUID version 8 (RFC 9562) whose first 48 bits are the due time in ms since 1970, so that the
 * id determines the partition of its row; 74 random bits follow, or 66 where the database has the number of a
 * cell. */
#ifndef POSTDATE_CORE_MESSAGE_MESSAGE_ID_H
#define POSTDATE_CORE_MESSAGE_MESSAGE_ID_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdint.h>

#define MESSAGE_ID_TEXT_SIZE 37 /* 36 characters and the NUL */

struct message_id {
    uint8_t b[16];
};

/* due_ms: 0..TIMESTAMP_MAX_MS; random: 10 bytes from a good source (getrandom(2)). */
struct message_id message_id_make(int64_t due_ms, const uint8_t random[10]);
/* A new one, from random_fill. */
struct message_id message_id_new(int64_t due_ms);
/* The same random bits with another due time. */
struct message_id message_id_move(struct message_id id, int64_t due_ms);
/* The first id of a due time, as a bound. */
struct message_id message_id_least(int64_t due_ms);
/* The lower bound of all ids with this due time or a later one; any ms. Partitions begin and end at such
 * bounds. */
struct message_id message_id_floor(int64_t due_ms);
int64_t message_id_due_ms(struct message_id id);
/* Byte 7, 0 to 255: the number of the cell that made the id; random if that database had no number. So it is
 * only a hint which cell to search first. message_id_of_cell: the id with that cell's number, as SQL makes it
 * (postdate.id_make). */
int message_id_cell(struct message_id id);
struct message_id message_id_of_cell(struct message_id id, int number);
bool message_id_equal(struct message_id a, struct message_id b);

/* Lower-case 8-4-4-4-12. */
const char *message_id_format(struct message_id id, char out[MESSAGE_ID_TEXT_SIZE]);

/* Accepts upper and lower case 8-4-4-4-12; true on success. Any UUID parses; whether it can be one of ours is
 * message_id_is_ours (version 8, variant 10, due in range). */
bool message_id_parse(struct bytes text, struct message_id *out);
bool message_id_is_ours(struct message_id id);

#endif
