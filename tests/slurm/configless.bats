#!/usr/bin/env bats
# Configless Slurm: nodes and the commands on them have no configuration of their own, plugstack.conf and what it includes
# come from the controller.
load common.bash

setup() { needs_private_cluster; }

works='
on_node 1 test ! -e "$PREFIX/etc/slurm.conf"
on_node 1 sh -c "ls -l /run/slurm/conf/; cat /run/slurm/conf/plugstack.conf"
for from in 1 2; do
  expect 0 on_node $from env -u SLURM_CONF srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M sh -c "grep -c \" \$MSO_SNAPSHOT_DIR tmpfs\" /proc/mounts; echo \$SLURMD_NODENAME \$MSO_SNAPSHOT_DIR"
  for node in "${NODES[@]}"; do says "$node /run/mso/"; done
  expect 2 on_node $from env -u SLURM_CONF srun --mso --mso-snapshot=1e99G true
  says "nothing was queued"
done
expect 0 on_node 1 env -u SLURM_CONF sbatch --wait -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o "$PREFIX/out" --wrap "srun sh -c \"echo inner \\\$MSO_SNAPSHOT_BYTES\""
[[ $(grep -c "inner 16777216" "$PREFIX/out") = 2 ]] || { cat "$PREFIX/out"; exit 1; }
log_has 1 "mso event=setup"
expect_clean'

@test "the line in plugstack.conf itself" {
  in_cluster 2 CONFIGLESS=1 <<SCRIPT
$works
# A change reaches the nodes when the administrator says so.
sed -i '1s/\$/ snapshot-max=20M/' "\$PREFIX/etc/plugstack.conf"
scontrol reconfigure
wait_until 15 on_node 2 grep -q snapshot-max=20M /run/slurm/conf/plugstack.conf
expect 2 on_node 2 env -u SLURM_CONF srun --mso --mso-snapshot=32M true
says "more than this cluster allows, 20.0 MiB"
SCRIPT
}

@test "an included file is not served (Slurm 22.05): it must be on the nodes, named by its whole path" {
  in_cluster 2 CONFIGLESS=1 FILES='mkdir "$1/local"; mv "$1/etc/plugstack.conf" "$1/local/mso.conf"; echo "include $1/local/*.conf" >"$1/etc/plugstack.conf"' <<SCRIPT
$works
SCRIPT
}

@test "mso check --node finds what the controller served" {
  [[ -x $MSO ]] || skip "mso is not built"
  in_cluster 1 CONFIGLESS=1 <<'SCRIPT'
out=$(on_node 1 env -u SLURM_CONF "$MSO" check --node) || true
printf '%s\n' "$out"
says "/run/slurm/conf/slurm.conf"
says "ok    plugstack line"
says "/run/slurm/conf/plugstack.conf:1: optional"
says "ok    plugin file"
SCRIPT
}
