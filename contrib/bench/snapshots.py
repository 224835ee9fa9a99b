#!/usr/bin/env python3
"""Snapshots: how long training waits for one and what CPU time it takes, against torch.distributed.checkpoint, with the same
model. Writes $OUT/snapshots.json.

mso: runs without snapshots, with L0 after every step, with L0 and a copy on a partner node (two nodes by name,
MSO_NODE), with L1 as often as it will; in turn. The wait is `snapshot_stall_s` of the step after a snapshot began, CPU time
that of the threads that write (/proc/PID/task/*/schedstat), both ranks added; beside it the run's whole CPU time against
one without snapshots.
"""
import os
import subprocess
import time

from common import ENVIRONMENT, OUT, RAM, RANKS, ROUNDS, fresh_folder, json, median, mpirun, mso_arguments, note_load, \
    read_metrics, remove_snapshots, run_checked, say, spread, thread_cpu_s, torchrun, write_result

STEPS = int(os.environ.get("MSO_BENCH_SNAPSHOT_STEPS", "12"))
OFF = {"ecm.snapshot_levels.level0_interval_ms": 0, "ecm.snapshot_levels.level1_interval_s": 0,
       "ecm.snapshot_levels.level2_interval_m": 0}
WAYS = {"none": OFF,
        "L0": {**OFF, "ecm.snapshot_levels.level0_interval_ms": 1},
        "L1": {**OFF, "ecm.snapshot_levels.level1_interval_s": 1},
        "L0 with partner": {**OFF, "ecm.snapshot_levels.level0_interval_ms": 1}}
THREAD = {"L0": "mso-snapshot-l0", "L0 with partner": "mso-snapshot-l0", "L1": "mso-snapshot-fs"}


def run(folder, way):
    run_dir = folder / "run"
    arguments = [*mso_arguments(run_dir, STEPS, **WAYS[way])]
    command = mpirun(*arguments, nodes=way == "L0 with partner")
    spent = {}  # by process: CPU seconds of the writing thread
    with open(folder / f"{way}.log", "w") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            for rank in range(RANKS):
                try:
                    of_rank = int((run_dir / f"pids/rank-{rank:04}").read_text().split()[0])
                except (OSError, ValueError, IndexError):
                    continue
                now = thread_cpu_s(of_rank)
                if way in THREAD and THREAD[way] in now:
                    spent[of_rank] = max(spent.get(of_rank, 0), now[THREAD[way]])
            time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"mso: exit code {process.returncode}, see {folder / f'{way}.log'}")
    steps = read_metrics(run_dir, "step")
    events = [e for e in read_metrics(run_dir, "snapshot") if e["ok"]]
    remove_snapshots(run_dir)
    result = {"cpu_s": usage.ru_utime + usage.ru_stime, "step_s": median([s["step_s"] for s in steps[2:]])}
    if way == "none":
        return result
    level = int(way[1])
    begun = {e["step"] for e in events if e["level"] == level}
    after = [s for s in steps[1:] if s["step"] - 1 in begun]
    # The final L2 is written by L1's thread and is as large.
    counted = len([e for e in events if e["level"] == level or (level == 1 and e["level"] == 2)])
    result.update(snapshots=len(begun), stalls_s=[s["snapshot_stall_s"] for s in after],
                  stall_share=sum(s["snapshot_stall_s"] for s in after) / max(1e-9, sum(s["step_s"] for s in after)),
                  thread_cpu_s=sum(spent.values()) / max(1, counted),
                  write_s=median([e["write_s"] for e in events if e["level"] == level]),
                  bytes=RANKS * (median([e["bytes"] for e in events if e["level"] == level]) or 0))
    return result


def main():
    folder = fresh_folder("snapshots")
    load = note_load("the snapshot benchmark")
    runs = {way: [] for way in WAYS}
    peers = []
    for turn in range(ROUNDS):
        for way in WAYS:
            if way == "L0 with partner" and turn > 0:
                continue
            runs[way].append(run(folder, way))
            if way != "none":
                last = runs[way][-1]
                say(f"{way}: {last['snapshots']} snapshots, stall {1e3 * (median(last['stalls_s']) or 0):.1f} ms, "
                    f"CPU {1e3 * last['thread_cpu_s']:.0f} ms")
        RAM.mkdir(exist_ok=True)
        disk = folder / "dcp"
        disk.mkdir(exist_ok=True)
        run_checked(torchrun("peer_checkpoint.py", "--ram", RAM, "--disk", disk, "--rounds", 1, "--result",
                             folder / "peer.json"), folder / "peer.log")
        peers.append(json.loads((folder / "peer.json").read_text()))
        for way, values in peers[-1]["ways"].items():
            say(f"DCP {way}: stall {1e3 * median(values['stall_s']):.0f} ms, CPU {1e3 * median(values['cpu_s']):.0f} ms")
    without = median([r["cpu_s"] for r in runs["none"]])
    result = {"load_before": load, "step_s_without": median([r["step_s"] for r in runs["none"]]), "mso": {}, "dcp": {},
              "dcp_bytes": peers[0]["bytes"], "dcp_step_s": median([s for p in peers for s in p["plain_step_s"]])}
    for way, some in runs.items():
        if way == "none":
            continue
        stalls = [s for r in some for s in r["stalls_s"]]
        result["mso"][way] = {
            "snapshots": sum(r["snapshots"] for r in some), "stall_s": median(stalls), "stall_s_largest": max(stalls, default=None),
            "stall_share": median([r["stall_share"] for r in some]), "cpu_s": median([r["thread_cpu_s"] for r in some]),
            "cpu_s_by_difference": median([(r["cpu_s"] - without) / max(1, r["snapshots"]) for r in some]),
            "write_s": median([r["write_s"] for r in some if r["write_s"] is not None]),
            "step_s": median([r["step_s"] for r in some]), "bytes": some[0]["bytes"]}
    for way in peers[0]["ways"]:
        gather = lambda key: spread([v for p in peers for v in p["ways"][way][key]])
        result["dcp"][way] = {"stall_s": gather("stall_s"), "cpu_s": gather("cpu_s"), "step_s": gather("step_s")}
    write_result("snapshots", result)


if __name__ == "__main__":
    main()
