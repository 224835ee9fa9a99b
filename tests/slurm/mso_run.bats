#!/usr/bin/env bats
# mso run in a Slurm job: ranks that die, nodes that die, signals, limits. Real ranks train on the pictures of animals of
# tuxpaint-stamps, the model is that of tests/mpi/tiny.yaml.
load common.bash

setup() {
  needs_private_cluster
  needs_training
  export TINY=$HERE/../mpi/tiny.yaml
}

# Nodes share this machine, so Open MPI's own ways between processes of one host would cross nodes that share nothing.
common='
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=${MPI_INTERFACE:-lo}
WORK=$PREFIX/work; mkdir -p "$WORK/ram"; cd "$WORK"
# train NAME KEY=VALUE…: the words after "mso run … --"
train() {
  local name=$1
  shift
  echo "train -c $TINY data.path=$SHARDS train.run_dir=$WORK/$name ecm.level0_path=$WORK/ram $*"
}
# submit NAME OPTIONS… -- MSO-RUN-OPTIONS…: a batch job; its number is in $job, its output in NAME.out
submit() {
  local name=$1 options=() run=()
  shift
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  job=$(sbatch --parsable -o "$WORK/$name.out" "${options[@]}" --wrap "exec $MSO run $*")
}
steps() { grep -c "\"type\":\"step\"" "$WORK/$1/metrics.jsonl" 2>/dev/null || echo 0; }
step_reached() { [[ $(grep "\"type\":\"step\"" "$WORK/$1/metrics.jsonl" 2>/dev/null | tail -n 1 | sed "s/.*\"step\":\([0-9]*\).*/\1/") -ge $2 ]]; }
attempt_steps() { grep -q "\"type\":\"step\".*\"attempt\":$2[,}]" "$WORK/$1/metrics.jsonl" 2>/dev/null; }
pid_of() { cut -d" " -f1 "$WORK/$1/pids/rank-000$2"; }
# A job that is over is still known to scontrol: what counts is that it no longer runs.
over() { [[ $(job_state "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY)$ ]]; }
finishes() { wait_until "$2" over "$1"; [[ $(job_state "$1") = COMPLETED ]] || { cat "$WORK"/*.out; fail "job $1: $(job_state "$1")"; }; }
'

@test "a rank killed ten times in one job: the loss curve is that of the undisturbed run, bit for bit" {
  in_cluster 2 POD_TIMEOUT=240 <<SCRIPT
$common
submit reference -N2 --ntasks-per-node=1 -- -- \$(train reference train.steps=150)
finishes \$job 100
submit killed -N2 --ntasks-per-node=1 -- -- \$(train killed train.steps=150)
for k in 1 2 3 4 5 6 7 8 9 10; do
  wait_until 60 attempt_steps killed \$k
  kill -9 \$(pid_of killed \$((k % 2)))
done
finishes \$job 100
grep -q '10 restarts; finished' killed.out || { cat killed.out; fail "not ten restarts"; }
"\$HERE/same_curve.py" killed reference
ls -A | grep mso-run && fail "status files are left" || true
SCRIPT
}

@test "SIGUSR1 of sbatch --signal, scancel, a refused configuration, a second mso run on the same folder, a job that queues itself again" {
  in_cluster 2 POD_TIMEOUT=300 <<SCRIPT
$common
submit stopped -N2 --ntasks-per-node=1 -- -- \$(train stopped train.steps=100000)
wait_until 60 step_reached stopped 5
scancel --signal=USR1 --batch \$job
wait_until 60 over \$job
grep -q 'exit code 75\|stopped' stopped.out || { cat stopped.out; fail "no word of the stop"; }
last=\$(steps stopped)
# All of it is on shared storage, optimizer and all: a job that is queued again may get other nodes.
"\$MSO" ckpt ls stopped | grep -E "L2 +\$last " || { "\$MSO" ckpt ls stopped; fail "no full snapshot of step \$last on shared storage"; }
# The same command goes on where it ended.
submit stopped-again -N2 --ntasks-per-node=1 -- -- \$(train stopped train.steps=\$((last + 3)))
finishes \$job 60
submit refused -N2 --ntasks-per-node=1 -- -- \$(train refused train.stepz=3)
wait_until 60 over \$job
[[ \$(job_state \$job) = FAILED ]] || fail "\$(job_state \$job)"
grep -q 'train.stepz' refused.out && ! grep -q 'starting again' refused.out || { cat refused.out; fail "refusal"; }
# A second one beside a run that lives, and a script that queues itself again when that run was told to stop.
cat >again.sh <<'END'
#!/bin/bash
"\$MSO" run -- \$TRAIN train.steps=\$(cat again.steps) &
pid=\$!
trap 'kill -USR1 \$pid' USR1
wait \$pid; code=\$?
while [ \$code -gt 128 ] && kill -0 \$pid 2>/dev/null; do wait \$pid; code=\$?; done
[ \$code -ne 75 ] || scontrol requeue "\$SLURM_JOB_ID"
exit \$code
END
export TRAIN=\$(train again)
echo 100000 >again.steps
again=\$(sbatch --parsable --requeue --open-mode=append -N2 --ntasks-per-node=1 --overcommit --oversubscribe -o "\$WORK/again.out" again.sh)
wait_until 60 step_reached again 5
expect 2 srun --jobid=\$again --overlap -N1 -n1 -w \${NODES[0]} "\$MSO" run --local -n 1 -- \$(train again train.steps=100000)
says "another live run uses this folder"
scancel --signal=USR1 --batch \$again
wait_until 60 grep -q 'exit code 75' again.out
# The controller lets a job wait for two minutes before it starts again.
pending() { [[ \$(job_state \$again) = PENDING ]]; }
wait_until 60 pending
echo \$((\$(steps again) + 20)) >again.steps
sleep 2  # slurmd refuses a job that it killed in the same second
scontrol update JobId=\$again StartTime=now
wait_until 100 over \$again
[[ \$(job_state \$again) = COMPLETED ]] || { cat again.out; fail "the job that queued itself again: \$(job_state \$again)"; }
step_reached again \$(cat again.steps) && attempt_steps again 2 || { grep -v default again.out; tail -n 5 again/metrics.jsonl; fail "it did not go on to \$(cat again.steps)"; }
SCRIPT
}

@test "slurmstepd killed, which leaves srun waiting for ever: started again, with the same curve" {
  in_cluster 2 POD_TIMEOUT=240 <<SCRIPT
$common
submit reference -N2 --ntasks-per-node=1 -- -- \$(train reference train.steps=150)
finishes \$job 100
submit orphaned -N2 --ntasks-per-node=1 -- -- \$(train orphaned train.steps=150 parallel.timeout_s=4)
wait_until 60 step_reached orphaned 20
# Of rank 1's node: the ancestor of the rank with that name.
pid=\$(pid_of orphaned 1)
until [[ \$(ps -o args= -p \$pid) = "slurmstepd: "* ]]; do pid=\$(ps -o ppid= -p \$pid | tr -d " "); done
kill -9 \$pid
finishes \$job 150
cat orphaned.out
grep -Eq '[1-9] restarts?; finished' orphaned.out || fail "not started again"
"\$HERE/same_curve.py" orphaned reference
# No rank of the attempt that lost its slurmstepd lives on.
[[ -z \$(pgrep -f "train.run_dir=\$WORK/orphaned") ]] || fail "left: \$(pgrep -af "train.run_dir=\$WORK/orphaned")"
SCRIPT
}

@test "a node lost: a spare one takes its place, from shared storage" {
  in_cluster 4 MODE=netns POD_TIMEOUT=240 <<SCRIPT
export MPI_INTERFACE=eth0
$common
submit reference -N2 --ntasks-per-node=1 -- -- \$(train reference train.steps=500)
finishes \$job 100
submit lost -N4 --no-kill --ntasks-per-node=1 -- -n 2 --spare-nodes 2 -- \$(train lost train.steps=500 parallel.timeout_s=4 ecm.level0_path=/run/mso)
wait_until 60 step_reached lost 40
# The second node of the job, where rank 1 is: everything on it, and its cable. The first runs the batch script.
ip -n \${NODES[1]} link set eth0 down
kill -9 \$(ip netns pids \${NODES[1]})
# Slurm counts the job as completing for as long as the node does not answer.
wait_until 150 grep -q '1 restart; finished' lost.out
grep -q "\${NODES[1]} is lost: going on with 2 ranks on \${NODES[0]} \${NODES[2]}" lost.out || fail "the lost node is not named"
"\$HERE/same_curve.py" lost reference
grep '"type":"resume"' lost/metrics.jsonl
SCRIPT
}
