#!/usr/bin/env bats
# mso run: restarts, limits, exit codes and signals, with a small program as the rank.
# MSO_BUILD: build folder (default: the current one).

setup() {
  build=${MSO_BUILD:-$PWD}
  work=$BATS_TEST_TMPDIR
  fake=$BATS_TEST_DIRNAME/fake_rank.sh
  [ -x "$build/mso" ] || skip "no mso in $build"
  [ -n "$MPIEXEC" ] || command -v mpirun >/dev/null || skip "no mpirun"
}

script() { printf '%s\n' "$@" >"$work/script"; }
# N, options… : runs the fake program on N ranks.
mso_run() {
  n=$1
  shift
  run timeout 60 "$build/mso" run -n "$n" --run-dir "$work" --program "$fake" "$@" -- "$work"
}
attempts() { ls -d "$work"/rank-0.* | wc -l; }
# Nothing of the job is left: the fake program names its work folder.
nothing_left() { ! pgrep -f "fake_rank.sh $work" >/dev/null; }
wait_for() { for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.05; done; return 1; }

@test "a job that finishes is run once, and nothing is printed" {
  script ''
  mso_run 2
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 1 ]
  [[ "$output" != *restart* ]]
}

@test "one rank without mpirun" {
  script '1 0 kill 9'
  mso_run 1
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  ! grep -q OMPI_COMM_WORLD_SIZE "$work/rank-0.1/env"
}

@test "a rank killed by SIGKILL: the other is ended, all start again, the table says so" {
  script '1 0 step 17' '1 1 sleep 0.3' '1 1 kill 9' '1 0 sleep 50' '2 0 step 18'
  mso_run 2
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  [[ "$output" == *"rank 1 (pid $(cat "$work/rank-1.1/pid")): killed by signal 9 (Killed) after step 17: starting again"* ]]
  [[ "$output" == *"1 restart; finished, exit code 0"* ]]
  nothing_left
}

@test "all ranks killed, several times, with progress: more restarts than the limit" {
  script '1 0 next-step' '2 0 next-step' '3 0 next-step' '4 0 next-step' '1 0 kill 9' '2 0 kill 9' '3 0 kill 11' '4 0 kill 6' \
    '1 1 sleep 50' '2 1 sleep 50' '3 1 sleep 50' '4 1 sleep 50'
  mso_run 2 --max-restarts 1
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 5 ]
}

@test "an exit code that is a failure restarts" {
  script '1 1 sleep 0.5' '1 1 exit 5' '1 0 sleep 50'
  mso_run 2
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  [[ "$output" == *"exit code 5"* ]]
}

@test "0, 2, 4 and 75 are final, whichever rank says so and whatever becomes of the others" {
  for code in 2 4 75; do
    rm -rf "$work"/rank-*
    script '* 1 sleep 0.5' "* 1 exit $code" '* 0 sleep 50'
    mso_run 2
    [ "$status" -eq "$code" ]
    [ "$(attempts)" -eq 1 ]
  done
  nothing_left
}

@test "no progress: gives up at the limit with the rank's code" {
  script '* 1 sleep 0.5' '* 1 kill 11' '* 0 sleep 50'
  mso_run 2 --max-restarts 2
  [ "$status" -eq 139 ]
  [ "$(attempts)" -eq 3 ]
  [[ "$output" == *"no step was finished in 3 attempts in a row"* ]]
}

@test "a rank that fails after another one has finished" {
  script '1 1 sleep 0.3' '1 1 exit 1'
  mso_run 2
  [ "$status" -eq 0 ]
  [ -d "$work/rank-1.2" ]
}

@test "mso-rank itself killed: its rank does not live on" {
  script '1 1 sleep 0.5' '1 1 kill-parent' '1 0 sleep 50'
  mso_run 2
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  nothing_left
}

@test "an injected fault is given to the first attempt only" {
  script '1 0 kill 9'
  MSO_KILL_AT=somewhere mso_run 2
  [ "$status" -eq 0 ]
  grep -q MSO_KILL_AT=somewhere "$work/rank-0.1/env"
  ! grep -q MSO_KILL_AT "$work/rank-0.2/env"
}

@test "SIGTERM, SIGINT and SIGUSR1 take a snapshot on every rank, and are not restarted" {
  for signal in TERM INT USR1; do
    rm -rf "$work"/rank-* "$work"/ready-* "$work/snapshots"
    script '* * snapshot'
    "$build/mso" run -n 2 --run-dir "$work" --program "$fake" -- "$work" 3>&- &
    job=$!
    wait_for "$work/ready-0"
    wait_for "$work/ready-1"
    kill -$signal $job
    code=0
    wait $job || code=$?
    [ "$code" -eq 75 ]
    [ "$(attempts)" -eq 1 ]
    grep -q snapshot "$work/snapshots"
    nothing_left
  done
}

