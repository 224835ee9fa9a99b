#!/usr/bin/env python3
"""The peer of `mso run`: a training of the same model that torchrun starts again when a rank dies, going on from a checkpoint
of torch.save. Started by torchrun --max-restarts.

usage: peer_restart.py --folder DIR     (writes DIR/pids, DIR/steps.jsonl, DIR/checkpoint.pt)
"""
import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist

from peer_model import SAMPLES, build_model, build_optimizer, make_batch

EVERY = 3  # steps between checkpoints


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    folder = parser.parse_args().folder
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    with open(folder / "pids", "a") as pids:
        pids.write(json.dumps({"pid": os.getpid(), "rank": rank, "attempt": attempt}) + "\n")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build_model()
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = build_optimizer(model)
    step = 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, mmap=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    batch, _ = make_batch(SAMPLES, torch.Generator().manual_seed(rank))
    while True:
        ddp(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if rank == 0:
            if step % EVERY == 0:
                part = folder / "checkpoint.part"
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
                part.rename(checkpoint)
            with open(folder / "steps.jsonl", "a") as steps:
                steps.write(json.dumps({"time": time.time(), "step": step, "attempt": attempt}) + "\n")


if __name__ == "__main__":
    main()
