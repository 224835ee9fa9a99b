#!/usr/bin/env python3
"""Compares decoding, resizing and the image processor with Pillow and transformers.

Run by contrib/run-tests with MSO_BUILD (the build folder). Exits 1 where a limit is broken, 77 where a package is missing.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

from served import Served

try:
    import numpy as np
    import PIL
    from PIL import Image, ImageOps
    import transformers
    from transformers import AutoImageProcessor
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BUILD = os.environ.get("MSO_BUILD", "build")
STAMPS = os.environ.get("MSO_STAMPS", "/usr/share/tuxpaint/stamps")
failures = []


def modern_resize(original):
    """Pillow before 13.0 always resized rows first; give it the order of today (see io/resize.h)."""

    def resize(self, size, resample=None, *args, **kwargs):
        width, height = size
        nearest = resample == Image.Resampling.NEAREST
        if not nearest and self.height - height > 2 * max(self.width - width, 0):
            self = original(self, (self.width, height), resample)
        return original(self, size, resample, *args, **kwargs)

    return resize


if int(PIL.__version__.split(".")[0]) < 13:
    Image.Image.resize = modern_resize(Image.Image.resize)


class Ours(Served):
    def __init__(self):
        super().__init__("process_image")

    def picture(self, *words):
        data = self.ask(*words)
        width, height = struct.unpack("<ii", data[:8])
        return np.frombuffer(data[8:], np.uint8).reshape(height, width, 3)

    def pixels(self, command, config, path, height, width):
        return np.frombuffer(self.ask(command, config, path), np.float32).reshape(3, height, width)


def check(name, value, limit):
    good = value <= limit
    print(f"{'ok  ' if good else 'FAIL'} {name}: {value:.3g} (limit {limit:.3g})")
    if not good:
        failures.append(name)


def reference_rgb(path):
    """As the decoder documents it: upright, alpha on white. 16-bit gray scaled (old Pillow clips it to white)."""
    image = Image.open(path)
    if image.mode.startswith("I"):
        return np.repeat(((np.asarray(image).astype(np.int64) * 255 + 32767) // 65535)[..., None], 3, 2).astype(np.uint8)
    image = ImageOps.exif_transpose(image)
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255,) * 4), image)
    return np.asarray(image.convert("RGB"))


def photo(rng, width, height):
    """Smooth colours with some grain, so that JPEG behaves as on photographs."""
    small = rng.integers(0, 256, (max(2, height // 24), max(2, width // 24), 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return Image.fromarray((smooth + rng.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8))


def test_decode(ours, paths):
    worst = 0
    for path in paths:
        got, want = ours.picture("decode", path), reference_rgb(path)
        worst = max(worst, 255 if got.shape != want.shape else np.abs(got.astype(int) - want).max())
    check(f"decode {len(paths)} stamps, max difference to Pillow", worst, 0)


def test_resize(ours, folder, rng):
    worst, count = 0, 0
    sizes = [(1, 1), (2, 3), (5, 400), (333, 7), (64, 64), (97, 211), (500, 353), (1024, 20)]
    for in_width, in_height in sizes:
        path = os.path.join(folder, "resize.png")
        image = Image.fromarray(rng.integers(0, 256, (in_height, in_width, 3), dtype=np.uint8))
        image.save(path)
        targets = [(in_width, 9), (11, in_height), (1, 1), (224, 224)]
        targets += [tuple(int(v) for v in rng.integers(1, 300, 2)) for _ in range(4)]
        for width, height in targets:
            for how in range(6):
                got = ours.picture("resize", width, height, how, path)
                want = np.asarray(image.resize((width, height), Image.Resampling(how)))
                worst = max(worst, np.abs(got.astype(int) - want).max())
                count += 1
    check(f"resize {count} cases of 6 filters, max difference to Pillow", worst, 0)


def backends(config):
    """The PIL processor, and the torchvision one where there is one, for a folder."""
    if transformers.__version__.startswith("4."):
        yield "PIL", AutoImageProcessor.from_pretrained(config, use_fast=False)
        kind = {"use_fast": True}
    else:
        yield "PIL", AutoImageProcessor.from_pretrained(config, backend="pil")
        kind = {"backend": "torchvision"}
    try:
        yield "torchvision", AutoImageProcessor.from_pretrained(config, **kind)
    except (ImportError, ValueError) as error:
        print(f"     no torchvision backend: {error}")


def test_processor(ours, folder, rng, stamps):
    clip = {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 224},
        "resample": 3, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711], "do_convert_rgb": True,
    }
    cases = {
        "clip-224": clip,
        "clip-336": {**clip, "size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
        "crop-larger": {**clip, "size": {"shortest_edge": 100}, "crop_size": {"height": 131, "width": 150}},
        "square-bilinear": {**clip, "size": {"height": 90, "width": 200}, "resample": 2, "do_center_crop": False},
        "llava-pad": {**clip, "image_processor_type": "LlavaImageProcessor", "do_pad": True},
        "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 224, "width": 224}},
        "vit": {"image_processor_type": "ViTImageProcessor"},
    }
    paths = list(stamps)
    ordinary = len(paths)
    for i, (width, height) in enumerate([(1, 1), (3, 900), (1500, 2), (224, 224), (225, 223), (640, 480), (37, 500)]):
        paths.append(os.path.join(folder, f"made-{i}.png"))
        photo(rng, width, height).save(paths[-1])
    for name, config in cases.items():
        place = os.path.join(folder, name)
        os.makedirs(place)
        file = os.path.join(place, "preprocessor_config.json")
        with open(file, "w") as f:
            json.dump(config, f)
        # What to_json() writes must load as the same processor.
        written = subprocess.run([os.path.join(BUILD, "process_image"), "config", file], capture_output=True, check=True)
        with open(file, "wb") as f:
            f.write(written.stdout)
        for backend, processor in backends(place):
            exact = backend == "PIL"
            mean = worst = 0.0
            # The torchvision backend keeps Pillow's order of passes of before 13.0: more differs in extreme shapes.
            for path in paths if exact else paths[:ordinary]:
                rgb = Image.fromarray(reference_rgb(path))
                want = np.asarray(processor(images=rgb, return_tensors="np")["pixel_values"][0])
                got = ours.pixels("process", file, path, *want.shape[1:])
                # In steps of 1/255 of the full range, undoing the normalisation.
                difference = np.abs(got - want) * np.array(processor.image_std, np.float32)[:, None, None] * 255
                mean, worst = max(mean, difference.mean()), max(worst, difference.max())
            if name == "crop-larger" and not exact:
                continue  # the two backends of transformers place small pictures differently
            loads = type(processor).__name__.startswith(config["image_processor_type"])
            check(f"{name}, {backend}: loads as {type(processor).__name__}", 0 if loads else 1, 0)
            check(f"{name}, {backend}: largest mean difference in 1/255", mean, 0 if exact else 1)
            # Squeezed to a square, a picture may be resized in the other order: up to 11/255 at sharp edges.
            squeezed = "height" in config.get("size", {"height": 0})
            check(f"{name}, {backend}: largest difference in 1/255", worst, 0 if exact else 16 if squeezed else 3)
            if name == "clip-224" and exact:
                test_scaled(ours, folder, rng, processor, file)


def test_scaled(ours, folder, rng, processor, file):
    """Reduced-scale JPEG decoding against decoding at full size: not the same, but close."""
    path = os.path.join(folder, "scaled.jpg")
    means, worst = [], 0.0
    for width, height in [(448, 448), (640, 480), (700, 1024), (1024, 768), (901, 677), (2000, 1500)]:
        photo(rng, width, height).save(path, quality=90)
        want = np.asarray(processor(images=Image.open(path), return_tensors="np")["pixel_values"][0])
        got = ours.pixels("scaled", file, path, *want.shape[1:])
        difference = np.abs(got - want) * np.array(processor.image_std, np.float32)[:, None, None] * 255
        means.append(difference.mean())
        worst = max(worst, difference.max())
    print(f"     reduced-scale JPEG: mean difference {np.mean(means):.2f}/255, largest {worst:.0f}/255")
    check("reduced-scale JPEG, largest mean difference in 1/255", max(means), 3)


def main():
    stamps = sorted(glob.glob(os.path.join(STAMPS, "**", "*.png"), recursive=True))
    if not stamps:
        print(f"skipped: no pictures in {STAMPS} (package tuxpaint-stamps-default)")
        return 77
    ours, rng = Ours(), np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        test_decode(ours, stamps[::3])
        test_resize(ours, folder, rng)
        test_processor(ours, folder, rng, stamps[:: max(1, len(stamps) // 60)])
    print(f"{len(failures)} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
