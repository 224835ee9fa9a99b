#!/usr/bin/env python3
"""Makes the page of benchmark results of $OUT/*.json. usage: table.py FILE (doc/benchmarks.md)"""
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

from common import MSO, OUT, ROUNDS, STEPS

# Aims of the project; see README.md beside this file for how each is measured.
AIM_TRAINING, AIM_DATA, AIM_STALL, AIM_RESTART, AIM_SHARE = 1.5, 3.0, 0.1, 0.2, 0.02


def output(*command):
    try:
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def versions():
    own = re.search(r"\d+\.\d+\S*", output(MSO, "--version"))
    found = [f"mso {own[0] if own else '?'}"]
    commit = output("git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short", "HEAD")
    if commit:
        found[0] += f" ({commit})"
    for name in ("torch", "transformers", "webdataset", "pillow"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    dali = os.environ.get("MSO_DALI_PYTHON")
    if dali:
        found.append("DALI " + output(dali, "-c", "import nvidia.dali as d; print(d.__version__)"))
    found.append(output("mpirun", "--version").splitlines()[0].replace("mpirun (Open MPI)", "Open MPI"))
    return ", ".join(found)


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 2**20
    lscpu = output("lscpu")
    widest = "AVX-512" if "avx512f" in lscpu else "AVX2" if "avx2" in lscpu else "SSE"
    return f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()} ({widest}), {memory:.0f} GiB of memory, Linux " \
           f"{platform.release()}"


def load(name):
    path = OUT / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def verdict(reached):
    return "reached" if reached else "**not reached**"


def milliseconds(seconds):
    return "–" if seconds is None else f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) + "\n"


def row_range(values):
    return f"{min(values):,.0f}–{max(values):,.0f}"


def training_text(r):
    rate = r["tokens_per_s"]
    names = {"mso": "`mso train`, 2 MPI ranks, snapshots on", "eager": "transformers + DDP, eager",
             "compiled": "transformers + DDP, `torch.compile`"}
    rows = [(names[k], f"{rate[k]['median']:,.0f}", row_range(rate[k]["all"]),
             "" if k == "mso" else f"{rate['mso']['median'] / rate[k]['median']:.2f}") for k in names]
    own = r["mso"]
    return ("## Training\n\n" + table(("", "tokens/s", "from – to", "mso is faster by"), rows) +
            f"\nOf mso's step of {own['step_s']:.2f} s, {100 * own['data_wait_share']:.1f} % waits for data and "
            f"{100 * own['stall_share']:.2f} % for snapshots. {100 * r['padding_share']:.0f} % of the positions the peer computes are "
            f"padding; without them the ratio to the compiled peer would be {r['ratio_compiled_without_padding']:.2f}. "
            f"The first compiled step took {r['compile_s']:.0f} s (later ones find the cache).\n")


def data_text(r):
    rates = r["images_per_s"]
    names = {"mso": "`mso data bench`, 2 threads", "pillow": "WebDataset + DataLoader, Pillow, 2 workers",
             "draft": "the same with Pillow's draft mode (reduced-scale JPEG, by hand)", "dali": "NVIDIA DALI on the CPU, 2 threads"}
    rows = [(names[k], f"{v['median']:,.0f}", row_range(v["all"]),
             "" if k == "mso" else f"{rates['mso']['median'] / v['median']:.2f}") for k, v in rates.items()]
    if "dali" not in rates:
        rows.append((names["dali"], "not measured", r["dali_reason"], ""))
    return "## Data pipeline\n\n" + table(("", "images/s", "from – to", "mso is faster by"), rows)


