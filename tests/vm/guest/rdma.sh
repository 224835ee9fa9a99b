# A drive of a target over soft-RoCE, mounted, and read by the data pipeline.
. "$GUEST/nvmet.bash"
shards=$1
modprobe -a rdma_rxe ib_uverbs rdma_ucm nvmet-rdma nvme-rdma veth || exit 1
# No address on loopback can carry RoCE: a pair of interfaces.
ip link add left type veth peer name right
ip addr add 10.9.0.1/24 dev left
ip link set left up && ip link set right up
rdma link add rxe0 type rxe netdev left || exit 1
mkfs.ext4 -q /dev/nvme0n1 && mkdir -p /tmp/fill /tmp/far && mount /dev/nvme0n1 /tmp/fill && cp "$shards"/* /tmp/fill/ && umount /tmp/fill || exit 1
subsystem far && add_namespace far 1 /dev/nvme0n1 aaaaaaaa-2222-3333-4444-555555555555
port 1 rdma 10.9.0.1 4420 far || exit 1
wait_for 300 connect rdma 10.9.0.1 4420 far || { dmesg | tail; exit 1; }
wait_for 300 test -b /dev/nvme1n1 || { ls /dev/nvme*; exit 1; }
cat /sys/class/nvme/nvme1/transport
mount -o ro /dev/nvme1n1 /tmp/far || exit 1
grep /tmp/far /proc/mounts
far() { "$MSO_BUILD/mso" data "$@" --set mdp.nvme.far=/tmp/far nvme://far; }
far stat && far verify && far bench --batch 8 --image-size 64
code=$?
echo "data pipeline: $code"
umount /tmp/far
exit $code
