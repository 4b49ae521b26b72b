#include "gateway/config/config_load.h"

#include "core/base/bytes.h"
#include "gateway/config/config_table.h"
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)1024 * 1024)
#define SECRET_MAX ((size_t)16 * 1024)

static void add_mistake(struct config_loader *l, enum err_kind kind, char *text)
{
    bytes_clean_text(text); /* files hold anything, and this goes to terminals and logs */
    if (l->mistakes++ == 0)
        err_set(l->e, kind, "%s", text);
    if (l->report != NULL && l->report->mistake != NULL)
        l->report->mistake(l->report->ctx, kind, text);
}

void config_mistake(struct config_loader *l, const char *where, int line, const char *fmt, ...)
{
    char what[500], text[640];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (line > 0)
        snprintf(text, sizeof text, "%s:%d: %s", where, line, what);
    else
        snprintf(text, sizeof text, "%s: %s", where, what);
    add_mistake(l, ERR_CONFIG, text);
}

/* why: the errno of read_text. */
static void add_unread(struct config_loader *l, const char *where, const char *what, int why,
                       const char *limit)
{
    char text[640];
    snprintf(text, sizeof text, "%.200s: cannot read %.200s: %s%s", where, what,
             why == EFBIG    ? limit
             : why == EINVAL ? "it is not a text file (it has a NUL byte)"
                             : strerror(why),
             why == EACCES ? "; run this as root, or with sudo -u postdate" : "");
    add_mistake(l, why == EACCES ? ERR_PERMISSION : ERR_CONFIG, text);
}

static void give_warning(struct config_loader *l, const char *text)
{
    if (l->report != NULL && l->report->warning != NULL)
        l->report->warning(l->report->ctx, text);
}

/* The whole file as a string, or NULL with errno set (EFBIG: longer than max; EINVAL: has a NUL byte). */
static char *read_text(const char *path, size_t max)
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

/* --- the file */

/* inih has a fixed line length (200 in Debian's build) and keeps line numbers to itself, so lines are handed
 * to it one by one from here: without indentation (which it would take for a continued value), and of a long
 * line only `name =`, the value is kept aside. */
struct ini_source {
    struct config_loader *loader;
    const char *path;
    char *next; /* rest of the text */
    int line;
    char *long_value; /* of this line, when it did not fit */
    const int *skip;  /* lines that are malformed, reported already */
    size_t skip_count;
    bool check_only;            /* looking for malformed lines */
    int seen[OPTION_COUNT_MAX]; /* line on which the option was set */
    char section[64];           /* unknown sections are reported once */
};

static char *trim_blanks(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t len = strlen(s);
    while (len > 0 && isspace((unsigned char)s[len - 1]))
        s[--len] = '\0';
    return s;
}

static bool is_skipped(const struct ini_source *s)
{
    for (size_t i = 0; i < s->skip_count; i++) {
        if (s->skip[i] == s->line)
            return true;
    }
    return false;
}

/* One option per line: what stands behind [section] would be lost without a word. */
static void check_section_line(struct ini_source *s, const char *line)
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
    if (option_section_exists(s->section))
        return;
    const char *near = option_nearest_section(s->section);
    config_mistake(s->loader, s->path, s->line, "unknown section [%s]%s%s%s", s->section,
                   near != NULL ? ": did you mean [" : "", near != NULL ? near : "",
                   near != NULL ? "]?" : "");
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
    struct ini_source *s = stream;
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

static void set_route(struct ini_source *s, const char *name, const char *value)
{
    struct err e;
    if (config_add_route(s->loader->config, name, value, &e) != 0)
        config_mistake(s->loader, s->path, s->line, "route.%s: %s", name, e.text);
}