def snapshots_text(r):
    rows = []
    for way, v in r["mso"].items():
        name = {"L0": "mso L0 (RAM disk)", "L0 with partner": "mso L0 and partner copy", "L1": "mso L1 (disk)"}[way]
        rows.append((name, milliseconds(v["stall_s"]), milliseconds(v["stall_s_largest"]), milliseconds(v["cpu_s"]),
                     f"{v['bytes'] / 1e6:.0f} MB"))
    for way, v in r["dcp"].items():
        kind, place = way.split()
        name = {"sync": "DCP save", "async": "DCP async_save", "kept": "DCP async_save, own stager"}[kind]
        rows.append((f"{name} ({'RAM disk' if place == 'ram' else 'disk'})", milliseconds(v["stall_s"]["median"]),
                     milliseconds(max(v["stall_s"]["all"])), milliseconds(v["cpu_s"]["median"]), f"{r['dcp_bytes'] / 1e6:.0f} MB"))
    return ("## Snapshots\n\n" + table(("", "training waits", "at most", "CPU time", "size"), rows) +
            f"\nMedians per snapshot of both ranks' 13 M parameters with AdamW. A step of mso takes {r['step_s_without']:.2f} s without "
            f"snapshots and {r['mso']['L0']['step_s']:.2f} s with an L0 after every step.\n")


def restart_text(r):
    def cell(v):
        return f"{v['median']:.1f} s" if v["median"] is not None else "–"

    rows = [(name, cell(r[k]), ", ".join(f"{t:.1f}" for t in r[k]["all"]), f"{r[k]['hung']} of {r['tries']}")
            for k, name in (("mso", "`mso run`"), ("torchrun", "torchrun --max-restarts, gloo, torch.save"))]
    own = r["mso"]
    more = "" if own["recovery_s"] is None else \
        f"\nmso found and read its snapshot in {own['recovery_s']:.2f} s and did {own['lost_steps']:.0f} steps again.\n"
    return ("## Restart after kill -9\n\n" + table(("", "to the next finished step", "tries (s)", f"hung ({r['limit_s']} s)"), rows) + more)


def aims(training, data, snapshots, restart):
    rows = []
    if training:
        rows.append(("training, against the compiled peer", f"{AIM_TRAINING} ×", f"{training['ratio_compiled']:.2f} ×",
                     verdict(training["ratio_compiled"] >= AIM_TRAINING)))
    if data:
        rows.append((f"data, against the best peer ({data['best_peer']})", f"{AIM_DATA:g} ×", f"{data['ratio']:.2f} ×",
                     verdict(data["ratio"] >= AIM_DATA)))
    if snapshots:
        for way, place in (("L0", "ram"), ("L1", "disk")):
            best = min(snapshots["dcp"][f"{kind} {place}"]["stall_s"]["median"] for kind in ("async", "kept"))
            share = snapshots["mso"][way]["stall_s"] / best
            rows.append((f"{way}: stall, share of the best async_save's", f"{AIM_STALL:g}", f"{share:.3f}", verdict(share <= AIM_STALL)))
        share = snapshots["mso"]["L0"]["stall_share"]
        rows.append(("L0: stall as a share of the step", "2 %", f"{100 * share:.2f} %", verdict(share < AIM_SHARE)))
    if restart and restart["mso"]["median"] is not None:
        other = restart["torchrun"]["median"]
        if other is None:
            rows.append(("restart, share of torchrun's time", f"{AIM_RESTART:g}", "torchrun hung every time", verdict(True)))
        else:
            share = restart["mso"]["median"] / other
            rows.append(("restart, share of torchrun's time", f"{AIM_RESTART:g}", f"{share:.2f}", verdict(share <= AIM_RESTART)))
    return table(("", "aim", "measured", ""), rows)


