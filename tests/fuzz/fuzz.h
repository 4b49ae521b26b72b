/* What the harnesses share. A harness takes bytes that a stranger could have sent and checks what must hold
 * whatever they are: nothing crashes, what is refused is refused with words, what is accepted can be written
 * again. libFuzzer calls it with new inputs (`make fuzz`), tests/fuzz/replay.c with those of the corpus. */
#ifndef POSTDATE_TESTS_FUZZ_H
#define POSTDATE_TESTS_FUZZ_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stddef.h>
#include <stdint.h>

#define FUZZ_NOW_MS INT64_C(1796630400000) /* some day in December 2026 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A finding: prints what does not hold and aborts. */
#define FUZZ_HOLDS(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_fail(const char *condition, const char *file, int line);

/* A reason that can go into logs, headers and answers: not empty, UTF-8 without control characters. */
void fuzz_check_reason(struct bytes reason);
/* The same of an error's text; it is of this kind. */
void fuzz_check_err(const struct err *e, enum err_kind kind);

/* Takes n bytes, or as many as there are, off the front. */
struct bytes fuzz_take(struct bytes *in, size_t n);
uint8_t fuzz_take_u8(struct bytes *in); /* 0 at the end */
/* A length in one byte, then that many, or as many as there are. */
struct bytes fuzz_take_short(struct bytes *in);
/* Up to the next line end, which is taken and not returned; or everything. */
struct bytes fuzz_take_line(struct bytes *in);

/* A copy with a NUL at the end, which no byte follows, so that reading on is noticed; cut at the first NUL.
 * The caller frees it. */
char *fuzz_text(struct bytes text);
/* A copy of just as many bytes. The caller frees it; not NULL, also without bytes. */
uint8_t *fuzz_copy(struct bytes b);

#endif
