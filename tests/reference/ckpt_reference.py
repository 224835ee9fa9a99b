#!/usr/bin/env python3
"""h5py opens the snapshot files of every level as they are, and finds in them exactly what was saved.

Runs ckpt_tests (in $MSO_BUILD) to write a run of three ranks; needs the packages h5py and numpy.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np


def read_state(files):
    """{buffer: {tensor: array}} put together from the files of one state by their tables."""
    state, shapes = {}, {}
    for path in files:
        with h5py.File(path, "r") as file:
            assert file.attrs["format"] == 1 and file.attrs["writers"] == len(files), path
            assert set(file["buffers"]) == set(file["tables"])
            for name, flat in file["buffers"].items():
                assert flat.attrs["dtype"].decode() == "F32" and flat.dtype == np.float32 and flat.chunks is None
                data = flat[:]
                covered = np.zeros(len(data), bool)
                for row in file["tables"][name][:]:
                    tensor = row["name"].decode()
                    shape = tuple(int(n) for n in row["shape"][: row["rank"]])
                    begin, end, offset = int(row["begin"]), int(row["end"]), int(row["offset"])
                    whole = state.setdefault(name, {}).setdefault(tensor, np.full(int(np.prod(shape)), np.nan, np.float32))
                    assert shapes.setdefault(tensor, shape) == shape
                    assert np.isnan(whole[begin:end]).all(), f"{tensor}: an element is in two files"
                    assert not covered[offset : offset + end - begin].any()
                    covered[offset : offset + end - begin] = True
                    whole[begin:end] = data[offset : offset + end - begin]
                assert (data[~covered] == 0).all(), f"{path}: padding is not zero"
    return state


def main():
    build = os.environ.get("MSO_BUILD", "build")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(build, "ckpt_tests"), "--gtest_filter=Reference.WriteRun"],
                       env={**os.environ, "MSO_WRITE_SNAPSHOTS": folder}, check=True, stdout=subprocess.DEVNULL)
        expected = {buffer: {tensor: np.fromfile(f"{folder}/expected/{buffer}/{tensor}", np.float32)
                             for tensor in os.listdir(f"{folder}/expected/{buffer}")}
                    for buffer in os.listdir(f"{folder}/expected")}
        states = {"L2": glob.glob(f"{folder}/run/checkpoints/L2/step-000000006/*.h5")}
        compared = 0
        for level, files in states.items():
            assert len(files) == 3, (level, files)
            state = read_state(sorted(files))
            assert state.keys() == expected.keys()
            for buffer, tensors in expected.items():
                assert tensors.keys() == state[buffer].keys()
                for tensor, values in tensors.items():
                    assert np.array_equal(state[buffer][tensor], values), (level, buffer, tensor)
                    compared += values.size
            with h5py.File(sorted(files)[0], "r") as file:
                assert json.loads(file["records/cursor"][()])["position"] == 600
                assert file["records/config"][()].decode() == "train:\n  caption: €\n"
                assert file["records/empty"][()] == b""
                assert len(file["records/tokenizer"][()]) == 5006
            with open(os.path.join(os.path.dirname(files[0]), "manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            assert [f["size"] for f in manifest["files"]] == [os.path.getsize(f) for f in sorted(files)]
        # Own and partner's copies at L0 are the same file.
        own = {os.path.basename(p) + open(p, "rb").read(4096).decode(): open(p, "rb").read()
               for p in glob.glob(f"{folder}/ram/*/*/*/own/*.h5")}
        partner = {os.path.basename(p) + open(p, "rb").read(4096).decode(): open(p, "rb").read()
                   for p in glob.glob(f"{folder}/ram/*/*/*/partner/*.h5")}
        assert own and own == partner
        kinds = {"full": 0, "delta": 0}
        for path in glob.glob(f"{folder}/ram/*/*/*/*/*.h5"):
            with h5py.File(path, "r") as file:
                if "delta" in file.attrs:
                    kinds["delta"] += 1
                    assert list(file["buffers"]) == [f"gradient.{file.attrs['step']}"], path
                    assert file[f"buffers/gradient.{file.attrs['step']}"].dtype == np.float32
                    assert "update" in file["records"]
                else:
                    kinds["full"] += 1
                    assert sorted(file["buffers"]) == ["exp_avg", "exp_avg_sq", "master"], path
                assert "tokenizer" not in file["records"] or "delta" not in file.attrs
        # Own and partner's copies of three ranks: a full state of step 5 and its delta at least.
        assert kinds["full"] >= 6 and kinds["delta"] >= 6, kinds
        print(f"{compared} elements equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
