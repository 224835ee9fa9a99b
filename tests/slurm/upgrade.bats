#!/usr/bin/env bats
# Upgrade with jobs running, roll-back, removal: what the administrator's guide says, done.
load common.bash

setup() { needs_private_cluster; }

@test "another build of the plugin beside a running job, the old one again, then none" {
  [[ -x $MSO_BUILD/mso-node-cleanup ]] || skip "mso-node-cleanup is not built"
  in_cluster 2 POD_TIMEOUT=150 FILES='mkdir "$1/lib"; install -m 755 "$PLUGIN" "$1/lib/spank_mso.so"; echo "optional $1/lib/spank_mso.so" >"$1/etc/plugstack.conf"' <<'SCRIPT'
# Each step says what it finds, and waits for a word.
cat >"$PREFIX/job.sh" <<'END'
#!/bin/bash
for step in 1 2 3; do
  srun --ntasks-per-node=1 sh -c 'echo "step '$step' found $(cat $MSO_SNAPSHOT_DIR/f 2>/dev/null)"; echo step'$step' >$MSO_SNAPSHOT_DIR/f; while [ ! -e '$1'/go'$step' ]; do sleep 0.1; done'
done
END
job=$(sbatch --parsable -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M -o "$PREFIX/out" "$PREFIX/job.sh" "$PREFIX")
both() { [[ $(on_node 1 cat /run/mso/$job.0/snapshot/f) = "$1" && $(on_node 2 cat /run/mso/$job.0/snapshot/f) = "$1" ]]; }
wait_until 20 both step1

# Upgrade: a file of its own in the place of the old one, as make install puts it there.
cp "$PREFIX/lib/spank_mso.so" "$PREFIX/new.so"; echo "another build" >>"$PREFIX/new.so"
install -m 755 "$PREFIX/new.so" "$PREFIX/lib/spank_mso.so"
expect 0 srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M true
touch "$PREFIX/go1"
wait_until 20 both step2

# Roll back.
install -m 755 "$PLUGIN" "$PREFIX/lib/spank_mso.so"
expect 0 srun -N2 --ntasks-per-node=1 --mso --mso-snapshot=16M true
touch "$PREFIX/go2"
wait_until 20 both step3
[[ $(grep -c "step 2 found step1" "$PREFIX/out") = 2 && $(grep -c "step 3 found step2" "$PREFIX/out") = 2 ]] || { cat "$PREFIX/out"; exit 1; }

# Remove: the line goes; the running job keeps its directory and ends well, what is left of it is swept by hand.
: >"$PREFIX/etc/plugstack.conf"
expect 255 srun --mso true
says "unrecognized option"
expect 0 srun -N2 true
touch "$PREFIX/go3"
wait_until 30 job_gone $job
[[ $(job_state $job) = COMPLETED ]] || fail "$(job_state $job)"
for i in 1 2; do
  [[ $(kept_jobs $i) = $job.0 ]] || fail "kept on node $i: $(kept_jobs $i)"
  expect 0 on_node $i "$MSO_BUILD/mso-node-cleanup" --sweep
done
expect_clean
SCRIPT
}
