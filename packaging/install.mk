# make install, included by the Makefile.

# The programs write some of the files. EMULATOR= runs them where they are for another machine, such as qemu-aarch64.
export EMULATOR :=

share := $(DESTDIR)$(PREFIX)/share
.PHONY: install uninstall
install: all
	install -D -m 755 $(BUILD)/postdated $(DESTDIR)$(PREFIX)/bin/postdated
	install -D -m 755 $(BUILD)/postdate $(DESTDIR)$(PREFIX)/bin/postdate
	install -D -m 644 man/postdated.8 $(share)/man/man8/postdated.8
	install -D -m 644 man/postdate.1 $(share)/man/man1/postdate.1
	install -D -m 644 man/postdate.conf.5 $(share)/man/man5/postdate.conf.5
	install -d $(share)/bash-completion/completions $(share)/zsh/site-functions
	for program in postdate postdated; do \
		umask 022 && packaging/completion/generate.sh bash $(BUILD)/$$program >$(share)/bash-completion/completions/$$program && \
		packaging/completion/generate.sh zsh $(BUILD)/$$program >$(share)/zsh/site-functions/_$$program || exit; done
	install -d $(share)/postdate/sql $(share)/doc/postdate $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 $(wildcard sql/schema/*.sql) $(share)/postdate/sql
	umask 022 && $(EMULATOR) $(BUILD)/postdated --print-config-sample >$(share)/doc/postdate/postdate.conf.example
	install -m 644 packaging/crontab.example LICENSE $(share)/doc/postdate
	install -D -m 644 packaging/postdate.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/postdate.conf
	install -D -m 644 packaging/postdate.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/postdate.conf
	for unit in postdated.service postdate-feed.service postdate-feed.timer; do \
		umask 022 && sed 's|@PREFIX@|$(PREFIX)|g' packaging/$$unit >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit; done
	@[ -n '$(DESTDIR)' ] || [ -z "$$SUDO_COMMAND" ] || case ":$$PATH:" in *:$(PREFIX)/bin:*) ;; \
		*) echo "sudo does not look into $(PREFIX)/bin: use PREFIX=/usr, or set secure_path (docs/install.md)" ;; esac

# What `make install` with the same PREFIX and DESTDIR put there. Configuration, database and broker stay:
# docs/install.md, "Remove it".
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/postdated bin/postdate lib/sysusers.d/postdate.conf lib/tmpfiles.d/postdate.conf \
		$(addprefix lib/systemd/system/,postdated.service postdate-feed.service postdate-feed.timer)) \
		$(addprefix $(share)/,man/man8/postdated.8 man/man1/postdate.1 man/man5/postdate.conf.5 \
		$(foreach program,postdate postdated,bash-completion/completions/$(program) zsh/site-functions/_$(program)))
	rm -rf $(share)/postdate $(share)/doc/postdate