static int take_option(void *user, const char *section, const char *name, const char *value)
{
    struct ini_source *s = user;
    struct err e;
    if (s->long_value != NULL)
        value = trim_blanks(s->long_value);
    if (*section == '\0') {
        config_mistake(s->loader, s->path, s->line, "option %s stands before the first [section]", name);
        return 1;
    }
    if (strcmp(section, "route") == 0) {
        set_route(s, name, value);
        return 1;
    }
    const struct option *o = option_find(section, name);
    if (o == NULL) {
        const char *near = option_nearest_name(section, name);
        if (option_section_exists(section))
            config_mistake(s->loader, s->path, s->line, "unknown option %s.%s%s%s%s%s%s", section, name,
                           near != NULL ? ": did you mean " : "", near != NULL ? section : "",
                           near != NULL ? "." : "", near != NULL ? near : "", near != NULL ? "?" : "");
        return 1;
    }
    int *seen = &s->seen[o - option_table];
    if (*seen != 0)
        config_mistake(s->loader, s->path, s->line, "%s.%s: set before, on line %d", section, name, *seen);
    else if (option_set(o, s->loader->config, value, &e) != 0)
        config_mistake(s->loader, s->path, s->line, "%s.%s: %s", section, name, e.text);
    *seen = s->line;
    return 1;
}

/* inih only reports the first malformed line: blank it out and look again. */
static size_t find_malformed(struct config_loader *l, const char *path, char *text, int *lines, size_t max)
{
    size_t count = 0;
    while (count < max) {
        struct ini_source s = {
            .loader = l, .path = path, .next = text, .skip = lines, .skip_count = count, .check_only = true};
        int line = ini_parse_stream(read_line, &s, ignore_option, &s);
        if (line <= 0)
            break;
        config_mistake(l, path, line, "this line is neither [section] nor option = value");
        lines[count++] = line;
    }
    return count;
}

/* "user:password@" or "password=". */
static bool has_password(const char *url)
{
    if (url == NULL || strstr(url, "password=") != NULL)
        return url != NULL;
    const char *authority = strstr(url, "://");
    size_t len = authority != NULL ? strcspn(authority += 3, "/?") : 0;
    const char *at = len > 0 ? memrchr(authority, '@', len) : NULL;
    return at != NULL && memchr(authority, ':', (size_t)(at - authority)) != NULL;
}

static void warn_readable_passwords(const struct ini_source *s)
{
    struct stat st;
    char warning[600];
    bool here = false;
    for (size_t i = 0; i < option_count; i++) {
        const char *value = NULL;
        if (s->seen[i] == 0 || !option_table[i].secret)
            continue;
        memcpy(&value, (const char *)s->loader->config + option_table[i].offset, sizeof value);
        here |= has_password(value);
    }
    if (!here || stat(s->path, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & S_IROTH) == 0)
        return;
    snprintf(warning, sizeof warning,
             "%.400s holds a password, and every user of this machine may read it: chmod o-r, or keep the "
             "address in a file of its own (POSTDATE_AMQP_URL_FILE)",
             s->path);
    if (s->loader->report && s->loader->report->exposed)
        s->loader->report->exposed(s->loader->report->ctx, warning);
    else
        give_warning(s->loader, warning);
}

void config_load_file(struct config_loader *l, const char *path, bool must_exist)
{
    int malformed[20];
    char *text = read_text(path, FILE_MAX);
    if (text == NULL) {
        if (errno == ENOENT && !must_exist)
            return;
        add_unread(l, path, "the configuration", errno, "it is larger than 1 MiB");
        return;
    }
    l->config->source = strdup(path);
    if (l->config->source == NULL)
        config_mistake(l, path, 0, "out of memory");
    size_t count = find_malformed(l, path, text, malformed, sizeof malformed / sizeof malformed[0]);
    struct ini_source s = {.loader = l, .path = path, .next = text, .skip = malformed, .skip_count = count};
    size_t size = strlen(text);
    ini_parse_stream(read_line, &s, take_option, &s);
    warn_readable_passwords(&s);
    explicit_bzero(text, size); /* the passwords in it */
    free(text);
}

/* --- the environment */

static void set_from_environment(struct config_loader *l, const struct option *o, const char *variable,
                                 const char *value)
{
    struct err e;
    if (option_set(o, l->config, value, &e) != 0)
        config_mistake(l, variable, 0, "%s", e.text);
}

