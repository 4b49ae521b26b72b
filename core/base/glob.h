/* Patterns of names in which '*' matches any run of bytes. Pure. */
#ifndef POSTDATE_CORE_BASE_GLOB_H
#define POSTDATE_CORE_BASE_GLOB_H

#include "core/base/bytes.h"
#include <stdbool.h>

/* Takes at most pattern times name steps. */
bool glob_matches(struct bytes pattern, struct bytes name);

#endif
