#!/usr/bin/env bats
# Slurm with cgroup v2, in the virtual machine: where decoder threads are held, and lanes reserved between jobs.

load common
setup() {
  vm_setup
  local program
  for program in slurmctld slurmd munged srun; do command -v $program >/dev/null || skip "$program is not installed (contrib/install-dependencies --tests)"; done
  [ -e "$MSO_BUILD/.libs/spank_mso.so" ] || skip "the plugin is not built (configure --with-slurm)"
  [ -e /usr/share/seabios/bios-256k.bin ] || skip "no SeaBIOS, which drives on ports of their own need"
  [ -d /usr/share/tuxpaint/stamps/animals ] || skip "no sample pictures (tuxpaint-stamps-default)"
}

slurm_in_vm() { # ACCOUNTING
  mkdir "$BATS_TEST_TMPDIR/pictures"
  find /usr/share/tuxpaint/stamps/animals -name '*.png' | head -n 12 | while read -r picture; do
    cp "$picture" "$BATS_TEST_TMPDIR/pictures/" && echo "a picture" >"$BATS_TEST_TMPDIR/pictures/$(basename "${picture%.png}").txt"
  done
  "$MSO_BUILD/mso" data pack "$BATS_TEST_TMPDIR/pictures" "$BATS_TEST_TMPDIR/shards"
  truncate -s 16M "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
  local arguments=() word
  while read -r word; do arguments+=(--qemu "$word"); done < <(
    drive_at_numa 1 0 "$BATS_TEST_TMPDIR/a"; drive_at_numa 2 0 "$BATS_TEST_TMPDIR/b"
    printf '%s\n' -bios /usr/share/seabios/bios-256k.bin)
  vm --mem 1536 --numa 2 --timeout 3000 "${arguments[@]}" -- slurm.sh "$BATS_TEST_TMPDIR/shards" "$1"
  [ "$status" -eq 0 ]
  [[ $output == *"all is well"* ]]
}

@test "cgroup v2: decoder threads in threaded children, gone before the step's; NVMe lanes reserved between jobs" {
  slurm_in_vm none
}

@test "the same where Slurm gives each task a cgroup of its own" {
  slurm_in_vm cgroup
}
