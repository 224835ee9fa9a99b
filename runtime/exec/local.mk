# exec: the trainer and what it steps with.
noinst_LTLIBRARIES += libmso_optimizer.la
libmso_optimizer_la_SOURCES = runtime/exec/adamw.cc runtime/exec/adamw.h
libmso_optimizer_la_CXXFLAGS = $(AM_CXXFLAGS)
