#!/usr/bin/env bats
# CPU sets, GPU memory slices and NVMe lanes of a step: what tasks are given, where threads run, what is refused.
load common.bash

setup() {
  needs_private_cluster
  export PLUGIN_ARGUMENTS="node-facts=$MSO_BUILD/mso-node-facts"
  [ "$(nproc)" -ge 2 ] || skip "needs two CPUs"
}

show='echo "task $SLURM_LOCALID image ${MSO_CPUS_IMAGE:--} video ${MSO_CPUS_VIDEO:--} compute ${MSO_CPUS_COMPUTE:--} runs $(sed -n "s/Cpus_allowed_list:\t//p" /proc/self/status)"'
export show

@test "one task: decoding on one CPU, computing on the other, and it runs there" {
  in_cluster 1 <<'SCRIPT'
expect 0 srun -n1 -c2 --mso --mso-cpus=image:1 bash -c "$show"
says "task 0 image 1 video 0 compute 0 runs 0"
expect 0 srun -n1 -c2 --mso bash -c "$show"   # not asked: as Slurm bound it
says "task 0 image - video - compute - runs 0-1"
expect 0 srun -n1 -c2 bash -c "$show"
says "runs 0-1"
on_node 1 cat /run/mso/node-facts | grep -q "^cpu id=1 "
expect_clean
SCRIPT
}

@test "too few CPUs: one line and sharing with staging; refused with prod, and nothing is drained" {
  in_cluster 1 <<'SCRIPT'
expect 0 srun -n2 --mso --mso-cpus=image:4,video:8 bash -c "$show"
[[ $(grep -c "asked beside one core" <<<"$out") = 1 ]] || fail "not one line"
says "task 0 image 0 video 0 compute 0 runs 0"
says "task 1 image 1 video 1 compute 1 runs 1"
expect 2 srun -n2 --mso --mso-check=prod --mso-cpus=image:4,video:8 bash -c "$show"
says "too few CPUs"
says_not "task 0 image"
expect 2 srun -n1 -c2 --mso --mso-check=prod --mso-cpus=image:1,video:1 bash -c "$show"
expect 0 srun -n1 -c2 --mso --mso-check=prod --mso-cpus=image:1 bash -c "$show"
expect_clean
SCRIPT
}

@test "inner steps do not inherit the sets of an outer one" {
  in_cluster 1 <<'SCRIPT'
printf '#!/bin/bash\n%s\nsrun -n1 -c2 bash -c "$show"\nsrun -n1 -c2 --mso-cpus=video:1 bash -c "$show"\n' "$show" >"$PREFIX/job.sh"
expect 0 sbatch --wait -n1 -c2 --mso --mso-cpus=image:1 -o "$PREFIX/out" "$PREFIX/job.sh"
out=$(cat "$PREFIX/out")
says "image - video - compute - runs 0-1"    # the script itself
says "image 1 video 0 compute 0 runs 0"
says "image 0 video 1 compute 0 runs 0"
expect_clean
SCRIPT
}

# Threads of a real training, by name: where they may run.
train_and_look='
"$MSO" data pack /usr/share/tuxpaint/stamps/animals "$PREFIX/shards" >/dev/null 2>&1
srun -n1 -c2 --mso --mso-cpus=image:1 --mso-snapshot=64M "$MSO" train -c "$MSO_SRCDIR/tests/mpi/tiny.yaml" data.path="$PREFIX/shards" \
  data.eval_shards=0 train.eval_interval=0 train.run_dir="$PREFIX/training" train.steps=100000 >"$PREFIX/train.log" 2>&1 &
decoding() { grep -lsx mso-decode /proc/[0-9]*/task/[0-9]*/comm; }
(wait_until 40 decoding) || { tail -n 5 "$PREFIX/train.log"; exit 1; }
thread=$(decoding | head -n 1)
process=${thread%/task/*}
sleep 1
out=$(for t in $process/task/*; do echo "$(cat $t/comm) $(sed -n "s/Cpus_allowed_list:\t//p" $t/status) $(sed -n "s/.*:cpuset://p" $t/cgroup)"; done)
echo "$out"
main=$(sed -n "s/Cpus_allowed_list:\t//p" $process/task/${process##*/}/status)
'
export train_and_look

