#!/usr/bin/env python3
"""Data pipeline: `mso data bench` against WebDataset + torch DataLoader (Pillow) and NVIDIA DALI on the CPU, two threads
or workers each, on the same shards. Writes $OUT/data.json.

MSO_DALI_PYTHON: a Python that has DALI; where it is empty, MSO_DALI_REASON says why there is none.
"""
import os

from common import DATA, HERE, MSO, PYTHON, ROUNDS, fresh_folder, json, median, note_load, run_checked, say, \
    spread, write_result

SECONDS = float(os.environ.get("MSO_BENCH_DATA_SECONDS", "4"))


def ours(log, epochs):
    run_checked([MSO, "data", "bench", DATA / "shards", "--threads", 2, "--batch", 32, "--epochs", epochs,
                 "--image-size", 224, "--patch-size", 16, "--tokenizer", DATA / "tokenizer"], log)
    return json.loads(log.read_text()[log.read_text().index("{"):])


def main():
    folder = fresh_folder("data")
    log = folder / "log"
    load = note_load("the data benchmark")
    kinds = ["pillow", "draft"]
    dali = os.environ.get("MSO_DALI_PYTHON", "")
    if dali:
        kinds.append("dali")
    first = ours(log, 1)  # also warms the page cache
    epochs = max(1, round(SECONDS * first["pictures_per_s"] / first["pictures"]))
    rates = {kind: [] for kind in ["mso", *kinds]}
    cpu = []
    for _ in range(ROUNDS):
        result = ours(log, epochs)
        rates["mso"].append(result["pictures_per_s"])
        cpu.append(result["pictures"] / result["cpu_seconds"])
        for kind in kinds:
            python = dali if kind == "dali" else PYTHON
            run_checked([python, HERE / "peer_data.py", kind, DATA, "--seconds", SECONDS], folder / kind)
            line = [l for l in (folder / kind).read_text().splitlines() if l.startswith("{")][-1]
            rates[kind].append(json.loads(line)["images_per_s"])
    result = {"load_before": load, "images_per_s": {kind: spread(values) for kind, values in rates.items()},
              "mso_images_per_cpu_s": median(cpu), "dali_reason": os.environ.get("MSO_DALI_REASON", "")}
    best = max(kinds, key=lambda kind: median(rates[kind]))
    result["best_peer"] = best
    result["ratio"] = median(rates["mso"]) / median(rates[best])
    write_result("data", result)
    say("images/s: " + ", ".join(f"{kind} {median(values):.0f}" for kind, values in rates.items()) +
        f"; {result['ratio']:.2f} × the best peer")


if __name__ == "__main__":
    main()
