# etc: the sample configuration with every key, and ready ones for the demo and for LLaVA's two stages.
msoconfdir = $(sysconfdir)/mso
dist_msoconf_DATA = etc/megascale_config.yaml
dist_pkgdata_DATA = etc/demo.yaml etc/llava_stage1.yaml etc/llava_stage2.yaml
