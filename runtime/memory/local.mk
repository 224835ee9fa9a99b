# memory: flat buffers of parameters, gradients and optimizer state; the pool host tensors come from.
noinst_LTLIBRARIES += libmso_memory.la
libmso_memory_la_SOURCES = \
  runtime/memory/flat_buffer.cc runtime/memory/flat_buffer.h \
  runtime/memory/slice_scope.cc runtime/memory/slice_scope.h
libmso_memory_la_CXXFLAGS = $(AM_CXXFLAGS)
if BUILD_TRAIN
libmso_memory_la_SOURCES += runtime/memory/host_pool.cc runtime/memory/host_pool.h
libmso_memory_la_CXXFLAGS += $(TORCH_CFLAGS)
endif

if BUILD_TRAIN
if HAVE_GTEST
check_PROGRAMS += memory_tests
TESTS += memory_tests
memory_tests_SOURCES = tests/unit/memory/host_pool_test.cc tests/unit/memory/slice_scope_test.cc
memory_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(TORCH_CFLAGS)
memory_tests_LDADD = libmso_memory.la libmso_node.la libmso_base.la $(TORCH_LIBS) $(GTEST_LIBS)
endif
endif
