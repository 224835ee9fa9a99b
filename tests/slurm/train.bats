#!/usr/bin/env bats
# Training under the plugin: two nodes, four ranks, through srun, sbatch, salloc and an array, and two jobs at once.
load common.bash

setup() {
  needs_cluster
  needs_training
}

prelude='
# Ranks that share this machine talk over loopback; on an existing cluster Open MPI is as its administrator set it up.
[[ -n ${MSO_TEST_CLUSTER:-} ]] || export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_btl_vader_single_copy_mechanism=none
train="$MSO train -c $HERE/../mpi/tiny.yaml data.path=$SHARDS train.steps=20 train.run_dir="
# All 20 steps, Level 0 in the snapshot directory of the job.
trained() {
  [[ $(grep -c "\"type\":\"step\"" "$1/metrics.jsonl") = 20 ]] || { tail -n 3 "$1/metrics.jsonl"; fail "$1: not 20 steps"; }
  grep -q "\"ranks\":4" "$1/metrics.jsonl" || fail "$1: not 4 ranks"
  grep "\"level\":0" "$1/metrics.jsonl" | grep -q "\"ok\":true" || fail "$1: no Level 0 snapshot"
}'

@test "srun --mso mso train: two nodes, four ranks" {
  in_cluster 2 POD_TIMEOUT=120 <<SCRIPT
$prelude
expect 0 srun -N2 --ntasks-per-node=2 --mpi=pmix --mso --mso-snapshot=64M \${train}\$PREFIX/a
trained "\$PREFIX/a"
expect_clean
SCRIPT
}

@test "the same through sbatch, salloc and an array; two jobs at once on the same nodes" {
  in_cluster 2 CPUS=2 POD_TIMEOUT=200 <<SCRIPT
$prelude
printf '#!/bin/bash\nsrun --mpi=pmix %s"%s/b\$SLURM_ARRAY_TASK_ID"\n' "\$train" "\$PREFIX" >"\$PREFIX/job.sh"
expect 0 sbatch --wait -N2 --ntasks-per-node=2 --mso --mso-snapshot=64M -o "\$PREFIX/out" "\$PREFIX/job.sh" || { cat "\$PREFIX/out"; exit 1; }
trained "\$PREFIX/b"
expect 0 salloc -N2 --ntasks-per-node=2 --mso --mso-snapshot=64M srun --mpi=pmix \${train}\$PREFIX/c
trained "\$PREFIX/c"
expect 0 sbatch --wait --array=1-2 -N2 --ntasks-per-node=2 --mso --mso-snapshot=64M -o "\$PREFIX/out.%a" "\$PREFIX/job.sh" || { cat "\$PREFIX"/out.*; exit 1; }
trained "\$PREFIX/b1"
trained "\$PREFIX/b2"
# Two at once: each job has one CPU of each node, and starts two ranks there.
srun -N2 --ntasks=4 --cpus-per-task=1 --overcommit --mpi=pmix --mso --mso-snapshot=64M \${train}\$PREFIX/d & first=\$!
srun -N2 --ntasks=4 --cpus-per-task=1 --overcommit --mpi=pmix --mso --mso-snapshot=64M \${train}\$PREFIX/e & second=\$!
wait \$first; wait \$second
trained "\$PREFIX/d"
trained "\$PREFIX/e"
expect_clean
SCRIPT
}

@test "a node without the plugin: mso train itself refuses at once, also where srun does not look" {
  in_cluster 2 PLUGIN_ARGUMENTS="confirm=no" FILES=': >"$1/plugstack.${TAG}2"' POD_TIMEOUT=120 <<SCRIPT
$prelude
expect 1 srun -N2 --ntasks-per-node=1 --mpi=pmix --mso --mso-snapshot=64M \${train}\$PREFIX/a
says "the Slurm plugin did not run on every node: \${NODES[1]}"
SCRIPT
}
