# Postdate. Everything that is built goes under build/; `make help` lists the targets.
#
#   WERROR=1                warnings are errors (as in CI)
#   SAN=address,undefined   sanitizer build under build/san-address-undefined; also SAN=thread
#   V=1                     show whole commands
#   CC=, CFLAGS=, LDFLAGS=  as usual; CFLAGS and LDFLAGS are appended
#   PYTHON=                 the Python 3 (with pika) that runs the demo and the live tests

VERSION := 0.1.0
PREFIX ?= /usr/local
DESTDIR ?=
comma := ,
space := $(subst ,, )
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)
# What must be said right by who calls make: $(call one_of,NAME,a b c).
one_of = $(if $(filter $($(1)),$(2)),,@printf '%s=%s: allowed are %s\n' $(1) '$(subst ','\'',$($(1)))' '$(subst $(space),$(comma) ,$(2))' >&2; exit 64)

BUILD := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
GEN := build/gen
SAN_TEST := address,undefined
JOBS := $(shell nproc 2>/dev/null || echo 2)
PYTHON ?= $(or $(shell for p in /usr/bin/python3 python3; do \
	$$p -c 'import pika' 2>/dev/null && { echo $$p; break; }; done),/usr/bin/python3)
TRANSPORT ?= auto

# --- flags -----------------------------------------------------------------------------------------------------
LIBS := librabbitmq libssl libpq jansson inih libmicrohttpd
WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Werror=format-security -Wundef -Wvla -Wimplicit-fallthrough
INCLUDE := -I. -I$(GEN) $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(LIBS) 2>/dev/null))
# From the OpenSSF hardening guide (docs/security.md tells about each flag). FORTIFY and sanitizers do not go together.
HARDEN := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection
# Those that not every compiler knows: all of them when it takes them all, else each that it takes.
knows = $(shell $(CC) -Werror $(1) -x c -fsyntax-only /dev/null 2>/dev/null && echo '$(1)')
known_of = $(or $(call knows,$(1)),$(foreach f,$(1),$(call knows,$(f))))
MACHINE := $(shell uname -m)
PLATFORM := $(if $(filter x86_64 i%86,$(MACHINE)),-fcf-protection=full)$(if $(filter aarch64,$(MACHINE)),-mbranch-protection=standard)
DEFINED := $(call known_of,-Wtrampolines -Wbidi-chars=any -Werror=implicit -Werror=incompatible-pointer-types \
	-Werror=int-conversion -fno-delete-null-pointer-checks -fno-strict-overflow \
	-fno-strict-aliasing -ftrivial-auto-var-init=zero $(PLATFORM))
SANITIZE := -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=$(SAN)
FLAGS := -std=c11 -D_GNU_SOURCE -DPOSTDATE_VERSION='"$(VERSION)"' -g -pthread -fPIE $(WARN) \
	$(if $(SAN),$(SANITIZE),$(HARDEN) $(DEFINED)) $(CFLAGS)
LINK := -pthread -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,nodlopen -Wl,--as-needed,--no-copy-dt-needed-entries $(if $(SAN),-fsanitize=$(SAN)) $(LDFLAGS)

LINK_AMQP := $(shell pkg-config --libs librabbitmq libssl libcrypto 2>/dev/null)
LINK_SQL := $(shell pkg-config --libs libpq libssl libcrypto 2>/dev/null)
LINK_TEXT := $(shell pkg-config --libs jansson inih 2>/dev/null)
LINK_ALL := $(LINK_AMQP) $(LINK_SQL) $(LINK_TEXT) -lm
LINK_HTTP := $(shell pkg-config --libs libmicrohttpd 2>/dev/null)
LINK_TEST := $(or $(shell pkg-config --libs cmocka 2>/dev/null),-lcmocka) -lm

