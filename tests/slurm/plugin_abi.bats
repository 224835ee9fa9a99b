#!/usr/bin/env bats
# What the plugin shows to Slurm and what it needs.
load common.bash

setup() { [[ -e $PLUGIN ]] || skip "the plugin is not built in $MSO_BUILD (configure --with-slurm)"; }

@test "exactly the hooks and Slurm's four symbols are exported" {
  wanted="plugin_name plugin_type plugin_version slurm_spank_exit slurm_spank_init slurm_spank_init_post_opt slurm_spank_job_epilog \
slurm_spank_job_prolog slurm_spank_local_user_init slurm_spank_slurmd_exit slurm_spank_task_exit slurm_spank_task_init \
slurm_spank_task_init_privileged slurm_spank_task_post_fork slurm_spank_user_init spank_plugin_version"
  [[ $(nm -D --defined-only "$PLUGIN" | awk '{print $3}' | LC_ALL=C sort | xargs) = "$wanted" ]]
}

@test "the libraries it needs are these, and what it takes from Slurm is the plugin interface" {
  readelf -d "$PLUGIN" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' >"$BATS_TEST_TMPDIR/needed"
  while read -r library; do
    case $library in
      libstdc++.so.6 | libm.so.6 | libc.so.6 | libgcc_s.so.1 | ld-linux-*) ;;
      *) echo "needs $library"; false ;;
    esac
  done <"$BATS_TEST_TMPDIR/needed"
  ! readelf -d "$PLUGIN" | grep -E 'RPATH|RUNPATH' || false
  nm -D --undefined-only "$PLUGIN" | awk '{print $2}' | grep -E '^(slurm|spank)' | LC_ALL=C sort >"$BATS_TEST_TMPDIR/slurm"
  diff "$BATS_TEST_TMPDIR/slurm" - <<'END'
slurm_debug
slurm_error
slurm_info
spank_context
spank_get_item
spank_getenv
spank_job_control_setenv
spank_option_register
spank_setenv
spank_unsetenv
END
  # Nothing is left for a library that is not there, and no threads are made.
  ! nm -D --undefined-only "$PLUGIN" | grep -E ' (_ZN3mso|pthread_create|yaml|MPI_)' || false
}

@test "every exported hook is declared by spank.h, and loads in under 5 ms" {
  command -v python3 >/dev/null || skip "no python3"
  # Lazily, as Slurm loads plugins; the best of ten, since other work on the machine counts too.
  python3 - "$PLUGIN" <<'END'
import os, sys, time, subprocess
code = "import ctypes,os,sys,time; ctypes.CDLL('libstdc++.so.6'); t=time.perf_counter(); ctypes.CDLL(sys.argv[1], os.RTLD_LAZY); print((time.perf_counter()-t)*1e3)"
best = min(float(subprocess.run([sys.executable, "-c", code, sys.argv[1]], capture_output=True, text=True, check=True).stdout) for _ in range(10))
print(f"{best:.2f} ms")
sys.exit(best >= 5)
END
}
