/* What the HTTP and control harnesses have instead of a database: answers that the input chooses. The
 * functions of sql/ that the operations call are defined here, and check what they are asked. No server is
 * imitated; what Postgres really says is the live tests' subject. */
#ifndef POSTDATE_TESTS_FUZZ_DATABASE_H
#define POSTDATE_TESTS_FUZZ_DATABASE_H

#include "gateway/ops/api.h"

/* The answers to come, one byte each; when they are used up, 0. */
void database_script(struct bytes answers);

/* Runs a request as the desk does. The answer is there afterwards, and it is checked. */
void database_run(struct api_request *r);

/* For the files of this mock: the next byte of the script; 0, or -1 and an error as sql/ makes one (found:
 * that of a function that looks for something). */
uint8_t database_byte(void);
int database_outcome(bool found, struct err *e);

#endif
