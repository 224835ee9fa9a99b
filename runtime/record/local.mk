# record: what a run writes down and shows: metrics.jsonl, progress line, TensorBoard files, report. No torch, no MPI.
noinst_LTLIBRARIES += libmso_record.la
libmso_record_la_SOURCES = \
  runtime/record/format.cc runtime/record/format.h \
  runtime/record/metrics.cc runtime/record/metrics.h \
  runtime/record/metrics_json.cc \
  runtime/record/progress.cc runtime/record/progress.h \
  runtime/record/tensorboard.cc runtime/record/tensorboard.h \
  runtime/record/terminal.cc runtime/record/terminal.h
libmso_record_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)

if HAVE_GTEST
check_PROGRAMS += record_tests
TESTS += record_tests
record_tests_SOURCES = \
  tests/unit/record/metrics_test.cc \
  tests/unit/record/progress_test.cc \
  tests/unit/record/tensorboard_test.cc
record_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
record_tests_LDADD = libmso_record.la libmso_base.la $(GTEST_LIBS)
endif
