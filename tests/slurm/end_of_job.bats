#!/usr/bin/env bats
# However a job ends: mounts, folders, cgroups and processes of this job are gone, and only of this job.
load common.bash

setup() { needs_private_cluster; }

# A neighbour that must be there, unharmed, at the end of every test.
neighbour='
neighbour() {
  sbatch -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o /dev/null --wrap "srun sh -c \"echo alive >\\\$MSO_SNAPSHOT_DIR/f; sleep 300\"" >/dev/null
  wait_until 10 on_node 1 test -s /run/mso/1.0/snapshot/f
  wait_until 10 on_node 2 test -s /run/mso/1.0/snapshot/f
}
# Only the neighbour is left, whole; then it goes too.
only_neighbour() {
  local i
  for i in 1 2; do wait_until 15 keeps_only $i 1.0; done
  for i in 1 2; do
    [[ $(on_node $i cat /run/mso/1.0/snapshot/f) = alive ]] || fail "the neighbour lost its file on node $i"
    [[ $(on_node $i grep -c " /run/mso/" /proc/mounts) = 1 ]] || fail "mounts: $(kept_on $i)"
  done
  job_runs 1 || fail "the neighbour does not run"
  scancel 1
  expect_clean
}'

@test "exit, scancel, time limit, kill -9 of a rank" {
  in_cluster 2 POD_TIMEOUT=150 EXTRA=$'OverTimeLimit=0\n' <<SCRIPT
$neighbour
neighbour
run() { srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M "\$@"; }
expect 0 run true
expect 3 run sh -c 'exit 3'
run sleep 100 & pid=\$!
wait_until 10 on_node 2 test -d /run/mso/4.0/snapshot
scancel 4; wait \$pid && exit 1
run sh -c 'kill -9 \$\$' && exit 1
# Slurm's time limits are minutes; one that is over is set by root.
run sleep 100 & pid=\$!
wait_until 10 on_node 2 test -d /run/mso/6.0/snapshot
scontrol update JobId=6 EndTime=now || scontrol update JobId=6 TimeLimit=0
wait_until 60 job_gone 6
wait \$pid && exit 1
only_neighbour
SCRIPT
}

@test "kill -9 of slurmstepd: after the job nothing is left, not even the orphaned task" {
  in_cluster 2 PROCTRACK=cgroup TASK=cgroup,affinity POD_TIMEOUT=90 <<SCRIPT
$neighbour
neighbour
# Beside the task, a process whose first thread has ended: it looks dead, and another thread lives.
cat >"\$PREFIX/headless.py" <<'END'
import ctypes, os, threading, time
def live():
    open(os.environ["MSO_SNAPSHOT_DIR"] + "/headless", "w").close()
    time.sleep(1000)
threading.Thread(target=live).start()
if os.uname().machine == "x86_64": ctypes.CDLL(None).syscall(60, 0)  # exit(2), which ends this thread alone
time.sleep(1000)
END
printf 'python3 %s/headless.py & exec sleep 987654\n' "\$PREFIX" >"\$PREFIX/task.sh"
sbatch -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o /dev/null --wrap "srun sh \$PREFIX/task.sh" >/dev/null
wait_until 10 on_node 2 test -d /run/mso/2.0/snapshot
wait_until 10 processes 2 "^[^ ]*sleep 987654"
! command -v python3 >/dev/null || wait_until 10 on_node 2 test -e /run/mso/2.0/snapshot/headless
kill -9 \$(pgrep -f 'slurmstepd: \[2[.]0\]')
scancel 2
wait_until 30 processes 0 "^[^ ]*sleep 987654"
wait_until 10 log_has 1 'event=teardown job=2 .*orphans=[1-9]'
wait_until 10 log_has 2 'event=teardown job=2 .*orphans=[1-9]'
processes 2 "^[^ ]*sleep 300"
only_neighbour
[[ -z \$(find /sys/fs/cgroup -path "*slurm_\${NODES[0]}*job_2*" -name cgroup.procs -exec cat {} + 2>/dev/null) ]]
SCRIPT
}

