#!/usr/bin/env bats
# The snapshot directory: where it is, who may use it, how large, how long it lives, and what it counts against.
load common.bash

setup() { needs_cluster; }

@test "two nodes, four ranks: a private tmpfs of the user's on each node, gone after the job" {
  in_cluster 2 <<'SCRIPT'
asuser srun -N2 --ntasks-per-node=2 --mso --mso-snapshot=64M bash -c '
  set -e
  [[ $MSO_SNAPSHOT_DIR = /run/mso/$SLURM_JOB_ID.0/snapshot && $MSO_SNAPSHOT_BYTES = 67108864 ]]
  [[ $(stat -c "%a %U" "$MSO_SNAPSHOT_DIR") = "700 '"$TESTER"'" ]]
  grep " $MSO_SNAPSHOT_DIR tmpfs " /proc/mounts | grep nosuid | grep nodev | grep noexec | grep -q size=65536k
  echo "$SLURM_PROCID" >"$MSO_SNAPSHOT_DIR/rank$SLURM_PROCID"
  [[ $MSO_PREPARED = $SLURMD_NODENAME:$SLURM_STEP_ID ]]'
expect_clean
[[ -n ${MSO_TEST_CLUSTER:-} ]] || { log_has 1 'mso event=setup job=.* snapshot=made .*ms=.* result=ok'; log_has 1 'mso event=teardown job=.* result=ok'; }
SCRIPT
}

@test "the runtime's level 0 goes there by itself" {
  [[ -x $MSO ]] || skip "mso is not built"
  in_cluster 1 <<'SCRIPT'
expect 0 srun --mso --mso-snapshot=64M "$MSO" plan -c "$HERE/../../etc/demo.yaml"
says "/run/mso/"
SCRIPT
}

@test "full is full: ENOSPC for bytes, and for files" {
  in_cluster 1 <<'SCRIPT'
asuser srun --mso --mso-snapshot=8M bash -c '
  head -c 9M /dev/zero >"$MSO_SNAPSHOT_DIR/large" && exit 1
  [[ $(stat -c %s "$MSO_SNAPSHOT_DIR/large") -le 8388608 ]] || exit 1
  rm "$MSO_SNAPSHOT_DIR/large"
  for ((i = 0; i < 1100; i++)); do : >"$MSO_SNAPSHOT_DIR/$i" || exit 0; done 2>/dev/null
  exit 1'
expect_clean
SCRIPT
}

@test "later steps of a job find what earlier ones left; a larger wish grows it, a smaller one does not shrink it" {
  in_cluster 2 <<'SCRIPT'
cat >"$HOME/job.sh" <<'END'
#!/bin/bash
set -e
srun -N2 --ntasks-per-node=1 bash -c 'echo kept >$MSO_SNAPSHOT_DIR/file; [[ $MSO_SNAPSHOT_BYTES = 16777216 ]]'
srun -N2 --ntasks-per-node=1 bash -c '[[ $(cat $MSO_SNAPSHOT_DIR/file) = kept ]]'
srun -N2 --ntasks-per-node=1 --mso-snapshot=32M bash -c '[[ $(cat $MSO_SNAPSHOT_DIR/file) = kept && $MSO_SNAPSHOT_BYTES = 33554432 ]]'
srun -N2 --ntasks-per-node=1 --mso-snapshot=8M bash -c '[[ $MSO_SNAPSHOT_BYTES = 33554432 ]]; df --output=size -k $MSO_SNAPSHOT_DIR | grep -w 32768'
[[ $(cat $MSO_SNAPSHOT_DIR/file) = kept ]]  # the batch script itself is on the first node
END
expect 0 sbatch --wait -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o "$PREFIX/out" "$HOME/job.sh" || { cat "$PREFIX/out"; exit 1; }
expect_clean
SCRIPT
}

@test "salloc and an array; each task of the array its own" {
  in_cluster 2 <<'SCRIPT'
expect 0 salloc -N2 --mso --mso-snapshot=16M srun --ntasks-per-node=1 bash -c 'grep -q " $MSO_SNAPSHOT_DIR tmpfs" /proc/mounts'
printf '#!/bin/bash\necho $SLURM_ARRAY_TASK_ID $MSO_SNAPSHOT_DIR >>%s; test -d "$MSO_SNAPSHOT_DIR"\n' "$PREFIX/array" >"$PREFIX/a.sh"
expect 0 sbatch --wait --array=1-4 -n1 --mso --mso-snapshot=16M -o /dev/null "$PREFIX/a.sh"
[[ $(cut -d' ' -f2 "$PREFIX/array" | sort -u | wc -l) = 4 ]]
expect_clean
SCRIPT
}

