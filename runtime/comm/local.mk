# comm: groups of ranks (MPI, one rank alone), gradient buckets. No torch; MPI headers in its .cc files only.
noinst_LTLIBRARIES += libmso_comm.la
libmso_comm_la_SOURCES = \
  runtime/comm/communicator.cc runtime/comm/communicator.h \
  runtime/comm/cuda_module.cc runtime/comm/cuda_module.h \
  runtime/comm/flat_layout.cc runtime/comm/flat_layout.h \
  runtime/comm/gradient_reducer.cc runtime/comm/gradient_reducer.h \
  runtime/comm/launcher.cc runtime/comm/launcher.h \
  runtime/comm/reduce.cc runtime/comm/reduce.h \
  runtime/comm/world.cc runtime/comm/world.h
# The C++ bindings of MPI were taken out of the standard; their headers only bring warnings.
libmso_comm_la_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS) $(MPI_CFLAGS) -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
libmso_comm_la_CPPFLAGS = $(AM_CPPFLAGS) -DMSO_PKGLIBDIR='"$(pkglibdir)"'
libmso_comm_la_LIBADD = $(MPI_LIBS)
if HAVE_MPI
libmso_comm_la_SOURCES += \
  runtime/comm/mpi_collectives.cc \
  runtime/comm/mpi_communicator.cc runtime/comm/mpi_communicator.h \
  runtime/comm/mpi_operation.cc runtime/comm/mpi_operation.h
endif

# mso_cuda.so: opened at run time where a GPU answers (cuda_module.h); the one thing linked with CUDA and NCCL. Has
# its own copy of the few sources it needs, so that it neither needs MPI nor symbols of the program.
SUFFIXES = .cu
if HAVE_CUDA
pkglib_LTLIBRARIES += mso_cuda.la
mso_cuda_la_SOURCES = \
  runtime/base/error.cc runtime/base/host_tensor.cc \
  runtime/comm/communicator.cc runtime/comm/reduce.cc \
  runtime/comm/cuda_kernels.cu runtime/comm/cuda_kernels.h \
  runtime/comm/cuda_module_entry.cc \
  runtime/comm/element_ops.h \
  runtime/comm/nccl_communicator.cc runtime/comm/nccl_communicator.h
mso_cuda_la_CXXFLAGS = $(AM_CXXFLAGS) $(CUDA_CFLAGS)
mso_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -export-symbols-regex '^mso_cuda_module$$' \
  -Wl,-rpath,$(CUDA_DIR)/lib64
mso_cuda_la_LIBADD = $(CUDA_LIBS)
endif

# Without fused multiply-add, as everywhere: the same bits as on the CPU.
NVCC_FLAGS = -std=c++20 -O2 -fmad=false -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
  -gencode arch=compute_90,code=compute_90
NVCC_COMPILE = $(SHELL) $(top_srcdir)/contrib/nvcc-libtool $(NVCC) $(NVCC_FLAGS)
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
.cu.lo:
	@$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(LIBTOOL) $(AM_V_lt) --tag=CXX --mode=compile $(NVCC_COMPILE) $(DEFS) $(AM_CPPFLAGS) -c -o $@ $<
runtime/comm/cuda_kernels.lo: runtime/comm/cuda_kernels.h runtime/comm/element_ops.h runtime/comm/communicator.h
EXTRA_DIST += contrib/nvcc-libtool runtime/comm/cuda_kernels.cu

if HAVE_GTEST
check_PROGRAMS += comm_tests
TESTS += comm_tests
comm_tests_SOURCES = \
  tests/unit/comm/cuda_module_test.cc \
  tests/unit/comm/element_ops_test.cc \
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

# Needs a GPU: exits with 77 where there is none.
if HAVE_CUDA
check_PROGRAMS += gpu_tests
TESTS += tests/mpi/gpu.sh
gpu_tests_SOURCES = tests/mpi/gpu_tests.cc tests/mpi/mpi_tests.h
gpu_tests_CXXFLAGS = $(AM_CXXFLAGS) $(SPDLOG_CFLAGS)
gpu_tests_LDADD = libmso_comm.la libmso_base.la
EXTRA_gpu_tests_DEPENDENCIES = mso_cuda.la
endif
EXTRA_DIST += tests/mpi/gpu.sh contrib/gpu-check
