#!/usr/bin/env bats
# mso report on made-up runs (make_run.py), each page read by check_report.py. MSO: the program.

setup() {
  MSO=${MSO:-mso}
  here=$BATS_TEST_DIRNAME
  run_dir=$BATS_TEST_TMPDIR/run
  command -v python3 >/dev/null || skip "no python3"
}

make_report() {
  python3 "$here/make_run.py" "$1" "$run_dir"
  run "$MSO" report "$run_dir"
  echo "$output"
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "$run_dir/report.html" ]
  python3 "$here/check_report.py" "$run_dir"
}

@test "a run with one kill: page, sentence, repeated steps equal" {
  make_report demo
  [[ "${lines[1]}" == "finished: 300 of 300 steps in "*"1 recovery"* ]]
  grep -q "repeated steps equal their first run" "$run_dir/report.html"
  grep -q "rank 1 (node b) did not answer within 60 s" "$run_dir/report.html"
  grep -q "&lt;svg onload=alert(1)&gt;" "$run_dir/report.html"
  grep -q "level0_interval_ms" "$run_dir/report.html"
}

@test "killed 25 times" {
  make_report kills
  [[ "${lines[1]}" == *"25 recoveries"* ]]
}

@test "three days with hours between attempts" {
  make_report week
  grep -q "nothing ran for 9:00:" "$run_dir/report.html"
  grep -q "21 × No space left on device" "$run_dir/report.html"
}

@test "losses that are not numbers; markup in texts" {
  make_report nan
  [[ "${lines[1]}" == "failed: 150 of 200 steps"* ]]
  grep -q "not a finite number in 4 steps (step 60, 61, 62, 150)" "$run_dir/report.html"
}

@test "a repeated step that differs is said loudly; a torn last line is no trouble" {
  make_report differ
  [[ "${lines[1]}" == *"repeated steps differ"* ]]
  grep -q "do not equal their first run" "$run_dir/report.html"
  grep -q "last line is not complete" "$run_dir/report.html"
}

@test "next to nothing: empty file, only the start, one step, lines without fields" {
  for kind in empty start one fields; do
    rm -rf "$run_dir"
    make_report "$kind"
  done
}

@test "running, by the time of the last line" {
  python3 "$here/make_run.py" start "$run_dir"
  echo "{\"type\":\"step\",\"time\":$(date +%s),\"step\":1,\"attempt\":1,\"loss\":2,\"step_s\":1,\"tokens\":5}" >>"$run_dir/metrics.jsonl"
  run "$MSO" report "$run_dir"
  [[ "${lines[1]}" == "running: 1 of 10 steps"* ]]
}

@test "where it is written: -o FILE, -o -, the folder or its metrics.jsonl" {
  python3 "$here/make_run.py" one "$run_dir"
  "$MSO" report "$run_dir/metrics.jsonl" -o "$BATS_TEST_TMPDIR/there.html"
  [ -s "$BATS_TEST_TMPDIR/there.html" ]
  [ ! -e "$run_dir/report.html" ]
  "$MSO" report "$run_dir" -o - | grep -q "</html>"
}

@test "no run there: says so, exit 2; unwritable output: exit 1" {
  run "$MSO" report "$BATS_TEST_TMPDIR/nothing"
  [ "$status" -eq 2 ]
  [[ "$output" == *"no metrics.jsonl"*"nothing"* ]]
  python3 "$here/make_run.py" one "$run_dir"
  run "$MSO" report "$run_dir" -o /proc/no/report.html
  [ "$status" -eq 1 ]
  [[ "$output" == *"/proc/no/report.html"* ]]
}

@test "the page is made the same each time, but for the clock" {
  python3 "$here/make_run.py" demo "$run_dir"
  "$MSO" report "$run_dir" -o - | sed 's/ at [0-9: -]* UTC from//' >"$BATS_TEST_TMPDIR/a"
  "$MSO" report "$run_dir" -o - | sed 's/ at [0-9: -]* UTC from//' >"$BATS_TEST_TMPDIR/b"
  cmp "$BATS_TEST_TMPDIR/a" "$BATS_TEST_TMPDIR/b"
}

@test "nothing but a report is overwritten" {
  python3 "$here/make_run.py" one "$run_dir"
  echo precious >"$BATS_TEST_TMPDIR/thesis.html"
  run "$MSO" report "$run_dir" -o "$BATS_TEST_TMPDIR/thesis.html"
  [ "$status" -eq 2 ]
  [[ "$output" == *thesis.html* ]]
  [ "$(cat "$BATS_TEST_TMPDIR/thesis.html")" = precious ]
  run "$MSO" report "$run_dir" -o "$run_dir"
  [ "$status" -eq 2 ]
  run "$MSO" report "$run_dir" -o "$run_dir/metrics.jsonl"
  [ "$status" -eq 2 ]
  "$MSO" report "$run_dir" -o "$BATS_TEST_TMPDIR/own.html"
  "$MSO" report "$run_dir" -o "$BATS_TEST_TMPDIR/own.html"
  # A diary beside the run's own does not take the run's page.
  "$MSO" report "$run_dir"
  cp "$run_dir/report.html" "$BATS_TEST_TMPDIR/before"
  sed 's/"loss":[^,]*/"loss":7/' "$run_dir/metrics.jsonl" >"$run_dir/older.jsonl"
  run "$MSO" report "$run_dir/older.jsonl"
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "$run_dir/older.html" ]
  cmp "$run_dir/report.html" "$BATS_TEST_TMPDIR/before"
}

@test "damaged lines in the middle are named" {
  python3 "$here/make_run.py" demo "$run_dir"
  sed -i '5s/^.......//; 9s/$/{/' "$run_dir/metrics.jsonl"
  run "$MSO" report "$run_dir"
  [ "$status" -eq 0 ]
  [[ "$output" == *"lines 5 and 9 cannot be read"* ]]
  grep -q "lines 5 and 9" "$run_dir/report.html"
}
