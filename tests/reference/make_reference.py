#!/usr/bin/env python3
"""Write small reference cases for tests/reference/parity, made with Hugging Face transformers: LLaVA, and LLaVA with
video and sound, composed of transformers' modules (Omni below).

Each case is one folder:
  config.json          the model's Hugging Face configuration (its public keys)
  model.safetensors    the weights, float32, under their public names
  inputs.safetensors   the batch: input_ids, attention_mask, labels, pixel_values; pixel_values_videos, input_features
  expected.safetensors logits, loss, and after one backward pass: grad.<parameter> for every
                       trainable parameter; after one AdamW step: step.<parameter>
  case.json            what was run: seed, optimizer, library versions

usage: make_reference.py OUT [CASE ...]     (needs torch, transformers, safetensors)
"""
import json
import pathlib
import sys
import types

import safetensors.torch
import torch
import transformers as tf
from transformers.models.llava_next_video.modeling_llava_next_video import LlavaNextVideoPooler
from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder, Qwen2AudioMultiModalProjector

SEED = 1234
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
IMAGE = 300
TEXT = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5)
VISION = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, image_size=28,
              patch_size=7, projection_dim=32)


def batch(rows, images, rng, image=IMAGE, size=28, channels=3, others=()):
    """Right-padded rows, mask, next-token labels (-100 at images and where padded) and random pixels."""
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    labels = ids.masked_fill((mask == 0) | (ids == image), -100)
    labels[sum((ids == token for token in others), torch.zeros_like(ids)) > 0] = -100
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


class Omni(torch.nn.Module):
    """LLaVA with the encoder of Qwen2-Audio and pooled frames as LLaVA-NeXT-Video: features of each kind are put in where its
    token stands. The class token is no part of the grid that is pooled."""

    def __init__(self, cfg, audio, pool, video_token, audio_token):
        super().__init__()
        self.config, self.extra = cfg, dict(spatial_pool_stride=pool, video_token_index=video_token)
        self.llava = tf.LlavaForConditionalGeneration(cfg)
        self.pooler = LlavaNextVideoPooler(types.SimpleNamespace(
            spatial_pool_mode="average", spatial_pool_stride=pool, vision_config=cfg.vision_config))
        self.audio_tower = self.audio_projector = None
        if audio:
            audio._attn_implementation = "eager"
            self.extra.update(audio_config=audio.to_dict(), audio_token_index=audio_token)
            self.audio_tower = Qwen2AudioEncoder(audio)
            self.audio_projector = Qwen2AudioMultiModalProjector(types.SimpleNamespace(
                audio_config=audio, text_config=cfg.text_config))

    def pictures(self, pixels):
        layers = self.config.vision_feature_layer
        states = self.llava.model.vision_tower(pixels, output_hidden_states=True).hidden_states
        return torch.cat([states[i] for i in ([layers] if isinstance(layers, int) else layers)], dim=-1)

    def forward(self, input_ids, attention_mask, labels, pixel_values=None, pixel_values_videos=None, input_features=None):
        embeds = self.llava.get_input_embeddings()(input_ids)
        project = self.llava.model.multi_modal_projector

        def put(token, features):
            mask = (input_ids == token).unsqueeze(-1).expand_as(embeds)
            assert mask.sum() == features.numel(), (token, mask.sum(), features.shape)
            return embeds.masked_scatter(mask, features)

        if pixel_values is not None:
            rows = self.pictures(pixel_values)
            if self.config.vision_feature_select_strategy == "default":
                rows = rows[:, 1:]
            embeds = put(self.config.image_token_index, project(rows))
        if pixel_values_videos is not None:
            embeds = put(self.extra["video_token_index"], project(self.pooler(self.pictures(pixel_values_videos)[:, 1:])))
        if input_features is not None:
            embeds = put(self.extra["audio_token_index"], self.audio_projector(self.audio_tower(input_features).last_hidden_state))
        return self.llava(inputs_embeds=embeds, attention_mask=attention_mask, labels=labels)

    def parameters_by_name(self):
        for name, p in self.named_parameters():
            yield name.removeprefix("llava."), p

    def save_pretrained(self, out):
        self.llava.save_pretrained(out)
        tensors = safetensors.torch.load_file(out / "model.safetensors")
        for part in ("audio_tower", "audio_projector"):
            if getattr(self, part) is not None:
                tensors.update({f"{part}.{name}": t.contiguous() for name, t in getattr(self, part).state_dict().items()})
        safetensors.torch.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def omni(rng):
    """All four kinds: two images, a text, a clip of three frames, two sounds, and all of them in one sample."""
    audio = tf.Qwen2AudioEncoderConfig(num_mel_bins=20, d_model=24, encoder_layers=2, encoder_attention_heads=4,
                                       encoder_ffn_dim=40, max_source_positions=12)
    i, v, a = [IMAGE] * 16, [301] * 4, [302] * 6
    inputs = batch([[5, 6] + i + [7, 8, 9, 10, 11], [9, 14, 15, 16], [3] + v * 3 + [12, 13, 4], [2] + a + [20, 21, 22],
                    [1] + a + [17, 18] + v + [19] + i + [23, 24, 25]], 2, rng, others=(301, 302))
    inputs["pixel_values_videos"] = torch.randn(4, 3, 28, 28, generator=rng)
    inputs["input_features"] = torch.randn(2, 20, 24, generator=rng)
    return Omni(config(), audio, 2, 301, 302), inputs


