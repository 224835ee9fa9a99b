# etc: the sample configuration with every key, and ready ones for the demo and for LLaVA's two stages.
msoconfdir = $(sysconfdir)/mso
dist_msoconf_DATA = etc/megascale_config.yaml
dist_pkgdata_DATA = etc/demo.yaml etc/llava_stage1.yaml etc/llava_stage2.yaml

# For the admin to put in place: the line of plugstack.conf and a profile.
EXTRA_DIST += etc/plugstack.conf.d/mso.conf etc/profiles.d/example.conf
if HAVE_SLURM
msoslurmdir = $(pkgdatadir)/slurm
msoslurm_DATA = etc/plugstack.conf.d/mso.conf etc/profiles.d/example.conf
endif
