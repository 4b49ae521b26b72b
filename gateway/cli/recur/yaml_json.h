/* Converts YAML, for files that users write, to JSON text. Only JSON's features: no aliases, no tags, one
 * document. Plain scalars are strings unless they are null, true, false or a JSON number. */
#ifndef POSTDATE_GATEWAY_CLI_RECUR_YAML_JSON_H
#define POSTDATE_GATEWAY_CLI_RECUR_YAML_JSON_H

#include "core/base/buf.h"
#include "core/base/err.h"

/* -1: ERR_REJECT names the line. */
int yaml_to_json(struct bytes text, struct buf *out, struct err *e);

#endif
