#!/usr/bin/env bats
# NVMe drives, emulated: what is listed, limits on them, duplicates and multipath, a drive over soft-RoCE under the data pipeline.

load common
setup() { vm_setup; }

pack_shards() { # a few pictures in $BATS_TEST_TMPDIR/shards
  local stamps=/usr/share/tuxpaint/stamps
  [ -d $stamps ] || skip "no sample pictures (tuxpaint-stamps-default)"
  mkdir "$BATS_TEST_TMPDIR/pictures" "$BATS_TEST_TMPDIR/shards"
  find $stamps/animals -name '*.png' | head -n 24 | while read -r picture; do
    cp "$picture" "$BATS_TEST_TMPDIR/pictures/" && echo "a picture" >"$BATS_TEST_TMPDIR/pictures/$(basename "${picture%.png}").txt"
  done
  "$MSO_BUILD/mso" data pack "$BATS_TEST_TMPDIR/pictures" "$BATS_TEST_TMPDIR/shards"
}

@test "drives are listed with lanes and NUMA node; an I/O limit holds" {
  [ -e /usr/share/seabios/bios-256k.bin ] || skip "no SeaBIOS, which drives at a NUMA node need"
  truncate -s 64M "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
  local arguments=() word
  while read -r word; do arguments+=(--qemu "$word"); done < <(
    drive_at_numa 1 1 "$BATS_TEST_TMPDIR/a"; drive_at_numa 2 0 "$BATS_TEST_TMPDIR/b"
    printf '%s\n' -bios /usr/share/seabios/bios-256k.bin)
  vm --numa 2 --timeout 1500 "${arguments[@]}" -- drives.sh
  [ "$status" -eq 0 ]
  # Emulated drives have one lane, whatever the port offers.
  [[ $output =~ serial=port1\ transport=pcie\ [^$'\n']*\ numa=1\ lanes=1\ speed=2.5 ]]
  [[ $output =~ serial=port2\ transport=pcie\ [^$'\n']*\ numa=0\ lanes=1\ speed=2.5 ]]
  [[ $output == *"-rw-r--r--"*"/run/mso/node-facts"* ]]
  # 8 MiB at 4 MiB/s take two seconds, however slow the machine; the kernel counted both reads.
  local limited=${output##*limited_ms=}
  [ "${limited%%[!0-9]*}" -ge 1500 ]
  [[ $output == *"read_bytes=16777216"* ]]
}

@test "two paths are multipath; two subsystems with one identifier are refused by name" {
  vm --nvme 2 --timeout 1500 -- fabrics.sh
  [ "$status" -eq 0 ]
  local first=${output%%== duplicates*}
  [[ $first == *"ok    NVMe multipath"*"over nvme2, nvme3"* ]]
  [[ $first != *"fail  NVMe duplicates"* ]]
  [[ ${output#*== duplicates} =~ fail\ \ NVMe\ duplicates\ .*both\ have\ UUID\ 11111111-2222-3333-4444-555555555555 ]]
}

@test "NVMe-oF over soft-RoCE: mounted, and read by the data pipeline" {
  for tool in rdma mkfs.ext4; do command -v $tool >/dev/null || skip "no $tool (contrib/install-dependencies --tests)"; done
  pack_shards
  vm --nvme 1 --timeout 1500 -- rdma.sh "$BATS_TEST_TMPDIR/shards"
  [ "$status" -eq 0 ]
  [[ $output == *rdma* ]]
  [[ $output == *"direct reads by io_uring from nvme1n1"* ]]
  [[ $output == *"data pipeline: 0"* ]]
}

@test "nvme:// paths: refused where they are none, read by io_uring, and gone on from the cache when slowed to 800 ms and hung for ever" {
  for tool in dmsetup mkfs.ext4; do command -v $tool >/dev/null || skip "no $tool (contrib/install-dependencies --tests)"; done
  pack_shards
  vm --nvme 1 --timeout 580 -- nvme_source.sh "$BATS_TEST_TMPDIR/shards"
  [ "$status" -eq 0 ]
  [[ $output == *"not an NVMe source"*"which has no NVMe drive of its own"*"file:///tmp/memory/set"*"status 2"* ]]
  [[ $output == *"it has fast"*"status 2"* ]]
  [[ ${output#*== mount point} == *"direct reads by io_uring from nvme0n1"*"samples are good"* ]]
  [[ ${output#*== device} == *"direct reads by io_uring from nvme0n1"*'"bad_samples": 0'* ]]
  local last=${output#*== slow and hung}
  [[ $last == *slowed*recovered*hung*"bench: 0"* ]]
  [[ $last == *'"bad_samples": 0'* ]]
}
