#!/usr/bin/env python3
"""Writes tests/unit/base/fixtures/safetensors with the Python package (needs torch, safetensors): element i of every
tensor is (i % 7) − 3 (unsigned: i % 7; bool: i % 2), so that the test knows the right values."""
import json
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent / "fixtures/safetensors"
shapes = {"scalar": [], "vector": [5], "matrix": [3, 4], "empty": [0, 3]}
tensors = {}
for dtype, name in ((torch.float64, "F64"), (torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16"),
                    (torch.int64, "I64"), (torch.int32, "I32"), (torch.int16, "I16"), (torch.int8, "I8"),
                    (torch.uint8, "U8"), (torch.bool, "BOOL")):
    for kind, shape in shapes.items():
        count = torch.Size(shape).numel()
        values = torch.arange(count) % 7
        if name == "BOOL":
            values = torch.arange(count) % 2
        elif name != "U8":
            values = values - 3
        tensors[f"{name}.{kind}"] = values.to(dtype).reshape(shape)
here.mkdir(parents=True, exist_ok=True)
save_file(tensors, here / "all_types.safetensors", metadata={"format": "pt", "note": "naïve — ü"})
names = sorted(n for n in tensors if n.startswith("F32") or n.startswith("F16"))
sharded = here / "sharded"
sharded.mkdir(exist_ok=True)
weight_map = {}
for i, part in enumerate((names[:3], names[3:])):
    file = f"model-{i + 1:05}-of-00002.safetensors"
    save_file({n: tensors[n] for n in part}, sharded / file, metadata={"format": "pt"})
    weight_map.update({n: file for n in part})
(sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
