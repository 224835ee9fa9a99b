#!/usr/bin/env python3
"""Restart: from kill -9 of rank 1 to the next finished step, `mso run` against torchrun --max-restarts with gloo, in turn.
A try that has no step within a minute counts as hung. Writes $OUT/restart.json.
"""
import os
import signal
import subprocess
import time

from common import ENVIRONMENT, MSO, RANKS, ROUNDS, fresh_folder, json, kill_tree, median, mso_arguments, note_load, \
    read_metrics, remove_snapshots, say, spread, torchrun, write_result

LIMIT_S = 60       # from the kill
START_LIMIT_S = 180
FIRST_STEPS = 4    # finished before the kill
LOOK_S = 0.05
# Else the ranks of the next attempt find the addresses of dead ones in the agent's store, and fail until restarts are used up.
PEER_ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")}


def lines(path):
    records = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                pass
    return records


def measure(process, steps, pid_of_rank_1):
    """Seconds from the kill to the first step of a later attempt; None: none came in time."""
    start = time.time()
    while len(steps()) < FIRST_STEPS:
        if process.poll() is not None or time.time() - start > START_LIMIT_S:
            raise SystemExit("the training did not start")
        time.sleep(LOOK_S)
    attempt = steps()[-1]["attempt"]
    killed = time.time()
    os.kill(pid_of_rank_1(), signal.SIGKILL)
    while time.time() - killed < LIMIT_S and process.poll() is None:
        later = [s["time"] for s in steps() if s["attempt"] > attempt]
        if later:
            return later[0] - killed
        time.sleep(LOOK_S)
    return None


def start(command, log, **environment):
    with open(log, "w") as out:
        return subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT,
                                env={**ENVIRONMENT, **environment}, start_new_session=True)


def ours(folder):
    run_dir = folder / "run"
    process = start([MSO, "run", "-n", RANKS, "--", *mso_arguments(run_dir, 1000)], folder / "mso.log")
    pid = lambda: int((run_dir / "pids/rank-0001").read_text().split()[0])
    try:
        seconds = measure(process, lambda: read_metrics(run_dir, "step"), pid)
        resumed = read_metrics(run_dir, "resume")
        return seconds, resumed[-1] if resumed else None
    finally:
        for _ in range(2):  # the second ends it at once
            process.terminate()
            time.sleep(0.5)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            kill_tree(process)
        remove_snapshots(run_dir)


def peer(folder):
    folder = folder / "peer"
    for name in ("pids", "steps.jsonl", "checkpoint.pt"):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    process = start(torchrun("peer_restart.py", "--folder", folder, restarts=10), folder / "log", **PEER_ENVIRONMENT)
    pid = lambda: [p["pid"] for p in lines(folder / "pids") if p["rank"] == 1][-1]
    try:
        return measure(process, lambda: lines(folder / "steps.jsonl"), pid)
    finally:
        kill_tree(process)
        for worker in lines(folder / "pids"):  # torchrun gives each a session of its own
            try:
                with open(f"/proc/{worker['pid']}/cmdline", "rb") as command:
                    if b"peer_restart.py" in command.read():
                        os.kill(worker["pid"], signal.SIGKILL)
            except OSError:
                pass


def main():
    folder = fresh_folder("restart")
    load = note_load("the restart benchmark")
    own, resumes, torch_ = [], [], []
    for _ in range(ROUNDS):
        seconds, resumed = ours(folder)
        own.append(seconds)
        resumes.append(resumed)
        say("mso run: " + (f"{seconds:.2f} s" if seconds else "hung"))
        torch_.append(peer(folder))
        say("torchrun: " + (f"{torch_[-1]:.2f} s" if torch_[-1] else f"no step within {LIMIT_S} s"))
    came = lambda values: [v for v in values if v is not None]
    result = {"load_before": load, "limit_s": LIMIT_S, "tries": ROUNDS,
              "mso": {**spread(came(own)), "hung": own.count(None),
                      "recovery_s": median([r["recovery_s"] for r in resumes if r]),
                      "lost_steps": median([r["lost_steps"] for r in resumes if r]),
                      "levels": [r["level"] for r in resumes if r]},
              "torchrun": {**spread(came(torch_)), "hung": torch_.count(None)}}
    write_result("restart", result)


if __name__ == "__main__":
    main()
