#!/usr/bin/env bats
# A user without privileges who tries to get more than is due: refused, and nothing is created.
load common.bash

setup() { needs_private_cluster; }

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
  in_cluster 1 <<'SCRIPT'
# srun without the plugin, so that only the node checks: the user chooses the configuration srun reads.
sed 's#^PlugStackConfig=.*#PlugStackConfig=/dev/null#' "$PREFIX/etc/slurm.conf" >"$PREFIX/user.conf"
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
expect_clean
SCRIPT
}

@test "another job's number, names and variables" {
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
