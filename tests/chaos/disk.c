/* disk FOLDER MIB: a disk with a write cache that a power cut empties, for a file system on a loop device.
 *
 * Mounts a file system in FOLDER (FUSE, spoken by hand: root, nothing to install) that has one file, `disk`,
 * of so many MiB. What is written is in the cache until the file is flushed, which is what the kernel's loop
 * device makes of a flush of its own. Orders, one line each on stdin, are answered by one line on stdout:
 *
 * - cut SEED PERCENT BYTES: the power fails at the next flush, before it is done, or after a second without
 *   one. From then on nothing that is written or flushed gets an answer. Of what was in the cache so many
 *   percent, in pieces of that size (512 or 4096) that the seed chooses, have reached the disk, and the rest
 *   is lost: a real one writes in any order. Answer: "cut KEPT of CACHED sectors", once it has failed.
 * - release: what was held is refused (EIO), and so is what comes; who is killed can die. After ten quiet
 *   seconds it happens by itself.
 * - mend: the disk serves again, as the cut left it.
 * - lie, honest: flushes are answered and do nothing, a disk that must be found out; they do it again.
 * - count: "flushes N, bytes written N".
 *
 * Ends with its stdin; unmount the rest first. Never shipped. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR 512
#define NODE 2 /* FUSE's number of the file; 1 is the folder */
#define WRITE_MAX (1 << 20)
#define REQUEST_MAX (WRITE_MAX + 65536)
#define HELD_MAX 4096
#define MIB_MAX 65536
#define NAME "disk"
#define CUT_WAIT_MS 1000
/* Who waits for a disk keeps others waiting, who look at it in /proc. */
#define HOLD_MS 10000

enum power { ON, FAILING, HOLDING, OFF };

struct disk {
    int fuse;
    uint64_t bytes;
    uint8_t *now, *kept; /* as it is read; as a cut leaves it */
    uint8_t *dirty;      /* of each sector: differs, perhaps */
    uint64_t *list;      /* the dirty sectors */
    size_t listed;
    enum power power;
    struct {
        uint64_t seed;
        unsigned percent, piece;
    } cut; /* while it is failing */
    bool lies;
    uint64_t held[HELD_MAX]; /* requests without an answer */
    int held_count;
    uint64_t flushes, written;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void *map(size_t bytes)
{
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED)
        die("mmap");
    return m;
}

/* --- the cache -------------------------------------------------------------------------------------------
 */
static void keep(struct disk *d, uint64_t sector)
{
    memcpy(d->kept + sector * SECTOR, d->now + sector * SECTOR, SECTOR);
}

static void take_in(struct disk *d, uint64_t at, const uint8_t *data, uint32_t size)
{
    memcpy(d->now + at, data, size);
    d->written += size;
    for (uint64_t s = at / SECTOR; s <= (at + size - 1) / SECTOR; s++) {
        if (!d->dirty[s])
            d->list[d->listed++] = s;
        d->dirty[s] = 1;
    }
}

static void flush(struct disk *d)
{
    d->flushes++;
    if (d->lies)
        return;
    for (size_t i = 0; i < d->listed; i++) {
        keep(d, d->list[i]);
        d->dirty[d->list[i]] = 0;
    }
    d->listed = 0;
}

/* Mixes well enough that neighbours are independent. */
static uint64_t mixed(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void cut(struct disk *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->listed; i++) {
        uint64_t s = d->list[i];
        if (mixed(mixed(d->cut.seed) + s / (d->cut.piece / SECTOR)) % 100 < d->cut.percent) {
            keep(d, s);
            kept++;
        } else {
            memcpy(d->now + s * SECTOR, d->kept + s * SECTOR, SECTOR);
        }
        d->dirty[s] = 0;
    }
    printf("cut %zu of %zu sectors\n", kept, d->listed);
    fflush(stdout);
    d->listed = 0;
    d->power = HOLDING;
}

/* --- the kernel's requests --------------------------------------------------------------------------------
 */
