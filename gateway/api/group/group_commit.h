/* A group commit and the group of requests that share its transaction. One thread's. */
#ifndef POSTDATE_GATEWAY_API_GROUP_GROUP_COMMIT_H
#define POSTDATE_GATEWAY_API_GROUP_GROUP_COMMIT_H

#include "gateway/api/api_internal.h"
#include "gateway/api/executor_internal.h"
#include "gateway/api/executor_park.h"
#include "sql/operate/idempotency.h"
#include "sql/pipeline/commit_check.h"

#endif
