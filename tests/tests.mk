# Programs of the tests and what runs them, included by the Makefile. A unit test links of the libraries what it uses.

UNIT_SRC := $(wildcard tests/unit/test_*.c)
TOOL_SRC := $(filter-out tests/tools/load_%,$(wildcard tests/tools/*.c))
LOAD_SRC := $(wildcard tests/tools/load_*.c)
NEXT := $(BUILD)/tests/next
UNITS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(TOOL_SRC))

NO_MEMORY := $(BUILD)/tests/test_no_memory $(BUILD)/tests/test_no_memory_json
$(NO_MEMORY): UNIT_LINK = $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc strdup free)

.PHONY: units unit-tests test-deps test-known test matrix chaos model bench console-shots faults-full powercut seasons release-check
units: $(UNITS) $(TOOLS) $(NEXT)/postdate $(NEXT)/postdated $(if $(SAN),,build/tests/shim.so build/tests/clocks.so build/tests/chaos/witness build/tests/chaos/disk)

# The units alone, plain: what can run where packages are built.
unit-tests: $(UNITS)
	@for test in $^; do $(EMULATOR) $$test || exit; done

# The programs of a release after this one, whose schema has a step more.
$(NEXT)/sql_embedded.c: tools/embed_sql.sh $(EMBEDDED) $(GEN)/sql_files tests/schema/002_10_next.sql
	$(Q)tools/embed_sql.sh $(@D) $(sort $(EMBEDDED)) tests/schema/002_10_next.sql
$(NEXT)/version.c: tests/tests.mk
	@mkdir -p $(@D) && echo 'const char version_string[] = "99.0.0";' >$@
$(NEXT)/%.o: $(NEXT)/%.c $(BUILD)/flags
	$(compile)
NEXT_OWN := $(NEXT)/sql_embedded.o $(NEXT)/version.o
$(NEXT)/postdate: $(CLI) $(NEXT_OWN) $(LIBRARIES)
	$(call link,$^ $(LINK_ALL) $(LINK_CLI))
$(NEXT)/postdated: $(DAEMON) $(NEXT_OWN) $(LIBRARIES)
	$(call link,$^ $(LINK_ALL))

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
$(SHIM) $(call object,$(UNIT_SRC)): | $(GEN)/sql_embedded.h

$(BUILD)/tests/test_%: $(BUILD)/tests/unit/test_%.o $(LIBRARIES)
	$(call link,$^ $(UNIT_LINK) $(LINK_ALL) $(LINK_TEST))

$(BUILD)/tests/tools/load: $(call object,$(LOAD_SRC))
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(call LIB,amqp) $(call LIB,core)
	$(call link,$(filter %.o,$^) $(filter %.a,$^) $(LINK_AMQP) -lm)

# The chaos suite's witness: an oracle of its own, so it links nothing of ours.
$(BUILD)/tests/chaos/%: $(BUILD)/tests/chaos/%.o
	$(call link,$^ $(LINK_AMQP))

# What only tests want: a connection pooler, and a clock that can be moved, for `postdate doctor`.
test-deps:
	@tools/deps.sh pgbouncer libfaketime

TEST ?= short
test-known:
	$(call one_of,TEST,short all live)
test: test-known test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@[ '$(TEST)' != all ] || $(MAKE) --no-print-directory -s -j$(JOBS) SAN=$(SAN_TEST) all units replays
	@TEST='$(TEST)' $(PYTHON) tools/run_tests.py build build/san-$(subst $(comma),-,$(SAN_TEST))

# The README's commands on each Debian that users have; tools/matrix.sh says what the environment can ask for. Needs root.
matrix:
	@SUITES='$(SUITES)' ONLY='$(ONLY)' TEST='$(filter-out short,$(TEST))' tools/matrix.sh

# Everything that a release must have passed; it goes on where it was stopped. tools/release_check.py says what the environment can ask for.
release-check:
	@ONLY='$(ONLY)' $(PYTHON) tools/release_check.py

# Many faults, and a ledger that knows better; tests/chaos/run.py says what the environment can ask for.
chaos: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@SEED='$(SEED)' FAULTS='$(FAULTS)' $(PYTHON) tests/chaos/run.py

# The power of the servers' machine is cut, and what was not flushed to its disk is gone; root. CUTS= and what chaos can be asked for.
CUTS ?= 100
powercut: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@POWER=1 SEED='$(SEED)' FAULTS='$(CUTS)' CELLS="$${CELLS:-timer,shards,plugin}" MILLION=0 unshare --mount $(PYTHON) tests/chaos/run.py

# Fourteen months of a moved clock in an hour; tests/seasons/run.py says what the environment can ask for.
seasons: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@SEED='$(SEED)' MONTHS='$(MONTHS)' $(PYTHON) tests/seasons/run.py

# The models of tests/model, in every order of their steps: two minutes on two cores.
model:
	@tools/deps.sh --only spin gcc libc6-dev
	@FULL='$(FULL)' JOBS='$(JOBS)' $(PYTHON) tests/model/run.py $(ONLY)

# Everything measured in one run; tests/bench/bench.py says what the environment can ask for. Without wrk the rows for HTTP are missing.
bench: deps
	@command -v wrk >/dev/null || tools/deps.sh wrk || echo "Going on without wrk, the HTTP load program."
	@$(MAKE) --no-print-directory -s -j$(JOBS) all build/tests/tools/load build/tests/clocks.so
	@$(PYTHON) tests/bench/bench.py

# Pictures of every page of the console at three widths, light and dark, in build/console-shots.
console-shots: deps
	@tools/deps.sh chromium fonts-dejavu-core
	@$(MAKE) --no-print-directory -s -j$(JOBS) all
	@STACK_DIR=$(CURDIR)/build/shots tools/stack.sh start && { STACK_DIR=$(CURDIR)/build/shots $(PYTHON) tests/console/shots.py $(ONLY); \
		code=$$?; STACK_DIR=$(CURDIR)/build/shots tools/stack.sh clean; exit $$code; }

faults-full: test-deps
	@$(MAKE) --no-print-directory -s -j$(JOBS) all units
	@POSTDATE_TEST_FULL=1 POSTDATE_TEST_LIMIT_S=20000 ONLY='CrashPoints CutPoints NthFailure' \
		$(PYTHON) tools/run_tests.py build build/san-$(subst $(comma),-,$(SAN_TEST))
