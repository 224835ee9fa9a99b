# nvme:// on emulated drives: refused where it is none, read directly; then slowed (dm-delay) and hung (suspended) in the middle.
shards=$1
mso=$MSO_BUILD/mso
mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /tmp/fast && mount /dev/nvme0n1 /tmp/fast && mkdir /tmp/fast/set && cp "$shards"/* /tmp/fast/set/ || exit 1
echo "== refused"
mkdir -p /tmp/memory && mount -t tmpfs tmpfs /tmp/memory && "$mso" data stat --set mdp.nvme.fast=/tmp/memory nvme://fast/set
echo "status $?"
"$mso" data stat --set mdp.nvme.fast=/dev/nvme0n1 nvme://fats/set
echo "status $?"
echo "== mount point"
"$mso" data verify --set mdp.nvme.fast=/tmp/fast nvme://fast/set || exit 1
echo "== device"
"$mso" data bench --batch 8 --image-size 64 --set mdp.nvme.fast=/dev/nvme0n1 nvme://fast/set || exit 1
umount /tmp/fast

echo "== slow and hung"
modprobe dm_delay || exit 1
sectors=$(cat /sys/block/nvme0n1/size)
table() { echo "0 $sectors delay /dev/nvme0n1 0 $1"; }
delay() { dmsetup suspend slow && dmsetup reload slow --table "$(table "$1")" && dmsetup resume slow; }
dmsetup create slow --noudevsync --table "$(table 0)" && dmsetup mknodes && mount -o ro /dev/mapper/slow /tmp/fast || exit 1
. "$GUEST/nvmet.bash" 2>/dev/null
"$mso" data bench --batch 4 --image-size 64 --epochs 1000000 --seconds 150 --set mdp.nvme.fast=/tmp/fast --set mdp.cache.path=/tmp/memory \
  --set mdp.cache.max_bytes=64M --set mdp.read_deadline_ms=4000 --set mdp.latency_limit_ms=300 nvme://fast/set >/tmp/bench.json 2>/tmp/bench.log &
bench=$!
chunks() { [ "$(ls /tmp/memory/mso-cache-1/*/ | grep -c '^[0-9]*$')" -ge "$2" ]; }
wanted=0
for tar in "$shards"/*.tar; do wanted=$((wanted + ($(stat -c %s "$tar") + 1048575) / 1048576)); done
wait_for 60 chunks x "$wanted" || { cat /tmp/bench.log; exit 1; }
delay 800 && wait_for 60 grep 'is slow' /tmp/bench.log && echo "slowed" || { cat /tmp/bench.log; exit 1; }
delay 0 && wait_for 60 grep 'is healthy again' /tmp/bench.log && echo "recovered" || { cat /tmp/bench.log; exit 1; }
dmsetup suspend --noflush --nolockfs slow && wait_for 60 grep 'hangs' /tmp/bench.log && echo "hung" || { cat /tmp/bench.log; exit 1; }
# It goes on to its end from the cache.
wait $bench
echo "bench: $?"
dmsetup resume slow
cat /tmp/bench.json /tmp/bench.log
