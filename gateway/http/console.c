/* The console: the web page that is embedded in the program. The files are static and contain no data: the
 * page reads from the API, with the user's token. So the files need no token.
 *
 * "/" is the page; its files are below "/console/VERSION/", where the version is a hash of their content, so
 * that a browser may cache them for ever. */
#include "gateway/http/http_internal.h"

#include <string.h>

struct console_file {
    const char *name, *type, *data;
    size_t len;
};

#include "console_embedded.h"

#define CONSOLE_PAGE "index.html"
static const char etag[] = "\"" CONSOLE_VERSION "\"";

/* Nothing but our own files, no inline script or style, nothing framed, and no text becomes markup. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types "
    "'none'";

static const struct console_file *find_file(struct bytes name)
{
    for (size_t i = 0; i < sizeof console_files / sizeof console_files[0]; i++)
        if (bytes_equal_str(name, console_files[i].name))
            return &console_files[i];
    return NULL;
}

/* "VERSION/NAME"; NULL: nothing that this program has, or another version of it. */
static const struct console_file *find_path(struct bytes path)
{
    static const char prefix[] = CONSOLE_VERSION "/";
    size_t n = sizeof prefix - 1;
    if (!bytes_start_with_str(path, prefix))
        return NULL;
    const struct console_file *f = find_file(bytes_of(path.data + n, path.len - n));
    return f != NULL && strcmp(f->name, CONSOLE_PAGE) != 0 ? f : NULL;
}

void http_console_answer(struct http_request *r)
{
    struct api_answer *a = &r->api.answer;
    bool is_page = r->api.id.len == 0;
    const struct console_file *f = is_page ? find_file(bytes_of_str(CONSOLE_PAGE)) : find_path(r->api.id);
    if (!r->http->runtime->config->http.console) {
        api_fail(a, API_NO_SUCH_ROUTE, "the console is switched off (http.console); see /openapi.json");
        return;
    }
    if (f == NULL) {
        api_fail(a, API_NOT_FOUND, "the console has no such file in this version: reload /");
        return;
    }
    a->status = is_page && strstr(r->conditions[1], etag) != NULL ? 304 : 200;
    r->file = f;
    r->content_type = f->type;
}

struct bytes http_console_content(const struct http_request *r)
{
    return bytes_of(r->file->data, r->file->len);
}

void http_console_headers(const struct http_request *r, struct buf *out)
{
    bool is_page = strcmp(r->file->name, CONSOLE_PAGE) == 0;
    buf_printf(out, "Cache-Control: %s\r\nETag: %s\r\nContent-Security-Policy: %s\r\n",
               is_page ? "no-cache" : "public, max-age=31536000, immutable", etag, policy);
    buf_put_str(out,
                "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
                "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
                "Permissions-Policy: camera=(), geolocation=(), microphone=()\r\n");
}
