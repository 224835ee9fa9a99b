# Slurm with cgroup v2 on this one node, with the plugin: decoder threads in threaded children, lanes reserved between jobs.
plugin=$MSO_BUILD/.libs/spank_mso.so shards=$1 accounting=$2
fail() { echo "FAILED: $*"; tail -n 5 /tmp/bench.log 2>/dev/null; grep -hE 'mso|error|fatal' /tmp/slurm/log/* | tail -n 20; exit 1; }
# How long a thing may take that should happen: for finding a hang, so long that a busy machine does not reach it.
patience=600
has() { [[ $out == *"$1"* ]] || fail "no \"$1\" in: $out"; }
wait_for() {
  local end=$((SECONDS + patience))
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || fail "waited too long for: $*"; sleep 0.3; done
}

modprobe nvme
hostname vm1
ip link add d0 type dummy && ip address add 10.0.0.1/24 dev d0 && ip link set d0 up || exit 1
printf '127.0.0.1 localhost\n10.0.0.1 vm1\n' >/etc/hosts
mkdir -p /tmp/slurm/{state,spool,log,munge} /etc/slurm
chmod 711 /tmp/slurm/munge
head -c 128 /dev/urandom >/tmp/slurm/munge/key && chmod 600 /tmp/slurm/munge/key
munged --socket=/tmp/slurm/munge/socket --key-file=/tmp/slurm/munge/key --pid-file=/tmp/slurm/munge/pid --log-file=/tmp/slurm/log/munged \
  --seed-file=/tmp/slurm/munge/seed || fail munged
cat >/etc/slurm/slurm.conf <<END
ClusterName=vm
SlurmctldHost=vm1(10.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/tmp/slurm/munge/socket
CredType=cred/munge
StateSaveLocation=/tmp/slurm/state
SlurmdSpoolDir=/tmp/slurm/spool
SlurmctldLogFile=/tmp/slurm/log/slurmctld
SlurmdLogFile=/tmp/slurm/log/slurmd
SlurmctldPidFile=/tmp/slurm/slurmctld.pid
SlurmdPidFile=/tmp/slurm/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/$accounting
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=600
UnkillableStepTimeout=600
SchedulerType=sched/builtin
PlugStackConfig=/etc/slurm/plugstack.conf
NodeName=vm1 NodeAddr=10.0.0.1 CPUs=$(nproc) RealMemory=700 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
cat >/etc/slurm/cgroup.conf <<END
CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
ConstrainCores=yes
END
echo "optional $plugin node-facts=$MSO_BUILD/mso-node-facts decoder-cgroups=yes io-priority=be:6 decoder-nice=-5 snapshot-default=16M nvme-lane-rate=1M" >/etc/slurm/plugstack.conf
service=/sys/fs/cgroup/system.slice
mkdir -p $service/slurmd.service && echo '+cpuset +cpu +io +memory +pids' >$service/cgroup.subtree_control || fail "cgroups"
slurmctld || fail slurmctld
(echo $BASHPID >$service/slurmd.service/cgroup.procs && exec slurmd) || fail slurmd
wait_for sh -c '[ "$(sinfo -h -o %T)" = idle ]'
# slurmd gives the reader of the hardware 20 s.
[ -e /run/mso/node-facts ] || { echo "the reader of the hardware had too little time"; "$MSO_BUILD/mso-node-facts" --write; }
grep -q '^nvme name=nvme1 .*lanes=1' /run/mso/node-facts || fail "facts: $(cat /run/mso/node-facts)"

echo "== a step's sets, and what its user may not"
out=$(timeout $patience srun -n1 -c2 --mso --mso-cpus=image:1 setpriv --reuid 12345 --clear-groups bash -c '
  echo "image $MSO_CPUS_IMAGE compute $MSO_CPUS_COMPUTE runs $(sed -n "s/Cpus_allowed_list:\t//p" /proc/self/status) io $MSO_IO_PRIORITY"
  cat /proc/self/cgroup
  echo "type $(cat $MSO_CGROUP_IMAGE/cgroup.type) cpus $(cat $MSO_CGROUP_IMAGE/cpuset.cpus)"
  echo 0-1 >$MSO_CGROUP_IMAGE/cpuset.cpus && echo widened; mkdir $MSO_CGROUP_IMAGE/own && echo made; true' 2>&1)
echo "$out"
has "image 1 compute 0 runs 0 io be:6"
has "type threaded cpus 1"
[[ $out != *widened* && $out != *made* ]] || fail "more than a thread's place can be changed"

echo "== two tasks of one step"
out=$(timeout $patience srun -n2 --mso --mso-cpus=image:1 bash -c 'printf "%s\n" ${MSO_CGROUP_IMAGE%/*}/mso_*' 2>&1) || fail "two tasks: $out"
echo "$out"
has mso_0.image
has mso_1.image

echo "== threads of the data pipeline"
# Where Slurm puts a task that has no such children; making them must not change that.
place=$(timeout $patience srun -n1 sed 's|.*/task_||' /proc/self/cgroup)
echo "Slurm's own place: task_$place"
timeout $patience srun -n1 -c2 --mso --mso-cpus=image:1 "$MSO_BUILD/mso" data bench --threads 1 --batch 4 --image-size 64 --epochs 100000 "$shards" \
  >/tmp/bench.log 2>&1 &
step=$!
decoding() { grep -lsx mso-decode /proc/[0-9]*/task/[0-9]*/comm; }
# A thread has its name a moment before its place.
placed() { thread=$(decoding | head -n 1) && grep -q /mso_ "${thread%/comm}/cgroup"; }
wait_for placed
process=${thread%/task/*}
out=$(for t in "$process"/task/*; do echo "$(cat "$t/comm") $(sed -n 's/Cpus_allowed_list:\t//p' "$t/status") $(sed 's/^0:://' "$t/cgroup")"; done)
echo "$out"
[[ $out =~ mso-decode\ 1\ [^$'\n']*/task_$place/mso_0.image ]] || fail "a decoder thread is elsewhere"
[[ $out =~ ^mso\ 0\ [^$'\n']*/task_$place($'\n'|$) ]] || fail "the main thread is elsewhere"
scancel -u root
wait $step
gone() { [ -z "$(find /sys/fs/cgroup -type d \( -name 'mso_*' -o -name 'job_*' \))" ] && [ -z "$(ls /run/mso | grep '^[0-9]')" ]; }
wait_for gone