@test "task/affinity: decoder and compute threads of a training on the CPUs they were given" {
  [[ -x $MSO && -d /usr/share/tuxpaint/stamps/animals ]] || skip "mso or the sample pictures are missing"
  export MSO_SRCDIR=${MSO_SRCDIR:-$HERE/../..}
  in_cluster 1 <<'SCRIPT'
eval "$train_and_look"
says "mso-decode 1"
says_not "mso-decode 0"
[[ $main = 0 ]] || fail "computing on $main"
scancel -u root; wait || true
expect_clean
SCRIPT
}

@test "task/cgroup v1 with decoder-cgroups: held by the kernel, and gone after the step" {
  [[ -d /sys/fs/cgroup/cpuset ]] || skip "no cgroup v1 cpuset on this machine"
  [[ -x $MSO && -d /usr/share/tuxpaint/stamps/animals ]] || skip "mso or the sample pictures are missing"
  export MSO_SRCDIR=${MSO_SRCDIR:-$HERE/../..}
  PLUGIN_ARGUMENTS+=" decoder-cgroups=yes io-priority=be:6"
  in_cluster 1 PROCTRACK=cgroup TASK=cgroup,affinity <<'SCRIPT'
expect 0 asuser srun -n1 -c2 --mso --mso-cpus=image:1 bash -c "$show"'
  echo "io $MSO_IO_PRIORITY"; cat $MSO_CGROUP_IMAGE/cpuset.cpus; ls -ld $MSO_CGROUP_IMAGE/tasks; echo 0 >$MSO_CGROUP_IMAGE/cpuset.cpus && echo widened; mkdir $MSO_CGROUP_IMAGE/own && echo made
  echo $BASHPID >$MSO_CGROUP_IMAGE/tasks; sed -n "s/Cpus_allowed_list:/inside/p" /proc/self/status; true'
says "image 1 video 0 compute 0 runs 0"
says "io be:6"
says_not widened
says_not made
says "$(printf 'inside\t1')"
children() { find /sys/fs/cgroup/cpuset/slurm_"${NODES[0]}" -name "mso_*"; }
[[ -z $(children) ]] || fail "children are left"
# A step whose slurmstepd is killed leaves them; they go with the job.
asuser srun -n1 -c2 --mso --mso-cpus=image:1 sleep 4343 >/dev/null 2>&1 &
wait_until 10 processes 1 "^[^ ]*sleep 4343"
[[ $(children | wc -l) = 2 ]] || fail "no children"
kill -9 $(pgrep -f 'slurmstepd: \[.*[.]0\]')
scancel -u mso-tester
none() { [[ -z $(children) ]]; }
wait_until 30 none
wait || true
eval "$train_and_look"
says "mso-decode 1"
[[ $out == *"mso-decode 1 "*"mso_0.image"* ]] || fail "not in the child"
[[ $main = 0 ]] || fail "computing on $main"
scancel -u root; wait || true
wait_until 20 sh -c '[ -z "$(find /sys/fs/cgroup/cpuset/slurm_'"${NODES[0]}"' -name "mso_*")" ]'
expect_clean
SCRIPT
}

