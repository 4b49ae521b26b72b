# How C is compiled and linked here, included by the Makefile.

PKG_CONFIG ?= pkg-config
LIBS := librabbitmq libssl libpq jansson yaml-0.1
WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Werror=format-security -Wundef -Wvla -Wimplicit-fallthrough
INCLUDE := -I. -I$(GEN) $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(LIBS) 2>/dev/null))
# From the OpenSSF hardening guide (docs/internals/security.md lists each flag). FORTIFY and sanitizers do not go together.
HARDEN := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection
# Those that not every compiler knows: all of them when it takes them all, else each that it takes.
knows = $(shell $(CC) -Werror $(1) -x c -fsyntax-only /dev/null 2>/dev/null && echo '$(1)')
known_of = $(or $(call knows,$(1)),$(foreach f,$(1),$(call knows,$(f))))
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
PLATFORM := $(if $(filter x86_64 i%86,$(MACHINE)),-fcf-protection=full)$(if $(filter aarch64,$(MACHINE)),-mbranch-protection=standard)
DEFINED := $(call known_of,-Wtrampolines -Wbidi-chars=any -Werror=implicit -Werror=incompatible-pointer-types \
	-Werror=int-conversion -fno-delete-null-pointer-checks -fno-strict-overflow \
	-fno-strict-aliasing -ftrivial-auto-var-init=zero $(PLATFORM))
SANITIZE := -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=$(SAN)
FLAGS := -std=c11 -D_GNU_SOURCE -g -pthread -fPIE $(WARN) \
	$(if $(SAN),$(SANITIZE),$(HARDEN) $(DEFINED)) $(CFLAGS)
LINK := -pthread -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,nodlopen -Wl,--as-needed,--no-copy-dt-needed-entries $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS)

LINK_AMQP := $(shell $(PKG_CONFIG) --libs librabbitmq libssl libcrypto 2>/dev/null)
LINK_SQL := $(shell $(PKG_CONFIG) --libs libpq libssl libcrypto 2>/dev/null)
LINK_TEXT := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null)
LINK_ALL := $(LINK_AMQP) $(LINK_SQL) $(LINK_TEXT) -lm
LINK_CLI := $(shell $(PKG_CONFIG) --libs yaml-0.1 2>/dev/null)
LINK_TEST := $(or $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null),-lcmocka) -lm

