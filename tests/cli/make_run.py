#!/usr/bin/env python3
"""Writes a made-up run folder (metrics.jsonl, ledger.jsonl, config.yaml) for trying `mso report`.

make_run.py KIND FOLDER, where KIND is one of:
  demo      300 steps in two minutes, one kill, everything present
  kills     300 steps, killed 25 times
  week      three days, three attempts with hours between them, a level that fails for a while
  nan       losses that are not finite, a spike
  million   a million steps
  differ    a repeated step that differs from its first run
  one       one step;  start  only the first line;  empty  an empty file;  fields  lines with hardly a field
"""
import json
import math
import os
import random
import sys


def dumps(record):
    return json.dumps(record, separators=(",", ":")) + "\n"


class Run:
    def __init__(self, folder, steps, step_s=0.4, ranks=2, seed=7, l0=0.5, l1=30, l2=300, start=1.79e9):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.file = folder, open(os.path.join(folder, "metrics.jsonl"), "w")
        self.steps, self.step_s, self.ranks, self.seed = steps, step_s, ranks, seed
        self.every = [l0, l1, l2]
        self.time, self.step, self.attempt = start, 0, 0
        self.saved = [-1, -1, -1]
        self.fail_level, self.fail_between = None, (0, 0)
        self.slow = lambda step: 1.0
        self.loss_of = self.usual_loss

    def put(self, **record):
        self.file.write(dumps({"type": record.pop("type"), "time": round(self.time, 6), **record}))

    def usual_loss(self, step):
        noise = random.Random(f"{self.seed} {step}")
        share = step / self.steps
        base = 2.2 + 6.8 * math.exp(-7 * share) + 0.5 * (1 - share)
        return base * (1 + noise.gauss(0, 0.035))

    def begin(self):
        self.attempt += 1
        self.put(type="start", attempt=self.attempt, ranks=self.ranks, step=max(self.step, 0), steps=self.steps,
                 run_id="3f9c2a71", parameters=14_212_352)
        self.last = [self.time] * 3
        self.time += 1.5

    def resume(self, level, lost=None):
        before, self.step = self.step, self.saved[level] if self.saved[level] > 0 else 0
        self.attempt += 1
        self.put(type="start", attempt=self.attempt, ranks=self.ranks, step=self.step, steps=self.steps,
                 run_id="3f9c2a71", parameters=14_212_352)
        took = 0.3 + 0.2 * level
        self.time += took
        self.put(type="resume", attempt=self.attempt, level=level, step=self.step,
                 source=["local", "shared", "shared"][level], recovery_s=took, lost_steps=before - self.step)
        self.last = [self.time] * 3

    def train(self, until, evaluate=50):
        while self.step < until:
            self.step += 1
            s = self.step
            noise = random.Random(f"{self.seed} time {s} {self.attempt}")
            wait = abs(noise.gauss(0, 0.003)) * self.step_s + (0.12 * self.step_s if noise.random() < 0.02 else 0)
            stall = 0.004 * noise.random() * self.step_s
            took = self.step_s * self.slow(s) * (1 + abs(noise.gauss(0, 0.05))) + wait + stall
            self.time += took
            content = random.Random(f"{self.seed} content {s}")
            warm = min(1.0, s / (0.05 * self.steps + 1))
            self.put(type="step", step=s, attempt=self.attempt, loss=self.loss_of(s),
                     grad_norm=1.1 * math.exp(-s / self.steps) * (1 + abs(content.gauss(0, 0.25))) + 4 * math.exp(-s / (0.03 * self.steps + 1)),
                     lr=3e-4 * warm * (0.5 + 0.5 * math.cos(math.pi * s / self.steps)),
                     tokens=content.randint(1150, 1350), label_tokens=content.randint(300, 500), samples=16,
                     sample_digest=f"{content.getrandbits(64):016x}", step_s=round(took, 6), data_wait_s=round(wait, 6),
                     snapshot_stall_s=round(stall, 6))
            if evaluate and s % evaluate == 0:
                self.time += 0.6
                self.put(type="eval", step=s, attempt=self.attempt, loss=self.usual_loss(s) + 0.15, label_tokens=4000)
            for level in range(3):
                if self.time - self.last[level] >= self.every[level]:
                    self.snapshot(level)

    def snapshot(self, level):
        self.last[level] = self.time
        fails = level == self.fail_level and self.fail_between[0] <= self.step <= self.fail_between[1]
        if not fails:
            self.saved[level] = self.step - 1
        self.put(type="snapshot", attempt=self.attempt, level=level, step=self.step - 1, write_s=[0.06, 0.5, 1.1][level],
                 bytes=[170_000_000, 228_000_000, 231_000_000][level], ok=not fails, degraded=False,
                 error="No space left on device: checkpoints/L1/step-000000123.tmp-1" if fails else "")

    def incident(self, kind, message):
        self.put(type="incident", attempt=self.attempt, kind=kind, message=message)

    def end(self, code=0, message="all steps done"):
        self.put(type="end", attempt=self.attempt, step=self.step, exit_code=code, message=message)
        self.file.close()

    def extras(self):
        with open(os.path.join(self.folder, "ledger.jsonl"), "w") as f:
            for i, (reason, detail) in enumerate([("decode_error", "JPEG ends early"), ("decode_error", "not an image <svg onload=alert(1)>"),
                                                  ("too_long", "4,310 tokens, data.max_length is 2048")] * 3):
                f.write(dumps({"step": 10 * i, "epoch": 0, "position": 160 * i, "id": 31 * i, "key": f"stamps/animals/{i:03d}",
                               "shard": f"stamps-{i % 4:05d}.tar", "reason": reason, "detail": detail}))
        with open(os.path.join(self.folder, "config.yaml"), "w") as f:
            f.write("model:\n  family: llava\n  path: /data/models/llava-small\ndata:\n  path: [/data/stamps/train, /data/more]\n"
                    "  max_length: 2048\n  micro_batch_tokens: 2048\ntrain:\n  steps: 300\n  global_batch_samples: 16\n  learning_rate: 3e-4\n"
                    "  precision: fp32\n  seed: 7\necm:\n  snapshot_levels: {level0_interval_ms: 500, level1_interval_s: 30, level2_interval_m: 5}\n"
                    "  keep: 2\nhpgc:\n  precision_routing: {vit_encoder: fp16, llm_decoder: bf16, cross_attention: fp32}\n")