static void answer(struct disk *d, uint64_t unique, int error, const void *data, size_t size)
{
    struct fuse_out_header head = {.len = (uint32_t)(sizeof head + size), .error = -error, .unique = unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)data, size}};
    if (writev(d->fuse, parts, size ? 2 : 1) < 0 && errno != ENOENT)
        perror("answer");
}

static struct fuse_attr attr_of(const struct disk *d, uint64_t node)
{
    bool file = node == NODE;
    return (struct fuse_attr){.ino = node,
                              .size = file ? d->bytes : 0,
                              .blocks = file ? d->bytes / SECTOR : 0,
                              .mode = file ? S_IFREG | 0600 : S_IFDIR | 0700,
                              .nlink = 1,
                              .blksize = 4096};
}

static void answer_init(struct disk *d, uint64_t unique, const struct fuse_init_in *in)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = in->max_readahead,
                                .flags = in->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES),
                                .max_background = 64,
                                .congestion_threshold = 48,
                                .max_write = WRITE_MAX,
                                .time_gran = 1,
                                .max_pages = WRITE_MAX / 4096};
    answer(d, unique, 0, &out, sizeof out);
}

static void answer_read(struct disk *d, uint64_t unique, const struct fuse_read_in *in)
{
    uint64_t left = in->offset < d->bytes ? d->bytes - in->offset : 0;
    answer(d, unique, 0, d->now + (left ? in->offset : 0), left < in->size ? left : in->size);
}

static void answer_write(struct disk *d, uint64_t unique, const struct fuse_write_in *in)
{
    if (in->size == 0 || in->size > WRITE_MAX || in->offset > d->bytes || in->size > d->bytes - in->offset) {
        answer(d, unique, ENOSPC, NULL, 0);
        return;
    }
    take_in(d, in->offset, (const uint8_t *)(in + 1), in->size);
    answer(d, unique, 0, &(struct fuse_write_out){.size = in->size}, sizeof(struct fuse_write_out));
}

/* True: a write or a flush, of which nobody hears now. */
static bool is_held(struct disk *d, const struct fuse_in_header *in)
{
    if (d->power == ON || (in->opcode != FUSE_WRITE && in->opcode != FUSE_FSYNC))
        return false;
    if (d->power == FAILING && (in->opcode == FUSE_WRITE || d->listed == 0))
        return false;
    if (d->power == FAILING)
        cut(d);
    if (d->power == HOLDING && d->held_count < HELD_MAX)
        d->held[d->held_count++] = in->unique;
    else
        answer(d, in->unique, EIO, NULL, 0);
    return true;
}

static void answer_names(struct disk *d, const struct fuse_in_header *in)
{
    if (in->opcode == FUSE_LOOKUP) {
        if (strcmp((const char *)(in + 1), NAME) == 0)
            answer(d, in->unique, 0,
                   &(struct fuse_entry_out){
                       .nodeid = NODE, .entry_valid = 3600, .attr_valid = 3600, .attr = attr_of(d, NODE)},
                   sizeof(struct fuse_entry_out));
        else
            answer(d, in->unique, ENOENT, NULL, 0);
    } else {
        answer(d, in->unique, 0, &(struct fuse_attr_out){.attr_valid = 3600, .attr = attr_of(d, in->nodeid)},
               sizeof(struct fuse_attr_out));
    }
}

