/* INI files, line by line: the configuration, and the list of cells. A comment is a line that begins with #
 * or
 * ;, and what follows a ; behind a blank. */
#ifndef POSTDATE_GATEWAY_CONFIG_INI_FILE_H
#define POSTDATE_GATEWAY_CONFIG_INI_FILE_H

#include "gateway/config/config_report.h"
#include <stdbool.h>
#include <stddef.h>

#define INI_FILE_MAX ((size_t)1024 * 1024)

struct ini_file {
    /* Set by the caller, except section and line, the position of the reader, and secret. */
    struct config_loader *loader;
    const char *path;
    void (*begin)(struct ini_file *f); /* at a [section], whose name is in section */
    void (*take)(struct ini_file *f, const char *name, const char *value);
    void *ctx;
    char section[64]; /* cut to its size */
    int line;
    bool secret; /* take sets it for a password */
};
/* config_mistake of this line. */
#define ini_file_mistake(f, ...) config_mistake((f)->loader, (f)->path, (f)->line, __VA_ARGS__)

/* Reads the file. Malformed lines are errors of f->loader; a password in a file that every user may read is a
 * warning with that remedy. -1: it cannot be read, errno as of ini_file_text. */
int ini_file_read(struct ini_file *f, const char *remedy);

/* The whole file as a string, or NULL with errno set (EFBIG: longer than max; EINVAL: has a NUL byte). */
char *ini_file_text(const char *path, size_t max);
/* Removes blanks in place; returns the first other character. */
char *ini_file_trim(char *s);
/* Does it contain "user:password@" or "password="? url may be NULL. */
bool ini_file_has_password(const char *url);

#endif
