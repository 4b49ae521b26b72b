# Fuzzing, included by the Makefile.
#
#   make fuzz                     every harness with libFuzzer for FUZZ_SECONDS of CPU time, two at a time (needs clang)
#   make build/fuzz/fuzz_wire     one of them; run it by hand with libFuzzer's options
#   make fuzz-corpus              what was found that is worth keeping goes to tests/fuzz/corpus
#   make SAN=address,undefined replays    the harnesses as programs that replay a corpus: any compiler

FUZZ_SECONDS ?= 1200
FUZZ_CC := $(firstword $(foreach c,clang-14 clang,$(shell command -v $(c))) clang)
FUZZ_SAN := fuzzer-no-link,address,undefined

FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
REPLAYS := $(addprefix $(BUILD)/tests/,$(FUZZERS))
FUZZ_PROGRAMS := $(addprefix build/fuzz/,$(FUZZERS))
FUZZ_LIBS := $(foreach l,gateway amqp core,$(call LIB,$(l)))
FUZZ_LINK := $(LINK_AMQP) $(LINK_TEXT) -lm

# What a harness needs beside the libraries.
fuzz_programs = $(foreach f,$(1),$(BUILD)/tests/$(f) $(if $(findstring fuzzer,$(SAN)),build/fuzz/$(f)))
$(call fuzz_programs,fuzz_ndjson): $(call object,gateway/cli/schedule/line_reader.c)
$(call fuzz_programs,fuzz_http fuzz_control): $(call object,tests/fuzz/database.c tests/fuzz/database_retry.c tests/fuzz/database_ask.c tests/fuzz/database_report.c)

.PHONY: fuzz fuzz-corpus fuzzers replays
replays: $(REPLAYS)
$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(call object,tests/fuzz/fuzz.c tests/fuzz/replay.c) $(FUZZ_LIBS)
	$(call say,LINK)
	$(Q)$(CC) $(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(FUZZ_LINK)

fuzz fuzz-corpus: libraries-found
	@command -v $(FUZZ_CC) >/dev/null || { echo "Fuzzing needs clang (Debian: clang-14 libclang-rt-14-dev)."; exit 69; }
	@$(MAKE) --no-print-directory -s -j$(JOBS) CC=$(FUZZ_CC) SAN=$(FUZZ_SAN) fuzzers
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) tools/fuzz.py $(if $(filter fuzz,$@),run,keep) $(FUZZERS)

fuzzers: $(FUZZ_PROGRAMS)
ifneq ($(findstring fuzzer,$(SAN)),)
build/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(call object,tests/fuzz/fuzz.c) $(FUZZ_LIBS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LINK) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(filter %.a,$^) $(FUZZ_LINK)
else
build/fuzz/fuzz_%: force
	@$(MAKE) --no-print-directory CC=$(FUZZ_CC) SAN=$(FUZZ_SAN) $@
endif
