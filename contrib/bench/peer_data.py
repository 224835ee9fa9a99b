#!/usr/bin/env python3
"""The peers of `mso data bench`: pictures a second, read from the same shards with two workers, decoded, resized to 224,
cropped, normalised, with the caption, in batches of 32.

usage: peer_data.py KIND DATA [--seconds S] [--workers N]
  pillow   WebDataset and torch's DataLoader; decoded by Pillow at full size, resized with its bicubic filter
  draft    the same, with Pillow's draft mode: JPEG at reduced scale, which WebDataset's own decoder does not ask for
  dali     NVIDIA DALI, CPU operators, readers.webdataset
Captions are made to token ids by the `tokenizers` package; with DALI they stay text, which is kind to it.
"""
import argparse
import io
import json
import os
import pathlib
import time

import numpy as np

BATCH, SIDE = 32, 224
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


def shards_of(data):
    return sorted(map(str, (data / "shards").glob("*.tar")))


class Prepare:
    """One sample of WebDataset to pixels [3][224][224] and token ids."""

    def __init__(self, data, draft):
        from tokenizers import Tokenizer

        self.draft = draft
        self.tokenizer = Tokenizer.from_file(str(data / "tokenizer/tokenizer.json"))
        self.scale, self.shift = 1 / (255 * STD), MEAN / STD

    def __call__(self, sample):
        from PIL import Image

        picture, caption = sample
        if self.draft:
            picture = Image.open(io.BytesIO(picture))
            scale = SIDE / min(picture.size)
            picture.draft("RGB", tuple(int(v * scale) for v in picture.size))
            picture = picture.convert("RGB")
            caption = caption.decode()
        scale = SIDE / min(picture.size)
        size = tuple(max(SIDE, int(v * scale)) for v in picture.size)
        left, top = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
        picture = picture.resize(size, Image.Resampling.BICUBIC).crop((left, top, left + SIDE, top + SIDE))
        pixels = np.asarray(picture).astype(np.float32) * self.scale - self.shift
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)), self.tokenizer.encode(caption).ids


def stack(samples):
    import torch

    return torch.from_numpy(np.stack([s[0] for s in samples])), [s[1] for s in samples]


def webdataset_batches(data, workers, draft):
    import torch
    import webdataset as wds

    torch.set_num_threads(1)
    dataset = wds.WebDataset(shards_of(data), shardshuffle=False, empty_check=False)
    if not draft:
        dataset = dataset.decode("pilrgb")
    dataset = dataset.to_tuple("jpg", "txt").map(Prepare(data, draft)).repeat().batched(BATCH, collation_fn=stack)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=4)
    for pixels, ids in loader:
        assert pixels.shape[1:] == (3, SIDE, SIDE)
        yield len(ids)


def dali_batches(data, workers):
    from nvidia.dali import fn, pipeline_def, types

    shards = shards_of(data)

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None, prefetch_queue_depth=4)
    def pipeline():
        jpeg, caption = fn.readers.webdataset(paths=shards, ext=["jpg", "txt"], missing_component_behavior="error",
                                              random_shuffle=False, prefetch_queue_depth=4)
        picture = fn.decoders.image(jpeg, device="cpu", output_type=types.RGB, use_fast_idct=True)
        picture = fn.resize(picture, resize_shorter=SIDE, interp_type=types.INTERP_CUBIC, antialias=True)
        pixels = fn.crop_mirror_normalize(picture, crop=(SIDE, SIDE), mean=list(255 * MEAN), std=list(255 * STD),
                                          dtype=types.FLOAT, output_layout="CHW")
        return pixels, caption

    pipe = pipeline()
    pipe.build()
    while True:
        pixels, _ = pipe.run()
        assert list(pixels.as_tensor().shape()[1:]) == [3, SIDE, SIDE]
        yield BATCH


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["pillow", "draft", "dali"])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.kind == "dali":
        batches = dali_batches(arguments.data, arguments.workers)
    else:
        batches = webdataset_batches(arguments.data, arguments.workers, arguments.kind == "draft")
    # Twelve batches first: workers have started, and what is read ahead (4 a worker) is full at both ends.
    for _ in range(12):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < arguments.seconds:
        count += next(batches)
    seconds = time.perf_counter() - start
    print(json.dumps({"images": count, "seconds": seconds, "images_per_s": count / seconds}), flush=True)
    os._exit(0)  # workers are not waited for


if __name__ == "__main__":
    main()
