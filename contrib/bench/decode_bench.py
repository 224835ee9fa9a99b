#!/usr/bin/env python3
"""Pictures a second: our decoder and image processor against Pillow and transformers, on the same JPEGs in one run.

    make decode_bench && MSO_BUILD=build contrib/bench/decode_bench.py
"""
import glob
import io
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

SECONDS = float(os.environ.get("MSO_BENCH_SECONDS", "3"))


def make_pictures(folder, count=64):
    """JPEGs of 448 to 1024 pixels a side, quality 85, 1 to 2 bits a pixel, as photographs have."""
    rng = np.random.default_rng(1)
    for i in range(count):
        width, height = (int(v) for v in rng.integers(448, 1025, 2))
        small = rng.integers(0, 256, (height // 24, width // 24, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
        noise = rng.normal(0, 3, (height, width, 1)).astype(int)
        picture = Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))
        picture.save(os.path.join(folder, f"{i:03}.jpg"), quality=85)


def report(name, work, files):
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < SECONDS:
        work(files[count % len(files)])
        count += 1
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"1 thread   {name:42} {count / wall:8.0f} images/s {count / cpu:8.0f} per CPU second")


def pillow(reduced):
    mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
    std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)

    def work(data):
        image = Image.open(io.BytesIO(data))
        scale = 224 / min(image.size)
        size = tuple(int(v * scale) for v in image.size)
        if reduced:
            image.draft("RGB", size)
        image = image.resize(size, Image.Resampling.BICUBIC)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        image = image.crop((left, top, left + 224, top + 224))
        return ((np.asarray(image) * np.float32(1 / 255) - mean) / std).transpose(2, 0, 1).copy()

    return work


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(folder)
        files = [open(f, "rb").read() for f in sorted(glob.glob(os.path.join(folder, "*.jpg")))]
        print(f"mean size {sum(map(len, files)) / len(files) / 1000:.0f} kB")
        sys.stdout.flush()
        subprocess.run([os.path.join(os.environ.get("MSO_BUILD", "build"), "decode_bench"), folder, str(SECONDS)], check=True)
        report("Pillow, full size", pillow(False), files)
        report("Pillow, draft (reduced scale)", pillow(True), files)
        try:
            from transformers import CLIPImageProcessor
        except ImportError:
            return
        processor = CLIPImageProcessor()
        work = lambda data: processor(images=Image.open(io.BytesIO(data)), return_tensors="np")
        report("Pillow and transformers' processor", work, files)


if __name__ == "__main__":
    main()
