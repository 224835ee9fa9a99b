#!/usr/bin/env python3
"""The benchmark's LLaVA in transformers, as the peers train it: model, data from the shards, optimizer.

As a program it is the twin of contrib/bench/model_bench.cc: forward, backward and AdamW of 8 made-up samples on one
thread, without data and without ranks. Prints unpadded positions per second of CPU time, image positions included.

usage: peer_model.py [--compile] [--steps N] [--threads N]   (needs torch, transformers)
"""
import argparse
import pathlib
import statistics
import time

import torch
import transformers as tf

IMAGE, PATCH, SAMPLES = 224, 16, 8


def build_model(image_token=8191):
    config = tf.LlavaConfig(
        vision_config=tf.CLIPVisionConfig(hidden_size=192, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
                                          image_size=IMAGE, patch_size=PATCH),
        text_config=tf.LlamaConfig(vocab_size=8192, hidden_size=256, intermediate_size=688, num_hidden_layers=8,
                                   num_attention_heads=8, num_key_value_heads=8, use_cache=False),
        image_token_index=image_token, vision_feature_layer=-2, vision_feature_select_strategy="default")
    model = tf.LlavaForConditionalGeneration(config).train()  # attention: sdpa, the default
    # The last vision layer's output is not used: without a gradient DistributedDataParallel would stop, or search for
    # unused parameters in every step.
    unused = model.model.vision_tower
    unused = getattr(unused, "vision_model", unused)
    for module in (unused.encoder.layers[-1], unused.post_layernorm):
        module.requires_grad_(False)
    return model


def build_optimizer(model):
    """One fused pass; weight decay as mso's default has it."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)


class Collate:
    """Pictures and captions to padded tensors, with LLaVA's own processor. Padded to the longest of the batch, or to `length`."""

    def __init__(self, tokenizer_folder, length=None):
        self.padding = {"padding": "max_length", "max_length": length} if length else {"padding": True}
        tokenizer = tf.PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(tokenizer_folder) / "tokenizer.json"),
                                               pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="right")
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
        self.image_token = tokenizer.convert_tokens_to_ids("<image>")
        pictures = tf.CLIPImageProcessor(size={"shortest_edge": IMAGE}, crop_size={"height": IMAGE, "width": IMAGE})
        self.processor = tf.LlavaProcessor(pictures, tokenizer, patch_size=PATCH, vision_feature_select_strategy="default",
                                           image_token="<image>", num_additional_image_tokens=1)

    def __call__(self, samples):
        pictures = [sample[0].convert("RGB") for sample in samples]
        texts = [f"<s><image>{sample[1].strip()}</s>" for sample in samples]
        batch = dict(self.processor(images=pictures, text=texts, return_tensors="pt", add_special_tokens=False, **self.padding))
        batch.pop("token_type_ids", None)
        ids = batch["input_ids"]
        ignored = (batch["attention_mask"] == 0) | (ids == self.image_token)
        ignored[:, 0] = True
        batch["labels"] = ids.masked_fill(ignored, -100)
        return batch


def shard_loader(data, workers, length=None):
    """Endless batches of 8 samples of this rank's shards: WebDataset, decoded by Pillow in loader workers."""
    import webdataset as wds

    collate = Collate(data / "tokenizer", length)
    shards = sorted(map(str, (data / "shards").glob("*.tar")))
    dataset = (wds.WebDataset(shards, nodesplitter=wds.split_by_node, shardshuffle=False, empty_check=False).shuffle(32)
               .decode("pil").to_tuple("jpg", "txt").repeat().batched(SAMPLES, collation_fn=collate, partial=False))
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=4 if workers else None)
    return iter(loader), collate.image_token


def make_batch(samples, generator):
    rows = []
    for _ in range(samples):
        words = int(torch.randint(8, 49, (1,), generator=generator))
        rows.append([1] + [8191] * 196 + torch.randint(3, 8003, (words,), generator=generator).tolist())
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    labels = ids.masked_fill((mask == 0) | (ids == 8191), -100)
    pixels = torch.rand(samples, 3, IMAGE, IMAGE, generator=generator) * 4 - 2
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
    model = build_model()
    optimizer = build_optimizer(model)
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
