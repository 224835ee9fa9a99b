# etc: the sample configuration with every key, and ready ones for the demo and for LLaVA's two stages.
msoconfdir = $(sysconfdir)/mso
dist_msoconf_DATA = etc/megascale_config.yaml
dist_pkgdata_DATA = etc/demo.yaml etc/llava_stage1.yaml etc/llava_stage2.yaml

# For the admin to put in place, with the paths of this installation: the line of plugstack.conf, a profile, lines for prolog
# and epilog.
EXTRA_DIST += etc/plugstack.conf.d/mso.conf etc/profiles.d/example.conf
if HAVE_SLURM
msoslurmdir = $(pkgdatadir)/slurm
msoslurm_DATA = etc/profiles.d/example.conf etc/slurm-samples/mso.conf
msoslurm_SCRIPTS = etc/slurm-samples/prolog etc/slurm-samples/epilog
CLEANFILES += $(msoslurm_SCRIPTS) etc/slurm-samples/mso.conf
etc/slurm-samples/mso.conf: etc/plugstack.conf.d/mso.conf
	$(AM_V_GEN)$(MKDIR_P) etc/slurm-samples && \
	  $(SED) 's#^optional spank_mso.so#optional $(slurmplugindir)/spank_mso.so#' $(srcdir)/etc/plugstack.conf.d/mso.conf >$@
$(msoslurm_SCRIPTS): etc/slurm-samples/%: contrib/slurm/%.d/mso
	$(AM_V_GEN)$(MKDIR_P) etc/slurm-samples && \
	  $(SED) 's#/usr/libexec/megascale-omni#$(pkglibexecdir)#' $(srcdir)/contrib/slurm/$*.d/mso >$@ && chmod +x $@
endif
