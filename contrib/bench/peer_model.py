#!/usr/bin/env python3
"""The model of contrib/bench/model_bench.cc in transformers: forward, backward and AdamW of 8 samples on one thread.

usage: peer_model.py [--compile] [--steps N] [--threads N]   (needs torch, transformers)
Prints unpadded positions per second of CPU time (meaningful on a shared machine), image positions included.
"""
import argparse
import statistics
import time

import torch
import transformers as tf


def make_batch(samples, generator):
    rows = []
    for _ in range(samples):
        words = int(torch.randint(8, 49, (1,), generator=generator))
        rows.append([1] + [8191] * 196 + torch.randint(3, 8003, (words,), generator=generator).tolist())
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    labels = ids.masked_fill((mask == 0) | (ids == 8191), -100)
    pixels = torch.rand(samples, 3, 224, 224, generator=generator) * 4 - 2
    return dict(input_ids=ids, attention_mask=mask, labels=labels, pixel_values=pixels), sum(map(len, rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    config = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(hidden_size=192, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
                                          image_size=224, patch_size=16),
        text_config=tf.LlamaConfig(vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=8,
                                   num_attention_heads=8, num_key_value_heads=8),
        image_token_index=8191, vision_feature_layer=-2, vision_feature_select_strategy="default")
    model = tf.LlavaForConditionalGeneration(config).train()  # attention: sdpa, the default
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    forward = torch.compile(model, dynamic=True) if args.compile else model
    generator = torch.Generator().manual_seed(0)
    times, positions = [], []
    for step in range(args.steps + 3):
        batch, count = make_batch(args.samples, generator)
        start = time.process_time()
        loss = forward(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.process_time() - start
        if step >= 3:
            times.append(seconds)
            positions.append(count)
    print(f"{'compiled' if args.compile else 'eager'}: loss {loss.item():.4f}, {statistics.mean(times) * 1e3:.1f} ms a step, "
          f"positions/s: {sum(positions) / sum(times):.0f} mean, "
          f"{statistics.median(p / t for p, t in zip(positions, times)):.0f} median")


if __name__ == "__main__":
    main()
