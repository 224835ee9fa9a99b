# node: facts and places of the machine, shared by the runtime and the Slurm plugin.
noinst_LTLIBRARIES += libmso_node.la
libmso_node_la_SOURCES = runtime/node/ram_disk.cc runtime/node/ram_disk.h

if HAVE_GTEST
check_PROGRAMS += node_tests
TESTS += node_tests
node_tests_SOURCES = tests/unit/node/ram_disk_test.cc
node_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
node_tests_LDADD = libmso_node.la libmso_base.la $(GTEST_LIBS)
endif
