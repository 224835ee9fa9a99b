#!/usr/bin/env python3
"""How long training waits for data when one video of each batch is slow: the loader of training against decoding when the step asks.

usage: MSO=build/mso MSO_BUILD=build MSO_SRCDIR=. contrib/bench/idle_time.py [--quick] [OUT.json]   (make idle_bench first)
The same samples (real captions, pictures and clips: four texts, two pictures, one video a batch) on the same two cores. A step computes on
one core for so long that the synchronous loader's consumer is busy 62 % of the time. The video's decoding takes 200 ms more, in a sleep (as
from slow storage) and on a core (as a clip that is hard to decode). Rounds in turn, medians. Wanted: idle time at most 0.29 of the synchronous one's.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/mpi"))
from training import BUILD, mixed_data_set  # noqa: E402

arguments = [a for a in sys.argv[1:] if a != "--quick"]
quick = "--quick" in sys.argv
rounds, steps = (1, 8) if quick else (3, 40)
cores = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, cores)
data = mixed_data_set()
result = {"cores": cores, "load": os.getloadavg()[0]}
for way in ("sleep", "burn"):
    runs = [json.loads(subprocess.run([str(BUILD / "idle_bench"), str(data), str(steps), "200", way, "0.62"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout) for _ in range(rounds)]
    result[way] = {"use_synchronous": statistics.median(r["synchronous"]["use"] for r in runs),
                   "use": statistics.median(r["asynchronous"]["use"] for r in runs),
                   "idle_ratio": statistics.median(r["idle_ratio"] for r in runs), "aim": 0.29, "rounds": runs}
print(json.dumps(result, indent=1))
if arguments:
    pathlib.Path(arguments[0]).write_text(json.dumps(result, indent=1) + "\n")
