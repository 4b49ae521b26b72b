#include "gateway/config/ini_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_ORDER_MARK "\xEF\xBB\xBF" /* programs on Windows begin a file with it */

char *ini_file_text(const char *path, size_t max)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NULL;
    char *text = malloc(max + 2);
    size_t len = text == NULL ? 0 : fread(text, 1, max + 1, f);
    int failed = text == NULL ? ENOMEM : ferror(f) ? EIO : len > max ? EFBIG : 0;
    fclose(f);
    if (failed == 0) {
        text[len] = '\0';
        if (strlen(text) != len)
            failed = EINVAL;
    }
    if (failed != 0) {
        free(text);
        text = NULL;
        errno = failed;
    }
    return text;
}

char *ini_file_trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t len = strlen(s);
    while (len > 0 && isspace((unsigned char)s[len - 1]))
        s[--len] = '\0';
    return s;
}

/* One option per line: what stands behind [section] would be lost without a word. */
static void begin_section(struct ini_file *f, const char *name, const char *rest)
{
    if (*rest != '\0' && *rest != ';' && *rest != '#')
        ini_file_mistake(f, "there is text behind the section [%s]: put each option on a line of its own",
                         name);
    snprintf(f->section, sizeof f->section, "%s", name);
    f->begin(f);
}

/* Many write a comment so. It would be part of the value, such as the name of a database. */
static bool has_hash_behind(const char *value)
{
    for (const char *c = strchr(value, '#'); c != NULL; c = strchr(c + 1, '#'))
        if (c > value && isspace((unsigned char)c[-1]))
            return true;
    return false;
}

static void read_line(struct ini_file *f, char *line)
{
    for (char *c = line; *c != '\0'; c++)
        if (*c == ';' && c > line && isspace((unsigned char)c[-1]))
            c[-1] = *c = '\0'; /* a comment */
    line = ini_file_trim(line);
    if (*line == '\0' || *line == '#' || *line == ';')
        return;
    char *end = *line == '[' ? strchr(line, ']') : strpbrk(line, "=:");
    if (end == NULL) {
        ini_file_mistake(f, "this line is neither [section] nor option = value");
        return;
    }
    *end++ = '\0';
    if (*line == '[')
        begin_section(f, line + 1, ini_file_trim(end));
    else if (f->section[0] == '\0')
        ini_file_mistake(f, "option %s stands before the first [section]", ini_file_trim(line));
    else if (has_hash_behind(end))
        ini_file_mistake(f,
                         "option %s: '#' behind a space begins no comment there: write ';', or give the "
                         "comment a line of its own",
                         ini_file_trim(line));
    else
        f->take(f, ini_file_trim(line), ini_file_trim(end));
}

int ini_file_read(struct ini_file *f, const char *remedy)
{
    char *text = ini_file_text(f->path, INI_FILE_MAX), *rest = text;
    if (text == NULL)
        return -1;
    size_t size = strlen(text);
    if (strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        rest += strlen(BYTE_ORDER_MARK);
    while (rest != NULL) {
        char *line = strsep(&rest, "\n");
        f->line++;
        read_line(f, line);
    }
    if (f->secret)
        config_warn_exposed(f->loader, f->path, remedy);
    explicit_bzero(text, size); /* the passwords in it */
    free(text);
    return 0;
}

/* "user:password@" or "password=". */
bool ini_file_has_password(const char *url)
{
    if (url == NULL || strstr(url, "password=") != NULL)
        return url != NULL;
    const char *authority = strstr(url, "://");
    size_t len = authority != NULL ? strcspn(authority += 3, "/?") : 0;
    const char *at = len > 0 ? memrchr(authority, '@', len) : NULL;
    return at != NULL && memchr(authority, ':', (size_t)(at - authority)) != NULL;
}
