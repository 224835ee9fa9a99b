#!/usr/bin/env python3
"""The peer of mso's snapshots: torch.distributed.checkpoint in a training of the same model under DistributedDataParallel.
Started by torchrun.

usage: peer_checkpoint.py --ram DIR --disk DIR --rounds N --result FILE

ways      sync    dcp.save
          async   dcp.async_save as it is (a thread writes)
          kept    dcp.async_save with a stager of our own, which keeps its buffers from one snapshot to the next
stall     from before get_state_dict to the return of the call, training waits as long
cpu       of the whole process from there until the snapshot is written, nothing else running; both ranks added
step      duration of the step after it, while it is being written
"""
import argparse
import json
import os
import pathlib
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict

from peer_model import SAMPLES, build_model, build_optimizer, make_batch

WAYS = ["sync", "async", "kept"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ram", type=pathlib.Path, required=True)
    parser.add_argument("--disk", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--result", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")  # of the snapshots: their thread must not share one with training
    torch.manual_seed(0)
    model = build_model()
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = build_optimizer(model)
    generator = torch.Generator().manual_seed(dist.get_rank())
    batch, _ = make_batch(SAMPLES, generator)
    stager = DefaultStager(StagingOptions(False, False, False, False))

    def step():
        start = time.perf_counter()
        ddp(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start

    def save(way, target):
        """Seconds until training may go on, and a function that waits for the rest."""
        dist.barrier()
        start = time.perf_counter()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        if way == "sync":
            dcp.save(state, checkpoint_id=target, process_group=group)
            return time.perf_counter() - start, lambda: None
        more = {"async_stager": stager} if way == "kept" else {}
        future = dcp.async_save(state, checkpoint_id=target, process_group=group, **more)
        return time.perf_counter() - start, future.result

    def largest(value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return float(tensor)

    def total(value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor)
        return float(tensor)

    step()
    step()
    results = {f"{way} {place}": {"stall_s": [], "cpu_s": [], "step_s": []} for place in ("ram", "disk") for way in WAYS}
    plain = []
    number = bytes_ = 0
    for turn in range(arguments.rounds + 1):  # the first makes buffers and imports, it does not count
        plain.append(step())
        for place, folder in (("ram", arguments.ram), ("disk", arguments.disk)):
            for way in WAYS:
                result = results[f"{way} {place}"]
                target = folder / f"dcp-{number}"
                number += 1
                stall, rest = save(way, target)
                duration = step()
                rest()
                shutil.rmtree(target, ignore_errors=True)
                dist.barrier()
                before = time.process_time()
                _, rest = save(way, target)
                rest()
                spent = total(time.process_time() - before)
                dist.barrier()
                if dist.get_rank() == 0:
                    bytes_ = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
                    shutil.rmtree(target, ignore_errors=True)
                stall = largest(stall)
                if turn > 0:
                    result["stall_s"].append(stall)
                    result["cpu_s"].append(spent)
                    result["step_s"].append(duration)
    if dist.get_rank() == 0:
        arguments.result.write_text(json.dumps({"ways": results, "plain_step_s": plain[1:], "bytes": bytes_}))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
