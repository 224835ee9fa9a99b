#!/usr/bin/env python3
"""TensorBoard's own reader reads what TensorBoardWriter wrote: every value, and repeated steps once.

Runs record_tests (in $MSO_BUILD) to write the files; needs the package tensorboard.
"""
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
from tensorboard.backend.event_processing import event_accumulator, event_file_loader


def main():
    build = os.environ.get("MSO_BUILD", "build")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [os.path.join(build, "record_tests"), "--gtest_filter=TensorBoard.WriteForReference"],
            env={**os.environ, "MSO_WRITE_TENSORBOARD": folder}, check=True, stdout=subprocess.DEVNULL)
        files = sorted(os.listdir(folder))
        assert len(files) == 2, files
        # The raw loader checks both checksums of every record.
        for name, count in zip(files, (1 + 23 + 2, 2 + 23 + 3)):
            events = list(event_file_loader.LegacyEventFileLoader(os.path.join(folder, name)).Load())
            assert len(events) == count, (name, len(events))
            assert events[0].file_version == "brain.Event:2"
        accumulator = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0})
        accumulator.Reload()
        tags = accumulator.Tags()["scalars"]
        assert sorted(tags) == ["eval/loss", "perf/data_wait", "perf/tokens_per_s",
                                "train/grad_norm", "train/loss", "train/lr"], tags
        loss = accumulator.Scalars("train/loss")
        assert [e.step for e in loss] == list(range(1, 41)), [e.step for e in loss]
        for e in loss:
            if e.step == 5:
                assert math.isnan(e.value)
            else:
                assert e.value == float(np.float32(10.0 / e.step))
            attempt = 1 if e.step <= 17 else 2
            assert e.wall_time == 1.7e9 + 100 * attempt + e.step, e
        assert {e.value for e in accumulator.Scalars("perf/tokens_per_s")} == {2000.0}
        assert {e.value for e in accumulator.Scalars("perf/data_wait")} == {0.25}
        assert [e.step for e in accumulator.Scalars("eval/loss")] == [10, 20, 30, 40]
    print("ok: TensorBoard reads all 40 steps once, values equal")


if __name__ == "__main__":
    sys.exit(main())
