# comm: groups of ranks (MPI, one rank alone), gradient buckets. No torch; MPI headers in its .cc files only.
noinst_LTLIBRARIES += libmso_comm.la
libmso_comm_la_SOURCES = \
  runtime/comm/communicator.cc runtime/comm/communicator.h \
  runtime/comm/flat_layout.cc runtime/comm/flat_layout.h \
  runtime/comm/gradient_reducer.cc runtime/comm/gradient_reducer.h \
  runtime/comm/launcher.cc runtime/comm/launcher.h \
  runtime/comm/reduce.cc runtime/comm/reduce.h \
  runtime/comm/world.cc runtime/comm/world.h
# The C++ bindings of MPI were taken out of the standard; their headers only bring warnings.
libmso_comm_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(MPI_CFLAGS) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
libmso_comm_la_LIBADD = $(MPI_LIBS)
if HAVE_MPI
libmso_comm_la_SOURCES += \
  runtime/comm/mpi_collectives.cc \
  runtime/comm/mpi_communicator.cc runtime/comm/mpi_communicator.h \
  runtime/comm/mpi_operation.cc runtime/comm/mpi_operation.h
endif

if HAVE_GTEST
check_PROGRAMS += comm_tests
TESTS += comm_tests
comm_tests_SOURCES = \
  tests/unit/comm/flat_layout_test.cc \
  tests/unit/comm/launcher_test.cc \
  tests/unit/comm/reduce_test.cc \
  tests/unit/comm/single_test.cc
comm_tests_CXXFLAGS = $(AM_CXXFLAGS) $(GTEST_CFLAGS) $(SPDLOG_CFLAGS)
comm_tests_LDADD = libmso_comm.la libmso_base.la $(GTEST_LIBS)
endif

if HAVE_MPI
check_PROGRAMS += mpi_tests
TESTS += tests/mpi/communicator.sh
mpi_tests_SOURCES = tests/mpi/mpi_tests.cc tests/mpi/mpi_tests.h tests/mpi/collectives_tests.cc \
  tests/mpi/failure_tests.cc tests/mpi/reducer_tests.cc tests/mpi/speed.cc
mpi_tests_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
mpi_tests_LDADD = libmso_comm.la libmso_base.la
endif
EXTRA_DIST += tests/mpi/communicator.sh