def omni_odd(rng):
    """Sizes that fill no vector, an odd number of positions and a grid with a border, both cut by pooling; class token kept,
    two feature layers, tied embeddings, no image beside the frames."""
    cfg = config(text=dict(vocab_size=311, hidden_size=42, intermediate_size=53, num_attention_heads=6, num_key_value_heads=2,
                           head_dim=10, tie_word_embeddings=True),
                 vision=dict(hidden_size=36, intermediate_size=50, num_attention_heads=3, num_hidden_layers=4, image_size=23,
                             patch_size=3), vision_feature_layer=[-2, 1], vision_feature_select_strategy="full",
                 tie_word_embeddings=True)
    audio = tf.Qwen2AudioEncoderConfig(num_mel_bins=7, d_model=30, encoder_layers=3, encoder_attention_heads=5,
                                       encoder_ffn_dim=33, max_source_positions=13)
    v, a = [301] * 4, [302] * 6
    inputs = batch([[5, 6] + v + v + [7, 8, 9], a + a + [12, 13] + list(range(20, 60)), [1, 2]], 0, rng, others=(301, 302))
    inputs["pixel_values_videos"] = torch.randn(2, 3, 23, 23, generator=rng)
    inputs["input_features"] = torch.randn(2, 7, 26, generator=rng)
    return Omni(cfg, audio, 3, 301, 302), inputs


def omni_tiny(rng):
    """Small enough to be kept in the source tree for the unit tests."""
    cfg = config(text=dict(vocab_size=50, hidden_size=16, intermediate_size=24), image=49,
                 vision=dict(hidden_size=12, intermediate_size=20, num_attention_heads=2, image_size=14))
    audio = tf.Qwen2AudioEncoderConfig(num_mel_bins=5, d_model=12, encoder_layers=2, encoder_attention_heads=2,
                                       encoder_ffn_dim=20, max_source_positions=6)
    i, v, a = [49] * 4, [48], [47] * 3
    inputs = batch([[5, 6] + i + [7, 8, 9], [9] + v + v + [12, 13], [4] + a + [11, 12], [2] + a + [3] + i + v + [14]], 2, rng,
                   image=49, size=14, others=(47, 48))
    inputs["pixel_values_videos"] = torch.randn(3, 3, 14, 14, generator=rng)
    inputs["input_features"] = torch.randn(2, 5, 12, generator=rng)
    return Omni(cfg, audio, 2, 48, 47), inputs


CASES = {f.__name__: f for f in (llava, llava_tied, llava_odd, llava_tiny, omni, omni_odd, omni_tiny)}


def write(case, build, out):
    rng = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    made, inputs = build(rng)
    is_omni = isinstance(made, Omni)
    cfg = made.config if is_omni else made
    cfg._attn_implementation = "eager"
    torch.manual_seed(SEED)
    model = (made if is_omni else tf.LlavaForConditionalGeneration(cfg)).float().train()
    parameters = list(model.parameters_by_name() if is_omni else model.named_parameters())
    for p in model.parameters():  # no parameter left at a value that hides a mistake
        if p.std() == 0 or p.numel() == 1:
            with torch.no_grad():
                p.add_(0.1 * torch.randn(p.shape, generator=rng))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    cfg.architectures = ["LlavaForConditionalGeneration"]
    cfg.to_json_file(out / "config.json", use_diff=False)
    if is_omni:
        written = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps({**written, **made.extra}, indent=2, sort_keys=True) + "\n")
    (out / "generation_config.json").unlink(missing_ok=True)
    result = model(**inputs)
    result.loss.backward()
    expected = {"loss": result.loss.detach(), "logits": result.logits.detach().contiguous()}
    for name, p in parameters:
        if p.grad is not None:
            expected["grad." + name] = p.grad.clone().contiguous()
    torch.optim.AdamW([p for p in model.parameters() if p.grad is not None], **ADAMW).step()
    for name, p in parameters:
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
