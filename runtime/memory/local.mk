# memory: flat buffers of parameters, gradients and optimizer state.
noinst_LTLIBRARIES += libmso_memory.la
libmso_memory_la_SOURCES = \
  runtime/memory/flat_buffer.cc runtime/memory/flat_buffer.h
libmso_memory_la_CXXFLAGS = $(AM_CXXFLAGS)
