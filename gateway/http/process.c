/* The process_* metrics, with the names of Prometheus' client libraries, which its dashboards and alerts use.
 */
#include "gateway/http/http_internal.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void print_figure(struct buf *out, const char *name, const char *kind, const char *help, double value)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, kind, name, value);
}

/* proc(5), /proc/self/stat: the 22nd and the 20th of its fields; names may hold blanks and brackets, so they
 * are counted from the last bracket. */
static bool read_stat(double *started_s, long *threads)
{
    char line[1024];
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f != NULL ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    line[n] = '\0';
    const char *rest = NULL;
    for (const char *c = line; *c != '\0'; c++)
        rest = *c == ')' ? c : rest;
    if (rest == NULL || sscanf(rest,
                               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld "
                               "%*d %llu",
                               threads, &ticks) != 2)
        return false;
    *started_s = (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return true;
}

/* proc(5), /proc/self/statm: all and resident, in pages. */
static bool read_memory(double *all, double *resident)
{
    unsigned long long pages = 0, in_memory = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    int found = f != NULL ? fscanf(f, "%llu %llu", &pages, &in_memory) : 0;
    if (f != NULL)
        fclose(f);
    double page = (double)sysconf(_SC_PAGESIZE);
    *all = (double)pages * page;
    *resident = (double)in_memory * page;
    return found == 2;
}

static int count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1; /* the folder's own */
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n - 2; /* . and .. */
}

static double boot_time_s(void)
{
    struct timespec now, up;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    return (double)(now.tv_sec - up.tv_sec) + (double)(now.tv_nsec - up.tv_nsec) / 1e9;
}

void http_print_process(struct buf *out)
{
    struct rusage used;
    struct rlimit files;
    double started_s, all, resident;
    long thread_count;
    if (getrusage(RUSAGE_SELF, &used) == 0)
        print_figure(out, "process_cpu_seconds_total", "counter",
                     "User and system CPU time spent, in seconds.",
                     (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    if (read_memory(&all, &resident)) {
        print_figure(out, "process_resident_memory_bytes", "gauge", "Resident memory, in bytes.", resident);
        print_figure(out, "process_virtual_memory_bytes", "gauge", "Virtual memory, in bytes.", all);
    }
    print_figure(out, "process_open_fds", "gauge", "Open file descriptors.", count_descriptors());
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        print_figure(out, "process_max_fds", "gauge", "File descriptors that may be open.",
                     (double)files.rlim_cur);
    if (read_stat(&started_s, &thread_count)) {
        print_figure(out, "process_start_time_seconds", "gauge",
                     "When the process began, in seconds since 1970.", boot_time_s() + started_s);
        print_figure(out, "process_threads", "gauge", "Threads of the process.", (double)thread_count);
    }
}