@test "two jobs at once on the same nodes do not see or touch each other's" {
  in_cluster 2 <<'SCRIPT'
job=$(asuser sbatch --parsable -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o /dev/null --wrap 'srun bash -c "echo mine >\$MSO_SNAPSHOT_DIR/f; sleep 60"')
wait_until 20 job_runs $job
wait_until 20 on_node 2 test -e /run/mso/$job.0/snapshot/f
expect 0 srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M bash -c 'ls -d /run/mso/*.*/; [[ ! -e $MSO_SNAPSHOT_DIR/f ]]'
says /run/mso/$job.0/
[[ $(on_node 1 cat /run/mso/$job.0/snapshot/f) = mine ]]
if [[ -z ${MSO_TEST_CLUSTER:-} ]]; then
  useradd -M mso-other 2>/dev/null || true
  expect 2 srun -N1 -n1 runuser -u mso-other -- ls /run/mso/$job.0/snapshot
fi
scancel $job
expect_clean
SCRIPT
}

@test "--mem: what does not fit is refused before it is queued, and on the node" {
  in_cluster 1 SELECT=CR_Core_Memory MEMORY=2000 <<'SCRIPT'
expect 2 srun --mem=100M --mso --mso-snapshot=200M hostname
says "does not fit into the job's memory, 100 MiB"
printf '#!/bin/bash\n#SBATCH --mem=100M\n#SBATCH --mso-snapshot=200M\nhostname\n' >"$PREFIX/j.sh"
expect 2 sbatch "$PREFIX/j.sh"
says "does not fit"
SBATCH_MEM_PER_NODE=100M expect 2 sbatch --mso-snapshot=200M --wrap hostname
[[ $(squeue -h | wc -l) = 0 ]]
# Memory that is not known at submission: by CPU.
expect 2 srun --mem-per-cpu=100M --mso --mso-snapshot=200M sh -c 'echo must not run'
says "does not fit into the job's memory on this node, 100 MiB"
says_not "must not run"
expect 0 srun --mem=300M --mso --mso-snapshot=200M true
# auto: a quarter of the job's memory at most.
expect 0 srun --mem=400M --mso sh -c 'echo bytes=$MSO_SNAPSHOT_BYTES'
says bytes=104857600
expect_clean
SCRIPT
}

@test "the admin's caps: of a job, and of all jobs of a node" {
  in_cluster 1 PLUGIN_ARGUMENTS="snapshot-max=100M snapshot-node-max=150M" <<'SCRIPT'
expect 2 srun --mso --mso-snapshot=101M true
says "more than this cluster allows, 100 MiB"
sbatch -n1 --mso --mso-snapshot=100M -o /dev/null --wrap 'sleep 30' >/dev/null
wait_until 5 on_node 1 sh -c 'ls -d /run/mso/*/snapshot'
expect 1 srun -n1 --mso --mso-snapshot=60M sh -c 'echo must not run'
says "other jobs on this node hold 100 MiB of 150 MiB"
says_not "must not run"
expect 0 srun -n1 --mso --mso-snapshot=50M true
# auto takes what is left.
expect 0 srun -n1 --mso sh -c 'echo bytes=$MSO_SNAPSHOT_BYTES'
says bytes=52428800
scancel -u root
expect_clean
SCRIPT
}

@test "off: no directory, and level 0 is told so" {
  in_cluster 1 <<'SCRIPT'
expect 0 srun --mso --mso-snapshot=off sh -c 'echo "dir=$MSO_SNAPSHOT_DIR."'
says "dir=."
expect_clean
SCRIPT
}

# in_cluster with job_container/tmpfs: NODES <<SCRIPT. Slurm 22.05 sometimes fails to keep the namespace it made for a job
# ("ns base mount failed": it does not wait for its child), and the job hangs; then the test is tried again.
with_job_containers() {
  local status try
  cat >"$BATS_TEST_TMPDIR/with_job_containers"
  for try in 1 2 3 4; do
    status=0
    in_cluster "$1" JOB_CONTAINER=1 POD_TIMEOUT=40 <"$BATS_TEST_TMPDIR/with_job_containers" >"$BATS_TEST_TMPDIR/output" 2>&1 || status=$?
    [[ $status != 0 ]] && grep -q "ns base mount failed" "$BATS_TEST_TMPDIR/output" || break
  done
  cat "$BATS_TEST_TMPDIR/output"
  return $status
}

