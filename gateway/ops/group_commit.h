/* A group commit and the group of requests that share its transaction. One thread's. */
#ifndef POSTDATE_GATEWAY_OPS_GROUP_COMMIT_H
#define POSTDATE_GATEWAY_OPS_GROUP_COMMIT_H

#include "gateway/ops/api_internal.h"
#include "gateway/ops/executor_internal.h"
#include "gateway/ops/executor_park.h"
#include "sql/operate/idempotency.h"
#include "sql/pipeline/commit_check.h"

#endif
