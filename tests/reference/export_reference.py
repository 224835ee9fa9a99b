#!/usr/bin/env python3
"""An exported folder loads in transformers (4.57 and 5): no key missing or unexpected, same logits, AutoProcessor too.

usage: MSO_BUILD=build export_reference.py     (needs torch, transformers; run once per version to be tested)
Makes a small model, saves it, has export_model export it with the byte tokenizer (in one file and in shards), loads the
result, and compares with the original. A model with video and sound loads as the LLaVA that it holds.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers as tf
from PIL import Image


def check(condition, message):
    if not condition:
        sys.exit(f"export_reference: {message} (transformers {tf.__version__})")


def add_sound(folder):
    """Makes the saved LLaVA one with video and sound; returns the names of the tensors it did not have."""
    audio = tf.Qwen2AudioEncoderConfig(num_mel_bins=20, d_model=24, encoder_layers=2, encoder_attention_heads=4,
                                       encoder_ffn_dim=40, max_source_positions=12)
    encoder = tf.Qwen2AudioEncoder(audio).float()
    tensors = {f"audio_tower.{name}": t.contiguous() for name, t in encoder.state_dict().items()}
    tensors |= {"audio_projector.linear.weight": torch.randn(64, 24), "audio_projector.linear.bias": torch.randn(64)}
    file = folder / "model.safetensors"
    safetensors.torch.save_file(safetensors.torch.load_file(file) | tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config.update(audio_config=audio.to_dict(), audio_token_index=261, video_token_index=260, spatial_pool_stride=2)
    (folder / "config.json").write_text(json.dumps(config))
    return set(tensors)


CHAT = "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>\n" \
       "{% else %}{{ p['text'] }}{% endif %}{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
TOOLS = "tools {{ messages | length }}{{ bos_token }}"
MESSAGES = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What — is it?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}]


def add_chat(folder, kind):
    """Templates as model folders have them: files of their own, and the list in a JSON file that folders of before 2025 have."""
    if kind == "files":
        (folder / "chat_template.jinja").write_text(CHAT)
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates/tool_use.jinja").write_text(TOOLS)
    else:
        (folder / "processor_config.json").write_text(json.dumps({"chat_template": CHAT}))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.25, "do_sample": True, "eos_token_id": [258, 3]}))


def check_chat(name, folder, kind):
    processor = tf.AutoProcessor.from_pretrained(folder)
    text = "<s><user><image>\nWhat — is it?</s><assistant>A cat.</s>".replace("<s>", processor.tokenizer.bos_token).replace(
        "</s>", processor.tokenizer.eos_token)
    for prompt in (False, True):
        wanted = text + "<assistant>" * prompt
        got = processor.apply_chat_template(MESSAGES, add_generation_prompt=prompt)
        check(got == wanted, f"{name}: the processor's chat: {got!r} instead of {wanted!r}")
        got = processor.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=prompt, tokenize=False)
        check(got == wanted, f"{name}: the tokenizer's chat: {got!r} instead of {wanted!r}")
    if kind == "files":
        got = processor.tokenizer.apply_chat_template(MESSAGES, chat_template="tool_use", tokenize=False)
        check(got == "tools 2" + processor.tokenizer.bos_token, f"{name}: the named template: {got!r}")
    generation = tf.GenerationConfig.from_pretrained(folder)
    check((generation.temperature, generation.do_sample, generation.eos_token_id) == (0.25, True, [258, 3]), f"{name}: {generation}")


def main():
    build = pathlib.Path(os.environ.get("MSO_BUILD", "build"))
    torch.manual_seed(0)
    for name, text, extra, shard in (
            ("plain", {}, {}, None),
            ("omni", {}, {}, None),
            ("tied", dict(tie_word_embeddings=True, num_key_value_heads=1, attention_bias=True), dict(vision_feature_layer=-1), None),
            ("sharded", {}, dict(vision_feature_select_strategy="full"), "60000")):
        config = tf.LlavaConfig(
            vision_config=tf.CLIPVisionConfig(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                                              image_size=28, patch_size=7),
            text_config=tf.LlamaConfig(**{**dict(vocab_size=264, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                                 num_attention_heads=4, num_key_value_heads=2), **text}),
            image_token_index=259, tie_word_embeddings=text.get("tie_word_embeddings", False), **extra)
        original = tf.LlavaForConditionalGeneration(config).float().eval()
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            original.save_pretrained(work / "in")
            sound = add_sound(work / "in") if name == "omni" else set()
            chat = {"omni": "files", "tied": "json"}.get(name)
            if chat:
                add_chat(work / "in", chat)
            else:
                (work / "in/generation_config.json").unlink(missing_ok=True)
            subprocess.run([build / "tests/reference/export_model", work / "in", "bytes", work / "out"] + ([shard] if shard else []), check=True)
            check((work / "out/model.safetensors.index.json").exists() == bool(shard), f"{name}: wrong number of files")
            model, info = tf.LlavaForConditionalGeneration.from_pretrained(work / "out", output_loading_info=True)
            for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
                wanted = sound if kind == "unexpected_keys" else set()
                check(set(info.get(kind) or ()) == wanted, f"{name}: {kind}: {info.get(kind)}")
            check(model.dtype == torch.float32, f"{name}: loads as {model.dtype}")
            for (key, a), (_, b) in zip(original.state_dict().items(), model.state_dict().items()):
                check(torch.equal(a, b), f"{name}: {key} differs")
            processor = tf.AutoProcessor.from_pretrained(work / "out")
            check(type(processor).__name__ == "LlavaProcessor", f"{name}: AutoProcessor gives {type(processor).__name__}")
            picture = Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=numpy.uint8))
            batch = processor(images=picture, text="<image>a cat — ü", return_tensors="pt")
            images = 16 + (extra.get("vision_feature_select_strategy") == "full")
            ids = batch["input_ids"][0].tolist()
            check(ids == [257] + [259] * images + list("a cat — ü".encode()), f"{name}: wrong ids: {ids}")
            with torch.no_grad():
                right, ours = original(**batch).logits, model.eval()(**batch).logits
            check(torch.equal(right, ours), f"{name}: logits differ by {(right - ours).abs().max().item()}")
            if chat:
                check_chat(name, work / "out", chat)
                continue
            check(not list((work / "out").glob("*chat*")), f"{name}: a chat template from nowhere")
            check(model.generation_config.eos_token_id == 258, f"{name}: generation_config: eos {model.generation_config.eos_token_id}")
    print(f"export: loads in transformers {tf.__version__}")


if __name__ == "__main__":
    main()
