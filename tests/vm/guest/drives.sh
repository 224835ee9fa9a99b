# Drives at two NUMA nodes: what is listed; then an I/O limit on one of them, measured.
modprobe nvme
for i in {1..3000}; do [ -e /dev/nvme0n1 ] && [ -e /dev/nvme1n1 ] && break; sleep 0.1; done
"$MSO_BUILD/mso-node-facts" || exit 1
"$MSO_BUILD/mso-node-facts" --write && ls -l /run/mso/node-facts || exit 1

group=/sys/fs/cgroup/limited
mkdir "$group" || exit 1
device=$(cat /sys/block/nvme0n1/dev)
measure() { # milliseconds of reading MiB $1 by O_DIRECT inside the group
  local begin end
  begin=$(date +%s%N)
  bash -c 'echo $$ >"$0/cgroup.procs"; exec dd if=/dev/nvme0n1 of=/dev/null bs=1M count='"$1"' iflag=direct status=none' "$group" || exit 1
  end=$(date +%s%N)
  echo $(((end - begin) / 1000000))
}
echo "free_ms=$(measure 8)"
echo "$device rbps=4194304" >"$group/io.max" || exit 1
echo "limited_ms=$(measure 8)"
echo "read_bytes=$(sed -n "s/^$device .*rbytes=\([0-9]*\).*/\1/p" "$group/io.stat")"
