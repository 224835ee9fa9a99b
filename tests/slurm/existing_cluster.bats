#!/usr/bin/env bats
# MSO_TEST_CLUSTER=1: the suite on a cluster that somebody else set up. Here an administrator's: the plugin installed with
# `make install`, a file in plugstack.conf.d, prolog and epilog lines, nodes with addresses of their own; the tests are run
# by a user without privileges who has srun in PATH and SLURM_CONF, and nothing of this build.
load common.bash

setup() {
  needs_private_cluster
  command -v bats >/dev/null || skip "bats is not in PATH"
}

@test "a user without privileges runs the suite on a cluster that is there: nothing fails, what is skipped says why" {
  export SITE=$BATS_TEST_TMPDIR/site CHECKOUT=/var/tmp/mso-checkout-$$
  local program=""
  [[ ! -x $MSO_BUILD/mso ]] || program=install-binPROGRAMS
  # shellcheck disable=SC2086
  make -C "$MSO_BUILD" prefix="$SITE" $program install-slurmpluginLTLIBRARIES >"$BATS_TEST_TMPDIR/install" 2>&1 ||
    { tail -n 20 "$BATS_TEST_TMPDIR/install"; false; }
  mkdir -p "$SITE/libexec/megascale-omni" && cp "$MSO_BUILD"/mso-node-{cleanup,facts} "$SITE/libexec/megascale-omni/"
  chmod -R a+rX "$BATS_TEST_TMPDIR" && chmod a+rx "$BATS_RUN_TMPDIR" "$(dirname "$BATS_TEST_TMPDIR")" "$(dirname "$(dirname "$BATS_TEST_TMPDIR")")"
  mkdir -p "$SITE/etc/prolog.d" "$SITE/etc/epilog.d" "$CHECKOUT/tests"
  # As the administrator's guide says: copies, with the place of this installation.
  for line in prolog epilog; do
    sed "s#/usr/libexec/megascale-omni#$SITE/libexec/megascale-omni#" "$HERE/../../contrib/slurm/$line.d/mso" >"$SITE/etc/$line.d/mso"
    chmod 755 "$SITE/etc/$line.d/mso"
  done
  mkdir "$CHECKOUT/tests/mpi" && cp "$HERE/../mpi/tiny.yaml" "$CHECKOUT/tests/mpi/" && cp -r "$HERE" "$CHECKOUT/tests/slurm" && cp -r "$HERE/../../etc" "$CHECKOUT/etc" && chmod -R a+rX "$CHECKOUT"
  in_cluster 2 MODE=netns POD_TIMEOUT=600 EXTRA="Prolog=$SITE/etc/prolog.d/mso"$'\n'"Epilog=$SITE/etc/epilog.d/mso"$'\n' FILES='
    mkdir "$1/etc/plugstack.conf.d"; echo "include $1/etc/plugstack.conf.d/*.conf" >"$1/etc/plugstack.conf"
    echo "optional $SITE/lib/slurm/spank_mso.so node-facts=$SITE/libexec/megascale-omni/mso-node-facts program=$SITE/bin/mso" >"$1/etc/plugstack.conf.d/mso.conf"' <<'SCRIPT'
"$HERE/asuser" true  # makes the user
# Where the libraries of this build are in a folder that other users cannot read, the tests go without mso.
"$HERE/asuser" "$SITE/bin/mso" --version >/dev/null 2>&1 || rm -f "$SITE/bin/mso"
cd /tmp/mso-tester
status=0
runuser -u mso-tester -- env -i HOME=/tmp/mso-tester PATH="$SITE/bin:/usr/local/bin:/usr/bin:/bin" SLURM_CONF="$SLURM_CONF" MSO_TEST_CLUSTER=1 \
  bats --tap "$CHECKOUT"/tests/slurm/{options,snapshot,train}.bats >"$PREFIX/tap" 2>&1 || status=$?
cat "$PREFIX/tap"
[[ $status = 0 ]] || fail "the suite ended with $status"
run=$(grep '^ok ' "$PREFIX/tap" | grep -vc '# skip')
skipped=$(grep -c '^ok .*# skip' "$PREFIX/tap")
reasons=$(grep -cE '^ok .*# skip .*(needs a cluster of its own|MSO_TEST_CLUSTER|mso is not built)' "$PREFIX/tap")
echo "$run run, $skipped skipped, $reasons with a reason"
least=13
[[ ! -e $SITE/bin/mso ]] || least=15  # and two nodes, four ranks trained
[[ $run -ge $least && $skipped = "$reasons" ]] || fail "$run run; $skipped skipped, $reasons with a reason"
# The administrator's epilog ran, and nothing is left of what the user did.
! ls -d /tmp/mso-tester/mso-slurm-* 2>/dev/null || fail "folders are left"
unset MSO_TEST_CLUSTER
expect_clean
SCRIPT
  rm -rf "$CHECKOUT"
}
