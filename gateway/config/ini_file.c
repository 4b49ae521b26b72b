#include "gateway/config/ini_file.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MALFORMED_MAX 20

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

static bool is_skipped(const struct ini_file *s)
{
    for (size_t i = 0; i < s->skip_count; i++) {
        if (s->skip[i] == s->line)
            return true;
    }
    return false;
}

/* One option per line: what stands behind [section] would be lost without a word. */
static void check_section_line(struct ini_file *s, const char *line)
{
    const char *end = strchr(line, ']');
    if (end == NULL)
        return; /* inih reports it */
    const char *rest = end + 1 + strspn(end + 1, " \t\r");
    if (*rest != '\0' && *rest != ';' && *rest != '#')
        config_mistake(s->loader, s->path, s->line,
                       "there is text behind the section [%.*s]: put each option on a line of its own",
                       (int)(end - line - 1), line + 1);
    snprintf(s->section, sizeof s->section, "%.*s", (int)(end - line - 1), line + 1);
    s->begin(s);
}

static char *long_line_value(char *line)
{
    char *separator = strpbrk(line, "=:");
    if (separator == NULL)
        return NULL;
    char *value = separator + 1;
    for (char *p = value; *p != '\0'; p++) {
        if (*p == ';' && p > value && isspace((unsigned char)p[-1])) {
            *p = '\0'; /* a comment, by inih's rule */
            break;
        }
    }
    return value;
}

static char *read_line(char *out, int size, void *stream)
{
    struct ini_file *s = stream;
    if (s->next == NULL || *s->next == '\0')
        return NULL;
    char *line = s->next;
    size_t len = strcspn(line, "\n");
    s->next = line + len + (line[len] == '\n');
    s->line++;
    s->long_value = NULL;
    if (s->line == 1 && strncmp(line, "\xEF\xBB\xBF", 3) == 0) {
        line += 3;
        len -= 3;
    }
    while (len > 0 && isspace((unsigned char)*line)) {
        line++;
        len--;
    }
    if (len == 0 || *line == '#' || *line == ';' || is_skipped(s)) {
        snprintf(out, (size_t)size, "\n");
        return out;
    }
    if (!s->check_only) {
        line[len] = '\0'; /* the last pass may cut the text up */
        if (*line == '[')
            check_section_line(s, line);
    }
    if (len + 1 < (size_t)size) {
        snprintf(out, (size_t)size, "%.*s\n", (int)len, line);
        return out;
    }
    size_t name_len = strcspn(line, "=:");
    if (name_len + 3 > (size_t)size)
        name_len = (size_t)size - 3; /* a name that long is unknown anyway */
    snprintf(out, (size_t)size, "%.*s=\n", (int)name_len, line);
    if (!s->check_only)
        s->long_value = long_line_value(line);
    return out;
}

static int ignore_option(void *user, const char *section, const char *name, const char *value)
{
    (void)user, (void)section, (void)name, (void)value;
    return 1;
}

static int take_option(void *user, const char *section, const char *name, const char *value)
{
    struct ini_file *s = user;
    if (s->long_value != NULL)
        value = ini_file_trim(s->long_value);
    if (*section == '\0')
        config_mistake(s->loader, s->path, s->line, "option %s stands before the first [section]", name);
    else
        s->take(s, name, value);
    return 1;
}

/* inih only reports the first malformed line: blank it out and look again. */
static size_t find_malformed(const struct ini_file *f, char *text, int lines[MALFORMED_MAX])
{
    size_t count = 0;
    while (count < MALFORMED_MAX) {
        struct ini_file s = {.next = text, .skip = lines, .skip_count = count, .check_only = true};
        int line = ini_parse_stream(read_line, &s, ignore_option, &s);
        if (line <= 0)
            break;
        config_mistake(f->loader, f->path, line, "this line is neither [section] nor option = value");
        lines[count++] = line;
    }
    return count;
}

void ini_file_read(struct ini_file *f, char *text)
{
    int malformed[MALFORMED_MAX];
    f->skip_count = find_malformed(f, text, malformed);
    f->skip = malformed;
    f->next = text;
    ini_parse_stream(read_line, f, take_option, f);
    f->skip = NULL;
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
