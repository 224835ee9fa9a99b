# ckpt: the elastic checkpoint manager; no torch, no MPI.
if BUILD_CKPT
noinst_LTLIBRARIES += libmso_ckpt.la
libmso_ckpt_la_SOURCES = \
  ckpt/background.cc ckpt/background.h \
  ckpt/checkpoint_manager.cc ckpt/checkpoint_manager.h \
  ckpt/copy_plan.cc ckpt/copy_plan.h \
  ckpt/delta.cc ckpt/delta.h \
  ckpt/gather.h \
  ckpt/hdf5_file.cc ckpt/hdf5_file.h \
  ckpt/hdf5_memory_driver.cc ckpt/hdf5_memory_driver.h \
  ckpt/inspect.cc ckpt/inspect.h \
  ckpt/kill_points.h \
  ckpt/level0_store.cc ckpt/level0_store.h \
  ckpt/partner.cc ckpt/partner.h \
  ckpt/progress.cc ckpt/progress.h \
  ckpt/recovery.cc ckpt/recovery.h \
  ckpt/run_attempt.cc ckpt/run_attempt.h \
  ckpt/run_identity.cc ckpt/run_identity.h \
  ckpt/settings.h \
  ckpt/shard_file.cc ckpt/shard_file.h \
  ckpt/shard_writer.cc ckpt/shard_writer.h \
  ckpt/shared_store.cc ckpt/shared_store.h \
  ckpt/snapshot.h \
  ckpt/staging.cc ckpt/staging.h \
  ckpt/snapshot_policy.cc ckpt/snapshot_policy.h \
  ckpt/state_choice.cc ckpt/state_choice.h \
  ckpt/state_loader.cc
libmso_ckpt_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(HDF5_CFLAGS)
libmso_ckpt_la_LIBADD = $(HDF5_LIBS)

if HAVE_GTEST
check_PROGRAMS += ckpt_tests
TESTS += ckpt_tests
ckpt_tests_SOURCES = \
  tests/unit/ckpt/decisions_test.cc tests/unit/ckpt/delta_test.cc tests/unit/ckpt/disruption_test.cc \
  tests/unit/ckpt/identity_test.cc tests/unit/ckpt/manager_test.cc \
  tests/unit/ckpt/reference_test.cc tests/unit/ckpt/shard_file_test.cc \
  tests/unit/ckpt/thread_communicator.h \
  tests/unit/ckpt/tiny_run.cc tests/unit/ckpt/tiny_run.h
ckpt_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
ckpt_tests_LDADD = libmso_ckpt.la libmso_comm.la libmso_base.la $(GTEST_LIBS)
endif
endif
EXTRA_DIST += tests/cli/ckpt.bats tests/reference/ckpt_reference.py