@test "ranks that do not listen are ended: by the second signal, and by the timeout" {
  script '* * deaf'
  "$build/mso" run -n 2 --run-dir "$work" --program "$fake" -- "$work" 3>&- &
  job=$!
  wait_for "$work/ready-0"
  wait_for "$work/ready-1"
  kill -TERM $job
  sleep 0.3
  kill -0 $job
  kill -TERM $job
  code=0
  wait $job || code=$?
  [ "$code" -eq 143 ]
  nothing_left

  rm -rf "$work"/ready-*
  "$build/mso" run -n 2 --stop-timeout 0.5 --run-dir "$work" --program "$fake" -- "$work" 3>&- &
  job=$!
  wait_for "$work/ready-0"
  wait_for "$work/ready-1"
  kill -TERM $job
  code=0
  wait $job || code=$?
  [ "$code" -ne 0 ]
  nothing_left
}

@test "the supervisor killed by SIGKILL takes the job with it" {
  script '* * deaf'
  "$build/mso" run -n 2 --run-dir "$work" --program "$fake" -- "$work" 3>&- &
  job=$!
  wait_for "$work/ready-0"
  wait_for "$work/ready-1"
  kill -9 $job
  wait $job || true
  for _ in $(seq 100); do pgrep -f "fake_rank.sh $work" >/dev/null || break; sleep 0.05; done
  ! pgrep -f "fake_rank.sh $work"
  # What it could not remove, the next one does.
  ls -d /tmp/mso-run-$job-*
  script ''
  mso_run 1
  ! ls -d /tmp/mso-run-$job-* /dev/shm/mso-run-$job-*
}

@test "standby: after a finished step the ranks of a restart are there, and take over" {
  script '1 0 step 17' '1 0 sleep 50' '1 1 wait-standby' '1 1 keep-standby' '1 1 kill 9' '2 0 step 18'
  mso_run 2 --standby
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  [ "$(cat "$work/rank-1.2/pid")" -eq "$(cat "$work/standing-by-1.first")" ]
  [[ "$output" == *"stood by"* ]]
  nothing_left
}

@test "standby: several restarts in a row, each by ranks that stood by" {
  script '1 0 step 1' '1 0 sleep 50' '1 1 wait-standby' '1 1 forget-standby' '1 1 kill 9' \
    '2 0 step 2' '2 0 sleep 50' '2 1 wait-standby' '2 1 forget-standby' '2 1 kill 11' \
    '3 0 step 3' '3 1 wait-standby' '3 1 exit 7'
  mso_run 2 --standby
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 4 ]
  [ "$(grep -c 'stood by' <<<"$output")" -eq 3 ]
  nothing_left
}

@test "standby: none before a step is finished, and what is left of one that died is of no harm" {
  script '1 1 sleep 1' '1 1 kill 9' '1 0 sleep 50'
  mso_run 2 --standby
  [ "$status" -eq 0 ]
  [ ! -e "$work/standing-by-0" ]
  rm -rf "$work"/rank-* "$work"/metrics.jsonl

  script '1 0 step 17' '1 0 sleep 50' '1 1 wait-standby' '1 1 kill-standby 1' '1 1 kill 9'
  mso_run 2 --standby
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 2 ]
  [[ "$output" != *"stood by"* ]]
  nothing_left
}

@test "standby: a job's end, and the supervisor's, is its end" {
  script '* 0 step 17' '* * wait-standby'
  mso_run 2 --standby
  [ "$status" -eq 0 ]
  [ "$(attempts)" -eq 1 ]
  nothing_left
  ls -d /tmp/mso-run-*-* 2>/dev/null | while read -r folder; do pid=${folder#/tmp/mso-run-}; [ -d "/proc/${pid%-*}" ]; done

  rm -rf "$work"/rank-* "$work"/standing-by-* "$work"/metrics.jsonl
  script '* 0 step 17' '* * deaf'
  "$build/mso" run -n 2 --standby --run-dir "$work" --program "$fake" -- "$work" 3>&- &
  job=$!
  wait_for "$work/standing-by-0"
  wait_for "$work/standing-by-1"
  kill -9 $job
  wait $job || true
  for _ in $(seq 100); do pgrep -f "fake_rank.sh $work" >/dev/null || break; sleep 0.05; done
  nothing_left
}

@test "nothing is tried again where nothing can start" {
  MPIEXEC=/nonexistent/mpirun mso_run 2
  [ "$status" -ne 0 ]
  [[ "$output" == *"/nonexistent/mpirun"* ]]
  fake=/nonexistent/program
  script ''
  mso_run 2
  [ "$status" -eq 2 ]
  [ ! -d "$work/rank-0.2" ]
}

@test "bad usage: no command, another command, a wrong configuration, before anything starts" {
  run "$build/mso" run -n 2
  [ "$status" -eq 2 ]
  run "$build/mso" run -n 2 -- plan
  [ "$status" -eq 2 ]
  [[ "$output" == *"mso run starts mso train"* ]]
  echo 'trian: {}' >"$work/bad.yaml"
  run "$build/mso" run -n 2 -- train -c "$work/bad.yaml"
  [ "$status" -eq 2 ]
  [[ "$output" == *"trian"* ]]
}
