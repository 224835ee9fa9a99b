#!/bin/sh
# The tests that need a GPU, one line each; exit code 77 where there is none. From the build folder, or MSO_BUILD.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none TMPDIR=/tmp
program="${MSO_BUILD:-.}/gpu_tests"
: "${MPIEXEC:=mpirun}"
gpus=$("$program" count) || { echo "FAILED: the GPU module does not open"; exit 1; }
if [ "$gpus" -eq 0 ]; then
  "$program" kernels
  exit 77
fi
failed=0
check() {
  if output=$(timeout -k 5 300 "$@" 2>&1); then
    printf '%-10s %s\n' passed "$*"
  else
    printf '%-10s %s: exit code %s\n%s\n' FAILED "$*" $? "$output"
    failed=1
  fi
}
check "$program" kernels
check "$program" communicator
if [ "$gpus" -gt 1 ] && command -v "$MPIEXEC" >/dev/null; then
  for n in 2 3 4 8; do
    [ $n -gt "$gpus" ] || check "$MPIEXEC" -n $n "$program" communicator
  done
  check "$MPIEXEC" -n 2 "$program" deadline
else
  printf '%-10s %s\n' skipped "communicator between GPUs: there is one"
fi
exit $failed
