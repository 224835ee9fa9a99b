#!/usr/bin/env python3
"""CLIP features equal transformers' get_image_features and get_text_features.

usage: MSO_BUILD=build clip_reference.py     (needs torch, transformers, safetensors)
Makes small random CLIP models (both activations, both ways of finding the end of a text, a picture size that fills no
patch, bfloat16 weights, several files), and compares: largest difference over the largest feature, at most 1e-5.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers as tf
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


if __name__ == "__main__":
    main()
