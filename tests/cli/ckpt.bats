#!/usr/bin/env bats
# mso ckpt. MSO: path of the program; MSO_BUILD: the build folder, whose ckpt_tests writes the run that is looked at.

setup() {
  MSO=${MSO:-mso}
  cd "$BATS_TEST_TMPDIR" || return 1
  unset MSO_SNAPSHOT_DIR MSO_LOG_LEVEL
  MSO_WRITE_SNAPSHOTS=$PWD "${MSO_BUILD:-$BATS_TEST_DIRNAME/../../build}/ckpt_tests" --gtest_filter=Reference.WriteRun >/dev/null
  state=run/checkpoints/L2/step-000000006
}

flip() { # FILE OFFSET
  printf "\\x$(printf '%02x' $((0x$(xxd -p -s "$2" -l 1 "$1") ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "ls shows every level, whole and with partner copies" {
  run "$MSO" ckpt ls run --level0-path ram
  [ "$status" -eq 0 ]
  [[ $output =~ L0\ +[0-9]+\ +1\ +3/3\ +3\ .*whole ]]
  [[ $output =~ L1\ +[0-9]+\ +1\ +3/3 ]]
  [[ $output =~ L2\ +6\ +1\ +3/3 ]]
  "$MSO" ckpt ls run --level0-path ram --verify --json > ls.json
  python3 -c 'import json; s = json.load(open("ls.json"))["states"]; assert len(s) >= 4 and all(x["whole"] and not x["problems"] for x in s), s'
}

@test "ls names what is not a snapshot, and takes the RAM disk from the run's configuration" {
  cp -r $state run/checkpoints/L2/step-100.backup
  printf 'ecm:\n  level0_path: %s/ram\n' "$PWD" > run/config.yaml
  run "$MSO" ckpt ls run
  [ "$status" -eq 0 ]
  [[ $output == *"not a snapshot of this run"*step-100.backup* ]]
  [[ $output =~ L0\ +[0-9] ]]
}

@test "a folder that is no run is refused" {
  run "$MSO" ckpt ls .
  [ "$status" -eq 2 ]
  [[ $output == *run_id* ]]
  run "$MSO" ckpt show nowhere
  [ "$status" -eq 2 ]
  run "$MSO" ckpt
  [ "$status" -ne 0 ]
}

@test "show lists tensors and records, and prints one" {
  run "$MSO" ckpt show $state
  [ "$status" -eq 0 ]
  [[ $output == *"step 6, L2"*"layer.weight"*"[64, 129]"*"21 tensors"* ]]
  run "$MSO" ckpt show run@6 --level0-path ram --record cursor
  [ "$output" = '{"position": 600}' ]
  run "$MSO" ckpt show $state --record nothing
  [ "$status" -eq 2 ]
}

@test "verify finds one flipped bit anywhere, exit 4" {
  run "$MSO" ckpt verify run --level0-path ram
  [ "$status" -eq 0 ]
  [[ $output != *DAMAGED* ]]
  size=$(stat -c %s $state/rank-0001-of-0003.h5)
  for offset in 3 4090 5000 $((size / 2)) $((size - 1)); do
    cp $state/rank-0001-of-0003.h5 good
    flip $state/rank-0001-of-0003.h5 "$offset"
    run "$MSO" ckpt verify $state
    [ "$status" -eq 4 ] || { echo "byte $offset"; return 1; }
    [[ $output == *"DAMAGED  $state/rank-0001-of-0003.h5"* ]]
    run "$MSO" ckpt verify run --level0-path ram
    [ "$status" -eq 4 ]
    cp good $state/rank-0001-of-0003.h5
  done
  flip $state/manifest.json 40
  run "$MSO" ckpt verify run --level0-path ram
  [ "$status" -eq 4 ]
  rm $state/manifest.json
  run "$MSO" ckpt verify run --level0-path ram
  [ "$status" -eq 4 ]
}

