#!/usr/bin/env python3
"""Training: tokens a second of `mso train` under mpirun against transformers + DistributedDataParallel, eager and
compiled; two ranks of one thread each, in turn. Writes $OUT/training.json.

Tokens are unpadded positions, image positions included, counted the same way on both sides. mso takes its snapshots at the
default intervals meanwhile, the peer takes none.
"""
import os

from common import DATA, ROUNDS, STEPS, WARM_UP, fresh_folder, json, median, mpirun, mso_arguments, note_load, \
    read_metrics, remove_snapshots, run_checked, say, spread, torchrun, write_result

COMPILE = os.environ.get("MSO_BENCH_COMPILE", "static")  # or dynamic: see peer_training.py


def ours(folder):
    run_dir = folder / "run"
    run_checked(mpirun(*mso_arguments(run_dir, WARM_UP + STEPS)), folder / "mso.log")
    steps = read_metrics(run_dir, "step")
    snapshots = [s for s in read_metrics(run_dir, "snapshot") if s["ok"]]
    remove_snapshots(run_dir)
    seconds = steps[-1]["time"] - steps[WARM_UP - 1]["time"]
    measured = steps[WARM_UP:]
    total = sum(s["step_s"] for s in measured)
    return {"tokens_per_s": sum(s["tokens"] for s in measured) / seconds,
            "step_s": median([s["step_s"] for s in measured]),
            "data_wait_share": sum(s["data_wait_s"] for s in measured) / total,
            "stall_share": sum(s["snapshot_stall_s"] for s in measured) / total,
            "level0_snapshots": sum(s["level"] == 0 for s in snapshots), "loss": steps[-1]["loss"],
            "parameters": read_metrics(run_dir, "start")[-1]["parameters"]}


def peer(folder, kind):
    result = folder / f"{kind}.json"
    run_checked(torchrun("peer_training.py", "--data", DATA, "--steps", STEPS, "--warm-up", WARM_UP, "--result", result,
                         "--compile", COMPILE if kind == "compiled" else "no"), folder / f"{kind}.log")
    return json.loads(result.read_text())


def main():
    folder = fresh_folder("training")
    load = note_load("the training benchmark")
    runs = {"mso": [], "eager": [], "compiled": []}
    for _ in range(ROUNDS):
        for kind in runs:
            runs[kind].append(ours(folder) if kind == "mso" else peer(folder, kind))
            say(f"training, {kind}: {runs[kind][-1]['tokens_per_s']:.0f} tokens/s")
    rate = {kind: median([r["tokens_per_s"] for r in results]) for kind, results in runs.items()}
    last = runs["compiled"][-1]
    result = {"load_before": load, "tokens_per_s": {k: spread([r["tokens_per_s"] for r in v]) for k, v in runs.items()},
              "ratio_eager": rate["mso"] / rate["eager"], "ratio_compiled": rate["mso"] / rate["compiled"],
              "ratio_compiled_without_padding": rate["mso"] / (rate["compiled"] * last["padded"] / last["tokens"]),
              "padding_share": 1 - last["tokens"] / last["padded"],
              "compile_s": runs["compiled"][0]["first_steps_s"][0],
              "mso": {key: median([r[key] for r in runs["mso"]]) for key in
                      ("step_s", "data_wait_share", "stall_share", "level0_snapshots")},
              "parameters": {kind: results[0]["parameters"] for kind, results in runs.items()}}
    write_result("training", result)
    say(f"training: {result['ratio_compiled']:.2f} × compiled, {result['ratio_eager']:.2f} × eager")


if __name__ == "__main__":
    main()