echo "== the priority of an ordinary user's decoder threads"
echo 'tester:x:12345:12345::/tmp:/bin/bash' >>/etc/passwd
asuser() { (cd /tmp && exec setpriv --reuid 12345 --regid 12345 --clear-groups "$@"); }
limits='echo "limits $(ulimit -Se) $(ulimit -He)"; nice -n -6 true 2>&1'
out=$(MSO_DECODER_PRIORITY=nice:-20 asuser timeout $patience srun -n1 -c2 --mso --mso-cpus=image:1 bash -c "$limits" 2>&1) || fail "limits: $out"
echo "$out"
has "limits 25 25"
has "cannot set niceness"
out=$(asuser timeout $patience srun -n1 -c2 --mso bash -c "$limits" 2>&1) || fail "no limits: $out"
echo "$out"
has "limits 0 0"
asuser timeout $patience srun -n1 -c2 --mso --mso-cpus=image:1 "$MSO_BUILD/mso" data bench --threads 1 --batch 4 --image-size 64 --epochs 100000 "$shards" \
  >/tmp/bench.log 2>&1 &
step=$!
wait_for placed
raised() { [ "$(awk '{ print $19 }' "${thread%/comm}/stat")" = -5 ]; }
wait_for raised
process=${thread%/task/*}
out=$(for t in "$process"/task/*; do echo "$(cat "$t/comm") uid $(awk '/^Uid/ { print $2 }' "$t/status") nice $(awk '{ print $19 }' "$t/stat")"; done)
echo "$out"
has "mso-decode uid 12345 nice -5"
has "mso uid 12345 nice 0"
scancel -u tester
wait $step
wait_for gone

echo "== lanes between two jobs"
timeout $patience srun -n1 -c1 --mso --mso-nvme=image:1x1 bash -c 'echo "first $MSO_NVME"; until [ -e /tmp/first.end ]; do sleep 0.3; done' >/tmp/first.log 2>&1 &
wait_for grep -q first /tmp/first.log
cat /tmp/first.log
out=$(timeout $patience srun -n1 -c1 --mso --mso-check=prod --mso-nvme=video:1x1 bash -c 'echo "second $MSO_NVME"' 2>&1) || fail "second: $out"
echo "$out"
has "second nvme1:video:1"
out=$(timeout $patience srun -n1 -c1 --mso --mso-check=prod --mso-nvme=video:2x1 bash -c 'echo "third $MSO_NVME"' 2>&1) && fail "third: $out"
echo "$out"
has "video:2x1 asked, but 1 PCIe drive has that many free lanes (free: nvme0 0 of 1, nvme1 1 of 1)"
touch /tmp/first.end
wait
out=$(timeout $patience srun -n1 -c1 --mso --mso-check=prod --mso-nvme=video:2x1 bash -c 'echo "fourth $MSO_NVME"' 2>&1) || fail "fourth: $out"
has "fourth nvme0:video:1,nvme1:video:1"
wait_for sh -c '[ "$(sinfo -h -o %T)" = idle ]'

echo "== I/O limited to the reserved lanes"
# 4 MiB past the page cache, and what the kernel was told of this job.
read_drive='begin=$(date +%s%N)
  dd if=/dev/nvme0n1 of=/dev/null bs=256K count=16 iflag=direct status=none || exit 1
  echo "ms=$((($(date +%s%N) - begin) / 1000000))"
  job=$(sed "s/^0:://; s|/step_.*||" /proc/self/cgroup)
  echo "io.max [$(cat "/sys/fs/cgroup$job/io.max" 2>/dev/null)]"'
device=$(cat /sys/block/nvme0n1/dev)
out=$(timeout $patience srun -n1 -c1 --mso --mso-check=prod --mso-nvme=image:1x1 bash -c "$read_drive" 2>&1) || fail "limited: $out"
echo "$out"
has "io.max [$device rbps=1048576 wbps=1048576 riops=max wiops=max]"
ms=${out##*ms=}
# 4 MiB at 1 MiB/s take four seconds, however slow the machine.
[ "${ms%%[!0-9]*}" -ge 3000 ] || fail "the limit does not hold: $out"
for option in --mso ""; do # no lanes, no limit
  out=$(timeout $patience srun -n1 -c1 $option bash -c "$read_drive" 2>&1) || fail "free: $out"
  echo "$out"
  has "io.max []"
done
wait_for gone
echo "all is well"
