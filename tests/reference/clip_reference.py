#!/usr/bin/env python3
"""CLIP features equal transformers' get_image_features and get_text_features.

usage: MSO_BUILD=build clip_reference.py     (needs torch, transformers, safetensors, Pillow; the second part the stamps of tuxpaint)
Makes small random CLIP models (both activations, both ways of finding the end of a text, a picture size that fills no
patch, bfloat16 weights, several files), and compares: largest difference over the largest feature, at most 1e-5. Then
`mso data index --embed=FOLDER` on pictures with captions: the stored embeddings are what CLIPProcessor and the model make
of the files, and the neighbours the nearest by them.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import numpy
import torch
import transformers as tf
from PIL import Image
from neighbours_reference import MEDIA, STAMPS, TEXT, SideFile, check_against_brute_force
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-5
CASES = {
    "plain": dict(text={}, vision={}),
    "legacy_end": dict(text=dict(eos_token_id=2), vision={}),
    "gelu": dict(text=dict(hidden_act="gelu"), vision=dict(hidden_act="gelu", image_size=30)),
    "sizes": dict(text=dict(hidden_size=36, num_attention_heads=3, intermediate_size=50),
                  vision=dict(hidden_size=40, num_attention_heads=5, layer_norm_eps=1e-6), projection=17),
    "bfloat16": dict(text={}, vision={}, dtype=torch.bfloat16),
    "sharded": dict(text={}, vision={}, shard="40KB"),
}


def features(output):
    """transformers 5 returns an object, 4 a tensor."""
    return output if torch.is_tensor(output) else output.pooler_output


def write_tokenizer(folder):
    """CLIP's own kind of byte-level BPE, with the merges of a few words. Returns how many tokens it has."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    merges = ["a n</w>", "t h", "th e</w>", "i n", "in g</w>", "c a", "ca t</w>", "r e", "re d</w>"]
    words = letters + [letter + "</w>" for letter in letters] + [m.replace(" ", "") for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: i for i, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}))
    return len(words)


