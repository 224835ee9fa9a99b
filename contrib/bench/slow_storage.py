#!/usr/bin/env python3
"""What slow storage costs: training through a mount that goes from 5 to 800 ms for a minute and back, and then hangs for ever.

usage: MSO=build/mso MSO_BUILD=build MSO_SRCDIR=. contrib/bench/slow_storage.py [OUT.json]   (root, /dev/fuse; make slow_storage first)
Samples/s by metrics.jsonl in windows of five seconds, relative to the median of half a minute at 5 ms with the cache warm. Wanted: never
below 0.72 while slow or hung, back to 0.85 within 47 s of the recovery. One rank, so that its own storage is what is seen.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/mpi"))
from training import BUILD, SCRATCH, Run, data_set  # noqa: E402

WINDOW = 5
folder = SCRATCH / "bench-slow-storage"
mount, control, cache = folder / "mount", folder / "control", folder / "cache"
subprocess.run(["umount", "-l", str(mount)], check=False, stderr=subprocess.DEVNULL)
shutil.rmtree(folder, ignore_errors=True)
mount.mkdir(parents=True)


def speed(text):
    (folder / "control.new").write_text(text)
    (folder / "control.new").rename(control)
    return time.time()


def windows(run, begin, end):
    """Samples/s of each whole window between two times."""
    steps = [(r["time"], r["samples"]) for r in run.records("step")]
    out = []
    while begin + WINDOW <= end:
        out.append(sum(n for t, n in steps if begin <= t < begin + WINDOW) / WINDOW)
        begin += WINDOW
    return out


speed("5")
server = subprocess.Popen([str(BUILD / "slow_storage"), str(data_set()), str(mount), str(control)], stdout=subprocess.PIPE, text=True,
                          preexec_fn=lambda: os.nice(-10))
assert server.stdout.readline() == "ready\n"
run = Run("bench-slow-storage-run", ranks=1, data=mount, **{
    "train.steps": 1000000, "train.schedule": "constant", "data.eval_shards": 0, "train.eval_interval": 0, "mdp.cache.path": cache,
    "mdp.cache.max_bytes": "1G", "ecm.snapshot_levels": "{level0_interval_ms: 500, level1_interval_s: 30, level2_interval_m: 5}"})
try:
    run.start()
    run.wait_for_step(5)
    wanted = sum(-(-tar.stat().st_size // (1 << 20)) for tar in data_set().glob("*.tar"))
    while sum(p.name.isdigit() for p in cache.glob("mso-cache-1/*/*")) < wanted:
        time.sleep(0.2)
    normal_from = time.time()
    time.sleep(30)
    slow_from = speed("800")
    time.sleep(60)
    good_from = speed("5")
    time.sleep(60)
    hung_from = speed("hang")
    time.sleep(60)
    end = time.time()
    alive = run.process.poll() is None
finally:
    speed("0")
    run.kill_all()
    server.terminate()
    subprocess.run(["umount", "-l", str(mount)], check=False, stderr=subprocess.DEVNULL)
normal = statistics.median(windows(run, normal_from, slow_from))
share = {name: [round(w / normal, 3) for w in windows(run, begin, until)]
         for name, begin, until in (("slow", slow_from, good_from), ("recovered", good_from, hung_from), ("hung", hung_from, end))}
back = next((i * WINDOW for i, w in enumerate(share["recovered"]) if w >= 0.85), None)
result = {"normal_samples_per_s": normal, "window_s": WINDOW, "relative": share, "lowest_slow": min(share["slow"]),
          "lowest_hung": min(share["hung"]), "back_at_85_percent_s": back, "still_running": alive,
          "incidents": [[round(r["time"] - slow_from, 1), r["kind"]] for r in run.records("incident")], "load": os.getloadavg()[0]}
print(json.dumps(result, indent=1))
if len(sys.argv) > 1:
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")
run.clean()