def demo(folder):
    run = Run(folder, 300, l1=20, l2=60)
    run.begin()
    run.train(88)
    run.incident("bad_sample", "stamps-00002.tar: animals/cat_3: JPEG ends early; replaced by the next sample")
    run.train(123)
    run.time += 2.2
    run.resume(0)
    run.incident("rank_lost", "rank 1 (node b) did not answer within 60 s")
    run.train(300)
    run.end()
    run.extras()


def kills(folder):
    run = Run(folder, 300, l1=5, l2=20)
    at = sorted(random.Random(3).sample(range(8, 295), 25))
    run.begin()
    for k, stop in enumerate(at):
        run.train(max(stop, run.step + 1))
        run.time += 1.0 + (40 if k == 12 else 0)
        run.resume(k % 3 if run.saved[k % 3] > 0 else 0)
    run.train(300)
    run.end()


def week(folder):
    run = Run(folder, 20000, step_s=10, ranks=64, l0=30, l1=600, l2=3600)
    run.slow = lambda s: 1.35 if 8000 < s < 9000 else 1.0
    run.fail_level, run.fail_between = 1, (6000, 7200)
    run.begin()
    for k in range(1, 200):
        run.train(40 * k, evaluate=500)
        if k % 9 == 0:
            run.incident("bad_sample", f"shard-{k:05d}.tar: {k:08d}: picture has 0 pixels")
        if k == 150:
            run.incident("level_degraded", "level 1: No space left on device; trying again every 600 s")
        if k == 181:
            run.incident("level_recovered", "level 1 is written again")
    run.incident("signal", "SIGTERM from the launcher; snapshot of level 2, then leaving")
    run.put(type="end", attempt=1, step=run.step, exit_code=75, message="stopped by SIGTERM after a snapshot of level 2")
    run.saved[2] = run.step
    run.time += 9 * 3600
    run.resume(2)
    run.train(13500, evaluate=500)
    run.time += 4000
    run.resume(1)
    run.incident("rank_lost", "rank 17 (node n05) closed its connection")
    run.train(20000, evaluate=500)
    run.end()
    run.extras()


def nan(folder):
    run = Run(folder, 200)
    run.loss_of = lambda s: "nan" if s in (60, 61, 150) else "inf" if s == 62 else 900.0 if s == 100 else run.usual_loss(s)
    run.begin()
    run.train(150)
    run.incident("<b>kind</b>", "\u0000 </script><script>alert('x')</script> & more")
    run.end(1, "loss is not finite in step 150: lower train.learning_rate")


def million(folder):
    run = Run(folder, 1_000_000, step_s=0.25, l0=30, l1=300, l2=3000)
    run.begin()
    run.train(600_000, evaluate=20000)
    run.time += 100
    run.resume(0)
    run.train(1_000_000, evaluate=20000)
    run.end()


def differ(folder):
    run = Run(folder, 60)
    run.begin()
    run.train(40)
    run.time += 3
    run.resume(1 if run.saved[1] > 0 else 0)
    good = run.loss_of
    run.loss_of = lambda s: good(s) * (1 + 1e-7)
    run.train(50)
    run.file.write('{"type":"step","time":1.79')
    run.file.close()


def one(folder):
    run = Run(folder, 10)
    run.begin()
    run.train(1)
    run.file.close()


def start(folder):
    run = Run(folder, 10)
    run.begin()
    run.file.close()


def empty(folder):
    Run(folder, 10).file.close()


def fields(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "metrics.jsonl"), "w") as f:
        f.write('{"type":"start"}\n{"type":"step","step":1}\n{"type":"step","step":2,"loss":2.5}\n{"type":"step","step":3,"loss":null,"time":"late"}\n'
                'rubbish\n{"type":"snapshot"}\n{"type":"resume"}\n{"type":"incident"}\n{"type":"eval","step":2}\n{"type":"new_thing"}\n{"type":"end"}\n')
    with open(os.path.join(folder, "config.yaml"), "w") as f:
        f.write("a: [1, 2\n")
    with open(os.path.join(folder, "ledger.jsonl"), "w") as f:
        f.write('{"x":1}\n[]\nrubbish\n')


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in globals():
        sys.exit(__doc__)
    globals()[sys.argv[1]](sys.argv[2])
