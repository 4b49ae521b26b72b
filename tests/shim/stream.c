/* Reads along in the program's connections to RabbitMQ, just enough to know where methods begin. Plain TCP
 * only.
 *
 * Connections are known by the inode of the socket: the program writes through a duplicate of the library's
 * descriptor.
 *
 * What a message's id is shows in its header; an id that lies across two reads is not seen. */
#include "tests/shim/shim.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#define STREAMS_MAX 256
#define FRAME_HEAD 11 /* type, channel, size; then class and method, which every method frame has */
#define FRAME_METHOD 1
#define PROTOCOL_HEADER 8 /* "AMQP" and a version; no frame begins with an A */
#define METHOD(class_id, method_id) ((uint32_t)(class_id) << 16 | (method_id))

/* Where one direction of a stream is. */
struct track {
    uint8_t head[FRAME_HEAD];
    size_t head_len;
    size_t left; /* bytes of the frame that are to come, its end mark too */
};

struct stream {
    ino_t inode; /* 0: free */
    enum shim_role role;
    bool relayed; /* a message that came out of the exit queue has been published here */
    struct track in, out;
};

#define TAKEN_MAX 256
#define ID_TEXT 36                     /* of a UUID */
static char taken[TAKEN_MAX][ID_TEXT]; /* ids that came out of the exit queue, the latest ones */
static size_t taken_count;

