# node: facts and places of the machine, shared by the runtime and the Slurm plugin. The first library has no threads, no
# YAML, no hwloc: the plugin links it.
noinst_LTLIBRARIES += libmso_node.la libmso_node_read.la
libmso_node_la_SOURCES = \
  runtime/node/cgroup.cc runtime/node/cgroup.h \
  runtime/node/cpu_list.cc runtime/node/cpu_list.h \
  runtime/node/cpu_sets.cc runtime/node/cpu_sets.h \
  runtime/node/cpu_sysfs.cc runtime/node/cpu_sysfs.h \
  runtime/node/drift.cc runtime/node/drift.h \
  runtime/node/first_line.cc runtime/node/first_line.h \
  runtime/node/gpu_slices.cc runtime/node/gpu_slices.h \
  runtime/node/io_limits.cc runtime/node/io_limits.h \
  runtime/node/job_request.cc runtime/node/job_request.h \
  runtime/node/mount_table.cc runtime/node/mount_table.h \
  runtime/node/node_facts.cc runtime/node/node_facts.h \
  runtime/node/nvme_identify.cc runtime/node/nvme_identify.h \
  runtime/node/nvme_lanes.cc runtime/node/nvme_lanes.h \
  runtime/node/nvme_sysfs.cc runtime/node/nvme_sysfs.h \
  runtime/node/ram_disk.cc runtime/node/ram_disk.h \
  runtime/node/request_text.cc runtime/node/request_text.h \
  runtime/node/slice_table.cc runtime/node/slice_table.h \
  runtime/node/thread_place.cc runtime/node/thread_place.h

# What reads a whole node: hwloc, NVML (at run time), Slurm's configuration. For mso and mso-node-facts.
libmso_node_read_la_SOURCES = \
  runtime/node/check_line.h runtime/node/node_check.cc runtime/node/node_check.h \
  runtime/node/node_facts_read.cc runtime/node/node_facts_read.h \
  runtime/node/node_versions_read.cc runtime/node/nvml.cc \
  runtime/node/platform_facts.cc runtime/node/platform_facts.h runtime/node/platform_needs.cc runtime/node/platform_needs.h \
  runtime/node/slurm_conf.cc
libmso_node_read_la_CXXFLAGS = $(AM_CXXFLAGS) $(HWLOC_CFLAGS)
libmso_node_read_la_LIBADD = $(HWLOC_LIBS)

pkglibexec_PROGRAMS += mso-node-facts
mso_node_facts_SOURCES = runtime/node/node_facts_program.cc
mso_node_facts_LDADD = libmso_node_read.la libmso_node.la libmso_base.la

if HAVE_GTEST
check_PROGRAMS += node_tests
TESTS += node_tests
node_tests_SOURCES = tests/unit/node/cgroup_test.cc tests/unit/node/cpu_sets_test.cc tests/unit/node/drift_test.cc tests/unit/node/gpu_slices_test.cc tests/unit/node/io_limits_test.cc \
  tests/unit/node/mount_table_test.cc \
  tests/unit/node/node_check_test.cc tests/unit/node/node_facts_test.cc tests/unit/node/nvme_lanes_test.cc \
  tests/unit/node/platform_test.cc tests/unit/node/ram_disk_test.cc tests/unit/node/slice_table_test.cc tests/unit/node/thread_place_test.cc \
  tests/unit/node/made_up_node.h
node_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
node_tests_LDADD = libmso_node_read.la libmso_node.la libmso_base.la $(GTEST_LIBS)
# A driver library with two GPUs, one of them split, for the reader of GPUs.
check_LTLIBRARIES += fake_nvml.la
fake_nvml_la_SOURCES = tests/unit/node/fake_nvml.cc
fake_nvml_la_LDFLAGS = -module -avoid-version -rpath /nowhere
endif