static void set_from_secret_file(struct config_loader *l, const struct option *o, const char *variable,
                                 const char *path)
{
    char *text = read_text(path, SECRET_MAX);
    if (text == NULL) {
        add_unread(l, variable, path, errno, "it is larger than 16 KiB");
        return;
    }
    text[strcspn(text, "\r\n")] = '\0';
    set_from_environment(l, o, variable, text);
    explicit_bzero(text, strlen(text));
    free(text);
}

/* The first route of *rest, with its delay; *rest: what follows, or NULL. */
static char *take_route(char **rest)
{
    char *item = *rest, *end = strchr(item, ',');
    while (end != NULL && config_route_delay(end + 1) != NULL)
        end = strchr(end + 1, ',');
    if (end != NULL)
        *end++ = '\0';
    *rest = end;
    return trim_blanks(item);
}

/* POSTDATE_ROUTE="a=b,c=d,delay=5s" replaces the [route] section. */
static void load_routes(struct config_loader *l, const char *value)
{
    char *copy = strdup(value), *rest = copy;
    if (copy == NULL)
        config_mistake(l, "POSTDATE_ROUTE", 0, "out of memory");
    config_clear_routes(l->config);
    while (rest != NULL) {
        struct err e;
        char *item = take_route(&rest);
        char *equals = strchr(item, '=');
        if (equals == NULL) {
            config_mistake(l, "POSTDATE_ROUTE", 0, "\"%s\" is not intake-exchange=delivery-exchange", item);
            continue;
        }
        *equals = '\0';
        if (config_add_route(l->config, trim_blanks(item), trim_blanks(equals + 1), &e) != 0)
            config_mistake(l, "POSTDATE_ROUTE", 0, "%s: %s", item, e.text);
    }
    free(copy);
}

static bool is_known_variable(const char *name, size_t len)
{
    char env[OPTION_ENV_SIZE];
    static const char *const others[] = {"POSTDATE_CONFIG", "POSTDATE_ROUTE"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strlen(others[i]) == len && strncmp(name, others[i], len) == 0)
            return true;
    }
    for (size_t i = 0; i < option_count; i++) {
        size_t env_len = strlen(option_env_name(&option_table[i], env));
        if (strncmp(name, env, env_len) != 0)
            continue;
        if (len == env_len)
            return true;
        if (option_table[i].secret && len == env_len + 5 && strncmp(name + env_len, "_FILE", 5) == 0)
            return true;
    }
    return false;
}

static void warn_unknown_variables(struct config_loader *l)
{
    char text[480];
    size_t used = 0;
    for (char **v = environ; *v != NULL; v++) {
        size_t len = strcspn(*v, "=");
        if (strncmp(*v, "POSTDATE_", 9) != 0 || is_known_variable(*v, len) || used >= sizeof text)
            continue;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used > 0 ? ", " : "", (int)len, *v);
    }
    if (used == 0)
        return;
    char warning[600];
    snprintf(warning, sizeof warning, "environment variables that are no options are ignored: %s", text);
    give_warning(l, warning);
}

void config_load_environment(struct config_loader *l)
{
    for (size_t i = 0; i < option_count; i++) {
        const struct option *o = &option_table[i];
        char name[OPTION_ENV_SIZE], file_name[OPTION_ENV_SIZE + 8];
        /* Set but empty counts as not set, as container tools pass on variables that they don't have. */
        const char *value = getenv(option_env_name(o, name));
        snprintf(file_name, sizeof file_name, "%s_FILE", name);
        const char *path = o->secret ? getenv(file_name) : NULL;
        bool has_value = value != NULL && *value != '\0', has_path = path != NULL && *path != '\0';
        if (has_value && has_path)
            config_mistake(l, file_name, 0, "%s is set too: set only one of them", name);
        else if (has_value)
            set_from_environment(l, o, name, value);
        else if (has_path)
            set_from_secret_file(l, o, file_name, path);
    }
    const char *routes = getenv("POSTDATE_ROUTE");
    if (routes != NULL && *routes != '\0')
        load_routes(l, routes);
    warn_unknown_variables(l);
}