static struct stream streams[STREAMS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ino_t inode_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

static struct stream *find(ino_t inode)
{
    for (size_t i = 0; inode && i < STREAMS_MAX; i++)
        if (streams[i].inode == inode)
            return &streams[i];
    return NULL;
}

void shim_stream_begin(int fd)
{
    static size_t oldest;
    ino_t inode = inode_of(fd);
    if (!inode)
        return;
    pthread_mutex_lock(&lock);
    struct stream *s = find(inode);
    for (size_t i = 0; !s && i < STREAMS_MAX; i++)
        if (streams[i].inode == 0)
            s = &streams[i];
    if (!s)
        s = &streams[oldest++ % STREAMS_MAX];
    *s = (struct stream){.inode = inode, .role = SHIM_POSTGRES};
    pthread_mutex_unlock(&lock);
}

enum shim_role shim_stream_role(int fd)
{
    ino_t inode = inode_of(fd);
    pthread_mutex_lock(&lock);
    const struct stream *s = find(inode);
    enum shim_role role = s ? s->role : SHIM_NO_SERVER;
    pthread_mutex_unlock(&lock);
    return role;
}

/* By the connection's name, which connection.start-ok carries as a long string. */
static enum shim_role role_of(const char *data, size_t len)
{
    static const struct {
        const char *name;
        enum shim_role role;
    } roles[] = {
        {"postdate publisher", SHIM_PUBLISHER}, {"postdate publisher (serial)", SHIM_PUBLISHER},
        {"postdate handover", SHIM_HANDOVER},   {"postdate intake", SHIM_INTAKE},
        {"postdate relay", SHIM_RELAY},         {"postdate rejected", SHIM_PARKER},
        {"postdate control", SHIM_CONTROL},     {"postdate relay proofs", SHIM_PROVER},
    };
    static const char key[] = "connection_nameS";
    const char *at = memmem(data, len, key, sizeof key - 1);
    if (!at || (size_t)(data + len - at) < sizeof key - 1 + 4)
        return SHIM_AMQP;
    at += sizeof key - 1 + 4;
    size_t left = (size_t)(data + len - at), name_len = (uint8_t)at[-1];
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (name_len <= left && strlen(roles[i].name) == name_len && memcmp(at, roles[i].name, name_len) == 0)
            return roles[i].role;
    return SHIM_AMQP;
}

static void see_method(const uint8_t *head, struct shim_seen *seen, bool *start_ok)
{
    uint32_t id = METHOD(head[7] << 8 | head[8], (uint32_t)(head[9] << 8 | head[10]));
    seen->publish |= id == METHOD(60, 40);
    seen->returned |= id == METHOD(60, 50);
    seen->deliver |= id == METHOD(60, 60);
    seen->ack |= id == METHOD(60, 80);
    *start_ok |= id == METHOD(10, 11);
}

static void follow(struct track *t, const uint8_t *data, size_t len, struct shim_seen *seen, bool *start_ok)
{
    while (len > 0) {
        if (t->left > 0) {
            size_t n = t->left < len ? t->left : len;
            t->left -= n;
            data += n;
            len -= n;
            continue;
        }
        t->head[t->head_len++] = *data++;
        len--;
        if (t->head[0] == 'A') { /* the protocol header is no frame */
            t->head_len %= PROTOCOL_HEADER;
            continue;
        }
        bool method = t->head[0] == FRAME_METHOD;
        if (t->head_len < (method ? FRAME_HEAD : 7))
            continue;
        size_t size =
            (size_t)t->head[3] << 24 | (size_t)t->head[4] << 16 | (size_t)t->head[5] << 8 | t->head[6];
        if (method)
            see_method(t->head, seen, start_ok);
        t->left = size + 1 - (t->head_len - 7);
        t->head_len = 0;
    }
}

/* The text of the next message id from at on; NULL: there is none. */
static const char *next_id(const char *at, const char *end)
{
    static const char key[] = "x-postdate-idS";
    at = memmem(at, (size_t)(end - at), key, sizeof key - 1);
    if (!at || end - at < (ptrdiff_t)sizeof key - 1 + 4 + ID_TEXT)
        return NULL;
    return at + sizeof key - 1 + 4; /* behind its length */
}

static bool is_taken(const char *id)
{
    for (size_t i = 0; i < TAKEN_MAX; i++)
        if (memcmp(taken[i], id, ID_TEXT) == 0)
            return true;
    return false;
}

static bool has_relayed(const struct stream *s, const char *data, size_t len, bool out)
{
    const char *end = data + len;
    bool found = s->role == SHIM_PUBLISHER && !out && s->relayed;
    if (out ? s->role == SHIM_PUBLISHER : s->role == SHIM_RELAY)
        for (const char *id = data; !found && (id = next_id(id, end)) != NULL;)
            found = s->role == SHIM_RELAY || is_taken(id);
    return found;
}

static void note_taken(const char *data, size_t len)
{
    const char *end = data + len;
    for (const char *id = data; (id = next_id(id, end)) != NULL;)
        memcpy(taken[taken_count++ % TAKEN_MAX], id, ID_TEXT);
}

struct shim_seen shim_stream_peek(int fd, const void *data, size_t len, bool out)
{
    struct shim_seen seen = {0};
    bool start_ok = false;
    ino_t inode = inode_of(fd);
    pthread_mutex_lock(&lock);
    const struct stream *s = find(inode);
    if (s && s->role >= SHIM_AMQP) {
        struct track copy = out ? s->out : s->in;
        follow(&copy, data, len, &seen, &start_ok);
        seen.relayed = has_relayed(s, data, len, out);
    }
    pthread_mutex_unlock(&lock);
    return seen;
}

void shim_stream_pass(int fd, const void *data, size_t len, bool out)
{
    struct shim_seen seen = {0};
    bool start_ok = false;
    ino_t inode = inode_of(fd);
    pthread_mutex_lock(&lock);
    struct stream *s = find(inode);
    if (s && out && s->role == SHIM_POSTGRES && len >= 4 && memcmp(data, "AMQP", 4) == 0)
        s->role = SHIM_AMQP;
    if (s && s->role >= SHIM_AMQP) {
        if (out)
            s->relayed |= has_relayed(s, data, len, out);
        else if (s->role == SHIM_RELAY)
            note_taken(data, len);
        follow(out ? &s->out : &s->in, data, len, &seen, &start_ok);
        if (out && start_ok)
            s->role = role_of(data, len);
    }
    pthread_mutex_unlock(&lock);
}