static void serve(struct disk *d, const struct fuse_in_header *in)
{
    const void *rest = in + 1;
    if (is_held(d, in))
        return;
    switch (in->opcode) {
    case FUSE_INIT:
        answer_init(d, in->unique, rest);
        break;
    case FUSE_LOOKUP:
    case FUSE_GETATTR:
    case FUSE_SETATTR: /* times; its size stays */
        answer_names(d, in);
        break;
    case FUSE_OPEN:
        answer(d, in->unique, 0, &(struct fuse_open_out){.open_flags = 0}, sizeof(struct fuse_open_out));
        break;
    case FUSE_READ:
        answer_read(d, in->unique, rest);
        break;
    case FUSE_WRITE:
        answer_write(d, in->unique, rest);
        break;
    case FUSE_FSYNC:
        flush(d);
        answer(d, in->unique, 0, NULL, 0);
        break;
    case FUSE_STATFS:
        answer(d, in->unique, 0, &(struct fuse_statfs_out){.st = {.bsize = 4096, .namelen = 255}},
               sizeof(struct fuse_statfs_out));
        break;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
        answer(d, in->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(d, in->unique, ENOSYS, NULL, 0);
    }
}

/* --- orders ------------------------------------------------------------------------------------------------
 */
static void release(struct disk *d)
{
    d->power = OFF;
    for (int i = 0; i < d->held_count; i++)
        answer(d, d->held[i], EIO, NULL, 0);
    d->held_count = 0;
}

static void obey(struct disk *d, const char *order)
{
    if (sscanf(order, "cut %" SCNu64 " %u %u", &d->cut.seed, &d->cut.percent, &d->cut.piece) == 3 &&
        (d->cut.piece == 512 || d->cut.piece == 4096)) {
        d->power = FAILING;
    } else if (strcmp(order, "release") == 0) {
        release(d);
        puts("released");
    } else if (strcmp(order, "mend") == 0) {
        d->power = ON;
        puts("mended");
    } else if (strcmp(order, "lie") == 0 || strcmp(order, "honest") == 0) {
        d->lies = order[0] == 'l';
        puts(order);
    } else if (strcmp(order, "count") == 0) {
        printf("flushes %" PRIu64 ", bytes written %" PRIu64 "\n", d->flushes, d->written);
    } else {
        puts("what?");
    }
    fflush(stdout);
}

/* False: no more orders. */
static bool read_orders(struct disk *d)
{
    static char text[256];
    static size_t used;
    ssize_t n = read(0, text + used, sizeof text - 1 - used);
    if (n <= 0)
        return false;
    used += (size_t)n;
    text[used] = 0;
    for (char *end; (end = strchr(text, '\n'));
         used -= (size_t)(end + 1 - text), memmove(text, end + 1, used + 1)) {
        *end = 0;
        obey(d, text);
    }
    return used < sizeof text - 1;
}

static void mount_it(struct disk *d, const char *folder)
{
    char options[128];
    d->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (d->fuse < 0)
        die("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", d->fuse);
    if (mount("postdate-disk", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
        die(folder);
}

int main(int argc, char **argv)
{
    static union {
        struct fuse_in_header head;
        uint8_t bytes[REQUEST_MAX];
    } request;
    uint64_t mib = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (mib == 0 || mib > MIB_MAX) {
        fputs("usage: disk FOLDER MIB\n", stderr);
        return 64;
    }
    struct disk d = {.bytes = mib << 20};
    d.now = map(d.bytes);
    d.kept = map(d.bytes);
    d.dirty = map(d.bytes / SECTOR);
    d.list = map(d.bytes / SECTOR * sizeof *d.list);
    mount_it(&d, argv[1]);
    puts("mounted");
    fflush(stdout);
    struct pollfd fds[] = {{.fd = d.fuse, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    for (;;) {
        int wait_ms = d.power == FAILING ? CUT_WAIT_MS : d.power == HOLDING ? HOLD_MS : -1;
        int ready = poll(fds, 2, wait_ms);
        if (ready < 0 && errno != EINTR)
            die("poll");
        if (ready == 0 && d.power == FAILING)
            cut(&d);
        else if (ready == 0)
            release(&d);
        if (ready <= 0)
            continue;
        if (fds[1].revents && !read_orders(&d))
            return 0;
        if (!fds[0].revents)
            continue;
        ssize_t n = read(d.fuse, &request, sizeof request);
        if (n < 0 && errno == ENODEV)
            return 0; /* unmounted */
        if (n >= (ssize_t)sizeof request.head)
            serve(&d, &request.head);
    }
}