def pipeline_text():
    """What was measured by hand into $OUT: slow_storage.py, slow_nvme.py, idle_time.py, decode_jitter.py."""
    rows = []
    for name, words in (("slow_storage", "`file://`, training"), ("slow_nvme", "`nvme://`, the pipeline alone, in a virtual machine")):
        if r := load(name):
            rows.append((f"slow storage (5 → 800 ms), {words}: lowest throughput of five seconds, share of normal", "≥ 0.72", f"{r['lowest_slow']:.2f}",
                         verdict(r["lowest_slow"] >= 0.72)))
            rows.append(("hung storage: the same", "≥ 0.72", f"{r['lowest_hung']:.2f}", verdict(r["lowest_hung"] >= 0.72)))
            back = r["back_at_85_percent_s"]
            rows.append(("seconds from recovery to 0.85 of normal", "≤ 47", "never" if back is None else f"{back:g}",
                         verdict(back is not None and back <= 47)))
    if r := load("idle_time"):
        for way, words in (("sleep", "late"), ("burn", "hard to decode")):
            own = r[way]
            rows.append((f"one video a batch {words}: idle time, share of a synchronous loader's "
                         f"(use {100 * own['use_synchronous']:.0f} → {100 * own['use']:.0f} %)", "≤ 0.29", f"{own['idle_ratio']:.3f}",
                         verdict(own["idle_ratio"] <= 0.29)))
    if r := load("decode_jitter"):
        for name, words in (("default", "by default"), ("normal", "at ordinary priority")):
            rows.append((f"decode latency beside three hogs, {words}: standard deviation, share of that without", "≤ 1.2",
                         f"{r[name]['ratio']:.2f}", verdict(r[name]["ratio"] <= 1.2)))
    return "\n## The data pipeline under trouble\n\n" + table(("", "aim", "measured", ""), rows) if rows else ""


def pipelines_text():
    r = load("pipelines")
    if not r:
        return ""
    titles = {"images": "pictures, reduced-scale JPEG", "images exact": "pictures, exact", "clips": "clips, 8 frames", "sounds": "sounds, log-mel",
              "mixed": "the four kinds mixed"}
    peers = ["mso", "webdataset", "streaming", "energon", "dali"]
    rows = []
    for title, words in titles.items():
        if title not in r:
            continue
        rates, sizes = r[title]["samples_per_s"], r[title]["bytes"]
        aim = AIM_DATA if title.startswith("images") else 1.5
        rows.append((words, *(f"{rates[p]['median']:,.0f} ({sizes[p] / 2**20:,.0f} MiB)" if p in rates else "–" for p in peers),
                     f"{r[title]['ratio']:.2f}", f"{aim:g}: {verdict(r[title]['ratio'] >= aim)}"))
    bounds = [f"{words} {r[t]['share_of_libjpeg']:.2f} ({r[t]['libjpeg_alone']:,.0f} pictures/s; aim 0.9: "
              f"{verdict(r[t]['share_of_libjpeg'] >= 0.9)})" for t, words in titles.items() if "libjpeg_alone" in r.get(t, {})]
    bound = ("\nmso as a share of libjpeg-turbo alone, which decodes the whole pictures at the same scale from memory in two threads, "
             f"and reads, resizes and packs nothing: {'; '.join(bounds)}.\n" if bounds else "")
    return ("\n## All modalities\n\nSamples a second, and memory: same files, two threads or workers; load before "
            f"{r['load_before']:.1f}. See contrib/bench/pipelines.py and peer_media.py for what each does.\n\n" +
            table(("", "mso", "WebDataset", "mosaicml-streaming", "Energon", "DALI", "mso to the best peer", "aim"), rows) + bound)


def main():
    results = {name: load(name) for name in ("training", "data", "snapshots", "restart")}
    parts = {"training": training_text, "data": data_text, "snapshots": snapshots_text, "restart": restart_text}
    loads = [r["load_before"] for r in results.values() if r]
    text = f"""# Benchmarks against peers

Made by `contrib/bench/run` on {datetime.date.today().isoformat()}; do not edit. All figures are of one machine, both sides in
turn, medians of {ROUNDS}. What each side does: [contrib/bench/README.md](../contrib/bench/README.md).

- Machine: {machine()}
- Versions: {versions()}
- Load average before each part: {', '.join(f'{value:.1f}' for value in loads)}{' (above 1: of the part before, or the machine was not quiet)' if max(loads) > 1.5 else ''}
{f"- {os.environ['MSO_BENCH_NOTE']}{chr(10)}" if os.environ.get("MSO_BENCH_NOTE") else ""}- Model: LLaVA of 13 million parameters (CLIP 6×192 at 224/16, Llama 8×256, vocabulary 8192), float32, 8 samples a rank with
  captions of 8–48 tokens, two ranks of one thread. Pictures: JPEG of 448–1024 pixels a side.

## Aims

{aims(*results.values())}
""" + "\n".join(parts[name](result) for name, result in results.items() if result) + pipelines_text() + pipeline_text()
    pathlib.Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
