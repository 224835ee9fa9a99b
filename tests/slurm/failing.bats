#!/usr/bin/env bats
# Failing well: what a failure in every hook means for the step, for the node, and for jobs without --mso.
load common.bash

setup() { needs_private_cluster; }

# fault HOOK STATUS RUNS: with the fault, srun --mso ends with STATUS, and the program has run (yes) or not (no). A job
# without --mso runs all the same, and no node is drained.
table='
fault() {
  local hook=$1 status=$2 runs=$3
  MSO_SPANK_FAIL=$hook expect "$status" asuser env OTHER_FAIL="${OTHER:-}" srun -N2 --ntasks-per-node=1 --mso sh -c "echo has run"
  if [[ $runs = yes ]]; then says "has run"; else says_not "has run"; fi
  [[ $status = 0 ]] || says "fault injected"
  MSO_SPANK_FAIL=$hook expect 0 asuser srun -N2 sh -c "echo plain has run"
  says "plain has run"
  expect_clean
  echo "$hook: exit $status, program run: $runs"
}'

@test "our own failure in every hook: table of outcomes" {
  in_cluster 2 PLUGIN_ARGUMENTS="faults=allow" POD_TIMEOUT=120 <<SCRIPT
$table
fault local_init_post_opt 1 no
fault init 1 no
fault init_post_opt 1 no
fault user_init 1 no
fault task_init_privileged 1 no
fault task_init 1 no
fault task_post_fork 0 yes
fault task_exit 0 yes
fault exit 0 yes
fault job_prolog 0 yes
fault job_epilog 0 yes
SCRIPT
}

@test "whatever is thrown, and with the plugin 'required'" {
  in_cluster 2 PLUGIN_ARGUMENTS="faults=allow" PLUGIN_REQUIRED=required POD_TIMEOUT=120 <<'SCRIPT'
for kind in foreign memory; do
  for hook in init_post_opt user_init task_init_privileged task_init; do
    MSO_SPANK_FAIL=$hook:$kind expect 1 asuser srun -N2 --ntasks-per-node=1 --mso sh -c 'echo has run'
    says_not "has run"
  done
  for hook in task_post_fork task_exit exit job_prolog job_epilog; do
    MSO_SPANK_FAIL=$hook:$kind expect 0 asuser srun -N2 --ntasks-per-node=1 --mso true
  done
done
MSO_SPANK_FAIL=allocator_init_post_opt expect 1 sbatch --mso --wrap 'echo must not run'
MSO_SPANK_FAIL=allocator_init_post_opt expect 0 salloc -n1 true
expect_clean
SCRIPT
}

@test "a failure in a batch job, and in salloc" {
  in_cluster 2 PLUGIN_ARGUMENTS="faults=allow" <<'SCRIPT'
MSO_SPANK_FAIL=init_post_opt expect 1 sbatch --wait -N2 --mso -o "$PREFIX/out" --wrap 'echo has run'
grep -q "step not started on node" "$PREFIX/out"
! grep -q "has run" "$PREFIX/out" || exit 1
[[ $(job_state 1) = FAILED ]]
MSO_SPANK_FAIL=task_init expect 1 salloc -N2 --mso srun sh -c 'echo has run'
says_not "has run"
expect_clean
SCRIPT
}

@test "another plugin that fails beside ours: nothing of ours is left" {
  command -v c++ >/dev/null || skip "no compiler"
  c++ -shared -fPIC -o "$BATS_TEST_TMPDIR/other.so" "$HERE/failing_plugin.cc" || skip "no slurm/spank.h"
  for place in before after; do
    in_cluster 2 POD_TIMEOUT=120 FILES="
      [[ $place = after ]] || { cp \$1/etc/plugstack.conf \$1/ours; echo 'required $BATS_TEST_TMPDIR/other.so' >\$1/etc/plugstack.conf; cat \$1/ours >>\$1/etc/plugstack.conf; }
      [[ $place = before ]] || echo 'required $BATS_TEST_TMPDIR/other.so' >>\$1/etc/plugstack.conf" <<'SCRIPT'
# Slurm's own outcome for a required plugin (srun ends with 0 for some hooks): not ours to change; ours is to leave nothing.
for hook in init_post_opt user_init task_init_privileged task_init task_post_fork task_exit exit; do
  OTHER_FAIL=$hook timeout 20 srun -N2 --ntasks-per-node=1 --mso true >/dev/null 2>&1 || true
  wait_until 15 clean
done
expect 0 srun -N2 --mso true
expect_clean
SCRIPT
  done
}

