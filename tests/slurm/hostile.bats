#!/usr/bin/env bats
# A user without privileges who tries to get more than is due: refused, and nothing is created.
load common.bash

setup() { needs_cluster; }

@test "sizes, long strings, control characters, profile names with slashes" {
  in_cluster 1 <<'SCRIPT'
long=$(head -c 100000 /dev/zero | tr '\0' 9)
for size in 1e99G -1 %s '%n%n%n%s' 0x10 nan inf "$long" $'1G\n2G' '1G;profile=x' 18446744073709551616 1e-5 '$(id)'; do
  expect 2 asuser srun --mso --mso-snapshot="$size" true >/dev/null
  [[ ${#out} -lt 2000 ]] || fail "a message of ${#out} letters"
done
for profile in ../../etc/shadow /etc/shadow . .. a/b 'a b' "$long" -x; do
  expect 2 asuser srun --mso="$profile" true >/dev/null
done
for option in cpus gpu-slices nvme check; do expect 2 asuser srun "--mso-$option=$long" true >/dev/null; done
[[ -z $(kept_on 1) ]]
SCRIPT
}

@test "a request that did not come from the plugin is refused on the node: the step fails, nothing is made" {
  in_cluster 1 PLUGIN_ARGUMENTS="nvme-max=8" <<'SCRIPT'
# srun without the plugin, so that only the node checks: the user chooses the configuration srun reads.
conf=${SLURM_CONF:-/etc/slurm/slurm.conf}
[[ -r $conf ]] || conf=/run/slurm/conf/slurm.conf
{ grep -vi '^ *PlugStackConfig *=' "$conf"; echo PlugStackConfig=/dev/null; } >"$PREFIX/user.conf"
long=$(head -c 100000 /dev/zero | tr '\0' 9)
for request in rubbish 'mso1;snapshot=99999999999999;check=off' 'mso1;snapshot=1G;check=off' 'mso1;run=/etc;check=off' "mso1;$long" 'mso1;snapshot=auto;check=off;profile=../../x' \
  $'mso1;snapshot=auto\n;check=off' '%s%n'; do
  expect 2 asuser env SLURM_CONF="$PREFIX/user.conf" SLURM_MSO_REQUEST="$request" srun sh -c 'echo must not run'
  says "step not started on node"
  says_not "must not run"
  [[ -z $(kept_on 1) ]]
done
# A size beyond the admin's cap, in a well-formed request.
expect 2 asuser env SLURM_CONF="$PREFIX/user.conf" SLURM_MSO_REQUEST='mso1;snapshot=17592186044416;check=off' srun true
says "more than all jobs of a node may hold"
[[ -z $(kept_on 1) ]]
expect 2 asuser env SLURM_CONF="$PREFIX/user.conf" SLURM_MSO_REQUEST='mso1;snapshot=0;nvme=image:3x4;check=off' srun sh -c 'echo must not run'
says "more NVMe lanes than the administrator allows a job"
says_not "must not run"
expect_clean
SCRIPT
}

@test "another job's number, names and variables" {
  needs_private_cluster
  in_cluster 1 <<'SCRIPT'
sbatch -n1 --mso --mso-snapshot=16M -o /dev/null --wrap 'echo root >$MSO_SNAPSHOT_DIR/f; sleep 20' >/dev/null
wait_until 10 on_node 1 test -e /run/mso/1.0/snapshot/f
before=$(on_node 1 cat /run/mso/1.0/state)
# Variables of the job are Slurm's word on the node, not the user's.
expect 0 asuser env SLURMD_NODENAME=other MSO_SNAPSHOT_DIR=/run/mso/1.0/snapshot MSO_PREPARED=x srun -n1 --mso --mso-snapshot=16M \
  sh -c 'echo $MSO_SNAPSHOT_DIR; ls /run/mso/1.0/snapshot && echo must not list; echo x >/run/mso/1.0/x && echo must not write; ls -ld /run/mso; exit 0'
says "/run/mso/2.0/snapshot"
says_not "must not"
expect 1 asuser sh -c 'mkdir /run/mso/3.0 2>/dev/null'
[[ $(on_node 1 cat /run/mso/1.0/state) = "$before" && $(on_node 1 cat /run/mso/1.0/snapshot/f) = root ]]
SCRIPT
}

@test "a changed count of restarts gives no second RAM disk, and does not take the first away" {
  in_cluster 1 <<'SCRIPT'
asuser salloc -n1 sleep 100 >/dev/null 2>&1 &
wait_until 10 job_runs 1
step() { asuser env "$1" srun --jobid=1 --overlap -n1 --mso --mso-snapshot=16M "${@:2}"; }
# First steps at the same time, each with a number of its own: one directory.
for i in 1 2 3 4 5 6; do
  step SLURM_RESTART_COUNT=$i sh -c "echo \$MSO_SNAPSHOT_DIR; until [ -e $PREFIX/go ]; do sleep 0.1; done" >"$PREFIX/first$i" 2>&1 &
done
all() { [[ $(cat "$PREFIX"/first? | grep -c '^/run/mso/1[.]./snapshot$') = 6 ]]; }
wait_until 20 all
[[ $(sort -u "$PREFIX"/first? | wc -l) = 1 ]] || fail "$(cat "$PREFIX"/first?)"
touch "$PREFIX/go"
wait_until 10 processes 0 'slurmstepd: \[1[.]'
step SLURM_RESTART_COUNT=0 sh -c 'echo kept >$MSO_SNAPSHOT_DIR/f; sleep 100' &
wait_until 10 on_node 1 test -s /run/mso/1.0/snapshot/f
for count in 1 7 4294967295 -1 99999999999999999999 '1;x'; do
  expect 0 step SLURM_RESTART_COUNT="$count" sh -c '[ "$MSO_SNAPSHOT_DIR" = /run/mso/1.0/snapshot ] && cat $MSO_SNAPSHOT_DIR/f'
  says kept
  [[ $(kept_jobs 1) = 1.0 && $(on_node 1 grep -c ' /run/mso/' /proc/mounts) = 1 ]] || fail "$(kept_on 1)"
done
scancel 1
expect_clean
SCRIPT
}

# A file system whose server takes requests and never answers, mounted over $2 on node $1 as fusermount would with
# allow_other; it stays until the process that holds it is killed.
hanging='
hang_over() {
  on_node "$1" python3 -c "
import ctypes, os, signal, sys
fd = os.open(\"/dev/fuse\", os.O_RDWR)
options = \"fd=%d,rootmode=40000,user_id=%d,group_id=0,allow_other\" % (fd, os.stat(sys.argv[1]).st_uid)
if ctypes.CDLL(None).mount(b\"mso\", sys.argv[1].encode(), b\"fuse\", 0, options.encode()): sys.exit(\"mount\")
open(sys.argv[2], \"w\").close()
signal.pause()" "$2" "$PREFIX/hangs$1$(basename "$2")" &
  wait_until 10 test -e "$PREFIX/hangs$1$(basename "$2")"
}'

@test "file systems that never answer, over the snapshot directory and inside it: nobody else waits, and they go" {
  command -v python3 >/dev/null || skip "no python3"
  [[ -c /dev/fuse ]] || skip "no FUSE on this machine"
  in_cluster 1 PLUGIN_ARGUMENTS="lock-timeout=3" POD_TIMEOUT=90 <<SCRIPT
$hanging
asuser salloc -n1 sleep 100 >/dev/null 2>&1 &
wait_until 10 job_runs 1
asuser srun --jobid=1 --overlap -n1 --mso --mso-snapshot=16M sh -c 'mkdir \$MSO_SNAPSHOT_DIR/inside; sleep 100' &
wait_until 10 on_node 1 test -d /run/mso/1.0/snapshot/inside
hang_over 1 /run/mso/1.0/snapshot/inside
hang_over 1 /run/mso/1.0/snapshot
# The job's own next step is refused, not hung; another job's is not concerned.
expect 2 timeout 20 "\$HERE/asuser" srun --jobid=1 --overlap -n1 --mso --mso-snapshot=16M true
says "something is mounted over"
expect 0 timeout 20 srun -n1 --mso --mso-snapshot=16M sh -c 'echo x >\$MSO_SNAPSHOT_DIR/f'
scancel 1
expect_clean
log_has 1 'event=teardown job=1 .*result=ok'
SCRIPT
}

@test "srun ends as its step did, whoever connects to its port; without its nodes' word it warns" {
  command -v python3 >/dev/null || skip "no python3"
  in_cluster 2 FILES=': >"$1/plugstack.${TAG}2"' POD_TIMEOUT=90 <<'SCRIPT'
cat >"$PREFIX/flood.py" <<'END'
import socket, sys, time
port, held = int(sys.argv[1]), []
for i in range(300):
    s = socket.create_connection(("127.0.0.1", port))
    s.send([b"x", b"rubbish\n", b"0 1 1 n1\n", b"y" * 1000][i % 4])
    held.append(s)
    if i % 5 == 0: held.append(socket.create_connection(("127.0.0.1", port)))  # and says nothing
open(sys.argv[2], "w").close()
time.sleep(60)
END
# flooded STATUS NODES COMMAND: a step to whose srun others connect while it runs.
flooded() {
  rm -f "$PREFIX"/{ticket,flooding,go}
  flood & local flood=$!
  expect "$1" srun -N"$2" --ntasks-per-node=1 --mso --mso-snapshot=16M sh -c "[ \$SLURM_PROCID != 0 ] || echo \$SLURM_MSO_CONFIRM >$PREFIX/ticket
    until [ -e $PREFIX/go ]; do sleep 0.1; done; $3"
  kill $flood; wait $flood || true
}
flood() {
  wait_until 20 test -s "$PREFIX/ticket"
  exec python3 "$PREFIX/flood.py" "$(cut -d: -f1 "$PREFIX/ticket")" "$PREFIX/go"
}
flooded 0 1 true
says_not mso:
flooded 3 1 "exit 3"
# The second node has no plugin: without the flood that is known, with it it is not.
expect 1 srun -N2 --ntasks-per-node=1 --mso true
says "the plugin did not run"
flooded 0 2 true
says "not known whether the plugin ran on ${NODES[1]}"
SCRIPT
}

@test "links and modes inside the snapshot directory lead nobody astray" {
  in_cluster 1 <<'SCRIPT'
echo precious >"$PREFIX/precious"; chmod 644 "$PREFIX/precious"
asuser srun -n1 --mso --mso-snapshot=16M bash -c '
  cd $MSO_SNAPSHOT_DIR && ln -s / root && ln -s '"$PREFIX"' prefix && ln -s ../state state && mkdir -p a/b/c/d/e/f/g/h/i && chmod 000 a && chmod 0777 .
  cp /bin/true . && chmod 4755 true && ! ./true 2>/dev/null'
expect_clean
[[ $(cat "$PREFIX/precious") = precious && -e /etc/passwd ]]
SCRIPT
}

@test "a folder that is not root's alone is not used" {
  needs_private_cluster
  in_cluster 1 <<'SCRIPT'
on_node 1 chmod 777 /run/mso
expect 1 srun -n1 --mso sh -c 'echo must not run'
says "the plugin's folder is not safe"
says_not "must not run"
expect 0 srun -n1 true
[[ -z $(sinfo -h -N -t drain,down -o %N) ]]
SCRIPT
}

@test "fault injection is ignored where the admin did not allow it" {
  in_cluster 1 <<'SCRIPT'
MSO_SPANK_FAIL=task_init expect 0 asuser srun --mso true
MSO_SPANK_FAIL=init_post_opt expect 0 asuser srun --mso true
SCRIPT
}