@test "diff: equal to itself and across levels, different across steps" {
  run "$MSO" ckpt diff $state $state
  [ "$status" -eq 0 ]
  [[ $output == *"21 tensors equal, 0 differ"* ]]
  run "$MSO" ckpt diff $state run@6 --level0-path ram
  [ "$status" -eq 0 ]
  older=$(ls -d run/checkpoints/L1/step-* | head -1)
  run "$MSO" ckpt diff $state "$older"
  if [ "$older" != run/checkpoints/L1/step-000000006 ]; then
    [ "$status" -eq 1 ]
    [[ $output == *"max |difference|"* ]]
  fi
}

@test "deltas: a row each, show prints the gradient, diff names the full state" {
  run "$MSO" ckpt ls run --level0-path ram
  [[ $output =~ L0\ +6\ +1\ +3/3\ +3\ .*whole,\ base\+1 ]]
  [[ $output =~ L0\ +5\ +1\ +3/3\ +3\ [^+]*whole$'\n' ]]
  [[ $output =~ L0\ +4\ +1\ +3/3\ +3\ .*whole,\ base\+3 ]]
  run "$MSO" ckpt verify run --level0-path ram
  [ "$status" -eq 0 ]
  [[ $output == *delta-3.h5* ]]
  rm -r run/checkpoints/L1 run/checkpoints/L2
  run "$MSO" ckpt show run@6 --level0-path ram
  [ "$status" -eq 0 ]
  [[ $output == *"base+1"*"step 5"*"buffer gradient.6"*"layer.weight"* ]]
  run "$MSO" ckpt diff run@6 run@5 --level0-path ram
  [ "$status" -eq 2 ]
  [[ $output == *"@5"* ]]
  run "$MSO" ckpt diff run run@5 --level0-path ram
  [ "$status" -eq 0 ]
  flip ram/mso-*/*/rank-0000/own/step-000000002-attempt-0001-delta-1.h5 5000
  rm ram/mso-*/*/rank-000?/partner/step-000000002-attempt-0001-delta-1.h5
  run "$MSO" ckpt ls run --level0-path ram --verify
  [ "$status" -eq 4 ]
  [[ $output =~ L0\ +2\ .*DAMAGED,\ base\+1 ]]
  [[ $output =~ L0\ +3\ .*not\ reached,\ base\+2 ]]
  run "$MSO" ckpt verify run --level0-path ram
  [ "$status" -eq 4 ]
}

@test "kill-points names every moment once" {
  "$MSO" ckpt kill-points > points
  [ "$(wc -l < points)" -gt 40 ]
  [ -z "$(sort points | uniq -d)" ]
  [ "$(wc -w < points)" -eq "$(wc -l < points)" ]
}

@test "ls --verify: all states, exit 4 where one is damaged; without it the bulk is not read" {
  "$MSO" ckpt ls run --level0-path ram --verify > whole
  size=$(stat -c %s $state/rank-0001-of-0003.h5)
  flip $state/rank-0001-of-0003.h5 $((size - 1))
  run "$MSO" ckpt ls run --level0-path ram --verify
  [ "$status" -eq 4 ]
  [[ $output == *"damaged: "*"rank-0001-of-0003.h5"* ]]
  [ "$(grep -c '^L[012]' <<<"$output")" -eq "$(grep -c '^L[012]' whole)" ]
  run "$MSO" ckpt ls run --level0-path ram --verify --json
  [ "$status" -eq 4 ]
  run "$MSO" ckpt ls run --level0-path ram
  [ "$status" -eq 0 ]
}

@test "a copied run folder does not show its original's Level 0" {
  cp -r run copy
  run "$MSO" ckpt ls copy --level0-path ram
  [ "$status" -eq 0 ]
  [[ ! $output =~ L0\ +[0-9] ]]
  [[ $output =~ L2\ +6\ +1\ +3/3 ]]
  mv run moved
  run "$MSO" ckpt ls moved --level0-path ram
  [[ $output =~ L0\ +[0-9] ]]
}

@test "every subcommand's --help ends with an example" {
  for sub in ls show verify diff kill-points; do
    run "$MSO" ckpt $sub --help
    [ "$status" -eq 0 ]
    [[ $output == *"Example:"*"mso ckpt $sub"* ]]
  done
}