@test "slurmd killed and restarted beside a live job: the job is not touched, dead ones are swept" {
  in_cluster 2 POD_TIMEOUT=90 <<SCRIPT
$neighbour
neighbour
# A job between its steps has no process on node 2 at all, and lives.
salloc -N2 --mso sh -c 'srun --ntasks-per-node=1 sh -c "echo x >\\\$MSO_SNAPSHOT_DIR/g"; touch '"\$PREFIX"'/stepped; sleep 12; srun --ntasks-per-node=1 sh -c "cat \\\$MSO_SNAPSHOT_DIR/g"' >"\$PREFIX/between" 2>&1 & pid=\$!
wait_until 10 test -e "\$PREFIX/stepped"
# What jobs that no longer exist left: of this version, of another, half made.
on_node 2 sh -c 'mkdir -m 711 /run/mso/77.0 /run/mso/78.0 /run/mso/79.3; cd /run/mso; mkdir 77.0/snapshot 78.0/snapshot
  mount -t tmpfs tmpfs 77.0/snapshot; mount -t tmpfs tmpfs 78.0/snapshot; touch 77.0/snapshot/f
  printf "mso-state 1\nuid 0\nsnapshot_bytes 5\nphase ready\nsince 5\nnode x\n" >77.0/state; echo mso-state 9 >78.0/state; mkdir -p 78.0/future/deep'
kill -9 \$(cat "\$PREFIX/run/slurmd.\${NODES[1]}.pid")
"\$HERE/cluster" start-node "\$PREFIX" 2
wait_until 10 on_node 2 sh -c '[ ! -e /run/mso/77.0 ] && [ ! -e /run/mso/78.0 ] && [ ! -e /run/mso/79.3 ]'
log_has 2 'event=teardown job=77 reason=sweep_at_slurmd_start'
on_node 2 test -s /run/mso/2.0/snapshot/g
wait \$pid || { cat "\$PREFIX/between"; exit 1; }
[[ \$(grep -c '^x' "\$PREFIX/between") = 2 ]] || { cat "\$PREFIX/between"; exit 1; }
only_neighbour
SCRIPT
}

@test "the controller is away: a restart of slurmd sweeps nothing it is not sure of" {
  in_cluster 1 POD_TIMEOUT=90 <<'SCRIPT'
on_node 1 sh -c 'mkdir -m 711 -p /run/mso/77.0; printf "mso-state 1\nuid 0\nsnapshot_bytes 5\nphase ready\nsince 5\nnode x\n" >/run/mso/77.0/state'
kill -9 "$(cat "$PREFIX/run/slurmctld.pid")"
kill "$(cat "$PREFIX/run/slurmd.${NODES[0]}.pid")"; sleep 1
"$HERE/cluster" start-node "$PREFIX" 1
sleep 1
on_node 1 test -e /run/mso/77.0/state
slurmctld
wait_until 20 idle
# The next job with --mso sweeps in its prolog.
expect 0 srun --mso true
on_node 1 test ! -e /run/mso/77.0
expect_clean
SCRIPT
}

@test "requeue: a new directory, nothing of the old one" {
  in_cluster 2 POD_TIMEOUT=90 EXTRA=$'JobRequeue=1\n' <<'SCRIPT'
cat >"$PREFIX/job.sh" <<'END'
#!/bin/bash
srun --ntasks-per-node=1 sh -c 'echo $SLURM_RESTART_COUNT $MSO_SNAPSHOT_DIR $(ls $MSO_SNAPSHOT_DIR); echo x >$MSO_SNAPSHOT_DIR/f'
[ -n "$SLURM_RESTART_COUNT" ] || sleep 100
echo "script $(cat $MSO_SNAPSHOT_DIR/f)"
END
sbatch -N2 --requeue --mso --mso-snapshot=16M --open-mode=append -o "$PREFIX/out" "$PREFIX/job.sh" >/dev/null
wait_until 10 on_node 2 test -e /run/mso/1.0/snapshot/f
scontrol requeue 1
wait_until 5 on_node 2 test ! -e /run/mso/1.0
# A requeued job may begin two minutes later; it need not wait here.
wait_until 20 sh -c "[ \"\$(squeue -h -j 1 -o %T)\" = PENDING ]"
sleep 2  # slurmd refuses a job that it killed in the same second
scontrol update JobId=1 StartTime=now
wait_until 60 job_gone 1
# Slurm 22.05 does not tell a batch script how often it was started, so its node may call it 0.
[[ $(grep -c '^1 /run/mso/1.[01]/snapshot$' "$PREFIX/out") = 2 ]] || { cat "$PREFIX/out"; exit 1; }
grep -q '^script x$' "$PREFIX/out" || fail "the script's directory is not its steps': $(cat "$PREFIX/out")"
expect_clean
SCRIPT
}

@test "a folder in use, an open file, mounts stacked on it, a mount inside it: gone all the same, and their memory" {
  in_cluster 1 <<'SCRIPT'
sbatch -n1 --mso --mso-snapshot=16M -o /dev/null --wrap 'head -c 4M /dev/zero >$MSO_SNAPSHOT_DIR/large; sleep 100' >/dev/null
whole() { [[ $(on_node 1 stat -c %s /run/mso/1.0/snapshot/large) = 4194304 ]]; }
wait_until 10 whole
on_node 1 sh -c 'exec sleep 5151 5<>/run/mso/1.0/snapshot/large' &
wait_until 10 processes 1 "^sleep 5151"
holder=$(pgrep -fx "sleep 5151")
on_node 1 sh -c 'mount -t tmpfs tmpfs /run/mso/1.0/snapshot; mkdir "/run/mso/1.0/snapshot/a b"; mount -t tmpfs tmpfs "/run/mso/1.0/snapshot/a b"'
on_node 1 sh -c 'cd "/run/mso/1.0/snapshot/a b"; exec sleep 5252' &
wait_until 10 processes 1 "^sleep 5252"
scancel 1
expect_clean
[[ $(stat -L -c %b "/proc/$holder/fd/5") = 0 ]] || fail "an open file of $(stat -L -c %s "/proc/$holder/fd/5") bytes lives on"
# What can still be written through it is a page.
head -c 1M /dev/zero >"/proc/$holder/fd/5" && fail "it can grow again" || true
SCRIPT
}

