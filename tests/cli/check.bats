#!/usr/bin/env bats
# mso check. MSO: path of the program; MSO_SRCDIR: the sources.

setup() {
  MSO=${MSO:-mso}
  ETC=${MSO_SRCDIR:-$BATS_TEST_DIRNAME/../..}/etc
  cd "$BATS_TEST_TMPDIR" || return 1
  unset MSO_SNAPSHOT_DIR MSO_LOG_LEVEL SLURM_CONF
}

@test "without a question it says what can be asked" {
  run "$MSO" check
  [ "$status" -eq 2 ]
  [[ $output == *"mso check --node"* ]]
}

@test "--node: a table with a hint for what is missing, exit code 1 where something fails" {
  echo "ClusterName=x" > slurm.conf
  run "$MSO" check --node --slurm-conf "$PWD/slurm.conf"
  [ "$status" -eq 1 ]
  [[ $output == *"fail  plugstack line"*"none for spank_mso.so in $PWD/plugstack.conf"* ]]
  [[ $output == *"optional /path/to/spank_mso.so"* ]]
  for word in CPUs "NUMA node" GPUs NVMe memory /dev/shm cgroups io_uring; do
    [[ $output == *"$word"* ]] || { echo "missing: $word"; return 1; }
  done
}

@test "--node: the plugstack line is found through includes; a plugin that is none is refused" {
  mkdir plugstack.conf.d
  echo "PlugStackConfig=$PWD/plugstack.conf" > slurm.conf
  echo "include $PWD/plugstack.conf.d/*.conf" > plugstack.conf
  echo "optional $PWD/spank_mso.so snapshot_cap=4G" > plugstack.conf.d/mso.conf
  run "$MSO" check --node --slurm-conf "$PWD/slurm.conf"
  [[ $output == *"ok    plugstack line"*"mso.conf:1: optional snapshot_cap=4G"* ]]
  [[ $output == *"fail  plugin file"*"No such file"* ]]
  echo text > spank_mso.so
  run "$MSO" check --node --slurm-conf "$PWD/slurm.conf"
  [ "$status" -eq 1 ]
  [[ $output == *"fail  plugin file"* ]]
}

@test "--json has the same lines and the exit code" {
  run "$MSO" check --node --json --slurm-conf /nothing/slurm.conf
  [ "$status" -eq 1 ]
  python3 -c 'import json, sys; d = json.loads(sys.argv[1]); assert d["exit_code"] == 1; assert any(c["state"] == "fail" for c in d["checks"]); assert all(c["name"] and c["found"] for c in d["checks"])' "$output"
}

@test "--node: hardware against its needs, warned of or, with --prod, failing; limits can be set" {
  echo "ClusterName=x" > slurm.conf
  run "$MSO" check --node --slurm-conf "$PWD/slurm.conf" --need pcie-lanes:100000,memory-channels:100000,l3:8T,infiniband:100000,tmpfs:0
  [[ $output == *"warn  PCIe lanes"*"(wanted: 100000)"* ]]
  [[ $output == *"warn  InfiniBand"*"(wanted: 100000 Gb/s on a port)"* ]]
  [[ $output == *"warn  memory channels"* && $output == *"warn  L3 cache"* && $output != *"  RAM disk  "* ]]
  run "$MSO" check --node --json --prod --slurm-conf "$PWD/slurm.conf" --need pcie-lanes:100000
  [ "$status" -eq 1 ]
  python3 -c 'import json, sys; d = {c["name"]: c for c in json.loads(sys.argv[1])["checks"]}; assert d["PCIe lanes"]["state"] == "fail" and d["PCIe lanes"]["limit"] == "100000" and d["PCIe lanes"]["hint"]' "$output"
  run "$MSO" check --node --slurm-conf "$PWD/slurm.conf" --need pcie-lanes:off,memory-channels:off,l3:off,nvlink:off,infiniband:off
  [[ $output != *"PCIe lanes"* && $output != *InfiniBand* && $output != *"L3 cache"* ]]
  run "$MSO" check --node --need pcie-lane:3
  [ "$status" -eq 2 ]
  [[ $output == *"did you mean pcie-lanes?"* ]]
}

@test "-c: what train refuses about the model is refused here by the same check" {
  run "$MSO" check -c "$ETC/demo.yaml" data.template='no picture'
  [ "$status" -eq 2 ]
  run "$MSO" check -c "$ETC/demo.yaml" model.text.vocab_size=200 model.image_token_index=199
  [ "$status" -eq 2 ]
  [[ $output == *"more tokens than the model's vocabulary"* ]]
}

@test "-c: whether a configuration fits this node" {
  run "$MSO" check -c "$ETC/demo.yaml" ero.cpu_reserve_cores='[1, 4096]'
  [ "$status" -eq 0 ]
  [[ $output == *"warn  ero.cpu_reserve_cores"*"image:1,video:4096 asked"* ]]
  [[ $output == *"ok    memory"* ]]
  run "$MSO" check -c "$ETC/demo.yaml" -n 4096 train.global_batch_samples=16777216 model.vision.hidden_size=65536
  [ "$status" -ne 0 ]
  run "$MSO" check -c nowhere.yaml
  [ "$status" -eq 2 ]
}
