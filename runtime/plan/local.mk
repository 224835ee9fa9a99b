# plan: plans, cost and memory estimates; plain data, no torch, no MPI.
noinst_LTLIBRARIES += libmso_plan.la
libmso_plan_la_SOURCES = \
  runtime/plan/estimate.cc runtime/plan/estimate.h \
  runtime/plan/model_summary.cc runtime/plan/model_summary.h \
  runtime/plan/plan.cc runtime/plan/plan.h \
  runtime/plan/plan_report.cc runtime/plan/plan_report.h

if HAVE_GTEST
check_PROGRAMS += plan_tests
TESTS += plan_tests
plan_tests_SOURCES = tests/unit/plan/model_summary_test.cc tests/unit/plan/plan_test.cc
plan_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
plan_tests_LDADD = libmso_plan.la libmso_model_files.la libmso_comm.la libmso_node.la libmso_base.la $(GTEST_LIBS)
endif
EXTRA_DIST += tests/unit/plan/llava_shapes.json tests/unit/plan/make_llava_shapes.py
