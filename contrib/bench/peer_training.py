#!/usr/bin/env python3
"""The peer of `mso train`: transformers' LLaVA under PyTorch DistributedDataParallel, gloo, one thread a rank, padded
batches with an attention mask. Started by torchrun.

usage: peer_training.py --data DIR --steps N --warm-up N --result FILE [--compile no|static|dynamic] [--workers N]

static    torch.compile of the DistributedDataParallel module; all batches padded to one length, so that it is compiled once
          for known sizes; captures scalars, else the check of image positions breaks the graph
dynamic   the same with batches padded to their longest and dynamic=True
"""
import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist

from peer_model import build_model, build_optimizer, shard_loader

LONGEST = 248  # 196 image positions, 48 of the caption, beginning and end, rounded up to eight


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--result", type=pathlib.Path, required=True)
    parser.add_argument("--compile", choices=["no", "static", "dynamic"], default="no")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--preload", action="store_true", help="all batches before the first step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    length = LONGEST if arguments.compile == "static" else None
    batches, image_token = shard_loader(arguments.data, arguments.workers, length)
    if arguments.preload:
        batches = iter([next(batches) for _ in range(arguments.warm_up + arguments.steps)])
    torch.manual_seed(0)
    model = build_model(image_token)
    optimizer = build_optimizer(model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    forward = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if arguments.compile != "no":
        torch._dynamo.config.capture_scalar_outputs = True
        forward = torch.compile(forward, dynamic=arguments.compile == "dynamic")

    begin = None
    seconds, positions, padded = [], 0, 0
    for step in range(arguments.warm_up + arguments.steps):
        if step == arguments.warm_up:
            dist.barrier()
            begin = time.perf_counter()
        start = time.perf_counter()
        batch = next(batches)
        loss = forward(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
        if begin is not None:
            positions += int(batch["attention_mask"].sum())
            padded += batch["attention_mask"].numel()
    dist.barrier()
    wall = time.perf_counter() - begin
    sums = torch.tensor([positions, padded], dtype=torch.float64)
    dist.all_reduce(sums)
    if dist.get_rank() == 0:
        arguments.result.write_text(json.dumps({
            "tokens": int(sums[0]), "padded": int(sums[1]), "seconds": wall, "tokens_per_s": float(sums[0]) / wall,
            "loss": float(loss), "first_steps_s": seconds[: arguments.warm_up], "step_s": seconds[arguments.warm_up:],
            "parameters": sum(p.numel() for p in parameters)}))
        print(f"{float(sums[0]) / wall:.0f} tokens/s, loss {float(loss):.3f}", flush=True)
    dist.barrier()
    os._exit(0)  # loader workers are not waited for


if __name__ == "__main__":
    main()
