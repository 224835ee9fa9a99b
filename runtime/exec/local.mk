# exec: the trainer and what it steps with.
noinst_LTLIBRARIES += libmso_optimizer.la
libmso_optimizer_la_SOURCES = runtime/exec/adamw.cc runtime/exec/adamw.h
libmso_optimizer_la_CXXFLAGS = $(AM_CXXFLAGS)

if HAVE_GTEST
check_PROGRAMS += optimizer_tests
TESTS += optimizer_tests
optimizer_tests_SOURCES = tests/unit/exec/adamw_test.cc
optimizer_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS)
optimizer_tests_LDADD = libmso_optimizer.la libmso_base.la $(GTEST_LIBS)
endif

# From the configuration to model, tokenizer and image processor; no torch.
if BUILD_IO
noinst_LTLIBRARIES += libmso_model_setup.la
libmso_model_setup_la_SOURCES = runtime/exec/model_setup.cc runtime/exec/model_setup.h
libmso_model_setup_la_CXXFLAGS = $(AM_CXXFLAGS)

if HAVE_GTEST
check_PROGRAMS += model_setup_tests
TESTS += model_setup_tests
model_setup_tests_SOURCES = tests/unit/exec/model_setup_test.cc
model_setup_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS)
model_setup_tests_LDADD = libmso_model_setup.la libmso_io.la libmso_model_files.la libmso_comm.la libmso_node.la libmso_base.la $(GTEST_LIBS)
endif
endif

if BUILD_TRAIN
noinst_LTLIBRARIES += libmso_exec.la
libmso_exec_la_SOURCES = \
  runtime/exec/evaluator.cc runtime/exec/evaluator.h \
  runtime/exec/gradient_norm.cc runtime/exec/gradient_norm.h \
  runtime/exec/healing_setup.cc runtime/exec/healing_setup.h \
  runtime/exec/learning_rate.cc runtime/exec/learning_rate.h \
  runtime/exec/node_preparations.cc runtime/exec/node_preparations.h \
  runtime/exec/parameter_groups.cc runtime/exec/parameter_groups.h \
  runtime/exec/rank_zero.cc runtime/exec/rank_zero.h \
  runtime/exec/run_directory.cc runtime/exec/run_directory.h \
  runtime/exec/sharded_optimizer.cc runtime/exec/sharded_optimizer.h \
  runtime/exec/step_agreement.cc runtime/exec/step_agreement.h \
  runtime/exec/stop_signal.cc runtime/exec/stop_signal.h \
  runtime/exec/trainer.cc runtime/exec/trainer.h \
  runtime/exec/training_setup.cc runtime/exec/training_setup.h
libmso_exec_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(TORCH_CFLAGS)

if HAVE_GTEST
check_PROGRAMS += exec_tests
TESTS += exec_tests
exec_tests_SOURCES = tests/unit/exec/rank_zero_test.cc tests/unit/exec/roll_forward_test.cc tests/unit/exec/schedule_test.cc
exec_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS) $(TORCH_CFLAGS)
exec_tests_LDADD = libmso_exec.la libmso_ckpt.la libmso_memory.la libmso_optimizer.la libmso_comm.la libmso_node.la libmso_base.la $(TORCH_LIBS) $(GTEST_LIBS)
endif
endif
