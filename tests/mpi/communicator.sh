#!/bin/sh
# Runs the MPI test program on 1, 2, 3 and 4 ranks (10 for the logarithmic all-reduce), and the disruption cases.
# From the build folder, or with MSO_BUILD set to it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
# mpirun puts its socket under TMPDIR, whose path may be too long in a nested build.
export TMPDIR=/tmp
program="${MSO_BUILD:-.}/mpi_tests"
: "${MPIEXEC:=mpirun}"
command -v "$MPIEXEC" >/dev/null || { echo "skipped: no mpirun"; exit 77; }
failed=0

# expect CODE TEXT COMMAND...: exit code (or 'any' for any failure) and a text in the output.
expect() {
  code=$1 text=$2
  shift 2
  output=$(timeout -k 5 100 "$@" 2>&1)
  got=$?
  ok=yes
  case $code in
    any) [ $got -ne 0 ] && [ $got -ne 124 ] || ok=no ;;
    *) [ $got -eq "$code" ] || ok=no ;;
  esac
  case $output in *"$text"*) ;; *) ok=no ;; esac
  if [ $ok = yes ]; then
    echo "ok: $*"
  else
    echo "FAILED: $*: exit code $got (expected $code), output without '$text':"
    echo "$output" | head -n 40
    failed=1
  fi
}

expect 0 "passed on 1 ranks" "$program" collectives
expect 0 "passed on 1 ranks" "$program" reducer
for n in 1 2 3 4; do
  expect 0 "passed on $n ranks" "$MPIEXEC" -n $n "$program" collectives
  expect 0 "passed on $n ranks" "$MPIEXEC" -n $n "$program" reducer
done
expect 0 "passed on 10 ranks" "$MPIEXEC" -n 10 "$program" reducer

expect 0 "node a local 1 of 2" "$MPIEXEC" -n 2 env MSO_NODE=a "$program" world
expect 0 "rank 1 of 2 node b local 0 of 1 host rank 1" \
  "$MPIEXEC" -n 1 env MSO_NODE=a "$program" world : -n 1 env MSO_NODE=b "$program" world

for n in 2 3; do
  expect any "silent: passed" "$MPIEXEC" -n $n "$program" silent
  expect 0 "mismatch: passed" "$MPIEXEC" -n $n "$program" mismatch
  expect 0 "sizes: passed" "$MPIEXEC" -n $n "$program" sizes
  expect 5 "" "$MPIEXEC" -n $n "$program" abandon
  expect 3 "made to fail" "$MPIEXEC" -n $n "$program" throw
done
# Without the help of the launcher, which ends the others a second after it has seen a rank die.
expect 0 "killed: passed" "$MPIEXEC" --mca orte_abort_on_non_zero_status 0 --enable-recovery -n 3 "$program" killed
exit $failed
