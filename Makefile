# Postdate. Everything that is built goes under build/; `make help` lists the targets.
#
#   WERROR=1                warnings are errors (as in CI)
#   SAN=address,undefined   sanitizer build under build/san-address-undefined; also SAN=thread
#   V=1                     show whole commands
#   CC=, CFLAGS=, LDFLAGS=  as usual; CFLAGS and LDFLAGS are appended
#   PYTHON=                 the Python 3 (with pika) that runs the demo and the live tests

# As semantic versions are written (docs/versions.md): what the next release is called, and what these sources are.
RELEASE := 1.0.0-dev
VERSION := $(shell tools/version.sh $(RELEASE))
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

include tools/flags.mk

# --- what is built from what -------------------------------------------------------------------------------------
object = $(patsubst %.c,$(BUILD)/%.o,$(1))
CORE := $(call object,$(wildcard core/*/*.c)) $(BUILD)/gen/version.o
SQL := $(call object,$(wildcard sql/*/*.c)) $(BUILD)/gen/sql_embedded.o
AMQP := $(call object,$(wildcard amqp/*/*.c))
DAEMON := $(call object,gateway/program/main.c)
CLI := $(call object,$(wildcard gateway/cli/*.c gateway/cli/*/*.c))
GATEWAY := $(filter-out $(DAEMON) $(CLI),$(call object,$(wildcard gateway/*/*.c)))

LIB = $(BUILD)/lib$(1).a
LIBRARIES := $(foreach l,gateway sql amqp core,$(call LIB,$(l)))
SOURCES := $(sort $(wildcard $(foreach d,core sql amqp gateway gateway/cli tests,$(d)/*/*.[ch]) tools/*.[ch]))
CONFIG_PAGE := $(BUILD)/tools/config_page

.PHONY: all deps exchange-type stack stack-stop stack-clean run transport-known demo version clean format check tidy chart help libraries-found force
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
	$(call link,$^ $(LINK_ALL))
$(BUILD)/postdate: $(CLI) $(LIBRARIES)
	$(call link,$^ $(LINK_ALL) $(LINK_CLI))

$(call LIB,core): $(CORE)
$(call LIB,sql): $(SQL)
$(call LIB,amqp): $(AMQP)
$(call LIB,gateway): $(GATEWAY)
$(BUILD)/lib%.a:
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/%.o: %.c $(BUILD)/flags | libraries-found
	$(compile)

# A file that changes only when its text does: other flags rebuild everything.
stamp = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
	printf '%s\n' '$(subst ','\'',$(1))' >$@
$(BUILD)/flags: force
	$(call stamp,$(CC) $(FLAGS))

# The one file that another version changes.
$(GEN)/version.c: force
	$(call stamp,const char version_string[] = "$(VERSION)";)
$(BUILD)/gen/version.o: $(GEN)/version.c $(BUILD)/flags
	$(compile)

libraries-found:
	@$(PKG_CONFIG) --exists $(LIBS) || \
	{ echo "Libraries are missing (wanted: $(LIBS)). Run 'make deps' first."; exit 69; }

include tools/embedded.mk packaging/install.mk packaging/packages.mk tests/tests.mk tests/fuzz/fuzz.mk

# --- servers and demo: these install what is missing, then build with a fresh look at the libraries --------------------
deps:
	@tools/deps.sh

# RabbitMQ's exchange type, for the Erlang of this system.
exchange-type:
	@tools/deps.sh --only erlang-base
	@tools/exchange_type.sh build/exchange-type
	@ls build/exchange-type/*.ez

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
	$(call one_of,TRANSPORT,auto native plugin ttl timer)
demo: transport-known deps
	@echo "Building ..." && $(MAKE) --no-print-directory -s -j$(JOBS) all
	@PYTHON=$(PYTHON) TRANSPORT=$(TRANSPORT) tests/demo/run.sh $(BUILD)

version:
	@echo $(VERSION)

# --- house-keeping -----------------------------------------------------------------------------------------------
clean:
	@for s in build/*/.postdate-stack build/*/*/.postdate-stack; do [ ! -e "$$s" ] || STACK_DIR=$${s%/*} tools/stack.sh clean; done
	rm -rf build

format:
	clang-format-14 -i $(SOURCES)

# Silent when nothing is wrong. What the linters see are the same sources, with the generated headers.
GENERATED := $(GEN)/sql_embedded.h $(GEN)/openapi_embedded.h $(GEN)/console_embedded.h $(GEN)/plugin_embedded.h $(GEN)/doctor_embedded.h
check: $(GENERATED) $(CONFIG_PAGE)
	$(Q)tools/check_layers.sh
	$(Q)tools/check_rooms.py
	$(Q)tools/check_docs.py
	$(Q)tests/model/run.py check
	$(Q)tools/chart_values.py check
	$(Q)tools/metrics_page.py check
	$(Q)tools/config_page.sh check $(CONFIG_PAGE) docs/configuration.md man/postdate.conf.5
	$(Q)tools/check_format.sh $(SOURCES)
	$(Q)cppcheck -q --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppress=missingIncludeSystem -D_GNU_SOURCE -I. -I$(GEN) $(filter %.c,$(SOURCES))
tidy: $(GENERATED)
	$(Q)JOBS=$(JOBS) tools/tidy.py $(filter %.c,$(SOURCES)) -- -std=c11 -D_GNU_SOURCE $(INCLUDE)

# The options on both pages are printed from the table of options.
$(CONFIG_PAGE): $(call object,tools/config_page.c gateway/config/config_table.c amqp/connection/broker_url.c) $(call LIB,core)
	$(call link,$^)
docs/configuration.md man/postdate.conf.5: $(CONFIG_PAGE) force
	@tools/config_page.sh write $< $@

# The Helm chart: rendered, validated, and compared with what it must be. Its table of values, and the options that it
# lets through, are written from values.yaml and the page of options.
chart: $(BUILD)/postdated
	$(Q)BUILD=$(BUILD) tools/chart.sh
docs/values.md: docs/configuration.md
	@tools/chart_values.py write
docs/metrics.md: force
	@tools/metrics_page.py write

help:
	@sed -n 's/^#: //p' Makefile

#: make            build build/postdated and build/postdate
#: make demo       see delayed messages arrive; ends by itself (TRANSPORT=auto, native, plugin, ttl or timer; PLUGIN_APP=1: an application of the plugin)
#: make exchange-type  RabbitMQ's exchange type, for the Erlang of this system, in build/exchange-type
#: make test       units, and each promise once, on private servers, in five minutes (TEST=all: every test; TEST=live: all live tests; ONLY=words)
#: make check      rooms, documents, format, cppcheck; no servers
#: make tidy       clang-tidy 14 (JOBS=)
#: make chart      the Helm chart: lint, render, validate (Helm and kubeconform, or Go to build them)
#: make matrix     make demo and every test on new, empty systems of Debian 12, 13 and sid; root (SUITES=, ONLY=, TEST=demo)
#: make release-check  all that a release must have passed, from a clean clone, as one page in docs/releases (ONLY=, SUITES=, SEEDS=)
#: make fuzz       new inputs for what meets strangers, with clang's libFuzzer (FUZZ_SECONDS= for each harness)
#: make chaos      a thousand faults while messages flow, judged by a ledger (SEED=, FAULTS=; tests/chaos/run.py)
#: make seasons  fourteen months of a moved clock in an hour, judged by the ledger of chaos (SEED=, MONTHS=)
#: make powercut  the servers' machine loses power, a hundred times, with what was not flushed to its disk; root (SEED=, CUTS=)
#: make model      the store's protocol in every order of its steps, and planted mistakes found, with spin (FULL=1, ONLY=words)
#: make bench      every figure and its target, a quarter of an hour (BENCH=small, ONLY=, RUNS=, BACKLOG=)
#: make console-shots  pictures of each page of the console, in build/console-shots
#: make faults-full  each crash point with each transport, each Nth allocation and server call failed (hours)
#: make stack      start a private Postgres and RabbitMQ (stack-stop, stack-clean)
#: make run        the stack, then the gateway in the foreground
#: make install    PREFIX=/usr/local DESTDIR= (also uninstall)
#: make deb        Debian packages for this system in build/deb (ARCH=arm64: for that machine); make dist: the sources as a tarball; make sbom: what is linked
#: make docs/configuration.md man/postdate.conf.5   writes the options on both pages from their table
#: make docs/metrics.md         writes the table of metrics from the texts of # HELP
#: make docs/values.md          writes the table of the chart's values, and its schema
#: make deps | format | clean | version

OBJECTS := $(call object,tools/config_page.c) $(CORE) $(SQL) $(AMQP) $(GATEWAY) $(DAEMON) $(CLI) \
	$(call object,$(UNIT_SRC) $(TOOL_SRC) $(LOAD_SRC) $(wildcard tests/chaos/*.c tests/fuzz/*.c))
-include $(OBJECTS:.o=.d) $(SHIM:.lo=.d)