@test "decoder-nice: an ordinary user's decoder threads as high as the admin permits, and only in steps with CPUs for them" {
  [[ -x $MSO && -d /usr/share/tuxpaint/stamps/animals ]] || skip "mso or the sample pictures are missing"
  # A container's root often may not raise limits (CAP_SYS_RESOURCE): then the step runs and says so. See also tests/vm/slurm.bats.
  export MAY_RAISE=
  (ulimit -e 35) 2>/dev/null && MAY_RAISE=yes
  PLUGIN_ARGUMENTS+=" decoder-nice=-15"
  in_cluster 1 <<'SCRIPT'
limits='echo "limits $(ulimit -Se) $(ulimit -He)"; nice -n -16 sh -c "nice >&3" 3>&1 2>/dev/null | sed "s/^/nice /"'
before="limits $(asuser srun -n1 bash -c 'ulimit -Se') $(asuser srun -n1 bash -c 'ulimit -He')"
# Whatever the user says, only the admin's number counts, and only where decoders have CPUs.
MSO_DECODER_PRIORITY=nice:-20 expect 0 asuser srun -n1 -c2 --mso --mso-cpus=image:1 bash -c "$limits"
if [[ $MAY_RAISE ]]; then says "limits 35 35"; else says "decoder threads keep their priority: RLIMIT_NICE for nice -15"; says "$before"; fi
says_not "nice -16"
for options in --mso "--mso --mso-nvme=image:1x1"; do
  expect 0 asuser srun -n1 -c2 $options bash -c "$limits"
  says "$before"
  says_not "decoder threads keep"
done
expect 0 asuser srun -n1 -c2 bash -c "$limits"
says "$before"
log_has 1 "event=setup .*cpus=image:1,video:0.* decoder_nice=-15"
# What the data pipeline makes of it.
"$MSO" data pack /usr/share/tuxpaint/stamps/animals "$PREFIX/shards" >/dev/null 2>&1
chmod -R go+rX "$PREFIX/shards"
asuser srun -n1 -c2 --mso --mso-cpus=image:1 "$MSO" data bench --threads 1 --batch 4 --image-size 64 --epochs 100000 "$PREFIX/shards" >"$PREFIX/bench.log" 2>&1 &
decoding() { grep -lsx mso-decode /proc/[0-9]*/task/[0-9]*/comm; }
decoder_nice() { awk '{ print $19 }' "$(dirname "$(decoding | head -n 1)")/stat"; }
wanted=0
[[ -z $MAY_RAISE ]] || wanted=-10
decoders_are() { [[ $(decoder_nice) = "$1" ]]; }
wait_until 60 decoding
wait_until 20 decoders_are "$wanted"
scancel -u mso-tester
wait || true
expect_clean
SCRIPT
}

# A node with two GPUs, as mso-node-facts would say.
fake_facts='
cat >"$1/facts" <<END
#!/bin/bash
cat >"\$2" <<F
mso-node-facts 1
node host=x boot=$(cat /proc/sys/kernel/random/boot_id) l3=0 memory=0 gpu_note=
cpu id=0 core=0 numa=0
cpu id=1 core=1 numa=1
gpu index=0 minor=0 numa=1 memory=85899345920 uuid=GPU-aa name=Big pci=0000:01:00.0
gpu index=1 minor=1 numa=0 memory=17179869184 uuid=GPU-bb name=Small pci=0000:02:00.0
end
F
END
chmod 755 "$1/facts"'

@test "GPU slices: device and sharers for each task; a sum that does not fit is refused with prod" {
  PLUGIN_ARGUMENTS="node-facts=@PREFIX@/facts"
  in_cluster 1 GRES=file FILES="$fake_facts" <<'SCRIPT'
expect 0 srun -n2 --gres=gpu:2 --mso --mso-gpu-slices=vision:4G,shared:8G bash -c 'echo "task $SLURM_LOCALID $MSO_GPU_SLICES"'
says "task 0 device=GPU-aa;table=0;sharers=1;slices=vision:4294967296,shared:8589934592"
says "task 1 device=GPU-bb;table=1;sharers=1;"
expect 2 srun -n2 --gres=gpu:2 --mso --mso-check=prod --mso-gpu-slices=vision:24G,shared:8G true
says "slices add up to 32.0 GiB, GPU 1 (Small) has 16.0 GiB"
expect 0 srun -n2 --gres=gpu:2 --mso --mso-gpu-slices=vision:24G,shared:8G bash -c 'echo "got [$MSO_GPU_SLICES]"'
says "going on without slices"
says "got []"
expect 0 srun -n2 --gres=gpu:1 --mso --mso-check=prod --mso-gpu-slices=vision:24G,shared:8G bash -c 'echo "task $SLURM_LOCALID $MSO_GPU_SLICES"'
says "task 1 device=GPU-aa;table=0;sharers=2;"
# Near the GPU: GPU 0 is at NUMA node 1, where CPU 1 is.
expect 0 srun -n1 -c2 --gres=gpu:1 --mso --mso-cpus=image:1 bash -c "$show"
says "image 0 video 1 compute 1 runs 1"
expect_clean
SCRIPT
}

