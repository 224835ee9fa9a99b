# doc: manual pages, and pages that are read in the source folder.
dist_man_MANS += doc/man/mso.1 doc/man/megascale_config.yaml.5 doc/man/spank_mso.8
EXTRA_DIST += doc/admin-guide.md doc/architecture.md doc/benchmarks.md doc/checkpoints.md doc/coming-from-trainer.md doc/models.md doc/node-resources.md doc/troubleshooting.md \
  doc/pictures/report.png

# Writes again what is made from the table of configuration keys; the unit tests say when that is needed.
.PHONY: update-config-docs
update-config-docs: mso
	$(AM_V_at)./mso config --man > $(srcdir)/doc/man/megascale_config.yaml.5
	$(AM_V_at)./mso config --sample > $(srcdir)/etc/megascale_config.yaml
