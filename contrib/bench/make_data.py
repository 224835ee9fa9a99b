#!/usr/bin/env python3
"""What all benchmarks read: WebDataset shards of captioned JPEGs, and a tokenizer with a vocabulary of 8192.

usage: make_data.py OUT [--pictures N]      (env MSO: the program; needs numpy, Pillow, tokenizers)

OUT/tokenizer   byte-level BPE, trained on the captions of tuxpaint-stamps-default in all their languages
OUT/shards      pictures of 448 to 1024 pixels a side: stamps pasted on a rough background, with the noise of a camera
                (so that they take about as many bits a pixel as photographs do), captions of 8 to 48 tokens; packed by
                `mso data pack`, with its index
The same arguments give the same bytes. Does nothing where OUT is whole.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess

import numpy as np
from PIL import Image

STAMPS = pathlib.Path("/usr/share/tuxpaint/stamps")
VOCABULARY = 8192
SPECIAL = ["<pad>", "<s>", "</s>", "<image>"]


def captions_of(path):
    """English first, then the other languages."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split(".utf8=", 1)[-1].strip() for line in lines if line.strip()]


def train_tokenizer(folder, texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>",
        "image_token": "<image>", "padding_side": "right", "clean_up_tokenization_spaces": False,
        "model_max_length": 2048}, indent=1))
    return tokenizer


def make_caption(tokenizer, texts, rng):
    """Captions of the stamps, one after the other, cut to a length drawn evenly from 8 to 48 tokens."""
    while True:
        length = rng.randint(8, 48)
        text = ""
        while len((encoded := tokenizer.encode(text)).ids) <= length:
            text = f"{text} {rng.choice(texts)}".strip()
        text = text[: encoded.offsets[length][0]].strip()
        if len(tokenizer.encode(text).ids) == length:
            return text


def make_picture(job):
    number, folder, stamps = job
    rng = np.random.default_rng(number)
    width, height = (int(v) for v in rng.integers(448, 1025, 2))
    picture = np.zeros((height, width, 3), np.float32)
    for cell, strength in ((256, 0.6), (64, 0.25), (16, 0.1), (4, 0.05)):  # rough at every scale, as nature is
        small = rng.integers(0, 256, (height // cell + 2, width // cell + 2, 3), dtype=np.uint8)
        picture += strength * np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    image = Image.fromarray(picture.clip(0, 255).astype(np.uint8))
    for path in stamps:
        stamp = Image.open(path).convert("RGBA")
        scale = float(rng.uniform(0.3, 0.8)) * min(width, height) / max(stamp.size)
        stamp = stamp.resize([max(1, int(v * scale)) for v in stamp.size], Image.Resampling.BICUBIC)
        at = [int(rng.integers(0, max(1, a - b))) for a, b in zip((width, height), stamp.size)]
        image.paste(stamp, at, stamp)
    noisy = np.asarray(image).astype(np.float32) + rng.normal(0, 2.5, (height, width, 1))
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:06}.jpg", quality=97)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pictures", type=int, default=384)
    arguments = parser.parse_args()
    out, count = arguments.out, arguments.pictures
    stamp = out / "whole"
    if stamp.exists() and stamp.read_text() == str(count):
        return
    if not STAMPS.is_dir():
        raise SystemExit(f"make_data: {STAMPS} is missing: apt-get install tuxpaint-stamps-default")
    shutil.rmtree(out, ignore_errors=True)
    texts_of = [captions_of(path) for path in sorted(STAMPS.rglob("*.txt"))]
    texts = [text for some in texts_of for text in some if text]
    tokenizer = train_tokenizer(out / "tokenizer", texts)

    rng = random.Random(1)
    stamps = sorted(STAMPS.rglob("*.png"))
    folder = out / "pictures"
    folder.mkdir()
    jobs = [(i, folder, rng.sample(stamps, rng.randint(1, 3))) for i in range(count)]
    for i in range(count):
        (folder / f"{i:06}.txt").write_text(make_caption(tokenizer, texts, rng) + "\n", encoding="utf-8")
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.map(make_picture, jobs, chunksize=8)
    subprocess.run([os.environ["MSO"], "data", "pack", folder, out / "shards", "--quality", "85",
                    "--max-samples-per-shard", str(-(-count // 8))], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)
    stamp.write_text(str(count))


if __name__ == "__main__":
    main()
