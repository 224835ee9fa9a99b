#!/usr/bin/env python3
"""The peers of `mso data bench` on pictures, clips, sounds and all mixed, with two workers.

usage: peer_media.py LOADER KIND DATA [--seconds S] [--workers N] [--draft]
  LOADER  webdataset | streaming | energon: torch's DataLoader; pictures by Pillow, clips by torchcodec, sounds by torchcodec and
          transformers' WhisperFeatureExtractor.  dali: NVIDIA DALI's CPU operators
  KIND    images | clips | sounds | mixed: folders of DATA, see make_media.py
  --draft JPEG at reduced scale (Pillow's draft mode; nothing of the kind in DALI)
Pictures and each of 8 evenly spaced frames of a clip: shorter side to 224, centre crop, normalised, float32. Sounds: 16 kHz mono,
log-mel features of a window of 30 seconds. Texts: token ids (with DALI they stay text). Prints one JSON line.
"""
import argparse
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import numpy as np

BATCH, SIDE, FRAMES = 32, 224, 8
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


class Prepare:
    """One sample, extension → bytes, to float32 media and token ids."""

    def __init__(self, data, draft):
        import torch
        from tokenizers import Tokenizer

        torch.set_num_threads(1)
        self.draft = draft
        self.tokenizer = Tokenizer.from_file(str(data / "pictures/tokenizer/tokenizer.json"))
        self.extractor = None

    def picture(self, content):
        from PIL import Image

        picture = Image.open(io.BytesIO(content))
        if self.draft:
            scale = SIDE / min(picture.size)
            picture.draft("RGB", tuple(int(v * scale) for v in picture.size))
        picture = picture.convert("RGB")
        scale = SIDE / min(picture.size)
        size = tuple(max(SIDE, int(v * scale)) for v in picture.size)
        left, top = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
        picture = picture.resize(size, Image.Resampling.BICUBIC).crop((left, top, left + SIDE, top + SIDE))
        pixels = np.asarray(picture).astype(np.float32) * (1 / (255 * STD)) - MEAN / STD
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def clip(self, content):
        import torch
        from torchcodec.decoders import VideoDecoder
        from torchvision.transforms.v2 import functional as F

        decoder = VideoDecoder(content, num_ffmpeg_threads=1)
        total = decoder.metadata.num_frames
        count = min(FRAMES, total)
        frames = decoder.get_frames_at([int(i) for i in np.linspace(0, total - 1, count).round()]).data
        frames = F.center_crop(F.resize(frames, SIDE, F.InterpolationMode.BICUBIC, antialias=True), [SIDE, SIDE])
        mean, std = torch.from_numpy(MEAN).view(1, 3, 1, 1), torch.from_numpy(STD).view(1, 3, 1, 1)
        return ((frames.float() / 255 - mean) / std).numpy()

    def sound(self, content):
        from torchcodec.decoders import AudioDecoder

        if self.extractor is None:
            from transformers import WhisperFeatureExtractor

            self.extractor = WhisperFeatureExtractor()
        samples = AudioDecoder(content, sample_rate=16000, num_channels=1).get_all_samples().data[0].numpy()
        return self.extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]

    def __call__(self, sample):
        media = None
        for extension, work in (("jpg", self.picture), ("mp4", self.clip), ("ogg", self.sound)):
            if sample.get(extension):
                media = work(sample[extension])
        return media, self.tokenizer.encode(sample["txt"].decode()).ids


def as_is(samples):
    """Media of several shapes: what has one shape is stacked, as every model's collator does."""
    by_shape = {}
    for media, _ in samples:
        if media is not None:
            by_shape.setdefault(media.shape, []).append(media)
    return {shape: np.stack(some) for shape, some in by_shape.items()}, [ids for _, ids in samples]


def webdataset_batches(data, kind, workers, draft):
    import webdataset as wds

    prepare = Prepare(data, draft)
    shards = sorted(map(str, (data / kind).glob("*.tar")))
    dataset = wds.WebDataset(shards, shardshuffle=False, empty_check=False).map(prepare).repeat().batched(BATCH, collation_fn=as_is)
    for _, ids in wds.WebLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=4):
        yield len(ids)


def samples_of(folder):
    for shard in sorted(folder.glob("*.tar")):
        found = {}
        with tarfile.open(shard) as tar:
            for member in tar:
                key, extension = member.name.split(".", 1)
                found.setdefault(key, {})[extension] = tar.extractfile(member).read()
        yield from found.values()


