#!/usr/bin/env python3
"""A trained run, exported: transformers loads it without a missing or unexpected key, its loss on held-out samples is
the one training reported, AutoProcessor loads, and `model.path` goes on from the exported weights.

Environment: MSO, MSO_BUILD, MSO_SRCDIR.
"""
import io
import json
import os
import pathlib
import shutil
import sys
import tarfile

import torch
import transformers as tf
from PIL import Image

sys.path.insert(0, os.path.join(os.environ["MSO_SRCDIR"], "tests/mpi"))
from training import MSO, Run, check, data_set, done  # noqa: E402
import subprocess  # noqa: E402

run = Run("export", ranks=1, **{"train.steps": 30, "data.exact_jpeg": "true"}).finish()
out = run.directory.parent / "exported"
for dtype in ("float32", "bfloat16"):
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([MSO, "ckpt", "export", str(run.directory), str(out), "--dtype", dtype], check=True, stdout=subprocess.DEVNULL)
    model, info = tf.LlavaForConditionalGeneration.from_pretrained(out, output_loading_info=True, dtype="auto")
    check(not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), f"{dtype}: {info}")
    check(str(model.dtype) == f"torch.{dtype}", f"{model.dtype} instead of {dtype}")

# The evaluation of training, done again by transformers: mean loss over caption and eos of the held-out samples.
subprocess.run(["rm", "-rf", str(out)], check=True)
subprocess.run([MSO, "ckpt", "export", str(run.directory), str(out)], check=True, stdout=subprocess.DEVNULL)
model = tf.LlavaForConditionalGeneration.from_pretrained(out).eval()
processor = tf.AutoProcessor.from_pretrained(out)
shard = sorted(pathlib.Path(data_set()).glob("*.tar"))[-1]
samples = {}
with tarfile.open(shard) as tar:
    for member in tar:
        key, extension = member.name.split(".", 1)
        samples.setdefault(key, {})[extension] = tar.extractfile(member).read()
total, labels = 0.0, 0
bos, eos, image, patches = 257, 258, 259, (32 // 8) ** 2
for sample in list(samples.values())[:16]:
    caption = list(sample["txt"])
    ids = ([bos] + [image] * patches + caption + [eos])[:96]
    start = 1 + patches
    picture = Image.open(io.BytesIO(sample["jpg"])).convert("RGB")
    pixels = processor.image_processor(picture, return_tensors="pt")["pixel_values"]
    targets = torch.tensor([[-100] * start + ids[start:]])
    with torch.no_grad():
        loss = model(input_ids=torch.tensor([ids]), pixel_values=pixels, labels=targets).loss.item()
    n = len(ids) - start
    total, labels = total + loss * n, labels + n
evaluation = [r for r in run.records("eval") if r["step"] == 30][-1]
check(evaluation["label_tokens"] == labels, f"{labels} labels, training counted {evaluation['label_tokens']}")
difference = abs(total / labels - evaluation["loss"]) / evaluation["loss"]
# Pixels differ by rounding between image processor backends.
check(difference < 1e-4, f"transformers' loss {total / labels}, training reported {evaluation['loss']}")

# Weights alone: a new run from the exported folder begins where the old one ended, not from scratch.
first = run.curve()[1][0]
again = Run("export-again", ranks=1, config=pathlib.Path(os.devnull), **{
    "model.path": out, "data.eval_shards": 1, "data.max_length": 96, "data.micro_batch_tokens": 256, "train.steps": 2,
    "train.global_batch_samples": 16, "train.seed": 7, "train.learning_rate": 1e-5, "train.eval_interval": 1,
    "train.eval_samples": 16}).finish()
start = again.curve()[1][0]
check(start < 0.5 * (first + evaluation["loss"]), f"from the export the loss starts at {start}, from scratch at {first}")
done(f"loss by transformers differs by {difference:.1e}; from scratch {first:.3f}, from the export {start:.3f}")
