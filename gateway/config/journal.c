#include "gateway/config/journal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* systemd.exec(5): $JOURNAL_STREAM is the device and inode of the stream that systemd connected to the
 * journal; a program in between may have redirected standard error. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char own[48];
    if (!stream || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}

static atomic_bool looked, to_journal;

void journal_look(void)
{
    atomic_store(&to_journal, is_journal());
    atomic_store(&looked, true);
}

const char *journal_priority(enum config_log_level level)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"}; /* sd-daemon(3) */
    if (!atomic_load(&looked))
        journal_look();
    return atomic_load(&to_journal) ? priorities[level] : "";
}
