# memory: flat buffers of parameters, gradients and optimizer state; the pool host tensors come from; the arena of batches.
noinst_LTLIBRARIES += libmso_memory.la
libmso_memory_la_SOURCES = \
  runtime/memory/flat_buffer.cc runtime/memory/flat_buffer.h \
  runtime/memory/slice_reservation.cc runtime/memory/slice_reservation.h \
  runtime/memory/slice_scope.cc runtime/memory/slice_scope.h
libmso_memory_la_CXXFLAGS = $(AM_CXXFLAGS)
if BUILD_TRAIN
libmso_memory_la_SOURCES += runtime/memory/host_pool.cc runtime/memory/host_pool.h
libmso_memory_la_CXXFLAGS += $(TORCH_CFLAGS)
endif

# What batches lie in: a library of its own, which is part of libmso_io.
noinst_LTLIBRARIES += libmso_batch_memory.la
libmso_batch_memory_la_SOURCES = \
  runtime/memory/batch_arena.cc runtime/memory/batch_arena.h \
  runtime/memory/buddy_allocator.cc runtime/memory/buddy_allocator.h \
  runtime/memory/compaction.cc runtime/memory/compaction.h \
  runtime/memory/modality_shares.cc runtime/memory/modality_shares.h
libmso_batch_memory_la_CXXFLAGS = $(AM_CXXFLAGS)

if HAVE_GTEST
check_PROGRAMS += memory_tests
TESTS += memory_tests
memory_tests_SOURCES = tests/unit/memory/batch_arena_test.cc tests/unit/memory/buddy_allocator_test.cc \
  tests/unit/memory/slice_reservation_test.cc tests/unit/memory/slice_scope_test.cc
memory_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS)
memory_tests_LDADD = libmso_memory.la libmso_batch_memory.la libmso_node.la libmso_base.la $(GTEST_LIBS)
if BUILD_TRAIN
memory_tests_SOURCES += tests/unit/memory/host_pool_test.cc
memory_tests_CXXFLAGS += $(TORCH_CFLAGS)
memory_tests_LDADD += $(TORCH_LIBS)
endif
endif
