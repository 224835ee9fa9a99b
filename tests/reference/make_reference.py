#!/usr/bin/env python3
"""Write small LLaVA reference cases for tests/reference/parity, made with Hugging Face transformers.

Each case is one folder:
  config.json          the model's Hugging Face configuration (its public keys)
  model.safetensors    the weights, float32, under their public names
  inputs.safetensors   the batch: input_ids, attention_mask, labels, pixel_values
  expected.safetensors logits, loss, and after one backward pass: grad.<parameter> for every
                       trainable parameter; after one AdamW step: step.<parameter>
  case.json            what was run: seed, optimizer, library versions

usage: make_reference.py OUT [CASE ...]     (needs torch, transformers, safetensors)
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers as tf

SEED = 1234
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
IMAGE = 300
TEXT = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5)
VISION = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, image_size=28,
              patch_size=7, projection_dim=32)


def batch(rows, images, rng, image=IMAGE, size=28, channels=3):
    """Right-padded rows, mask, next-token labels (-100 at images and where padded) and random pixels."""
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    labels = ids.masked_fill((mask == 0) | (ids == image), -100)
    result = dict(input_ids=ids, attention_mask=mask, labels=labels)
    if images:
        result["pixel_values"] = torch.randn(images, channels, size, size, generator=rng)
    return result


def config(text={}, vision={}, image=IMAGE, **kw):
    return tf.LlavaConfig(vision_config=tf.CLIPVisionConfig(**{**VISION, **vision}),
                          text_config=tf.LlamaConfig(**{**TEXT, **text}), image_token_index=image,
                          **{**dict(vision_feature_layer=-2, vision_feature_select_strategy="default"), **kw})


def llava(rng):
    """As the hub's LLaVA-1.5, in small."""
    i = [IMAGE] * 16
    return config(), batch([[5, 6] + i + [7, 8, 9, 10, 11], [9] + i + [12, 13]], 2, rng)


def llava_tied(rng):
    """Tied embeddings, one key/value head, biases, linear rotary scaling, class token kept, two images in a row, text alone."""
    cfg = config(text=dict(num_key_value_heads=1, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                           rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=5000.0)),
                 vision=dict(hidden_act="gelu", num_attention_heads=6), vision_feature_select_strategy="full",
                 vision_feature_layer=-1, tie_word_embeddings=True)
    i = [IMAGE] * 17
    return cfg, batch([[5] + i + [7, 8] + i + [9, 10, 11, 12], [9, 14, 15, 16, 17, 18], [3] + i + [12, 13]], 3, rng)


def llava_odd(rng):
    """Sizes that fill no vector, head_dim apart from hidden_size, Llama 3 rotary scaling, two feature layers, a border
    of the picture that fills no patch, no projector bias."""
    cfg = config(text=dict(vocab_size=311, hidden_size=42, intermediate_size=53, num_hidden_layers=3, num_attention_heads=6,
                           num_key_value_heads=2, head_dim=10,
                           rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                original_max_position_embeddings=64, rope_theta=500.0)),
                 vision=dict(hidden_size=36, intermediate_size=50, num_attention_heads=3, num_hidden_layers=4, image_size=23,
                             patch_size=5), vision_feature_layer=[-2, 1], multimodal_projector_bias=False)
    i = [IMAGE] * 16
    return cfg, batch([[5, 6] + i + [7, 8, 9], i + [12, 13] + list(range(20, 60)), [1, 2]], 2, rng, size=23)


def llava_tiny(rng):
    """Small enough to be kept in the source tree for the unit tests."""
    cfg = config(text=dict(vocab_size=50, hidden_size=16, intermediate_size=24), image=49,
                 vision=dict(hidden_size=12, intermediate_size=20, num_attention_heads=2, image_size=14))
    i = [49] * 4
    return cfg, batch([[5, 6] + i + [7, 8, 9, 10, 11], [9] + i + [12, 13]], 2, rng, image=49, size=14)


CASES = {f.__name__: f for f in (llava, llava_tied, llava_odd, llava_tiny)}


def write(case, build, out):
    rng = torch.Generator().manual_seed(SEED)
    cfg, inputs = build(rng)
    cfg._attn_implementation = "eager"
    torch.manual_seed(SEED)
    model = tf.LlavaForConditionalGeneration(cfg).float().train()
    for p in model.parameters():  # no parameter left at a value that hides a mistake
        if p.std() == 0 or p.numel() == 1:
            with torch.no_grad():
                p.add_(0.1 * torch.randn(p.shape, generator=rng))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    cfg.architectures = ["LlavaForConditionalGeneration"]
    cfg.to_json_file(out / "config.json", use_diff=False)
    (out / "generation_config.json").unlink(missing_ok=True)
    result = model(**inputs)
    result.loss.backward()
    expected = {"loss": result.loss.detach(), "logits": result.logits.detach().contiguous()}
    for name, p in model.named_parameters():
        if p.grad is not None:
            expected["grad." + name] = p.grad.clone().contiguous()
    torch.optim.AdamW([p for p in model.parameters() if p.grad is not None], **ADAMW).step()
    for name, p in model.named_parameters():
        if p.grad is not None:
            expected["step." + name] = p.detach().clone().contiguous()
    safetensors.torch.save_file({k: v.contiguous() for k, v in inputs.items()}, out / "inputs.safetensors")
    safetensors.torch.save_file(expected, out / "expected.safetensors")
    (out / "case.json").write_text(json.dumps(dict(case=case, model_class=type(model).__name__, seed=SEED, adamw=ADAMW,
        loss=result.loss.item(), torch=torch.__version__, transformers=tf.__version__), indent=1) + "\n")
    print(f"{case}: loss {result.loss.item():.6f}, {sum(p.numel() for p in model.parameters())} parameters")


def main():
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    for name in names:
        write(name, CASES[name], out / name)


if __name__ == "__main__":
    main()
