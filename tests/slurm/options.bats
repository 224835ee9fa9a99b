#!/usr/bin/env bats
# What a user writes: checked where the user stands, all mistakes at once, before anything is queued; and how it reaches steps.
load common.bash

setup() { needs_cluster; }

@test "all mistakes at once from srun, sbatch and salloc; nothing is queued" {
  in_cluster 2 <<'SCRIPT'
for command in "srun hostname" "salloc true" "sbatch --wrap=hostname"; do
  set -- $command
  expect 2 "$1" --mso --mso-snapshot=1e99G --mso-check=prd --mso-cpus=imag:2 --mso-gpu-slices=vison:1G --mso-nvme=image:1 "${@:2}"
  says "5 mistakes in what was asked; nothing was queued"
  says "did you mean prod?"
  says "did you mean image?"
  says "did you mean vision?"
done
nothing_queued
[[ -n ${MSO_TEST_CLUSTER:-} || -z $(scontrol -o show job 2>/dev/null | grep -v "No jobs") ]]
SCRIPT
}

@test "the options are in --help, and every one of them implies --mso" {
  in_cluster 1 <<'SCRIPT'
out=$(srun --help)
for option in mso mso-config mso-snapshot mso-gpu-slices mso-cpus mso-nvme mso-check; do says "--$option"; done
expect 0 srun --mso-snapshot=16M sh -c 'echo $MSO_SNAPSHOT_BYTES'
says 16777216
SCRIPT
}

@test "order: option, variable, profile, the admin's default" {
  in_cluster 1 PLUGIN_ARGUMENTS='profiles=@PREFIX@/profiles snapshot=80M' FILES='printf "snapshot = 48M # for all\ncheck=off\n" >"$1/profiles/large.conf"' <<'SCRIPT'
expect 0 srun --mso sh -c 'echo $MSO_SNAPSHOT_BYTES';       says $((80 << 20))
expect 0 srun --mso=large sh -c 'echo $MSO_SNAPSHOT_BYTES $SLURM_MSO_REQUEST'; says $((48 << 20)); says "check=off"; says "profile=large"
export MSO_REQUEST_SNAPSHOT=32M
expect 0 srun --mso=large sh -c 'echo $MSO_SNAPSHOT_BYTES'; says $((32 << 20))
expect 0 srun --mso=large --mso-snapshot=16M sh -c 'echo $MSO_SNAPSHOT_BYTES'; says $((16 << 20))
unset MSO_REQUEST_SNAPSHOT
MSO_REQUEST_PROFILE=large expect 0 srun --mso sh -c 'echo $MSO_SNAPSHOT_BYTES'; says $((48 << 20))
MSO_REQUEST_SNAPSHOTT=1G expect 2 srun --mso true; says "did you mean MSO_REQUEST_SNAPSHOT?"
expect 2 srun --mso=larg true; says "did you mean large?"
# Variables alone ask for nothing.
MSO_REQUEST_SNAPSHOT=rubbish expect 0 srun sh -c 'echo "dir=$MSO_SNAPSHOT_DIR."'; says "dir=."
SCRIPT
}

@test "a configuration file gives the rest, its mistakes with their lines" {
  [[ -x $MSO ]] || skip "mso is not built"
  in_cluster 1 PLUGIN_ARGUMENTS="program=$MSO" <<'SCRIPT'
printf 'ecm:\n  level0_size: 24M\nero:\n  cpu_reserve_cores: [1, 1]\n  check: off\n' >"$PREFIX/good.yaml"
expect 0 srun --mso-config="$PREFIX/good.yaml" sh -c 'echo $SLURM_MSO_REQUEST'
says "snapshot=25165824"
says "cpus=image:1,video:1"
says "check=off"
expect 0 srun --mso-config="$PREFIX/good.yaml" --mso-snapshot=16M sh -c 'echo $MSO_SNAPSHOT_BYTES'; says 16777216
printf 'ecm:\n  level0_sise: 24M\n' >"$PREFIX/bad.yaml"
expect 2 srun --mso-config="$PREFIX/bad.yaml" true
says "bad.yaml:2"
says "did you mean ecm.level0_size?"
expect 2 srun --mso-config="$PREFIX/none.yaml" true
says none.yaml
expect 2 srun --mso-config=/dev/zero true
says "file too large: /dev/zero"
SCRIPT
}

