#!/usr/bin/env bats
# mso config and the program's frame. MSO: path of the program.
bats_require_minimum_version 1.5.0

setup() {
  MSO=${MSO:-mso}
  cd "$BATS_TEST_TMPDIR" || return 1
  unset MSO_LOG_LEVEL
}

@test "--help lists commands, examples and exit codes" {
  run "$MSO" --help
  [ "$status" -eq 0 ]
  for word in train plan config data ckpt "Exit codes" "Examples"; do [[ $output == *"$word"* ]]; done
}

@test "every command has --help with examples" {
  for command in plan config; do
    run "$MSO" "$command" --help
    [ "$status" -eq 0 ]
    [[ $output == *"Examples:"* ]]
  done
}

@test "--version tells what is built in" {
  run "$MSO" --version
  [ "$status" -eq 0 ]
  [[ $output == *"built with"* && $output == *"data pipeline"* ]]
}

@test "unknown commands and options exit 2 and suggest" {
  run "$MSO" pln
  [ "$status" -eq 2 ]
  [[ $output == *'unknown command "pln"'* && $output == *"mso plan?"* ]]
  run "$MSO"
  [ "$status" -eq 2 ]
  run "$MSO" config --bogus
  [ "$status" -eq 2 ]
  [[ $output == *"--bogus"* && $output == *"mso config --help"* ]]
  run "$MSO" --log-level loud config
  [ "$status" -eq 2 ]
}

@test "all mistakes at once, exit 2, nothing on standard output" {
  printf 'train:\n  stesp: 3\n  precision: routed\nero:\n  nvme_reserve_channels: 9\n' > bad.yaml
  run --separate-stderr "$MSO" config -c bad.yaml train.seed=x
  [ "$status" -eq 2 ]
  [ -z "$output" ]
  "$MSO" config -c bad.yaml train.seed=x 2> messages || true
  grep -q 'bad.yaml:2: train.stesp: unknown key, did you mean train.steps?' messages
  grep -q 'bad.yaml:3: train.precision: routed is not available yet' messages
  grep -q 'bad.yaml:5: ero.nvme_reserve_channels: 9 is not available yet' messages
  grep -q 'command line: train.seed: "x"' messages
  grep -q '4 mistakes' messages
}

@test "a missing file is refused" {
  run "$MSO" config -c nowhere.yaml
  [ "$status" -eq 2 ]
  [[ $output == *nowhere.yaml* ]]
}

@test "the default file is found, the old spelling with a note" {
  echo 'train: {seed: 17}' > megscale_config.yaml
  run "$MSO" config
  [ "$status" -eq 0 ]
  [[ $output == *"spelled megascale_config.yaml"* ]]
  echo "$output" | grep -q 'train.seed .*17 .*megscale_config.yaml:1'
  echo 'train: {seed: 18}' > megascale_config.yaml
  "$MSO" config 2>/dev/null | grep -q 'train.seed .*18 .*megascale_config.yaml:1'
}

@test "overrides win and are shown as such" {
  echo 'train: {seed: 1}' > a.yaml
  "$MSO" config -c a.yaml train.seed=2 "data.template={caption}: <image>" 2>/dev/null > out
  grep -q 'train.seed .*2 .*command line' out
  grep -q '{caption}: <image>' out
  grep -q 'hpgc.grad_clip_ratio .*(not in force)' out
}

@test "--yaml and --json read back as the same values" {
  "$MSO" config --yaml train.learning_rate=2e-5 train.min_learning_rate=1e-9 'data.path=[a, "b c"]' 2>/dev/null > one.yaml
  "$MSO" config -c one.yaml --yaml > two.yaml
  cmp one.yaml two.yaml
  "$MSO" config -c one.yaml --json > one.json
  "$MSO" config -c one.json --yaml > three.yaml
  cmp one.yaml three.yaml
}

@test "--sample is a file of defaults" {
  "$MSO" config --sample > megascale_config.yaml
  "$MSO" config --yaml > with
  rm megascale_config.yaml
  "$MSO" config --yaml 2>/dev/null > without
  cmp with without
}

@test "--keys and --man list every key" {
  "$MSO" config --keys > keys
  "$MSO" config --man > man
  for key in ero.cpu_reserve_cores ecm.snapshot_levels.level0_interval_ms train.learning_rate parallel.timeout_s; do
    grep -qF "$key" keys
    grep -qF "$key" man
  done
}
