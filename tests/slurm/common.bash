# What every file of tests/slurm begins with. A test runs its script beside a private cluster (in_cluster) whose nodes have
# the built plugin; with MSO_TEST_CLUSTER=1 on the two nodes of an existing cluster where the plugin is installed.
bats_require_minimum_version 1.5.0

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
export HERE
export MSO_BUILD=${MSO_BUILD:-$(readlink -f "$HERE/../../build")}
export PLUGIN=$MSO_BUILD/.libs/spank_mso.so
if [[ -z ${MSO_TEST_CLUSTER:-} || -x $MSO_BUILD/mso ]]; then export MSO=$MSO_BUILD/mso
else export MSO=${MSO:-$(command -v mso || echo mso)}; fi

# Skips with the reason where a private cluster cannot be had.
needs_cluster() {
  if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then
    command -v srun >/dev/null || skip "srun is not in PATH"
    sinfo -h >/dev/null 2>&1 || skip "no cluster answers: $(sinfo -h 2>&1 | head -n 1)"
    srun --help | grep -q -- --mso || skip "srun does not know --mso: is spank_mso.so in plugstack.conf? (doc/admin-guide.md)"
    return 0
  fi
  [[ $(id -u) = 0 ]] || skip "a private Slurm cluster needs root"
  local program
  for program in slurmctld slurmd munged srun ip unshare; do
    command -v $program >/dev/null || skip "$program is not installed (contrib/install-dependencies --tests)"
  done
  [[ -e $PLUGIN ]] || skip "the plugin is not built in $MSO_BUILD (configure --with-slurm)"
  unshare --pid --fork --mount --net --ipc true 2>/dev/null || skip "namespaces cannot be made here"
}

# Skips where real ranks cannot train under Slurm; else packs, once, the pictures of animals of tuxpaint-stamps into $SHARDS.
needs_training() {
  "$MSO" train --help >/dev/null 2>&1 || skip "mso is not built with training in $MSO_BUILD"
  ls /usr/lib/*/slurm*/mpi_pmix*.so >/dev/null 2>&1 || [[ -n ${MSO_TEST_CLUSTER:-} ]] || skip "Slurm has no PMIx plugin"
  export SHARDS=$MSO_BUILD/test-data/animals
  if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then
    SHARDS=$(test_folder)/mso-test-data/animals
    [[ -d /usr/share/tuxpaint/stamps/animals ]] || skip "the sample pictures are not installed here (tuxpaint-stamps-default)"
  fi
  [[ ! -e $SHARDS/packed ]] || return 0
  mkdir -p "$(dirname "$SHARDS")"
  "$MSO" data pack /usr/share/tuxpaint/stamps/animals "$SHARDS" --max-samples-per-shard 40 >/dev/null && touch "$SHARDS/packed"
}

# For tests that stop daemons or look behind Slurm's back.
needs_private_cluster() {
  [[ -z ${MSO_TEST_CLUSTER:-} ]] || skip "needs a cluster of its own: MSO_TEST_CLUSTER is set"
  needs_cluster
}

test_folder() { echo "${MSO_TEST_DIR:-$HOME}"; }

# Skips what an existing cluster, which is as its administrator made it, cannot have: NODES SETTING=VALUE…
prepare_existing_cluster() {
  local nodes=$1 setting there
  shift
  [[ $PLUGIN_ARGUMENTS = "$DEFAULT_PLUGIN_ARGUMENTS" ]] || set -- "$@" "PLUGIN_ARGUMENTS=$PLUGIN_ARGUMENTS"
  for setting in "$@"; do
    case $setting in
      POD_TIMEOUT=* | CPUS=2 | PLUGIN_ARGUMENTS="program=$MSO") ;;
      *) skip "needs a cluster of its own, made with ${setting%%$'\n'*}" ;;
    esac
  done
  if [[ -n ${MSO_TEST_PARTITION:-} ]]; then
    export SLURM_PARTITION=$MSO_TEST_PARTITION SBATCH_PARTITION=$MSO_TEST_PARTITION SALLOC_PARTITION=$MSO_TEST_PARTITION \
      SINFO_PARTITION=$MSO_TEST_PARTITION
  fi
  there=$(sinfo -h -N -o %N | sort -u | wc -l)
  [[ $there -le 8 ]] || skip "the cluster has $there nodes: name a partition of a few in MSO_TEST_PARTITION"
  there=$(sinfo -h -N -t idle,mixed,allocated -o %N | sort -u | wc -l)
  [[ $there -ge $nodes ]] || skip "needs $nodes nodes, $there are up"
  PREFIX=$(test_folder)/$(basename "$PREFIX")
  rm -rf "$PREFIX"
  mkdir -p "$PREFIX"
}

# in_cluster NODES [SETTING=VALUE]… <<'SCRIPT': bash -euo pipefail, with the functions of inside.bash. Settings are those of
# `cluster`; PLUGIN_ARGUMENTS goes into plugstack.conf (@PREFIX@: the cluster's folder), FILES is a command that prepares that ($1).
in_cluster() {
  local nodes=$1 name
  shift
  name=$(basename "$BATS_TEST_FILENAME" .bats | tr -cd a-z0-9)  # hostname(1) takes no underscore
  # Short, and other for each file and test: nodes' names end up in host-wide cgroups.
  export TAG=${name:0:4}$((BATS_TEST_NUMBER))x PREFIX=/var/tmp/mso-slurm-$name-$BATS_TEST_NUMBER
  cat "$HERE/inside.bash" - >"$BATS_TEST_TMPDIR/script"
  local status=0
  if [[ -n ${MSO_TEST_CLUSTER:-} ]]; then
    prepare_existing_cluster "$nodes" "$@"
    timeout 900 bash -euo pipefail "$BATS_TEST_TMPDIR/script" 3>&- || status=$?
    [[ -n ${KEEP_PREFIX:-} ]] || rm -rf "$PREFIX"
    return $status
  fi
  # shellcheck disable=SC2016
  env "$@" BEFORE_UP='
      echo "${PLUGIN_REQUIRED:-optional} $PLUGIN ${PLUGIN_ARGUMENTS//@PREFIX@/$1}" >"$1/etc/plugstack.conf"
      mkdir -p "$1/profiles"; eval "${FILES:-}"' \
    "$HERE/pod" "$PREFIX" "$nodes" bash -euo pipefail "$BATS_TEST_TMPDIR/script" 3>&- || status=$?
  [[ $status = 0 ]] || { echo "--- exit $status; slurmd logs:"; grep -hE "mso|error|fatal" "$PREFIX"/log/slurmd.*.log | tail -n 20; }
  [[ -n ${KEEP_PREFIX:-} ]] || rm -rf "$PREFIX"
  return $status
}
DEFAULT_PLUGIN_ARGUMENTS="profiles=/etc/mso/profiles.d"
export PLUGIN_ARGUMENTS=$DEFAULT_PLUGIN_ARGUMENTS