@test "memory of a file that was removed while it is open counts until it is closed" {
  in_cluster 1 PLUGIN_ARGUMENTS="snapshot-node-max=20M" <<'SCRIPT'
sbatch -n1 --mso --mso-snapshot=16M -o /dev/null --wrap 'head -c 10M /dev/zero >$MSO_SNAPSHOT_DIR/large; sleep 100' >/dev/null
whole() { [[ $(on_node 1 stat -c %s /run/mso/1.0/snapshot/large) = 10485760 ]]; }
wait_until 10 whole
on_node 1 sh -c 'exec sleep 5151 5</run/mso/1.0/snapshot/large' &
wait_until 10 processes 1 "^sleep 5151"
on_node 1 rm /run/mso/1.0/snapshot/large
scancel 1
wait_until 20 log_has 1 'event=teardown job=1 .*still open.*10[.]0 MiB.*result=failed'
[[ $(on_node 1 ls /run/mso/1.0/snapshot | wc -l) = 0 ]]
wait_until 10 job_gone 1
expect 1 srun -n1 --mso --mso-snapshot=16M sh -c 'echo must not run'
says "other jobs on this node hold 10.0 MiB of 20.0 MiB"
says_not "must not run"
expect 0 srun -n1 --mso --mso-snapshot=8M true
kill "$(pgrep -fx "sleep 5151")"
wait_until 10 processes 0 "^sleep 5151"
# The prolog of the next job sweeps.
expect 0 srun -n1 --mso --mso-snapshot=16M true
expect_clean
SCRIPT
}

@test "many short steps and many short jobs leave nothing: mounts, cgroups, folders and processes counted" {
  in_cluster 2 PROCTRACK=cgroup TASK=cgroup,affinity POD_TIMEOUT=600 <<SCRIPT
count() {
  local i
  for i in 1 2; do on_node \$i sh -c 'wc -l </proc/mounts; find /run/mso | wc -l'; done
  find /sys/fs/cgroup -path "*/slurm_\$TAG*" -type d -path '*job_*' | wc -l
  ps -e --no-headers -o stat,comm | grep -vE '^Z| (ps|grep|wc|bash|sh|find|nsenter)$' | wc -l
}
expect 0 srun -N2 --mso true
wait_until 10 clean
before=\$(count)
salloc -N2 --mso --mso-snapshot=16M sh -c 'for i in \$(seq ${MSO_SHORT_STEPS:-300}); do srun -N2 --ntasks-per-node=1 true || exit 1; done' 2>&1 | tail -n 3
for i in \$(seq 20); do srun -N2 --mso --mso-snapshot=16M true; done
wait_until 10 clean
wait_until 10 sh -c '[ -z "\$(squeue -h)" ]'
after=\$(count)
[[ \$before = "\$after" ]] || { sleep 2; after=\$(count); }
[[ \$before = "\$after" ]] || fail "before: \$before after: \$after"
expect_clean
SCRIPT
}

@test "the admin's own epilog, under an empty environment but for the job" {
  [[ -x $MSO_BUILD/mso-node-cleanup ]] || skip "mso-node-cleanup is not built"
  in_cluster 1 <<'SCRIPT'
cleanup=$(readlink -f "$MSO_BUILD/mso-node-cleanup")
leave() { on_node 1 sh -c "mkdir -m 711 -p /run/mso/$1.0/snapshot && mount -t tmpfs tmpfs /run/mso/$1.0/snapshot"; }
leave 77; leave 78
expect 0 on_node 1 env -i SLURM_JOB_ID=77 MSO_NODE_CLEANUP="$cleanup" /bin/bash "$HERE/../../contrib/slurm/epilog.d/mso"
on_node 1 test ! -e /run/mso/77.0
on_node 1 test -d /run/mso/78.0
# Without squeue's configuration nothing is sure: it stays; with it, it goes.
expect 0 on_node 1 env -i SLURM_CONF="$SLURM_CONF" SLURM_JOB_ID=5 MSO_NODE_CLEANUP="$cleanup" /bin/bash "$HERE/../../contrib/slurm/prolog.d/mso"
on_node 1 test ! -e /run/mso/78.0
expect 0 on_node 1 env -i /bin/bash "$HERE/../../contrib/slurm/epilog.d/mso"
expect 2 "$cleanup" --job x
expect 2 "$cleanup"
expect 2 asuser "$cleanup" --sweep
SCRIPT
}
