# In the virtual machine of slow_nvme.py: the data pipeline on nvme://, the drive's reads going from 5 to 800 ms and back, and then
# hanging for ever. $1: the shards, $2: where the results go, $3: seconds at 5 ms, $4: of each other phase.
shards=$1 results=$2 normal_s=$3 phase_s=$4
mso=${MSO:-$MSO_BUILD/mso}
wait_for() { # SECONDS COMMAND…
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "gave up on: $*"; return 1; }; sleep 0.5; done
}
modprobe dm_delay && mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /tmp/fast /tmp/memory && mount /dev/nvme0n1 /tmp/fast && mkdir /tmp/fast/set &&
  cp "$shards"/* /tmp/fast/set/ && umount /tmp/fast || exit 1
mount -t tmpfs tmpfs /tmp/memory || exit 1
sectors=$(cat /sys/block/nvme0n1/size)
table() { echo "0 $sectors delay /dev/nvme0n1 0 $1"; }
delay() { dmsetup suspend slow && dmsetup reload slow --table "$(table "$1")" && dmsetup resume slow; }
phase() { echo "$1 $(date +%s.%N)" >>"$results/phases"; }
dmsetup create slow --noudevsync --table "$(table 5)" && dmsetup mknodes && mount -o ro /dev/mapper/slow /tmp/fast || exit 1

"$mso" data bench --threads 2 --batch 4 --image-size 64 --epochs 1000000 --seconds 100000 --timeline "$results/timeline" --set mdp.nvme.fast=/tmp/fast \
  --set mdp.cache.path=/tmp/memory --set mdp.cache.max_bytes=256M nvme://fast/set >"$results/bench.json" 2>"$results/log" &
bench=$!
chunks() { [ "$(ls /tmp/memory/mso-cache-1/*/ | grep -c '^[0-9]*$')" -ge "$1" ]; }
wanted=0
for tar in "$shards"/*.tar; do wanted=$((wanted + ($(stat -c %s "$tar") + 1048575) / 1048576)); done
wait_for 300 chunks "$wanted" || { cat "$results/log"; exit 1; }
# An emulated processor translates what it runs first.
sleep 20
phase normal
sleep "$normal_s"
phase slow
delay 800 || exit 1
sleep "$phase_s"
phase recovered
delay 5 || exit 1
sleep "$phase_s"
phase hung
dmsetup suspend --noflush --nolockfs slow || exit 1
sleep "$phase_s"
phase end
kill -0 $bench && echo "still running"
dmsetup resume slow
kill $bench
wait $bench
true
