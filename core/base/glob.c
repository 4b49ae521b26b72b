#include "core/base/glob.h"

#include <stddef.h>
#include <stdint.h>

/* Goes back to the last star only. */
bool glob_matches(struct bytes pattern, struct bytes name)
{
    size_t p = 0, n = 0;
    size_t star = SIZE_MAX, resume = 0;
    while (n < name.len) {
        if (p < pattern.len && pattern.data[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < pattern.len && pattern.data[p] == name.data[n]) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.data[p] == '*')
        p++;
    return p == pattern.len;
}
