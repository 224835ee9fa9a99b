#!/bin/sh
# A rank for the tests of mso run: does what WORK/script says for this attempt and rank, else finishes.
# fake_rank.sh WORK; WORK/script has lines "ATTEMPT RANK ACTION [ARGUMENT]" (* matches any).
work=$1
rank=${OMPI_COMM_WORLD_RANK:-0}
if [ -n "$MSO_STANDBY" ]; then  # as mso train does, before anything else
  echo $$ >"$work/standing-by-$rank"
  : <"$MSO_STANDBY" || exit 1
fi
attempt=1
while ! mkdir "$work/rank-$rank.$attempt" 2>/dev/null; do attempt=$((attempt + 1)); done
echo $$ >"$work/rank-$rank.$attempt/pid"
env >"$work/rank-$rank.$attempt/env"
step() { [ "$rank" = 0 ] && echo "{\"type\":\"step\",\"step\":$1}" >>"$work/metrics.jsonl"; return 0; }

while read -r a r action argument; do
  [ "$a" = "$attempt" ] || [ "$a" = "*" ] || continue
  [ "$r" = "$rank" ] || [ "$r" = "*" ] || continue
  case $action in
    exit) exit "$argument" ;;
    kill) kill -"$argument" $$ ;;
    kill-parent) kill -9 $PPID; sleep 60 ;;
    step) step "$argument" ;;
    next-step) step "$attempt" ;;
    sleep) sleep "$argument" ;;
    wait-standby) while [ ! -e "$work/standing-by-0" ] || [ ! -e "$work/standing-by-1" ]; do sleep 0.05; done ;;
    keep-standby) cp "$work/standing-by-1" "$work/standing-by-1.first" ;;
    forget-standby) rm -f "$work"/standing-by-* ;;
    kill-standby) kill -9 $(cat "$work/standing-by-$argument"); sleep 3 ;;  # mpirun takes a second or two to end
    # A program that takes a snapshot on SIGUSR1 and leaves with 75.
    snapshot) trap 'echo snapshot >>"$work/snapshots"; exit 75' USR1; touch "$work/ready-$rank"
      i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done ;;
    deaf) trap '' USR1 TERM INT; touch "$work/ready-$rank"; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done ;;
  esac
done <"$work/script"
exit 0
