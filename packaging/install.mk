# make install, included by the Makefile.

share := $(DESTDIR)$(PREFIX)/share
.PHONY: install
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
