# Tarball, Debian packages and bill of materials, included by the Makefile. In packages a version before another one is
# written with ~, so that 1.0.0~dev is older than 1.0.0.

# Everything is dated as the last entry of the packages' changelog: the same sources give the same bytes.
SOURCE_DATE_EPOCH ?= $(shell date -u -d "$$(sed -n '/^ -- .*>  /{s///p;q}' packaging/debian/changelog)" +%s)
DIST := build/dist/postdate-$(VERSION)

.PHONY: dist deb sbom chart-archive
# As `helm install` takes it. `helm package` would write the time into it.
chart-archive:
	@mkdir -p $(dir $(DIST))
	@tar --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@$(SOURCE_DATE_EPOCH) \
		-C packaging/helm --dereference -cf - postdate | gzip -9n >build/dist/postdate-chart-$(VERSION).tgz
	@echo build/dist/postdate-chart-$(VERSION).tgz
dist:
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) tools/dist.sh $(DIST).tar.gz
# ARCH= is another architecture of Debian, built across.
ARCH :=
deb: dist
	@JOBS=$(JOBS) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) tools/deb.sh $(VERSION) $(DIST).tar.gz $(ARCH)
# Of the plain build; `make deb` has one of the packages' programs.
sbom: all
	@tools/deps.sh --only python3
	@mkdir -p $(dir $(DIST))
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) tools/sbom.py $(VERSION) $(BUILD)/postdated $(BUILD)/postdate >$(DIST).spdx.json
	@echo $(DIST).spdx.json