@test "MPS: limits only where the admin turned it on and its daemon runs, never beside gres/mps" {
  local limit='echo "task $SLURM_LOCALID limit [$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT] slices [${MSO_GPU_SLICES:+yes}] gres [$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]"'
  # What stands for the daemon: its control pipe, root's.
  local daemon='on_node 1 sh -c "mkdir -p /tmp/nvidia-mps && mount -t tmpfs tmpfs /tmp/nvidia-mps && touch /tmp/nvidia-mps/control"'
  PLUGIN_ARGUMENTS="node-facts=@PREFIX@/facts"
  in_cluster 1 GRES=mps FILES="$fake_facts" <<SCRIPT
$daemon
expect 0 srun -n1 --gres=gpu:1 --mso --mso-gpu-slices=vision:4G,shared:8G bash -c '$limit'
says "task 0 limit [] slices [yes]"
SCRIPT
  PLUGIN_ARGUMENTS="node-facts=@PREFIX@/facts mps=yes"
  in_cluster 1 GRES=mps FILES="$fake_facts" <<SCRIPT
run() { expect 0 srun -n2 "\$@" --mso --mso-gpu-slices=vision:4G,shared:8G bash -c '$limit'; }
run --gres=gpu:1
says "task 0 limit [] slices [yes]"   # no daemon
$daemon
run --gres=gpu:1
says "task 0 limit [0=6144M] slices [yes]"   # half of 12 GiB: two tasks share the GPU
run --gres=gpu:2
says "task 1 limit [0=12288M] slices [yes]"
run --gres=mps:50
says "task 0 limit [] "
says_not "limit [0="
says "gres [50]"
expect 0 srun -n1 --gres=gpu:1 --mso bash -c '$limit'   # no slices asked
says "limit [] slices []"
expect 0 srun -n1 --gres=gpu:1 bash -c '$limit'
says "limit [] slices []"
on_node 1 chown nobody /tmp/nvidia-mps/control   # anybody could have put it there
run --gres=gpu:1
says "task 0 limit [] slices [yes]"
expect_clean
SCRIPT
  rmdir /tmp/nvidia-mps 2>/dev/null || true
}

@test "without GPUs the slices limit the ranks' own memory, weights and optimizer too: a run that needs more ends with the slice's name" {
  [[ -x $MSO && -d /usr/share/tuxpaint/stamps/animals ]] || skip "mso or the sample pictures are missing"
  export MSO_SRCDIR=${MSO_SRCDIR:-$HERE/../..}
  in_cluster 1 <<'SCRIPT'
"$MSO" data pack /usr/share/tuxpaint/stamps/animals "$PREFIX/shards" >/dev/null 2>&1
train=("$MSO" train -c "$MSO_SRCDIR/tests/mpi/tiny.yaml" data.path="$PREFIX/shards" data.eval_shards=0 train.eval_interval=0 train.steps=3
  model.vision.num_hidden_layers=6)
expect 0 srun -n1 --mso --mso-snapshot=64M --mso-gpu-slices=vision:512M,shared:512M "${train[@]}" train.run_dir="$PREFIX/run1"
# Weights and the optimizer's state are held to the end, the tensors of a step are not.
[[ $out =~ "memory slices at the end: vision "([0-9.]+)" MiB of 512 MiB (peak "([0-9.]+)" MiB)" ]] || fail "no use of the slices"
awk -v at_end="${BASH_REMATCH[1]}" -v peak="${BASH_REMATCH[2]}" 'BEGIN { exit !(at_end > 1 && peak > at_end) }' || fail "${BASH_REMATCH[0]}"
# Room for the weights, none for the optimizer: refused before the run folder is there.
expect 2 srun -n1 --mso --mso-snapshot=64M --mso-gpu-slices=vision:1M,shared:512M "${train[@]}" train.run_dir="$PREFIX/run2"
says "a memory slice is full: the optimizer's state and the gradients it keeps need"
says "of vision, which is 1.00 MiB with"
says "--mso-gpu-slices=vision:SIZE"
[[ ! -e $PREFIX/run2 ]] || fail "a refused run left a folder"
# Room for both, not for the tensors of a step.
expect 1 srun -n1 --mso --mso-snapshot=64M --mso-gpu-slices=vision:2M,shared:512M "${train[@]}" train.run_dir="$PREFIX/run3" data.micro_batch_tokens=8192
says "a memory slice is full"
says "more bytes asked of vision"
expect_clean
SCRIPT
}