# --- what is built from what -------------------------------------------------------------------------------------
object = $(patsubst %.c,$(BUILD)/%.o,$(1))
CORE := $(call object,$(wildcard core/*/*.c))
SQL := $(call object,$(wildcard sql/*/*.c)) $(BUILD)/gen/sql_embedded.o
AMQP := $(call object,$(wildcard amqp/*/*.c))
DAEMON := $(call object,gateway/runtime/main.c)
CLI := $(call object,$(wildcard gateway/cli/*.c gateway/cli/*/*.c))
GATEWAY := $(filter-out $(DAEMON) $(CLI),$(call object,$(wildcard gateway/*/*.c gateway/api/*/*.c)))
EMBEDDED := $(wildcard sql/schema/*.sql sql/query/*.sql)

UNIT_SRC := $(wildcard tests/unit/test_*.c)
TOOL_SRC := $(filter-out tests/tools/load_%,$(wildcard tests/tools/*.c))
LOAD_SRC := $(wildcard tests/tools/load_*.c)
UNITS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(TOOL_SRC))
LIB = $(BUILD)/lib$(1).a
LIBRARIES := $(foreach l,gateway sql amqp core,$(call LIB,$(l)))
SOURCES := $(sort $(wildcard $(foreach d,core sql amqp gateway gateway/api gateway/cli tests,$(d)/*/*.[ch]) tools/*.[ch]))
CONFIG_PAGE := $(BUILD)/tools/config_page

.PHONY: all units chaos bench deps stack stack-stop stack-clean run transport-known demo test-deps test-known test \
	matrix faults-full install clean format check tidy help libraries-found
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/postdated $(BUILD)/postdate

# How anything is compiled and linked: $(compile), $(call link,WHAT).
define compile
@mkdir -p $(@D)
$(call say,CC)
$(Q)$(CC) $(FLAGS) $(PIC) $(if $(WERROR),-Werror) $(INCLUDE) -MMD -MP -c -o $@ $<
endef
define link
@mkdir -p $(@D)
$(call say,LINK)
$(Q)$(CC) $(LINK) -o $@ $(1)
endef

$(BUILD)/postdated: $(DAEMON) $(LIBRARIES)
	$(call link,$^ $(LINK_ALL) $(LINK_HTTP))
$(BUILD)/postdate: $(CLI) $(LIBRARIES)
	$(call link,$^ $(LINK_ALL))

$(call LIB,core): $(CORE)
$(call LIB,sql): $(SQL)
$(call LIB,amqp): $(AMQP)
$(call LIB,gateway): $(GATEWAY)
$(BUILD)/lib%.a:
	$(call say,AR)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/%.o: %.c $(BUILD)/flags | libraries-found
	$(compile)

# SQL files become C strings (sql_embedded.h says which); all builds share them.
$(GEN)/sql_embedded.h $(GEN)/sql_embedded.c &: tools/embed_sql.sh $(EMBEDDED) $(GEN)/sql_files
	$(Q)tools/embed_sql.sh $(GEN) $(sort $(EMBEDDED))
$(BUILD)/gen/sql_embedded.o: $(GEN)/sql_embedded.c $(BUILD)/flags
	$(compile)
$(SQL): | $(GEN)/sql_embedded.h

$(GEN)/openapi_embedded.h: tools/embed_text.sh gateway/http/openapi.json
	@mkdir -p $(@D)
	$(Q)tools/embed_text.sh gateway/http/openapi.json openapi_json $@
$(GATEWAY): | $(GEN)/openapi_embedded.h

# Files that change only when their text does: other flags rebuild everything, a removed .sql file the embedding.
stamp = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
	printf '%s\n' '$(subst ','\'',$(1))' >$@
.PHONY: force
$(BUILD)/flags: force
	$(call stamp,$(CC) $(FLAGS))
$(GEN)/sql_files: force
	$(call stamp,$(EMBEDDED))

libraries-found:
	@pkg-config --exists $(LIBS) || \
	{ echo "Libraries are missing (wanted: $(LIBS)). Run 'make deps' first."; exit 69; }

# --- tests: a unit test links of the libraries what it uses ---------------------------------------------------------
NO_MEMORY := $(BUILD)/tests/test_no_memory $(BUILD)/tests/test_no_memory_json
$(NO_MEMORY): UNIT_LINK = $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc strdup free)

units: $(UNITS) $(TOOLS) $(if $(SAN),,build/tests/shim.so build/tests/clocks.so build/tests/chaos/witness)

# For LD_PRELOAD, with the plain programs only: the shim makes them die or fail where a test wants it, the clocks are wrong
# on purpose, of Postgres, too. Never installed or linked.
SHIM := $(patsubst %.c,build/%.lo,$(wildcard tests/shim/*.c)) build/gen/sql_embedded.lo
build/tests/shim.so: $(SHIM)
build/tests/clocks.so: build/tests/clocks/clocks.lo
build/tests/%.so:
	$(call say,LINK)
	$(Q)$(CC) -shared -pthread -Wl,-z,relro,-z,now,-z,noexecstack -o $@ $^ -ldl
build/%.lo: PIC := -fPIC -fvisibility=hidden
build/%.lo: %.c $(BUILD)/flags
	$(compile)
build/gen/sql_embedded.lo: $(GEN)/sql_embedded.c $(BUILD)/flags
	$(compile)
$(SHIM): | $(GEN)/shim_queries.inc
$(GEN)/shim_queries.inc: $(GEN)/sql_embedded.h
	$(Q)sed -n 's/^extern const char sql_query_\(.*\)\[\];/    {"\1", sql_query_\1},/p' $< >$@

$(BUILD)/tests/test_%: $(BUILD)/tests/unit/test_%.o $(LIBRARIES)
	$(call link,$^ $(UNIT_LINK) $(LINK_ALL) $(LINK_HTTP) $(LINK_TEST))

$(BUILD)/tests/tools/load: $(call object,$(LOAD_SRC))
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(call LIB,amqp) $(call LIB,core)
	$(call link,$(filter %.o,$^) $(filter %.a,$^) $(LINK_AMQP) -lm)

# The chaos suite's witness: an oracle of its own, so it links nothing of ours.
$(BUILD)/tests/chaos/%: $(BUILD)/tests/chaos/%.o
	$(call link,$^ $(LINK_AMQP))

include tests/fuzz/fuzz.mk

# --- servers, demo, tests: these install what is missing, then build with a fresh look at the libraries ----------
deps:
	@tools/deps.sh

stack: deps
	@tools/stack.sh start
stack-stop:
	@tools/stack.sh stop
stack-clean:
	@tools/stack.sh clean

run: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@tools/run.sh $(BUILD)

transport-known:
	$(call one_of,TRANSPORT,auto plugin ttl timer)
demo: transport-known deps
	@echo "Building ..." && $(MAKE) --no-print-directory -s -j$(JOBS) all
	@PYTHON=$(PYTHON) TRANSPORT=$(TRANSPORT) tests/demo/run.sh $(BUILD)

# What only tests want: a connection pooler, and a clock that can be moved, for `postdate doctor`.
test-deps:
	@tools/deps.sh pgbouncer libfaketime

TEST ?= all
test-known:
	$(call one_of,TEST,all live)
test: test-known test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@[ '$(TEST)' = live ] || $(MAKE) --no-print-directory -s -j$(JOBS) SAN=$(SAN_TEST) all units replays
	@TEST='$(TEST)' $(PYTHON) tools/run_tests.py build build/san-$(subst $(comma),-,$(SAN_TEST))

# The README's commands on each Debian that users have; tools/matrix.sh says what the environment can ask for. Needs root.
matrix:
	@SUITES='$(SUITES)' ONLY='$(ONLY)' TEST='$(TEST)' tools/matrix.sh

# Many faults, and a ledger that knows better; tests/chaos/run.py says what the environment can ask for.
chaos: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@SEED='$(SEED)' FAULTS='$(FAULTS)' $(PYTHON) tests/chaos/run.py

# Everything measured in one run; tests/bench/bench.py says what the environment can ask for. Without wrk the rows for HTTP are missing.
bench: deps
	@command -v wrk >/dev/null || tools/deps.sh wrk || echo "Going on without wrk, the HTTP load program."
	@$(MAKE) --no-print-directory -s -j$(JOBS) all build/tests/tools/load
	@$(PYTHON) tests/bench/bench.py

faults-full: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@POSTDATE_TEST_FULL=1 POSTDATE_TEST_LIMIT_S=20000 ONLY='CrashPoints CutPoints NthFailure' \
		$(PYTHON) tools/run_tests.py build build/san-$(subst $(comma),-,$(SAN_TEST))

# --- house-keeping -----------------------------------------------------------------------------------------------
share := $(DESTDIR)$(PREFIX)/share
install: all
	install -D -m 755 $(BUILD)/postdated $(DESTDIR)$(PREFIX)/bin/postdated
	install -D -m 755 $(BUILD)/postdate $(DESTDIR)$(PREFIX)/bin/postdate
	install -D -m 644 man/postdated.8 $(share)/man/man8/postdated.8
	install -D -m 644 man/postdate.1 $(share)/man/man1/postdate.1
	install -d $(share)/bash-completion/completions $(share)/zsh/site-functions
	packaging/completion/generate.sh bash $(BUILD)/postdate >$(share)/bash-completion/completions/postdate
	packaging/completion/generate.sh zsh $(BUILD)/postdate >$(share)/zsh/site-functions/_postdate
	install -d $(share)/postdate/sql $(share)/doc/postdate $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 $(wildcard sql/schema/*.sql) $(share)/postdate/sql
	$(BUILD)/postdated --print-config-sample >$(share)/doc/postdate/postdate.conf.example
	install -m 644 packaging/crontab.example LICENSE $(share)/doc/postdate
	for unit in postdated.service postdate-feed.service postdate-feed.timer; do \
		sed 's|@PREFIX@|$(PREFIX)|g' packaging/$$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit; done

clean:
	@for s in build/*/.postdate-stack build/*/*/.postdate-stack; do [ ! -e "$$s" ] || STACK_DIR=$${s%/*} tools/stack.sh clean; done
	rm -rf build

format:
	clang-format-14 -i $(SOURCES)

# Silent when nothing is wrong. What the linters see are the same sources, with the generated headers.
GENERATED := $(GEN)/sql_embedded.h $(GEN)/openapi_embedded.h $(GEN)/shim_queries.inc
check: $(GENERATED) $(CONFIG_PAGE)
	$(Q)tools/check_layers.sh
	$(Q)tools/check_rooms.py
	$(Q)tools/check_docs.py
	$(Q)tools/config_page.sh check $(CONFIG_PAGE)
	$(Q)tools/check_format.sh $(SOURCES)
	$(Q)cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingIncludeSystem -D_GNU_SOURCE -I. -I$(GEN) $(filter %.c,$(SOURCES))
tidy: $(GENERATED)
	$(Q)JOBS=$(JOBS) tools/tidy.py $(filter %.c,$(SOURCES)) -- -std=c11 -D_GNU_SOURCE -DPOSTDATE_VERSION='"$(VERSION)"' $(INCLUDE)

# The tables of the configuration page are printed from the table of options.
$(CONFIG_PAGE): $(call object,tools/config_page.c gateway/config/config_table.c amqp/connection/broker_url.c) $(call LIB,core)
	$(call link,$^)
docs/configuration.md: $(CONFIG_PAGE) force
	@tools/config_page.sh write $<

help:
	@sed -n 's/^#: //p' Makefile

#: make            build build/postdated and build/postdate
#: make demo       see delayed messages arrive; ends by itself (TRANSPORT=auto, plugin, ttl or timer)
#: make test       every test, on private servers (TEST=live: only the live tests of the plain build; ONLY=words)
#: make check      rooms, documents, format, cppcheck; no servers
#: make tidy       clang-tidy 14 (JOBS=)
#: make matrix     make demo and make test on empty systems of Debian 12, 13 and sid; root (SUITES=, ONLY=, TEST=live)
#: make fuzz       new inputs for what meets strangers, with clang's libFuzzer (FUZZ_SECONDS= for each harness)
#: make chaos      a thousand faults while messages flow, judged by a ledger (SEED=, FAULTS=; tests/chaos/run.py)
#: make bench      every figure and its target, a quarter of an hour (BENCH=small, ONLY=, RUNS=, BACKLOG=)
#: make faults-full  each crash point with each transport, each Nth allocation and server call failed (hours)
#: make stack      start a private Postgres and RabbitMQ (stack-stop, stack-clean)
#: make run        the stack, then the gateway in the foreground
#: make install    PREFIX=/usr/local DESTDIR=
#: make docs/configuration.md   writes the tables of that page from the table of options
#: make deps | format | clean

OBJECTS := $(call object,tools/config_page.c) $(CORE) $(SQL) $(AMQP) $(GATEWAY) $(DAEMON) $(CLI) \
	$(call object,$(UNIT_SRC) $(TOOL_SRC) $(LOAD_SRC) $(wildcard tests/chaos/*.c tests/fuzz/*.c))
-include $(OBJECTS:.o=.d) $(SHIM:.lo=.d)
