#!/usr/bin/env python3
"""Writes llava_shapes.json: the parameters of LLaVA models as Hugging Face transformers builds them.

usage: make_llava_shapes.py OUT.json      (needs torch, transformers; no weights are allocated)
"""
import json
import sys

import torch
import transformers as tf

VISION = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, image_size=28,
              patch_size=7, projection_dim=32)
TEXT = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2)
CASES = {
    "small": dict(vision_config=VISION, text_config=TEXT),
    "biases_and_head_dim": dict(vision_config=VISION, multimodal_projector_bias=False, vision_feature_layer=-1,
                                text_config={**TEXT, "head_dim": 24, "attention_bias": True, "mlp_bias": True}),
    "two_feature_layers": dict(vision_config=VISION, text_config=TEXT, vision_feature_layer=[-3, -2]),
    # Sizes that the files leave out have transformers' defaults.
    "sparse": dict(vision_config={"image_size": 64}, text_config={"num_hidden_layers": 1, "vocab_size": 100}),
    # The hub's llava-1.5-7b-hf: only totals are kept, the list is long.
    "llava-1.5-7b": dict(vision_config=dict(hidden_size=1024, image_size=336, intermediate_size=4096,
                                            num_attention_heads=16, num_hidden_layers=24, patch_size=14,
                                            projection_dim=768, vocab_size=32000),
                         text_config=dict(max_position_embeddings=4096, rms_norm_eps=1e-5, vocab_size=32064)),
}
# transformers' own names, and the hub's.
NAMES = [("model.language_model.", "language_model.model."), ("model.vision_tower.vision_model.", "model.vision_tower."),
         ("model.vision_tower.", "vision_tower.vision_model."), ("model.multi_modal_projector.", "multi_modal_projector."),
         ("lm_head.", "language_model.lm_head.")]


def hub_name(name):
    for ours, hub in NAMES:
        if name.startswith(ours):
            name = hub + name[len(ours):]
    return name


def main(path):
    out = {"transformers": tf.__version__}
    for case, given in CASES.items():
        given.setdefault("image_token_index", min(32000, given["text_config"]["vocab_size"] - 1))
        config = tf.LlavaConfig(vision_config=tf.CLIPVisionConfig(**given["vision_config"]),
                                text_config=tf.LlamaConfig(**given["text_config"]),
                                **{k: v for k, v in given.items() if not k.endswith("_config")})
        with torch.device("meta"):
            model = tf.LlavaForConditionalGeneration(config)
        shapes = {hub_name(n): list(p.shape) for n, p in model.named_parameters()}
        totals = {}
        for name, shape in shapes.items():
            stage = {"vision_tower": "vision_encoder", "multi_modal_projector": "projector"}.get(
                name.split(".")[0], "llm_decoder")
            totals[stage] = totals.get(stage, 0) + torch.Size(shape).numel()
        out[case] = dict(config=given, totals=totals, parameters=shapes if len(shapes) < 300 else None)
    with open(path, "w") as f:
        f.write(json.dumps(out).replace('}, "', '},\n"') + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
