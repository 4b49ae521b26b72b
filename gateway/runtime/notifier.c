#include "gateway/runtime/notifier.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int notifier_open(struct notifier *w, struct err *e)
{
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return w->fd >= 0 ? 0 : err_set(e, ERR_BUG, "eventfd: %s", strerror(errno));
}

void notifier_close(struct notifier *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

void notifier_notify(struct notifier *w)
{
    eventfd_write(w->fd, 1); /* fails only when the counter is full: it rings already */
}

void notifier_wait(struct notifier *w, int other_fd, int64_t timeout_ns)
{
    struct pollfd fds[2] = {{.fd = w->fd, .events = POLLIN}, {.fd = other_fd, .events = POLLIN}};
    struct timespec t = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    eventfd_t rung;
    ppoll(fds, other_fd >= 0 ? 2 : 1, timeout_ns < 0 ? NULL : &t, NULL);
    eventfd_read(w->fd, &rung);
}
