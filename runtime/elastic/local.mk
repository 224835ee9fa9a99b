# elastic: restarting a job on one machine. No torch, no MPI.
noinst_LTLIBRARIES += libmso_elastic.la
libmso_elastic_la_SOURCES = \
  runtime/elastic/attempt.cc runtime/elastic/attempt.h \
  runtime/elastic/local_attempt.cc runtime/elastic/local_attempt.h \
  runtime/elastic/restart_policy.cc runtime/elastic/restart_policy.h \
  runtime/elastic/slurm_attempt.cc runtime/elastic/slurm_attempt.h \
  runtime/elastic/slurm_launch.cc runtime/elastic/slurm_launch.h \
  runtime/elastic/slurm_tools.cc runtime/elastic/slurm_tools.h \
  runtime/elastic/standby.cc runtime/elastic/standby.h \
  runtime/elastic/supervisor.cc runtime/elastic/supervisor.h
libmso_elastic_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)

# Stands between mpirun and each rank; must load in a millisecond, so no library of the project.
pkglibexec_PROGRAMS += mso-rank
mso_rank_SOURCES = runtime/elastic/rank_program.cc

if HAVE_GTEST
check_PROGRAMS += elastic_tests
TESTS += elastic_tests
elastic_tests_SOURCES = \
  tests/unit/elastic/restart_policy_test.cc \
  tests/unit/elastic/slurm_launch_test.cc \
  tests/unit/elastic/supervisor_test.cc
elastic_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
elastic_tests_LDADD = libmso_elastic.la libmso_base.la $(GTEST_LIBS)
endif
EXTRA_DIST += tests/cli/run.bats tests/cli/fake_rank.sh
