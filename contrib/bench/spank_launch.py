#!/usr/bin/env python3
"""What --mso adds to a step's launch: srun --mso beside plain srun on a running Slurm cluster, alternating, medians.

usage: contrib/bench/spank_launch.py [--runs 50] [--nodes 2] [--inside]
  --inside  steps of one allocation (only the step's launch); otherwise whole jobs (with their prolog and epilog)
On a private cluster of this machine (as root, with the plugin built in build/):
  POD_TIMEOUT=300 BEFORE_UP='echo "optional $PWD/build/.libs/spank_mso.so" >$1/etc/plugstack.conf' \\
    tests/slurm/pod /var/tmp/launch 2 contrib/bench/spank_launch.py
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def launch(extra, nodes):
    command = ["srun", "-Q", f"-N{nodes}", "--ntasks-per-node=1", *extra, "true"]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.inside and "SLURM_JOB_ID" not in os.environ:
        sys.exit(subprocess.run(["salloc", "-Q", f"-N{arguments.nodes}", sys.executable, *sys.argv]).returncode)
    times = {"plain": [], "mso": []}
    kinds = [("plain", []), ("mso", ["--mso", "--mso-snapshot=64M"])]
    for extra in ([], kinds[1][1]):
        launch(extra, arguments.nodes)
    for run in range(arguments.runs):
        # Alternating, and the first of each pair changes, so that drift of the machine falls on both.
        for name, extra in kinds if run % 2 == 0 else reversed(kinds):
            times[name].append(launch(extra, arguments.nodes))
    plain, mso = (statistics.median(times[name]) for name in ("plain", "mso"))
    # Pairs were taken side by side: their differences say more than the difference of two medians.
    pairs = statistics.median(m - p for m, p in zip(times["mso"], times["plain"]))
    result = {"runs": arguments.runs, "nodes": arguments.nodes, "inside": arguments.inside, "plain_ms": plain, "mso_ms": mso, "added_ms": pairs}
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{'steps of one job' if arguments.inside else 'whole jobs'}, {arguments.nodes} nodes, median of {arguments.runs}: "
              f"plain {plain:.1f} ms, --mso {mso:.1f} ms; added {pairs:+.1f} ms (median of pairs)")


main()
