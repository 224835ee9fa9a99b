# A drive over two paths (multipath), and two subsystems with one identifier (duplicates), over TCP.
. "$GUEST/nvmet.bash"
modprobe -a nvmet-tcp nvme-tcp
same=11111111-2222-3333-4444-555555555555
subsystem far && add_namespace far 1 /dev/nvme0n1 aaaaaaaa-2222-3333-4444-555555555555
port 1 tcp 127.0.0.1 4420 far
port 2 tcp 127.0.0.1 4421 far
connect tcp 127.0.0.1 4420 far && connect tcp 127.0.0.1 4421 far || exit 1
has_namespace() { ls "/sys/class/nvme/$1" | grep -q 'nvme.*n1$'; }
wait_for 300 has_namespace nvme2 && wait_for 300 has_namespace nvme3 || exit 1
echo "== multipath"
"$MSO_BUILD/mso" check --node
subsystem one && add_namespace one 1 /dev/nvme0n1 $same
subsystem two && add_namespace two 1 /dev/nvme1n1 $same
port 3 tcp 127.0.0.1 4422 one two
connect tcp 127.0.0.1 4422 one && wait_for 300 has_namespace nvme4 || exit 1
connect tcp 127.0.0.1 4422 two
# The kernel takes no second namespace of that name, and says so.
kernel_refused() { dmesg | grep -qi duplicate; }
wait_for 300 kernel_refused || exit 1
echo "== duplicates"
ls /sys/class/nvme
"$MSO_BUILD/mso-node-facts" | grep -E '^(nvme|namespace)'
"$MSO_BUILD/mso" check --node
dmesg | grep -i duplicate | tail -n 2
exit 0