@test "NVMe lanes on a node that has not got them: refused with prod, a line with staging" {
  compgen -G '/sys/class/nvme/nvme*' >/dev/null && skip "this machine has NVMe drives; see tests/vm"
  PLUGIN_ARGUMENTS+=" nvme-max=8"
  in_cluster 1 <<'SCRIPT'
expect 0 srun -n1 --mso --mso-nvme=image:1x4 bash -c 'echo "got [$MSO_NVME]"'
says "image:1x4 asked, but 0 PCIe drives have that many free lanes (this node has no PCIe drive)"
says "got []"
expect 2 srun -n1 --mso --mso-check=prod --mso-nvme=image:1x4 true
# The admin's limit of a job, before anything is queued.
expect 2 sbatch -n1 --mso-nvme=image:1x4,video:1x8 --wrap true
says "image:1x4,video:1x8 are 12 lanes, this cluster allows a job 8 on a node"
expect_clean
SCRIPT
}

@test "mso check --node on a node of the cluster: plugin, Slurm version, plugstack line, facts" {
  [[ -x $MSO ]] || skip "mso is not built"
  in_cluster 1 <<'SCRIPT'
expect 0 on_node 1 "$MSO" check --node
says "ok    plugin file"
says "built for Slurm $(sinfo --version | tr -dc 0-9.)"
says "ok    plugstack line"
says "plugstack.conf:1: optional node-facts="
says "ok    node facts"
srun -n1 --mso --mso-snapshot=16M sleep 20 & 
wait_until 10 sh -c 'test -n "$(squeue -h -t R)"'
wait_until 10 on_node 1 sh -c 'ls /run/mso | grep -q "^[0-9]"'
expect 0 on_node 1 "$MSO" check --node --json
says '"found": "1 job prepared on this node"'
scancel -u root; wait || true
echo "$(sed 's/^optional/required/' "$PREFIX/etc/plugstack.conf")" >"$PREFIX/etc/plugstack.conf"
expect 0 on_node 1 "$MSO" check --node
says "warn  plugstack line"
expect_clean
SCRIPT
}

@test "hardware below its needs at the start of training: refused with prod, one warning with staging, no word with off" {
  needs_training
  in_cluster 2 POD_TIMEOUT=120 <<SCRIPT
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
train() { srun -N2 --ntasks-per-node=1 --mpi=pmix --mso --mso-snapshot=64M "\$1" "\$MSO" train -c "\$HERE/../mpi/tiny.yaml" data.path="\$SHARDS" train.steps=2 train.eval_interval=0 \
  train.run_dir="\$PREFIX/\$2" ero.needs="\$3"; }
impossible=pcie-lanes:100000,memory-channels:off,l3:off,nvlink:off,infiniband:off
expect 2 train --mso-check=prod refused \$impossible
says "nodes fall short of what training at full speed needs"
says "(100000 wanted)"
[[ ! -e \$PREFIX/refused ]] || fail "a refused run left a folder"
expect 0 train --mso-check=staging warned \$impossible
[[ \$(grep -c "nodes fall short of what training" <<<"\$out") = 1 ]] || fail "not one warning"
expect 0 train --mso-check=off silent \$impossible
says_not "nodes fall short"
expect 0 train --mso-check=prod enough pcie-lanes:off,memory-channels:off,l3:off,nvlink:off,infiniband:off
says_not "nodes fall short"
expect_clean
SCRIPT
}
