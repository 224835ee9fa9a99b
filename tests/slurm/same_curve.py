#!/usr/bin/env python3
"""same_curve.py RUN REFERENCE [STEPS]: exits 1 unless both run folders have the same loss curve, bit for bit, every step of it
once or repeated alike, and the same final state. With `close` as the fourth word: equal to 1e-6, as with other ranks."""
import json
import pathlib
import sys


def curve(folder):
    steps, end = {}, None
    for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the torn last line of a killed run
        if record["type"] == "step":
            value = (record["loss"], record["grad_norm"], record["sample_digest"], record["samples"])
            if "close" not in sys.argv and steps.get(record["step"], value) != value:
                sys.exit(f"step {record['step']} repeated as {value}, was {steps[record['step']]}")
            steps[record["step"]] = value
        elif record["type"] == "end" and record["exit_code"] == 0:
            end = record["message"]
    return steps, end


(run, run_end), (reference, reference_end) = curve(sys.argv[1]), curve(sys.argv[2])
if sorted(run) != sorted(reference) or sorted(run) != list(range(1, len(run) + 1)):
    sys.exit(f"steps differ: {sorted(set(run) ^ set(reference))}")
if "close" in sys.argv:
    for step, value in run.items():
        other = reference[step]
        if value[2:] != other[2:] or abs(value[0] - other[0]) > 1e-6 * abs(other[0]):
            sys.exit(f"step {step}: {value}, undisturbed {other}")
elif run != reference or run_end is None or run_end != reference_end:
    sys.exit(f"differs: {run_end}, undisturbed {reference_end}; first at step "
             f"{min((s for s in run if run[s] != reference[s]), default='none')}")
print(f"{len(run)} steps are the same; {run_end}")
