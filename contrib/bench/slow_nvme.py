#!/usr/bin/env python3
"""What a slow NVMe drive costs: the data pipeline on nvme:// in the virtual machine of tests/vm, whose drive goes from 5 to 800 ms a read for a
minute and back (dm-delay), and then hangs for ever (suspended).

usage: MSO_BUILD=build MSO_SRCDIR=. contrib/bench/slow_nvme.py [--quick] [OUT.json]   (root, QEMU; quiet machine: no KVM is needed, all is emulated)
Samples/s of `mso data bench` in windows of five seconds, relative to the median at 5 ms with the cache warm: shares, for the emulated processor is
many times slower than a real one. Wanted: never below 0.72 while slow or hung, back to 0.85 within 47 s of the recovery.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/mpi"))
from training import BUILD, SOURCE, data_set  # noqa: E402

WINDOW = 5
arguments = [a for a in sys.argv[1:] if a != "--quick"]
normal_s, phase_s = (15, 25) if "--quick" in sys.argv else (30, 60)


def windows(steps, begin, end):
    """Samples/s of each whole window between two times."""
    out = []
    while begin + WINDOW <= end:
        out.append(sum(n for t, n in steps if begin <= t < begin + WINDOW) / WINDOW)
        begin += WINDOW
    return out


vm = SOURCE / "tests/vm"
with tempfile.TemporaryDirectory(dir=BUILD) as folder:
    results = pathlib.Path(folder)
    subprocess.run([vm / "vmrun-build", os.environ.get("VMRUN_CACHE", "/var/cache/vmrun")], check=True, stdout=subprocess.DEVNULL)
    guest = subprocess.run([vm / "vmrun", "--nvme", "1", "--timeout", str(600 + 3 * phase_s + normal_s), "--rw", folder, "--", "/bin/bash",
                            SOURCE / "contrib/bench/slow_nvme_guest.sh", data_set(), folder, str(normal_s), str(phase_s)],
                           stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
    steps = [(r["time"], r["samples"]) for r in map(json.loads, (results / "timeline").read_text().splitlines())]
    at = {name: float(time) for name, time in (line.split() for line in (results / "phases").read_text().splitlines())}
    log = (results / "log").read_text().splitlines()
    if os.environ.get("MSO_KEEP_RESULTS"):
        shutil.copytree(results, os.environ["MSO_KEEP_RESULTS"], dirs_exist_ok=True)

normal = statistics.median(windows(steps, at["normal"], at["slow"]))
share = {name: [round(w / normal, 3) for w in windows(steps, at[begin], at[until])]
         for name, begin, until in (("normal", "normal", "slow"), ("slow", "slow", "recovered"), ("recovered", "recovered", "hung"), ("hung", "hung", "end"))}
result = {"normal_samples_per_s": normal, "window_s": WINDOW, "relative": share, "lowest_slow": min(share["slow"]), "lowest_hung": min(share["hung"]),
          "back_at_85_percent_s": next((i * WINDOW for i, w in enumerate(share["recovered"]) if w >= 0.85), None),
          "still_running": "still running" in guest.stdout, "log": [line for line in log if "storage" in line or "source" in line or "nvme" in line],
          "load": os.getloadavg()[0]}
print(json.dumps(result, indent=1))
if arguments:
    pathlib.Path(arguments[0]).write_text(json.dumps(result, indent=1) + "\n")
