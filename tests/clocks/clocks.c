/* For LD_PRELOAD of the plain programs and of Postgres: their clocks are those of the system plus what is in
 * the file that CLOCKS_FILE names, which a test changes while they run.
 *
 * A machine that stood still for ten seconds is a process that was stopped (SIGSTOP) for ten seconds and
 * whose CLOCK_MONOTONIC and CLOCK_BOOTTIME are ten seconds less from then on. A clock that is set is
 * CLOCK_REALTIME alone. A disk that is busy is a flush that takes longer. Time-outs of the kernel's are what
 * they are. Never shipped, never linked. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NS_PER_S 1000000000

/* The file: numbers of 64 bits, in ns. sync: how much longer a flush to the disk takes. */
struct offsets {
    int64_t realtime, monotonic, boottime, sync;
};

static const struct offsets none;
static const volatile struct offsets *offsets = &none;

__attribute__((constructor)) static void open_clocks(void)
{
    const char *path = getenv("CLOCKS_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        offsets = map;
}

static int64_t offset_ns(clockid_t id)
{
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return offsets->realtime;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
        return offsets->monotonic;
    case CLOCK_BOOTTIME:
        return offsets->boottime;
    default:
        return 0;
    }
}

static void add(struct timespec *t, int64_t ns)
{
    int64_t sum = t->tv_nsec + ns % NS_PER_S;
    t->tv_sec += ns / NS_PER_S + (sum >= NS_PER_S) - (sum < 0);
    t->tv_nsec = sum + (sum < 0 ? NS_PER_S : sum >= NS_PER_S ? -NS_PER_S : 0);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = (int)syscall(SYS_clock_gettime, id, out);
    if (rc == 0)
        add(out, offset_ns(id));
    return rc;
}

EXPORT int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0)
        return -1;
    *out = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
    return 0;
}

EXPORT time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

/* A disk that others keep busy. */
static void wait_for_disk(void)
{
    int64_t ns = offsets->sync;
    if (ns > 0)
        nanosleep(&(struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S}, NULL);
}

EXPORT int fsync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fsync, fd);
}

EXPORT int fdatasync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

/* All of Postdate's conditions wait by CLOCK_MONOTONIC, until a time that it read here. */
EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                                  const struct timespec *restrict until)
{
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec t = *until;
    if (!next)
        return EINVAL;
    add(&t, -offsets->monotonic);
    return next(c, m, &t);
}
