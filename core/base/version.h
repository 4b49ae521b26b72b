/* The version of the programs. */
#ifndef POSTDATE_CORE_BASE_VERSION_H
#define POSTDATE_CORE_BASE_VERSION_H

/* As printed by `--version`: "1.2.0"; for a development version "1.2.0-dev+20261128.abc1234", with the date
 * of its commit. The Makefile writes it (tools/version.sh). Letters, digits and "-+." only. */
extern const char version_string[];

#endif
