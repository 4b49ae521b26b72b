/* What a terminal adds: colour, and what was probably meant. */
#include "gateway/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORD_MAX 32

const char *cli_color(enum cli_color color)
{
    static const char *const codes[] = {"\033[0m", "\033[31m", "\033[33m", "\033[32m"};
    static int wanted = -1;
    if (wanted < 0) {
        const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
        wanted = isatty(STDOUT_FILENO) == 1 && (none == NULL || *none == '\0') && term != NULL &&
                 strcmp(term, "dumb") != 0;
    }
    return wanted ? codes[color] : "";
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters to change, add or take away. */
static int distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int above = row[j];
            row[j] = least(least(row[j], row[j - 1]) + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[b_len];
}

bool cli_nearest(const char *word, const char *words, char *out, size_t size)
{
    size_t len = strlen(word);
    int best = len > 4 ? 3 : 2; /* fewer changes than this */
    bool found = false;
    for (const char *w = words + strspn(words, " "); *w != '\0'; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        int d = len <= WORD_MAX && n <= WORD_MAX ? distance(word, len, w, n) : WORD_MAX;
        if (d < best) {
            best = d;
            found = true;
            snprintf(out, size, "%.*s", (int)n, w);
        }
        w += n;
    }
    return found;
}
