# Macros of configure.ac: each looks for one dependency and adds a line to the summary.

# MSO_NOTE(NAME, RESULT): a line of the table printed at the end of configure.
AC_DEFUN([MSO_NOTE], [mso_summary="$mso_summary
  $(printf '%-22s' '$1') $2"])

# MSO_REQUIRE_PKG(VAR, PKG-CONFIG MODULE, DEBIAN PACKAGE)
AC_DEFUN([MSO_REQUIRE_PKG], [
  PKG_CHECK_MODULES([$1], [$2], [], [AC_MSG_ERROR([$2 not found: install $3])])
])

# MSO_REQUIRE_HEADER(HEADER, DEBIAN PACKAGE)
AC_DEFUN([MSO_REQUIRE_HEADER], [
  AC_CHECK_HEADER([$1], [], [AC_MSG_ERROR([$1 not found: install $2])])
])

# MSO_WITH_PKG(NAME, VAR, MODULES, DEBIAN PACKAGES, USED FOR): optional, found by pkg-config.
# Sets have_NAME, and the automake conditional HAVE_VAR.
AC_DEFUN([MSO_WITH_PKG], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--without-$1], [do not use $1 ($5)])], [], [with_$1=check])
  have_$1=no
  AS_IF([test "$with_$1" != no], [
    PKG_CHECK_MODULES([$2], [$3], [have_$1=yes], [have_$1=no
      AS_IF([test "$with_$1" = yes], [AC_MSG_ERROR([$3 not found: install $4])])
      AC_MSG_NOTICE([$3 not found: install $4 ($5)])])
  ])
  AS_IF([test "$have_$1" = yes],
    [AC_DEFINE([MSO_HAVE_$2], [1], [Have $3])
     MSO_NOTE([$1], [yes ($5)])],
    [MSO_NOTE([$1], [no: $5 off; install $4])])
  AM_CONDITIONAL([HAVE_$2], [test "$have_$1" = yes])
])

# MSO_WITH_TORCH: libtorch as it lies in the PyPI wheel. DIR may be the package folder
# (…/torch), the folder it was installed into, or a virtual environment.
AC_DEFUN([MSO_WITH_TORCH], [
  AC_ARG_WITH([torch], [AS_HELP_STRING([--with-torch=DIR],
    [torch package (PyPI wheel); default: the one Python finds; --without-torch: no training])],
    [], [with_torch=check])
  have_torch=no
  TORCH_DIR=
  AS_IF([test "$with_torch" != no], [
    AC_MSG_CHECKING([for libtorch])
    AS_CASE([$with_torch],
      [yes|check], [torch_candidates=`test -n "$PYTHON" && $PYTHON -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations@<:@0@:>@ if s else "")' 2>/dev/null`],
      [torch_candidates="$with_torch $with_torch/torch `echo $with_torch/lib/python*/site-packages/torch`"])
    for dir in $torch_candidates; do
      AS_IF([test -z "$TORCH_DIR" -a -f "$dir/include/ATen/ATen.h" -a -f "$dir/lib/libtorch_cpu.so"],
        [TORCH_DIR=`cd "$dir" && pwd`])
    done
    AS_IF([test -n "$TORCH_DIR"], [
      have_torch=yes
      TORCH_VERSION=`$SED -n "s/^__version__ = '\(.*\)'/\1/p" "$TORCH_DIR/version.py" 2>/dev/null`
      AC_MSG_RESULT([$TORCH_VERSION in $TORCH_DIR])
      # After the system's folders: the wheel carries headers of another fmt than the one spdlog was built with.
      TORCH_CFLAGS="-idirafter $TORCH_DIR/include -idirafter $TORCH_DIR/include/torch/csrc/api/include"
      TORCH_LIBS="-L$TORCH_DIR/lib -ltorch_cpu -lc10"
      TORCH_RPATH="-R $TORCH_DIR/lib"
      MSO_NOTE([torch], [yes: $TORCH_VERSION (training)])
    ], [
      AC_MSG_RESULT([no])
      AS_IF([test "$with_torch" != check],
        [AC_MSG_ERROR([no include/ATen/ATen.h and lib/libtorch_cpu.so under '$with_torch': give the folder of the PyPI torch wheel])])
      MSO_NOTE([torch], [no: training off; pip install torch@<:@,@:>@ or --with-torch=DIR])
    ])
  ], [MSO_NOTE([torch], [no: training off (--without-torch)])])
  AS_IF([test "$have_torch" = yes], [AC_DEFINE([MSO_HAVE_TORCH], [1], [Have libtorch])])
  AC_SUBST([TORCH_DIR])
  AC_SUBST([TORCH_CFLAGS])
  AC_SUBST([TORCH_LIBS])
  AC_SUBST([TORCH_RPATH])
  AM_CONDITIONAL([HAVE_TORCH], [test "$have_torch" = yes])
])

