/* What a server reports by code. Its texts are translated (lc_messages) and change with its release: they are
 * shown, and decide nothing. */
#include "sql/connection/pg_internal.h"

#include <string.h>

#define SQLSTATE_LEN 5

/* SQLSTATE to what the caller should do. Source: PostgreSQL 15, appendix A. */
enum err_kind pg_kind_of_sqlstate(const char *s)
{
    static const struct {
        const char *prefix;
        enum err_kind kind;
    } table[] = {
        {"08", ERR_AWAY},      {"57P", ERR_AWAY},      {"25006", ERR_AWAY},       {"53300", ERR_AWAY},
        {"25P03", ERR_AWAY},   {"25P04", ERR_AWAY}, /* it ended a session whose transaction took too long */
        {"55P03", ERR_BUSY},   {"40", ERR_BUSY},       {"57014", ERR_BUSY},       {"53", ERR_BUSY},
        {"58", ERR_BUSY},      {"28", ERR_PERMISSION}, {"42501", ERR_PERMISSION}, {"3D000", ERR_CONFIG},
        {"3F000", ERR_CONFIG}, {"42P01", ERR_CONFIG},  {"42703", ERR_CONFIG},     {"42883", ERR_CONFIG},
        {"26000", ERR_CONFIG}, {"42P05", ERR_CONFIG},  {"22", ERR_REJECT},        {"23", ERR_REJECT},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strncmp(s, table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].kind;
    return ERR_BUG;
}

/* Constraints have names, the bounds of partitions have none, and the table is named (ExecFindPartition).
 * Somebody's trigger that raises the same names no table. */
bool pg_is_no_partition(const char *sqlstate, const char *constraint, const char *table)
{
    return strcmp(sqlstate, "23514") == 0 && constraint == NULL && table != NULL;
}

/* Source: src/backend/replication/syncrep.c, PostgreSQL 13 to 18. Something between here and there may drop
 * the name of the function: then each warning of these two codes counts. */
bool pg_is_local_commit(const char *sqlstate, const char *function)
{
    if (function)
        return strcmp(function, "SyncRepWaitForLSN") == 0;
    return sqlstate && (strcmp(sqlstate, "01000") == 0 || strcmp(sqlstate, "57P01") == 0);
}

static bool is_sqlstate(const char *s)
{
    for (size_t i = 0; i < SQLSTATE_LEN; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z')))
            return false;
    return s[SQLSTATE_LEN] == ':' && s[SQLSTATE_LEN + 1] == ' ';
}

/* libpq has no result for a connection that failed, only its verbose text, whose shape is the same in each
 * language: "SEVERITY:  SQLSTATE: message" (pqBuildErrorMessage3). */
bool pg_login_sqlstate(const char *text, char out[6])
{
    for (const char *at = text; (at = strstr(at, ":  ")) != NULL; at += 3) {
        if (!is_sqlstate(at + 3))
            continue;
        memcpy(out, at + 3, SQLSTATE_LEN);
        out[SQLSTATE_LEN] = '\0';
        return true;
    }
    return false;
}