def streaming_batches(data, kind, workers, draft):
    import torch
    import streaming
    import streaming.base.util
    from streaming import MDSWriter, StreamingDataset

    folder = data / "mds" / kind
    if not (folder / "index.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        columns = {extension: "bytes" for extension in ("jpg", "mp4", "ogg", "txt")}
        with MDSWriter(out=str(folder), columns=columns, size_limit="8mb") as writer:
            for sample in samples_of(data / kind):
                writer.write({extension: sample.get(extension, b"") for extension in columns})
    prepare = Prepare(data, draft)

    class Samples(StreamingDataset):
        def __getitem__(self, index):
            return prepare(super().__getitem__(index))

    streaming.base.util.clean_stale_shared_memory()
    # One long pass, so that no time goes to its ends.
    dataset = Samples(local=str(folder), batch_size=BATCH, shuffle=False, epoch_size=100 * 192)
    for _, ids in torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, prefetch_factor=4, collate_fn=as_is):
        yield len(ids)


def energon_batches(data, kind, workers, draft):
    from megatron.energon import CrudeWebdataset, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset
    from megatron.energon.task_encoder import Cooker, stateless
    from dataclasses import dataclass

    folder = data / "energon" / kind
    if not (folder / ".nv-meta").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for shard in sorted((data / kind).glob("*.tar")):
            shutil.copy(shard, folder)
        subprocess.run([os.path.join(os.path.dirname(sys.executable), "energon"), "prepare", str(folder), "--non-interactive",
                        "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--force-overwrite"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    prepare = Prepare(data, draft)

    @stateless
    def cook(sample):
        return dict(prepared=prepare(sample), **{k: sample[k] for k in ("__key__", "__restore_key__", "__subflavors__") if k in sample})

    class Encoder(DefaultTaskEncoder):
        decoder = None
        cookers = [Cooker(cook)]

        @stateless
        def batch(self, samples):
            return as_is([s["prepared"] for s in samples])

    dataset = get_train_dataset(str(folder), worker_config=WorkerConfig(rank=0, world_size=1, num_workers=workers), batch_size=BATCH,
                                shuffle_buffer_size=None, max_samples_per_sequence=None, task_encoder=Encoder())
    for _, ids in get_loader(dataset, prefetch_factor=4):
        yield len(ids)


def dali_batches(data, kind, workers, draft):
    from nvidia.dali import fn, pipeline_def, types

    shards = sorted(map(str, (data / kind).glob("*.tar")))
    extension = {"images": "jpg", "clips": "mp4", "sounds": "ogg"}[kind]

    @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None, prefetch_queue_depth=4)
    def pipeline():
        content, caption = fn.readers.webdataset(paths=shards, ext=[extension, "txt"], missing_component_behavior="error",
                                                 random_shuffle=False, prefetch_queue_depth=4)
        if kind == "sounds":
            sound, rate = fn.decoders.audio(content, dtype=types.FLOAT, downmix=True, sample_rate=16000)
            sound = fn.pad(sound, axes=0, shape=[480000])
            power = fn.spectrogram(sound, nfft=400, window_length=400, window_step=160)
            return fn.to_decibels(fn.mel_filter_bank(power, sample_rate=16000, nfilter=80, freq_high=8000), multiplier=1, cutoff_db=-80), caption
        if kind == "clips":
            picture = fn.experimental.decoders.video(content, device="cpu")  # whole: it cannot take 8 frames of any length
        else:
            picture = fn.decoders.image(content, device="cpu", output_type=types.RGB, use_fast_idct=True)
        picture = fn.resize(picture, resize_shorter=SIDE, interp_type=types.INTERP_CUBIC, antialias=True)
        return fn.crop_mirror_normalize(picture, crop=(SIDE, SIDE), mean=list(255 * MEAN), std=list(255 * STD), dtype=types.FLOAT,
                                        output_layout="FCHW" if kind == "clips" else "CHW"), caption

    pipe = pipeline()
    pipe.build()
    while True:
        pipe.run()
        yield BATCH


def bytes_in_use():
    """Of this process and its workers, shared pages counted once."""
    total = 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            parent = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("PPid:")][0]
            if str(os.getpid()) in (parent, status.parent.name):
                rollup = (status.parent / "smaps_rollup").read_text()
                total += sum(1024 * int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        except OSError:
            continue
    return total


def main():
    parser = argparse.ArgumentParser()
    loaders = {"webdataset": webdataset_batches, "streaming": streaming_batches, "energon": energon_batches, "dali": dali_batches}
    parser.add_argument("loader", choices=loaders)
    parser.add_argument("kind", choices=["images", "clips", "sounds", "mixed"])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--draft", action="store_true")
    arguments = parser.parse_args()
    batches = loaders[arguments.loader](arguments.data, arguments.kind, arguments.workers, arguments.draft)
    # Batches first until workers have started and what is read ahead (4 a worker) is full at both ends.
    for _ in range(12 if arguments.kind in ("images", "mixed") else 6):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < arguments.seconds:
        count += next(batches)
    seconds = time.perf_counter() - start
    pss = bytes_in_use()
    print(json.dumps({"samples": count, "seconds": seconds, "samples_per_s": count / seconds, "bytes": pss}), flush=True)
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)  # workers are not waited for


if __name__ == "__main__":
    main()