@test "seen by tasks under job_container/tmpfs, which gives each job mounts of its own" {
  with_job_containers 2 <<'SCRIPT'
cat >"$PREFIX/job.sh" <<'END'
#!/bin/bash
set -e
srun -N2 --ntasks-per-node=2 bash -c 'grep -q " $MSO_SNAPSHOT_DIR tmpfs" /proc/mounts && echo $SLURM_PROCID >$MSO_SNAPSHOT_DIR/f$SLURM_PROCID'
srun -N2 --ntasks-per-node=2 bash -c '[[ $(cat $MSO_SNAPSHOT_DIR/f$SLURM_PROCID) = $SLURM_PROCID ]]'
END
chmod 755 "$PREFIX/job.sh"
expect 0 asuser sbatch --wait -N2 --ntasks-per-node=2 --mso --mso-snapshot=16M -o "/tmp/mso-tester/out" "$PREFIX/job.sh" || { cat /tmp/mso-tester/out; exit 1; }
expect_clean
SCRIPT
}

# A container as Apptainer and enroot make it: a mount namespace and a root of its own, into which what APPTAINER_BINDPATH
# names is bound at the same place. Runs as the user.
container='
set -e
root=/tmp/mso-container-$SLURM_JOB_ID-$SLURM_PROCID
mkdir "$root"
trap "rmdir $root" EXIT
unshare --user --map-root-user --mount sh -ec "
  mount -t tmpfs container $root
  for folder in bin sbin lib lib64 usr etc; do
    if [ -L /\$folder ]; then cp -P /\$folder $root/; elif [ -d /\$folder ]; then mkdir $root/\$folder; mount --rbind /\$folder $root/\$folder; fi
  done
  for folder in \$(echo $APPTAINER_BINDPATH | tr , \" \"); do mkdir -p $root\$folder; mount --bind \$folder $root\$folder; done
  exec /usr/sbin/chroot $root sh -ec \"[ ! -e /var ]; echo inside >$MSO_SNAPSHOT_DIR/from-$SLURM_PROCID; cat $MSO_SNAPSHOT_DIR/from-$SLURM_PROCID\""
echo "outside: $(cat $MSO_SNAPSHOT_DIR/from-$SLURM_PROCID)"'
export container

@test "inside a container: what APPTAINER_BINDPATH names is usable there, and what is written is there outside" {
  unshare --user --map-root-user --mount true 2>/dev/null || skip "no user namespaces here"
  in_cluster 2 <<'SCRIPT'
expect 0 asuser env container="$container" srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M bash -c 'eval "$container"'
[[ $(grep -c '^inside$' <<<"$out") = 2 && $(grep -c '^outside: inside$' <<<"$out") = 2 ]] || fail "not on both nodes"
expect_clean
SCRIPT
}

@test "inside a container, under job_container/tmpfs" {
  unshare --user --map-root-user --mount true 2>/dev/null || skip "no user namespaces here"
  with_job_containers 1 <<'SCRIPT'
expect 0 asuser env container="$container" srun -n1 --mso --mso-snapshot=16M bash -c 'eval "$container"'
says "outside: inside"
expect_clean
SCRIPT
}

@test "inside bubblewrap, with the folder as pyxis mounts it (/run/mso:/run/mso)" {
  command -v bwrap >/dev/null || skip "bubblewrap is not installed (contrib/install-dependencies --tests)"
  unshare --user --map-root-user --mount true 2>/dev/null || skip "no user namespaces here"
  in_cluster 1 <<'SCRIPT'
cat >"$PREFIX/in-container" <<'END'
#!/bin/bash
set -e
bwrap --unshare-pid --unshare-ipc --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
  --proc /proc --dev /dev --bind /run/mso /run/mso sh -ec "[ ! -e /etc ]; echo inside >$MSO_SNAPSHOT_DIR/f; grep ' $MSO_SNAPSHOT_DIR tmpfs' /proc/mounts"
echo "outside: $(cat "$MSO_SNAPSHOT_DIR/f")"
END
chmod 755 "$PREFIX/in-container"
expect 0 asuser srun -n1 --mso --mso-snapshot=16M "$PREFIX/in-container"
says "outside: inside"
expect_clean
SCRIPT
}
