# Functions for scripts that run beside a cluster (see common.bash).
shopt -s inherit_errexit
NODES=($(sinfo -h -N -o %N | sort -u))
ME=$(id -un)  # whose jobs these are
TESTER=mso-tester  # of asuser
[[ -z ${MSO_TEST_CLUSTER:-} ]] || TESTER=$ME
drained() { sinfo -h -N -t drain,drained,draining,down -o '%N %E' | sort -u; }
DRAINED_BEFORE=$(drained)
my_jobs() { squeue -h -u "$ME" -o %A | sort -n; }
JOBS_BEFORE=$(my_jobs)

fail() { echo "FAILED: $*" >&2; exit 1; }
# expect STATUS COMMAND…: runs it, keeps what it says in $out (standard output and error), and compares the exit code.
out=
expect() {
  local wanted=$1 status=0
  shift
  out=$("$@" 2>&1) || status=$?
  printf '%s\n' "$out"
  [[ $status = "$wanted" ]] || fail "'$*' ended with $status, not $wanted"
}
says() { [[ $out == *"$1"* ]] || fail "no \"$1\" in: $out"; }
says_not() { [[ $out != *"$1"* ]] || fail "\"$1\" in: $out"; }
# on_node I COMMAND…: where node I (from 1) has its mounts, as root; on an existing cluster as the user, beside the user's own
# job there, if one runs, since it may have the whole node.
on_node() {
  local i=$1 job
  shift
  if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then
    job=$(squeue -h -u "$ME" -t R -w "${NODES[i - 1]}" -o %A | tail -n 1)
    srun ${job:+--overlap --jobid="$job"} -N1 -n1 -w "${NODES[i - 1]}" "$@"
  else nsenter --mount --target "$(cat "$PREFIX/ns/${NODES[i - 1]}.pid")" -- "$@"; fi
}
# log_has I PATTERN: in the log of node I's slurmd.
log_has() { grep -qE "$2" "$PREFIX/log/slurmd.${NODES[$1 - 1]}.log"; }
# kept_jobs I: folders of jobs on node I, on one line.
kept_jobs() { on_node "$1" sh -c 'cd /run/mso && echo [0-9]*'; }
keeps_only() { [[ $(kept_jobs "$1") = "$2" ]]; }
processes() { [[ $(pgrep -fc "$2") -eq $1 ]]; }
# wait_until SECONDS COMMAND…
wait_until() {
  local end=$(($(date +%s%N) + $1 * 1000000000))
  shift
  until "$@" >/dev/null 2>&1; do
    (($(date +%s%N) < end)) || fail "waited too long for: $*"
    sleep 0.05
  done
}
job_gone() { [[ -z $(squeue -h -j "$1" -o %T 2>/dev/null) ]]; }
job_state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | head -n 1; }
job_runs() { [[ $(job_state "$1") = RUNNING ]]; }
idle() { [[ $(sinfo -h -N -t idle -o %N | sort -u | wc -l) = "${#NODES[@]}" ]]; }
# What the plugin keeps on node I: folders of jobs and mounts; on an existing cluster those of this user.
kept_on() {
  if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then
    on_node "$1" bash -c 'for f in /run/mso/[0-9]*/snapshot; do [[ ! -O $f ]] || echo "$f"; done'
  else
    on_node "$1" sh -c 'ls /run/mso | grep -E "^[0-9]" ; grep " /run/mso/" /proc/mounts; true'
  fi
}
# Nothing was queued by this test.
nothing_queued() { [[ $(my_jobs) = "$JOBS_BEFORE" ]] || fail "queued: $(my_jobs)"; }
# Nothing is left on any node, and none is drained.
clean() {
  local i
  for ((i = 1; i <= ${#NODES[@]}; i++)); do [[ -z $(kept_on $i) ]] || return 1; done
}
expect_clean() {
  wait_until 10 clean
  [[ $(drained) = "$DRAINED_BEFORE" ]] || fail "$(sinfo -R)"
}
# asuser COMMAND…: as an unprivileged user; on an existing cluster as who runs the tests.
asuser() { if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then "$@"; else "$HERE/asuser" "$@"; fi; }