@test "a broken profile, a wrong argument, a missing library: no job without --mso notices" {
  in_cluster 2 PLUGIN_ARGUMENTS="snapshot-mx=1G run=relative check=prd" <<'SCRIPT'
expect 0 srun -N2 hostname
says_not mso:
expect 2 srun --mso true
says "unknown argument snapshot-mx; did you mean snapshot-max? (for the administrator)"
log_has 1 'mso: plugstack.conf: unknown argument snapshot-mx'
expect_clean
SCRIPT
  in_cluster 2 FILES='echo "optional /nonexistent/spank_mso.so" >"$1/etc/plugstack.conf"' <<'SCRIPT'
expect 0 srun -N2 hostname
SCRIPT
}

@test "the plugin is missing on one node of two: the step fails and says where" {
  in_cluster 2 FILES=': >"$1/plugstack.${TAG}2"' <<'SCRIPT'
expect 1 srun -N2 --ntasks-per-node=1 --mso sh -c 'true'
says "${NODES[1]}"
says "the plugin did not run"
expect 0 srun -N2 true
expect 0 srun -N1 -w "${NODES[0]}" --mso true
expect_clean
SCRIPT
}

@test "a plugin for another Slurm version is refused by Slurm, cleanly" {
  command -v c++ >/dev/null || skip "no compiler"
  # The version is one number in the plugin's data: the same plugin with another one.
  python3 - "$PLUGIN" "$BATS_TEST_TMPDIR/spank_mso.so" <<'END' || skip "no python3"
import subprocess, sys
data = bytearray(open(sys.argv[1], "rb").read())
line = [l for l in subprocess.run(["nm", "-D", sys.argv[1]], capture_output=True, text=True).stdout.splitlines() if l.endswith(" plugin_version")][0]
sections = subprocess.run(["readelf", "-SW", sys.argv[1]], capture_output=True, text=True).stdout
for s in sections.splitlines():
    parts = s.replace("[ ", "[").split()
    if len(parts) > 5 and parts[1] == ".rodata":
        at = int(line.split()[0], 16) - int(parts[3], 16) + int(parts[4], 16)
        assert data[at:at + 4] != b"\x00\x00\x00\x00"
        data[at + 1] ^= 3
open(sys.argv[2], "wb").write(data)
END
  in_cluster 1 FILES="cp \"$BATS_TEST_TMPDIR/spank_mso.so\" \"\$1/\"; echo \"optional \$1/spank_mso.so\" >\"\$1/etc/plugstack.conf\"" <<'SCRIPT'
expect 0 srun -v hostname
says "Incompatible Slurm plugin"
expect 255 srun --mso hostname
says "unrecognized option"
SCRIPT
}

@test "a fault of the node drains it, with the reason, only where the admin's prolog has it in its list" {
  export LIST=$BATS_TEST_TMPDIR/list PROLOG=$BATS_TEST_TMPDIR/prolog
  sed "s#^MSO_DRAIN=.*#MSO_DRAIN=\$(cat $LIST)#" "$HERE/../../contrib/slurm/prolog.d/mso" >"$PROLOG"
  chmod 755 "$PROLOG"
  : >"$LIST"
  in_cluster 1 EXTRA="Prolog=$PROLOG"$'\n' <<'SCRIPT'
on_node 1 chmod 777 /run/mso  # not root's alone: the plugin does not use it
expect 1 srun --mso true
expect 0 srun true
[[ -z $(drained) ]] || fail "drained without the admin's word: $(drained)"
echo run-directory >"$LIST"
expect 0 srun true
says_drained() { [[ $(drained) = "${NODES[0]} mso: /run/mso cannot be used" ]]; }
wait_until 20 says_drained
on_node 1 chmod 755 /run/mso
scontrol update NodeName="${NODES[0]}" State=RESUME
wait_until 20 idle
expect 2 srun --mso --mso-check=prod --mso-cpus=image:4000 true  # a user's mistake
expect 0 srun --mso true
[[ -z $(drained) ]] || fail "$(drained)"
SCRIPT
}
