# spank: the Slurm plugin. What does not need Slurm is a convenience library, shared with mso-node-cleanup and the unit tests.
noinst_LTLIBRARIES += libmso_spank.la
libmso_spank_la_SOURCES = \
  spank/confirmation.cc spank/confirmation.h \
  spank/cpu_preparation.cc \
  spank/fault.cc spank/fault.h \
  spank/gpu_indices.h \
  spank/io_preparation.cc \
  spank/job_state.cc spank/job_state.h \
  spank/log_line.cc spank/log_line.h \
  spank/nvme_preparation.cc \
  spank/orphans.cc spank/orphans.h \
  spank/plugin_arguments.cc spank/plugin_arguments.h \
  spank/preparation.h spank/preparations.cc \
  spank/slice_preparation.cc \
  spank/snapshot_mount.cc spank/snapshot_mount.h \
  spank/snapshot_preparation.cc \
  spank/tear_down.cc spank/tear_down.h \
  spank/tmpfs.cc spank/tmpfs.h \
  spank/user_request.cc spank/user_request.h
EXTRA_DIST += spank/spank_mso.map

if HAVE_SLURM
spank_paths = -DMSO_BINDIR='"$(bindir)"' -DMSO_PKGLIBEXECDIR='"$(pkglibexecdir)"' -DMSO_SLURM_BINDIR='"$(SLURM_BINDIR)"'

slurmplugindir = $(libdir)/slurm
slurmplugin_LTLIBRARIES = spank_mso.la
spank_mso_la_SOURCES = spank/plugin.cc spank/hooks.h spank/slurm.cc spank/slurm.h spank/options.cc spank/options.h \
  spank/submission.cc spank/local.cc spank/allocator.cc spank/remote.cc spank/job_script.cc spank/slurmd.cc
spank_mso_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CFLAGS) $(spank_paths)
spank_mso_la_LDFLAGS = $(MSO_LD_FLAGS) -module -avoid-version -shared -Wl,--version-script=$(srcdir)/spank/spank_mso.map
spank_mso_la_LIBADD = libmso_spank.la libmso_node.la libmso_base_core.la
spank_mso_la_DEPENDENCIES = libmso_spank.la libmso_node.la libmso_base_core.la $(srcdir)/spank/spank_mso.map

pkglibexec_PROGRAMS += mso-node-cleanup
mso_node_cleanup_SOURCES = spank/node_cleanup.cc
mso_node_cleanup_CPPFLAGS = $(AM_CPPFLAGS) $(spank_paths)
mso_node_cleanup_LDFLAGS = $(MSO_LD_FLAGS)
mso_node_cleanup_LDADD = libmso_spank.la libmso_node.la libmso_base_core.la
endif

if HAVE_GTEST
check_PROGRAMS += spank_tests
TESTS += spank_tests
spank_tests_SOURCES = tests/unit/spank/request_test.cc tests/unit/spank/state_test.cc
spank_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS)
spank_tests_LDFLAGS = $(MSO_LD_FLAGS)
spank_tests_LDADD = libmso_spank.la libmso_node.la libmso_base_core.la $(GTEST_LIBS)
endif