@test "an inner srun has the job's request; its own options are stronger; --export=NONE changes nothing" {
  in_cluster 2 <<'SCRIPT'
cat >"$PREFIX/job.sh" <<'END'
#!/bin/bash
echo "batch $MSO_SNAPSHOT_BYTES"
srun -N2 --ntasks-per-node=1 /bin/sh -c 'echo inner $MSO_SNAPSHOT_BYTES'
srun -N2 --ntasks-per-node=1 --mso-snapshot=32M /bin/sh -c 'echo own $MSO_SNAPSHOT_BYTES'
srun -N1 -n1 --export=NONE /bin/sh -c 'echo none $MSO_SNAPSHOT_BYTES'
END
for export in ALL NONE; do
  expect 0 sbatch --wait --export=$export -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o "$PREFIX/out" "$PREFIX/job.sh"
  out=$(cat "$PREFIX/out")
  says "batch 16777216"; says "inner 16777216"; says "own 33554432"; says "none 33554432"
done
# A plain job whose step asks.
expect 0 sbatch --wait -N2 --ntasks-per-node=1 -o "$PREFIX/out" --wrap 'echo "batch=$MSO_SNAPSHOT_DIR."; srun --mso --mso-snapshot=16M sh -c "echo step \$MSO_SNAPSHOT_BYTES"'
out=$(cat "$PREFIX/out"); says "batch=."; says "step 16777216"
expect_clean
SCRIPT
}

@test "sbatch --export-file: the request goes with the job, to its script and to its steps" {
  in_cluster 2 <<'SCRIPT'
printf 'ONLY=this\0PATH=%s\0' "$PATH" >"$PREFIX/environment"
cat >"$PREFIX/job.sh" <<'END'
#!/bin/bash
echo "batch $ONLY $MSO_SNAPSHOT_BYTES home=$HOME."
srun -N2 --ntasks-per-node=1 /bin/sh -c 'echo inner $ONLY $MSO_SNAPSHOT_BYTES'
srun -N2 --ntasks-per-node=1 --export=NONE /bin/sh -c 'echo none $MSO_SNAPSHOT_BYTES'
srun -N2 --ntasks-per-node=1 --mso-snapshot=32M /bin/sh -c 'echo own $MSO_SNAPSHOT_BYTES'
END
expect 0 sbatch --wait --export-file="$PREFIX/environment" -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o "$PREFIX/out" "$PREFIX/job.sh" || { cat "$PREFIX/out"; exit 1; }
out=$(cat "$PREFIX/out")
for line in "batch this 16777216" "inner this 16777216" "none 16777216" "own 33554432"; do says "$line"; done
[[ $(grep -c "^inner this 16777216" <<<"$out") = 2 ]] || fail "not on both nodes: $out"
# A job that did not ask is not prepared, whatever the file says.
expect 0 sbatch --wait --export-file="$PREFIX/environment" -n1 -o "$PREFIX/out" --wrap 'echo "dir=$MSO_SNAPSHOT_DIR request=$SLURM_MSO_REQUEST."'
grep -q "dir= request=\." "$PREFIX/out" || { cat "$PREFIX/out"; exit 1; }
expect_clean
SCRIPT
}

@test "a job made from inside a step does not inherit the wish" {
  in_cluster 2 <<'SCRIPT'
expect 0 srun -n1 --mso --mso-snapshot=16M env -u SLURM_CPU_BIND sbatch --wait -n1 -o "$PREFIX/out" --wrap 'echo "dir=$MSO_SNAPSHOT_DIR request=$SLURM_MSO_REQUEST."'
grep -q 'request=\.' "$PREFIX/out" || { cat "$PREFIX/out"; exit 1; }
expect_clean
SCRIPT
}

@test "profiles need to be on the submitting machine only" {
  in_cluster 2 PLUGIN_ARGUMENTS='profiles=@PREFIX@/profiles' FILES='printf "snapshot = 48M\n" >"$1/profiles/large.conf"' <<'SCRIPT'
expect 0 sbatch --wait -N2 --ntasks-per-node=1 --mso=large -o "$PREFIX/out" --wrap "rm -f $PREFIX/profiles/large.conf; "'srun sh -c "echo step \$MSO_SNAPSHOT_BYTES"'
[[ $(grep -c "step $((48 << 20))" "$PREFIX/out") = 2 ]] || { cat "$PREFIX/out"; exit 1; }
SCRIPT
}

@test "a heterogeneous job: each component is prepared" {
  in_cluster 2 <<'SCRIPT'
expect 0 salloc -n1 --mso --mso-snapshot=16M : -n1 srun --het-group=0,1 sh -c 'grep -c " $MSO_SNAPSHOT_DIR tmpfs" /proc/mounts; echo where $MSO_SNAPSHOT_DIR'
[[ $(grep -c '^where /run/mso/' <<<"$out") = 2 ]] || fail "$out"
expect_clean
SCRIPT
}
