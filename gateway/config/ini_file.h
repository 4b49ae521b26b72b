/* INI files, line by line, through inih: the configuration, and the list of cells. */
#ifndef POSTDATE_GATEWAY_CONFIG_INI_FILE_H
#define POSTDATE_GATEWAY_CONFIG_INI_FILE_H

#include "gateway/config/config_report.h"
#include <stdbool.h>
#include <stddef.h>

#define INI_FILE_MAX ((size_t)1024 * 1024)

/* inih has a fixed line length (200 in Debian's build) and keeps line numbers to itself, so lines are handed
 * to it one by one from here: without indentation (which it would take for a continued value), and of a long
 * line only `name =`, the value is kept aside. */
struct ini_file {
    /* Set by the caller; section and line say where the reader is. */
    struct config_loader *loader;
    const char *path;
    void (*begin)(struct ini_file *f); /* a [section], whose name is in section */
    void (*take)(struct ini_file *f, const char *name, const char *value);
    void *ctx;
    char section[64]; /* cut to its size */
    int line;
    /* The reader's own. */
    char *next;       /* rest of the text */
    char *long_value; /* of this line, when it did not fit */
    const int *skip;  /* lines that are malformed, reported already */
    size_t skip_count;
    bool check_only; /* looking for malformed lines */
};

/* Reads text (which it cuts up) to its end. Malformed lines are mistakes of f->loader. */
void ini_file_read(struct ini_file *f, char *text);

/* The whole file as a string, or NULL with errno set (EFBIG: longer than max; EINVAL: has a NUL byte). */
char *ini_file_text(const char *path, size_t max);
/* In place; where it begins. */
char *ini_file_trim(char *s);
/* "user:password@" or "password=". url may be NULL. */
bool ini_file_has_password(const char *url);

#endif
