# For tests in the virtual machine. MSO_BUILD: build folder; MSO_SRCDIR: the sources.

vm_setup() {
  MSO_SRCDIR=${MSO_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
  MSO_BUILD=${MSO_BUILD:-$MSO_SRCDIR/build}
  VMRUN=$BATS_TEST_DIRNAME/vmrun
  GUEST=$BATS_TEST_DIRNAME/guest
  export MSO_SRCDIR MSO_BUILD GUEST
  command -v qemu-system-x86_64 >/dev/null || skip "no QEMU (contrib/install-dependencies --tests)"
  [ "$(id -u)" = 0 ] || skip "needs root: the machine's kernel is unpacked with apt"
  "$BATS_TEST_DIRNAME/vmrun-build" "${VMRUN_CACHE:-/var/cache/vmrun}" >"$BATS_TEST_TMPDIR/build.log" 2>&1 ||
    skip "no kernel for the machine: $(tail -n 1 "$BATS_TEST_TMPDIR/build.log")"
}

# vm OPTIONS… -- SCRIPT ARGUMENTS…: runs tests/vm/guest/SCRIPT in the machine.
vm() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  local script=$1
  shift
  PATH=/usr/bin:/bin:/usr/sbin:/sbin run "$VMRUN" "${options[@]}" -- /bin/bash "$GUEST/$script" "$@"
  echo "$output"
}

# A drive on a PCIe port of its own, on NUMA node $2; arguments for vmrun, one a line.
drive_at_numa() { # ID NODE IMAGE
  printf '%s\n' -device "pxb-pcie,id=px$1,bus_nr=$((64 + 16 * $1)),numa_node=$2,bus=pcie.0" \
    -device "pcie-root-port,id=rp$1,chassis=$((10 + $1)),slot=$1,bus=px$1,x-speed=16,x-width=8" \
    -drive "file=$3,if=none,id=e$1,format=raw" -device "nvme,drive=e$1,serial=port$1,bus=rp$1"
}
