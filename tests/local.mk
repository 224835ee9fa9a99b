# Command line tests (bats; env MSO is the program) and the fuzz target of the configuration with its seeds.
EXTRA_DIST += tests/cli/check.bats tests/cli/config.bats tests/cli/plan.bats \
  tests/fuzz/fuzz_config.cc tests/fuzz/corpus/config/demo.yaml tests/fuzz/corpus/config/llava_stage1.yaml \
  tests/fuzz/corpus/config/key_not_utf8 tests/fuzz/corpus/config/mistakes tests/fuzz/corpus/config/overrides tests/fuzz/corpus/config/recursive \
  tests/fuzz/corpus/config/sample tests/fuzz/corpus/config/stray_brackets
# Tests on real ranks, and what runs the tiers.
EXTRA_DIST += tests/fuzz/run tests/quickstart.test tests/thread-sanitizer.supp tests/reference/requirements.txt tests/reference/trained_export_reference.py \
  tests/mpi/bad_data.test tests/mpi/conversations.test tests/mpi/damage.test tests/mpi/drift.test tests/mpi/kill_moments.test tests/mpi/kill_points.test tests/mpi/mixed.test \
  tests/mpi/ranks.test tests/mpi/reshard.test tests/mpi/run_folder.test tests/mpi/signals.test tests/mpi/slow_storage.test tests/mpi/storage.test tests/mpi/variants.test \
  tests/mpi/mixed.yaml tests/mpi/tiny.yaml tests/mpi/training.py
# In a virtual machine: what this kernel may lack.
EXTRA_DIST += tests/vm/vmrun tests/vm/vmrun-build tests/vm/vmrun-init tests/vm/common.bash tests/vm/nvme.bats tests/vm/cgroup2.bats tests/vm/slurm.bats \
  tests/vm/guest/drives.sh tests/vm/guest/fabrics.sh tests/vm/guest/node_tests.sh tests/vm/guest/nvme_source.sh tests/vm/guest/nvmet.bash tests/vm/guest/rdma.sh tests/vm/guest/slurm.sh
# The plugin on real Slurm clusters, and the fuzz target of what it is handed.
EXTRA_DIST += tests/fuzz/fuzz_job_request.cc tests/fuzz/corpus/job_request/arguments tests/fuzz/corpus/job_request/compact \
  tests/fuzz/corpus/job_request/environment tests/fuzz/corpus/job_request/hosts tests/fuzz/corpus/job_request/options \
  tests/fuzz/corpus/job_request/profile tests/fuzz/corpus/job_request/state
EXTRA_DIST += tests/slurm/pod tests/slurm/cluster tests/slurm/asuser tests/slurm/common.bash tests/slurm/inside.bash \
  tests/slurm/failing_plugin.cc tests/slurm/end_of_job.bats tests/slurm/failing.bats tests/slurm/hostile.bats tests/slurm/options.bats \
  tests/slurm/plugin_abi.bats tests/slurm/resources.bats tests/slurm/snapshot.bats tests/slurm/train.bats \
  tests/slurm/mso_run.bats tests/slurm/same_curve.py tests/slurm/configless.bats tests/slurm/existing_cluster.bats tests/slurm/upgrade.bats
