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

# A model's folder with chat templates and settings of generation, as it comes from a hub.
chat = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {% for p in m['content'] %}{% if p['type'] == 'image' %}<image>{% else %}" \
       "{{ p['text'] }}{% endif %}{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
check(not (out / "chat_template.jinja").exists(), "a chat template, though the run had none")
(out / "chat_template.jinja").write_text(chat)
(out / "additional_chat_templates").mkdir()
(out / "additional_chat_templates/tool_use.jinja").write_text("tools: {{ messages | length }}")
generation = {**json.loads((out / "generation_config.json").read_text()), "temperature": 0.25, "do_sample": True}
generation.pop("_from_model_config")
(out / "generation_config.json").write_text(json.dumps(generation))

# Weights alone: a new run from the exported folder begins where the old one ended, not from scratch.
first = run.curve()[1][0]
again = Run("export-again", ranks=1, config=pathlib.Path(os.devnull), **{
    "model.path": out, "data.eval_shards": 1, "data.max_length": 96, "data.micro_batch_tokens": 256, "train.steps": 2,
    "train.global_batch_samples": 16, "train.seed": 7, "train.learning_rate": 1e-5, "train.eval_interval": 1,
    "train.eval_samples": 16}).finish()
start = again.curve()[1][0]
check(start < 0.5 * (first + evaluation["loss"]), f"from the export the loss starts at {start}, from scratch at {first}")

# They are in that run's export too, also when the model's folder has changed since.
wanted = tf.AutoProcessor.from_pretrained(out)
messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
bos, eos = wanted.tokenizer.bos_token, wanted.tokenizer.eos_token


def chats(processor):
    return [processor.apply_chat_template(messages, add_generation_prompt=True),
            processor.tokenizer.apply_chat_template(messages, chat_template="tool_use", tokenize=False)]


right = chats(wanted)
check(right == [f"{bos}user: <image>What is it?{eos}assistant: ", "tools: 1"], right)
(out / "chat_template.jinja").write_text("changed since")
second = run.directory.parent / "exported-again"
shutil.rmtree(second, ignore_errors=True)
subprocess.run([MSO, "ckpt", "export", str(again.directory), str(second)], check=True, stdout=subprocess.DEVNULL)
exported = tf.AutoProcessor.from_pretrained(second)
check(chats(exported) == right, f"{chats(exported)} instead of {right}")
check(tf.GenerationConfig.from_pretrained(second).temperature == 0.25, "generation_config.json is lost")
# A template that training was told of is the one that is exported.
told = Run("export-told", ranks=1, **{"train.steps": 1, "data.chat_template": "llava_v1"}).finish()
shutil.rmtree(second, ignore_errors=True)
subprocess.run([MSO, "ckpt", "export", str(told.directory), str(second)], check=True, stdout=subprocess.DEVNULL)
text = tf.AutoProcessor.from_pretrained(second).apply_chat_template([{"role": "user", "content": "<image>\nWhat is it?"}], add_generation_prompt=True)
check("USER: <image>\nWhat is it? " in text and text.endswith("ASSISTANT:"), text)
done(f"loss by transformers differs by {difference:.1e}; from scratch {first:.3f}, from the export {start:.3f}")
