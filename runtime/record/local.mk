# record: what a run writes down and shows: metrics.jsonl, progress line, TensorBoard files, report. No torch, no MPI.
noinst_LTLIBRARIES += libmso_record.la
libmso_record_la_SOURCES = \
  runtime/record/data_page.cc runtime/record/data_page.h \
  runtime/record/decimate.cc runtime/record/decimate.h \
  runtime/record/format.cc runtime/record/format.h \
  runtime/record/metrics.cc runtime/record/metrics.h \
  runtime/record/metrics_json.cc \
  runtime/record/progress.cc runtime/record/progress.h \
  runtime/record/report_charts.cc runtime/record/report_charts.h \
  runtime/record/report_html.cc runtime/record/report_html.h \
  runtime/record/report_style.h \
  runtime/record/run_history.cc runtime/record/run_history.h \
  runtime/record/svg.cc runtime/record/svg.h \
  runtime/record/tensorboard.cc runtime/record/tensorboard.h \
  runtime/record/terminal.cc runtime/record/terminal.h \
  runtime/record/time_axis.cc runtime/record/time_axis.h
libmso_record_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(YAML_CFLAGS)

if HAVE_GTEST
check_PROGRAMS += record_tests
TESTS += record_tests
record_tests_SOURCES = \
  tests/unit/record/metrics_test.cc \
  tests/unit/record/progress_test.cc \
  tests/unit/record/report_test.cc \
  tests/unit/record/tensorboard_test.cc
record_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
record_tests_LDADD = libmso_record.la libmso_base.la $(GTEST_LIBS)
endif

EXTRA_DIST += tests/cli/report.bats tests/cli/make_run.py tests/cli/check_report.py \
  tests/reference/tensorboard_reference.py
