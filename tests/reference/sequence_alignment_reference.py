#!/usr/bin/env python3
"""Compares the alignment of sequences with torch.nn.functional: interpolate, avg_pool1d, pad. MSO_BUILD: the build folder."""
import json
import math
import os
import random
import subprocess
import sys

import torch
import torch.nn.functional as F


def expected(rule, x):
    n, length = x.shape[0], rule["length"]
    flat = x.reshape(n, -1)
    if n > length and rule["longer"] == "truncate":
        flat, n = flat[:length], length
    if rule["method"] == "interpolate" and n:
        target = min(length, math.floor(n * rule["max_stretch"]))
        if target != n:
            flat = F.interpolate(flat[None, None], size=(target, flat.shape[1]), mode="bilinear", align_corners=False)[0, 0]
    elif rule["method"] == "average_pool" and n:
        size = math.ceil(n / length)
        flat = F.avg_pool1d(flat.T[None], size, size, ceil_mode=True, count_include_pad=False)[0].T
    else:
        flat = flat[:length]
    missing = length - flat.shape[0]
    return F.pad(flat, (0, 0, missing, 0) if rule["side"] == "left" else (0, 0, 0, missing), value=rule["value"])


def main():
    rng = random.Random(5)
    torch.manual_seed(5)
    cases = [({"length": 64, "method": "interpolate", "value": 0.0, "max_stretch": 2.0, "longer": "fit", "side": "right"}, (32, 7)),
             ({"length": 64, "method": "pad", "value": 0.0, "max_stretch": 2.0, "longer": "truncate", "side": "right"}, (47, 80)),
             ({"length": 64, "method": "average_pool", "value": 0.0, "max_stretch": 2.0, "longer": "fit", "side": "right"}, (256, 19))]
    for _ in range(400):
        method = rng.choice(["interpolate", "pad", "average_pool"])
        rule = {"length": rng.choice([1, 2, 3, 7, 64, rng.randint(1, 90)]), "method": method, "value": rng.choice([0.0, -1.5]),
                "max_stretch": rng.choice([1.0, 1.5, 2.0, 3.3, 1000.0]), "longer": "truncate" if method == "pad" else rng.choice(["fit", "truncate"]),
                "side": rng.choice(["left", "right"])}
        cases.append((rule, (rng.choice([1, 2, 3, rng.randint(1, 300)]), *rng.choice([(1,), (5,), (3, 2), (2, 2, 2)]))))
    inputs = [torch.randn(shape) for _, shape in cases]
    lines = "".join(json.dumps({"rule": rule, "shape": list(shape), "values": x.flatten().tolist()}) + "\n" for (rule, shape), x in zip(cases, inputs))
    run = subprocess.run([os.path.join(os.environ.get("MSO_BUILD", "."), "align_sequence")], input=lines, text=True, check=True, stdout=subprocess.PIPE)
    worst, wrong = 0.0, 0
    for (rule, shape), x, line in zip(cases, inputs, run.stdout.splitlines()):
        want, got = expected(rule, x), torch.tensor(json.loads(line))
        error = (want.flatten() - got).abs().max().item() if want.numel() == got.numel() else math.inf
        worst = max(worst, error)
        if not error <= 2e-6:
            wrong += 1
            print(f"  {rule} {shape}: differs by {error}")
    print(f"{len(cases) - wrong} of {len(cases)} alignments equal, largest difference {worst:.1e}")
    return int(wrong > 0 or len(run.stdout.splitlines()) != len(cases))


if __name__ == "__main__":
    sys.exit(main())
