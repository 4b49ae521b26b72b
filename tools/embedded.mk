# Files that become C strings, included by the Makefile. A list of them is a file, too, so that one that is removed counts.

# SQL files (sql_embedded.h says which); all builds share them.
EMBEDDED := $(wildcard sql/schema/*.sql sql/query/*.sql)
$(GEN)/sql_files: force
	$(call stamp,$(EMBEDDED))
$(GEN)/sql_embedded.h $(GEN)/sql_embedded.c &: tools/embed_sql.sh $(EMBEDDED) $(GEN)/sql_files sql/schema/released
	$(Q)tools/embed_sql.sh $(GEN) $(sort $(EMBEDDED))
$(BUILD)/gen/sql_embedded.o: $(GEN)/sql_embedded.c $(BUILD)/flags
	$(compile)
$(SQL): | $(GEN)/sql_embedded.h

$(GEN)/openapi_embedded.h: tools/embed_text.sh gateway/http/openapi.json
	@mkdir -p $(@D)
	$(Q)tools/embed_text.sh gateway/http/openapi.json openapi_json $@
$(GATEWAY): | $(GEN)/openapi_embedded.h $(GEN)/console_embedded.h

# The console's files, as they are.
CONSOLE := $(sort $(wildcard gateway/console/*.html gateway/console/*.css gateway/console/*.js gateway/console/*.svg))
$(GEN)/console_files: force
	$(call stamp,$(CONSOLE))
$(GEN)/console_embedded.h: tools/embed_console.sh $(CONSOLE) $(GEN)/console_files
	@mkdir -p $(@D)
	$(Q)tools/embed_console.sh $@ $(CONSOLE)

ERL := gateway/cli/import/plugin.erl gateway/cli/doctor/doctor.erl

# What `postdate import plugin` and `postdate doctor` run in the broker.
$(GEN)/plugin_embedded.h $(GEN)/doctor_embedded.h: $(GEN)/%_embedded.h: tools/embed_text.sh $(ERL)
	@mkdir -p $(@D)
	$(Q)tools/embed_text.sh $(filter %/$*.erl,$^) $*_erl $@
$(CLI): | $(GEN)/plugin_embedded.h $(GEN)/doctor_embedded.h