# MSO_WITH_MPI: flags asked of the compiler wrapper, so that the rest is built with plain CXX.
AC_DEFUN([MSO_WITH_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=DIR], [MPI installation; default: mpicxx in PATH; --without-mpi: one rank])],
    [], [with_mpi=check])
  have_mpi=no
  AS_IF([test "$with_mpi" != no], [
    AS_CASE([$with_mpi], [yes|check], [mpi_path=$PATH], [mpi_path=$with_mpi/bin])
    AC_PATH_PROG([MPICXX], [mpicxx], [], [$mpi_path])
    AC_PATH_PROG([MPIEXEC], [mpirun], [], [$mpi_path])
    AS_IF([test -n "$MPICXX"], [
      have_mpi=yes
      MPI_CFLAGS=`$MPICXX --showme:compile 2>/dev/null || $MPICXX -compile-info 2>/dev/null | $SED 's/^@<:@^ @:>@* //'`
      MPI_LIBS=`$MPICXX --showme:link 2>/dev/null || $MPICXX -link-info 2>/dev/null | $SED 's/^@<:@^ @:>@* //'`
      MSO_NOTE([MPI], [yes: $MPICXX])
    ], [
      AS_IF([test "$with_mpi" != check], [AC_MSG_ERROR([no mpicxx in $mpi_path: install libopenmpi-dev or give --with-mpi=DIR])])
      MSO_NOTE([MPI], [no: one rank only; install libopenmpi-dev])
    ])
  ], [MSO_NOTE([MPI], [no: one rank only (--without-mpi)])])
  AS_IF([test "$have_mpi" = yes], [AC_DEFINE([MSO_HAVE_MPI], [1], [Have MPI])])
  AC_SUBST([MPI_CFLAGS])
  AC_SUBST([MPI_LIBS])
  AM_CONDITIONAL([HAVE_MPI], [test "$have_mpi" = yes])
])

# MSO_WITH_CUDA: the toolkit and NCCL, for the module mso_cuda.so opened at run time.
AC_DEFUN([MSO_WITH_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit; default: where nvcc is; --without-cuda: CPU only])],
    [], [with_cuda=check])
  have_cuda=no
  AS_IF([test "$with_cuda" != no], [
    AS_CASE([$with_cuda], [yes|check], [cuda_path=$PATH:/usr/local/cuda/bin], [cuda_path=$with_cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_path])
    AS_IF([test -n "$NVCC"], [
      CUDA_DIR=`dirname "$NVCC"`; CUDA_DIR=`cd "$CUDA_DIR/.." && pwd -P`
      mso_save_CPPFLAGS=$CPPFLAGS
      CPPFLAGS="$CPPFLAGS -I$CUDA_DIR/include"
      AC_CHECK_HEADER([nccl.h], [have_cuda=yes], [AC_MSG_NOTICE([nccl.h not found: no CUDA module])])
      CPPFLAGS=$mso_save_CPPFLAGS
      CUDA_CFLAGS="-isystem $CUDA_DIR/include"
      CUDA_LIBS="-L$CUDA_DIR/lib64 -lnccl -lcudart"
    ])
    AS_IF([test "$have_cuda" = no -a "$with_cuda" != check],
      [AC_MSG_ERROR([no nvcc in $cuda_path, or no nccl.h: give --with-cuda=DIR])])
  ])
  AS_IF([test "$have_cuda" = yes],
    [AC_DEFINE([MSO_HAVE_CUDA], [1], [Build the CUDA module])
     MSO_NOTE([CUDA module], [yes: $CUDA_DIR, NCCL])],
    [MSO_NOTE([CUDA module], [no: CPU ranks only])])
  AC_SUBST([CUDA_DIR])
  AC_SUBST([CUDA_CFLAGS])
  AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([HAVE_CUDA], [test "$have_cuda" = yes])
])

# MSO_WITH_SLURM: spank.h, for the plugin. It is compiled for the Slurm it is found in and links with nothing of it.
AC_DEFUN([MSO_WITH_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm@<:@=DIR@:>@], [Slurm installation; default: where slurm/spank.h is; --without-slurm: no plugin])],
    [], [with_slurm=check])
  have_slurm=no
  SLURM_CFLAGS= SLURM_BINDIR=/usr/bin SLURM_VERSION=
  AS_IF([test "$with_slurm" != no], [
    AS_CASE([$with_slurm], [yes|check], [], [SLURM_CFLAGS="-I$with_slurm/include" SLURM_BINDIR="$with_slurm/bin"])
    mso_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
    AC_CHECK_HEADER([slurm/spank.h], [have_slurm=yes])
    AS_IF([test "$have_slurm" = yes], [
      AC_COMPUTE_INT([slurm_number], [SLURM_VERSION_NUMBER], [@%:@include <slurm/slurm_version.h>], [slurm_number=0])
      SLURM_VERSION=`printf '%d.%02d.%d' $((slurm_number / 65536)) $((slurm_number / 256 % 256)) $((slurm_number % 256))`
    ])
    CPPFLAGS=$mso_save_CPPFLAGS
    AS_IF([test "$have_slurm" = no -a "$with_slurm" != check],
      [AC_MSG_ERROR([no slurm/spank.h: install libslurm-dev or give --with-slurm=DIR])])
  ])
  AS_IF([test "$have_slurm" = yes],
    [MSO_NOTE([Slurm plugin], [yes: for Slurm $SLURM_VERSION])],
    [MSO_NOTE([Slurm plugin], [no: install libslurm-dev, or --with-slurm=DIR])])
  AC_SUBST([SLURM_CFLAGS])
  AC_SUBST([SLURM_BINDIR])
  AM_CONDITIONAL([HAVE_SLURM], [test "$have_slurm" = yes])
])

AC_DEFUN([MSO_SUMMARY], [
  AS_ECHO(["
MegaScale-Omni $PACKAGE_VERSION is configured:
$mso_summary

  $(printf '%-22s' 'data pipeline (io)') $build_io
  $(printf '%-22s' 'checkpoints (ckpt)') $build_ckpt
  $(printf '%-22s' 'training') $build_train
  $(printf '%-22s' 'sanitizers') $enable_sanitizers
  $(printf '%-22s' 'compiler') $CXX $CXXFLAGS
  $(printf '%-22s' 'prefix') $prefix

Now: make -j\$(nproc), make check, make install"])
])