def check_index(build):
    """mso data index --embed=FOLDER as a user runs it."""
    if not any(STAMPS.glob("*/*.png")):
        print("index: skipped, the stamps of tuxpaint are not installed")
        return
    torch.manual_seed(11)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder = work / "clip"
        folder.mkdir()
        size = write_tokenizer(folder)
        model = tf.CLIPModel(tf.CLIPConfig(  # ViT-B/32's geometry, narrow
            text_config=dict(vocab_size=size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                             bos_token_id=size - 2, eos_token_id=size - 1, pad_token_id=size - 1),
            vision_config=dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=224, patch_size=32),
            projection_dim=24)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder)
        tf.CLIPImageProcessor().save_pretrained(folder)
        tokenizer = tf.CLIPTokenizer.from_pretrained(folder)
        pictures = getattr(tf, "CLIPImageProcessorPil", tf.CLIPImageProcessor)()

        for picture in sorted(STAMPS.glob("*/**/*.png"))[::12]:
            to = work / "pictures" / picture.relative_to(STAMPS)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, to)
            if picture.with_suffix(".txt").exists():
                shutil.copy(picture.with_suffix(".txt"), to.with_suffix(".txt"))
        mso = os.environ.get("MSO", f"{build}/mso")
        run = lambda *arguments: subprocess.run([mso, "data", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
        run("pack", work / "pictures", work / "set")
        run("index", f"--embed={folder}", "--float32", work / "set")
        file = SideFile(work / "set/neighbours.mso")
        if not file.about["embedder"].startswith("CLIP "):
            sys.exit(f"clip_reference: the side file names {file.about['embedder']}, not the CLIP model")

        samples = {}
        for shard in sorted((work / "set").glob("*.tar")):
            with tarfile.open(shard) as tar:
                for member in tar:
                    key, kind = member.name.rsplit(".", 1)
                    samples.setdefault(key, {})[kind] = tar.extractfile(member)
                    if kind == "jpg":
                        samples[key]["picture"] = Image.open(samples[key]["jpg"]).convert("RGB")
                    elif kind == "txt":
                        samples[key]["caption"] = samples[key]["txt"].read().decode().strip()
        if len(samples) != file.rows or file.rows < 40:
            sys.exit(f"clip_reference: {len(samples)} samples, {file.rows} rows")
        worst = reduced = 0.0
        with torch.no_grad():
            for row, sample in enumerate(samples.values()):
                right = {MEDIA: features(model.get_image_features(**pictures(sample["picture"], return_tensors="pt")))}
                if sample.get("caption"):
                    right[TEXT] = features(model.get_text_features(**tokenizer(sample["caption"], return_tensors="pt", truncation=True)))
                if file.states[row] & 3 != sum(right):
                    sys.exit(f"clip_reference: row {row} knows parts {file.states[row] & 3}, not {sum(right)}")
                for part, value in right.items():
                    ours = file.embeddings[row, :file.media] if part == MEDIA else file.embeddings[row, file.media:]
                    value = value[0].double().numpy()
                    error = numpy.abs(ours / numpy.linalg.norm(ours) - value / numpy.linalg.norm(value)).max()
                    if part == MEDIA and min(sample["picture"].size) >= 2 * 224:  # its JPEG is decoded at half size
                        reduced = max(reduced, error)
                    else:
                        worst = max(worst, error)
        print(f"index: {file.rows} samples, largest difference of unit vectors {worst:.2e}, where JPEG is decoded at half size {reduced:.2e}")
        if not (worst <= TOLERANCE and reduced <= 2e-3):
            sys.exit(f"clip_reference: index: an embedding differs by {worst:.2e} ({reduced:.2e} at half size), at most {TOLERANCE:.0e} (2e-3) is allowed")
        check_against_brute_force(file, False, "index")


def main():
    build = pathlib.Path(os.environ.get("MSO_BUILD", "build"))
    worst = 0.0
    for number, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(number)
        text = dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                    max_position_embeddings=20, eos_token_id=98, bos_token_id=97, pad_token_id=98) | case["text"]
        vision = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=28,
                      patch_size=7) | case["vision"]
        config = tf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=case.get("projection", 24))
        model = tf.CLIPModel(config).to(case.get("dtype", torch.float32)).eval()
        with torch.no_grad():  # larger than CLIP's own start, so that attention and activations matter
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            model.save_pretrained(work / "model", **({"max_shard_size": case["shard"]} if "shard" in case else {}))
            model = model.float()
            size = vision["image_size"]
            pixels = torch.randn(5, 3, size, size)
            lengths = torch.tensor([2, 7, 20, 12, 3])
            ids = torch.randint(0, 97, (5, 20))
            for row, length in enumerate(lengths):
                ids[row, 0] = 97
                ids[row, length - 1:] = 98
            mask = (torch.arange(20)[None] < lengths[:, None]).long()
            save_file({"pixel_values": pixels, "input_ids": ids, "lengths": lengths}, work / "in.safetensors")
            subprocess.run([build / "tests/reference/clip_features", work / "model", work / "in.safetensors",
                            work / "out.safetensors"], check=True)
            ours = load_file(work / "out.safetensors")
            with torch.no_grad():
                right = {"image_features": features(model.get_image_features(pixel_values=pixels)),
                         "text_features": features(model.get_text_features(input_ids=ids, attention_mask=mask))}
            for key, value in right.items():
                if ours[key].shape != value.shape:
                    sys.exit(f"clip_reference: {name}: {key} has shape {tuple(ours[key].shape)}, not {tuple(value.shape)}")
                error = ((ours[key] - value).abs().max() / value.abs().max()).item()
                worst = max(worst, error)
                print(f"{name:12} {key:16} {error:.2e}")
                if not error <= TOLERANCE:
                    sys.exit(f"clip_reference: {name}: {key} differs by {error:.2e}, at most {TOLERANCE:.0e} is allowed")
        # A folder without the text tower is refused by name.
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            tf.CLIPVisionModel(config.vision_config).save_pretrained(work / "model")
            refused = subprocess.run([build / "tests/reference/clip_features", work / "model", work / "x", work / "y"],
                                     capture_output=True, text=True)
            if refused.returncode != 2 or "model_type" not in refused.stderr:
                sys.exit(f"clip_reference: a vision model alone is not refused: {refused.stderr}")
    print(f"largest difference {worst:.2e}")
    check_index(build)


if __name__ == "__main__":
    main()
