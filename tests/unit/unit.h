/* What every unit test includes: cmocka and the headers that it wants first. */
#ifndef POSTDATE_TESTS_UNIT_H
#define POSTDATE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#endif
