/* Which version these programs are. */
#ifndef POSTDATE_CORE_BASE_VERSION_H
#define POSTDATE_CORE_BASE_VERSION_H

/* As `--version` says it: "1.2.0", or of a development version "1.2.0-dev+20261128.abc1234", with the date of
 * its commit. The Makefile writes it (tools/version.sh). Letters, digits and "-+." only. */
extern const char version_string[];

#endif
