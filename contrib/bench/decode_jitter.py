#!/usr/bin/env python3
"""How far three unpinned hogs of CPU and I/O push a decoder thread aside: the standard deviation of its latency beside them and without.

usage: MSO=build/mso MSO_BUILD=build MSO_SRCDIR=. contrib/bench/decode_jitter.py [--quick] [OUT.json]   (make decode_jitter first; root, for priorities)
One thread decodes the same pictures over and over, on one CPU set aside for it (MSO_CPUS_IMAGE); a hog computes, and writes and syncs a file.
Priorities in turn, without and with hogs in turn, medians of rounds. Wanted: at most 1.2 of the deviation without, with the default that a job with
CPUs for decoders gets, or with what MSO_DECODER_PRIORITY says.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/mpi"))
from training import BUILD, data_set  # noqa: E402

HOG = """
import os, sys, time
path = sys.argv[1]
block = os.urandom(1 << 20)
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        sum(i * i for i in range(1000))
    with open(path, "wb") as f:
        f.write(block * 4)
        f.flush()
        os.fsync(f.fileno())
"""
arguments = [a for a in sys.argv[1:] if a != "--quick"]
quick = "--quick" in sys.argv
rounds, seconds = (1, 3) if quick else (5, 10)
cpu = sorted(os.sched_getaffinity(0))[-1]
data = data_set()


def measure(priority):
    env = {**os.environ, "MSO_CPUS_IMAGE": str(cpu)}
    env.pop("MSO_DECODER_PRIORITY", None)
    if priority:
        env["MSO_DECODER_PRIORITY"] = priority
    out = subprocess.run([str(BUILD / "decode_jitter"), str(data), str(seconds)], env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout)


result = {"cpu": cpu, "load": os.getloadavg()[0]}
runs = {p: {"alone": [], "hogs": []} for p in ("", "normal", "nice:-20", "rr:1")}
with tempfile.TemporaryDirectory(dir=BUILD) as folder:
    for _ in range(rounds):
        for priority, of in runs.items():
            of["alone"].append(measure(priority))
            hogs = [subprocess.Popen([sys.executable, "-c", HOG, f"{folder}/hog-{i}"]) for i in range(3)]
            try:
                of["hogs"].append(measure(priority))
            finally:
                for hog in hogs:
                    hog.kill()
                    hog.wait()
for priority, of in runs.items():
    alone, hogs = (statistics.median(r["deviation_ms"] for r in of[w]) for w in ("alone", "hogs"))
    result[priority or "default"] = {"deviation_alone_ms": alone, "deviation_beside_hogs_ms": hogs, "ratio": hogs / alone, "aim": 1.2, "rounds": of}
brief = {p: {k: v for k, v in r.items() if k != "rounds"} if isinstance(r, dict) else r for p, r in result.items()}
print(json.dumps(brief, indent=1))
if arguments:
    pathlib.Path(arguments[0]).write_text(json.dumps(result, indent=1) + "\n")
