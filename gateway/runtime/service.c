#include "gateway/runtime/service.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int service_socket = -1;
static struct sockaddr_un service_address;
static socklen_t service_address_size;
static int64_t watchdog_ms, told_ms;

/* A path, or "@name" for one without a file. */
static int take_address(const char *name)
{
    size_t len = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || len >= sizeof service_address.sun_path)
        return -1;
    service_address.sun_family = AF_UNIX;
    memcpy(service_address.sun_path, name, len);
    if (name[0] == '@')
        service_address.sun_path[0] = '\0';
    service_address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return 0;
}

/* Only for the process that systemd means. */
static int64_t read_watchdog(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    long long us = strtoll(usec, NULL, 10);
    return us > 0 ? us / 1000 : 0;
}

void service_open(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    if (name != NULL && take_address(name) == 0)
        service_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    watchdog_ms = read_watchdog();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void service_notify(const char *lines)
{
    if (service_socket >= 0)
        while (sendto(service_socket, lines, strlen(lines), MSG_NOSIGNAL,
                      (const struct sockaddr *)&service_address, service_address_size) < 0 &&
               errno == EINTR)
            ;
}

void service_alive(int64_t now_ms)
{
    if (watchdog_ms <= 0 || now_ms - told_ms < watchdog_ms / 2)
        return;
    told_ms = now_ms;
    service_notify("WATCHDOG=1");
}
