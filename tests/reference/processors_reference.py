#!/usr/bin/env python3
"""Compares the processors of model families with those of transformers: pixels, patches, grids, tiles, tokens, ids.

Run by contrib/run-tests with MSO_BUILD (the build folder); arguments choose folders by name. Exits 1 where something
differs, 77 where a package is missing.
"""
import glob
import json
import logging
import os
import struct
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
try:
    import numpy as np
    import torch
    import torchvision  # noqa: F401 (the backend of most processors)
    import transformers
    from PIL import Image
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoImageProcessor, AutoProcessor, AutoVideoProcessor, PreTrainedTokenizerFast
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from image_processor_reference import STAMPS, photo, reference_rgb  # noqa: E402 (also gives old Pillow today's resize)

transformers.logging.set_verbosity_error()
logging.disable(logging.WARNING)
torch.set_num_threads(2)
BUILD = os.environ.get("MSO_BUILD", "build")
DTYPES = {"F32": np.float32, "I64": np.int64}
failures = []


def check(name, wrong, of):
    print(f"{'FAIL' if wrong else 'ok  '} {name}: {of - len(wrong)} of {of}")
    for text in wrong[:5]:
        print(f"       {text}")
    if wrong:
        failures.append(name)


class Ours:
    def __init__(self):
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "process_media")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *words):
        self.process.stdin.write((" ".join(str(w) for w in words) + "\n").encode())
        self.process.stdin.flush()
        (size,) = struct.unpack("<q", self.process.stdout.read(8))
        data = self.process.stdout.read(size)
        end = data.index(b"\n") + 1
        reply, at = json.loads(data[:end]), end
        for tensor in reply.get("tensors", []):
            dtype = np.dtype(DTYPES[tensor["dtype"]])
            count = int(np.prod(tensor["shape"]))
            reply[tensor["name"]] = np.frombuffer(data, dtype, count, at).reshape(tensor["shape"])
            at += count * dtype.itemsize
        return reply


# ---- inputs ----------------------------------------------------------------------------
def make_pictures(folder, rng):
    """Files of every kind and shape; [(path, RGB picture as the decoder documents it)]."""
    sizes = [(1, 1), (2, 1), (1, 2), (5, 5), (13, 14), (28, 28), (27, 29), (31, 639), (639, 31), (56, 57), (100, 199),
             (3, 900), (1500, 2), (7, 1028), (224, 224), (336, 336), (337, 335), (336, 672), (500, 333), (333, 500),
             (640, 480), (480, 641), (1280, 97), (41, 900), (200, 1), (1, 200), (1, 201), (690, 15420)]
    paths = []

    def path(name):
        paths.append(os.path.join(folder, name))
        return paths[-1]

    for width, height in sizes:
        image = photo(rng, width, min(height, 1028))
        if height > 1028:
            image = Image.fromarray(np.tile(np.asarray(image), (height // 1028, 1, 1)))
        image.save(path(f"{width}x{height}.png"), compress_level=1)
    base = photo(rng, 211, 150)
    noisy = Image.fromarray(rng.integers(0, 256, (90, 120, 3), dtype=np.uint8))
    alpha = Image.fromarray(rng.integers(0, 256, (150, 211), dtype=np.uint8))
    noisy.save(path("noise.png"))
    base.convert("L").save(path("gray.png"))
    base.convert("1").save(path("bilevel.png"))
    rgba = base.convert("RGBA")
    rgba.putalpha(alpha)
    rgba.save(path("alpha.png"))
    rgba.convert("LA").save(path("gray-alpha.png"))
    base.quantize(37).save(path("palette.png"))
    base.quantize(16).save(path("palette-transparent.png"), transparency=3)
    Image.fromarray(rng.integers(0, 65536, (77, 131), dtype=np.uint16)).save(path("gray16.png"))
    base.save(path("photo.jpg"), quality=90)
    base.save(path("progressive.jpg"), quality=80, progressive=True)
    base.convert("L").save(path("gray.jpg"))
    base.convert("CMYK").save(path("cmyk.jpg"), quality=95)
    exif = Image.Exif()
    exif[0x0112] = 6
    base.save(path("turned.jpg"), exif=exif)
    base.save(path("lossless.webp"), lossless=True)
    base.save(path("frame.gif"))
    base.save(path("flat.bmp"))
    base.save(path("deflate.tiff"), compression="tiff_deflate")
    stamps = sorted(glob.glob(os.path.join(STAMPS, "**", "*.png"), recursive=True))
    paths += stamps[:: max(1, len(stamps) // 8)]
    return [(p, Image.fromarray(reference_rgb(p))) for p in paths]


def make_clips(folder, rng):
    clips = []
    for width, height, frames, fps in [(64, 48, 1, 25), (33, 57, 2, 24), (128, 97, 3, 29.97), (28, 28, 4, 2), (1, 1, 5, 1),
                                       (400, 20, 8, 60), (201, 1, 2, 25), (320, 240, 7, 0)]:
        pixels = np.stack([np.asarray(photo(rng, width, height)) for _ in range(frames)])
        path, total = os.path.join(folder, f"{width}x{height}-{frames}.clip"), frames * 3 + 1
        with open(path, "wb") as f:
            f.write(f"{width} {height} {frames} {fps} {total}\n".encode() + pixels.tobytes())
        clips.append((path, pixels, fps, total))
    return clips


# ---- model folders ---------------------------------------------------------------------
SPECIALS = ["<image>", "<video>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<img>", "</img>",
            "<IMG_CONTEXT>", "|SPEAKER|", "|NEWLINE|", "<s>", "<0x04>"]
PIXELS = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_resize": True, "do_convert_rgb": True,
          "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {**PIXELS, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3}
CLIP = {**PIXELS, "size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": True, "resample": 3}
GRIDS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]


def square(side):
    return {"height": side, "width": side}


def folders():
    """Name → family, the files of the folder (in transformers 4's spelling), whether it takes videos."""
    llava = {"processor_class": "LlavaProcessor", "patch_size": 14, "num_additional_image_tokens": 1,
             "vision_feature_select_strategy": "default"}
    yield "clip", {"preprocessor_config.json": {**CLIP, "image_processor_type": "CLIPImageProcessor", "processor_class": "CLIPProcessor"}}, False
    yield "llava", {"preprocessor_config.json": {**CLIP, "image_processor_type": "CLIPImageProcessor"}, "processor_config.json": llava}, False
    yield "llava full pad", {
        "preprocessor_config.json": {**CLIP, "image_processor_type": "LlavaImageProcessor", "do_pad": True, "crop_size": {"height": 61, "width": 50}},
        "processor_config.json": {**llava, "vision_feature_select_strategy": "full"}}, False
    next_image = {**CLIP, "image_processor_type": "LlavaNextImageProcessor", "do_pad": True, "image_grid_pinpoints": GRIDS}
    next_processor = {**llava, "processor_class": "LlavaNextProcessor"}
    yield "llava_next", {"preprocessor_config.json": next_image, "processor_config.json": next_processor}, False
    # Squares that are resized and cropped again, and grids that they do not fill.
    yield "llava_next odd", {
        "preprocessor_config.json": {**next_image, "size": {"shortest_edge": 70}, "image_grid_pinpoints": [[56, 130], [131, 56], [112, 112]]},
        "processor_config.json": {**next_processor, "vision_feature_select_strategy": "full"}}, False
    yield "llava_next_video", {
        "preprocessor_config.json": next_image, "processor_config.json": {**llava, "processor_class": "LlavaNextVideoProcessor"},
        "video_preprocessor_config.json": {**CLIP, "video_processor_type": "LlavaNextVideoVideoProcessor"}}, True
    onevision = [[56 * h, 56 * w] for h in range(1, 5) for w in range(1, 5)]
    yield "llava_onevision", {
        "preprocessor_config.json": {**HALF, "size": square(56), "image_processor_type": "LlavaOnevisionImageProcessor", "image_grid_pinpoints": onevision},
        "processor_config.json": {"processor_class": "LlavaOnevisionProcessor", "num_image_tokens": 25, "vision_feature_select_strategy": "full",
                                  "vision_aspect_ratio": "anyres_max_4"},
        "video_preprocessor_config.json": {**HALF, "size": square(56), "video_processor_type": "LlavaOnevisionVideoProcessor"}}, True
    qwen = {**PIXELS, "resample": 3, "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    small = {"min_pixels": 4 * 28 * 28, "max_pixels": 64 * 28 * 28}
    sizes = {"size": {"shortest_edge": 3136, "longest_edge": 100 * 28 * 28}}
    video = {"video_processor_type": "Qwen2VLVideoProcessor"}
    yield "qwen2_vl", {"preprocessor_config.json": {**qwen, **small}, "processor_config.json": {"processor_class": "Qwen2VLProcessor"},
                       "video_preprocessor_config.json": {**qwen, **small, **video}}, True
    # The hub's first folders: one file for both.
    yield "qwen2_vl one file", {"preprocessor_config.json": {**qwen, "min_pixels": 3136, "max_pixels": 30 * 784, "processor_class": "Qwen2VLProcessor"}}, True
    yield "qwen2_5_vl", {"preprocessor_config.json": {**qwen, **sizes, "temporal_patch_size": 3, "merge_size": 1, "patch_size": 10},
                         "processor_config.json": {"processor_class": "Qwen2_5_VLProcessor"},
                         "video_preprocessor_config.json": {**qwen, **sizes, **video, "temporal_patch_size": 3, "cap_pixels_per_frame": True,
                                                            "max_video_tokens": 40}}, True
    got = {**PIXELS, "resample": 3, "size": square(42), "image_processor_type": "GotOcr2ImageProcessor"}
    intern = {"processor_class": "InternVLProcessor", "image_seq_length": 9}
    yield "internvl", {"preprocessor_config.json": {**got, "crop_to_patches": False, "min_patches": 1, "max_patches": 12}, "processor_config.json": intern,
                       "video_preprocessor_config.json": {**HALF, "size": square(42), "video_processor_type": "InternVLVideoProcessor"}}, True
    yield "internvl few", {"preprocessor_config.json": {**got, "resample": 2, "size": {"height": 30, "width": 44}, "min_patches": 2, "max_patches": 5},
                           "processor_config.json": intern,
                           "video_preprocessor_config.json": {**HALF, "size": {"height": 30, "width": 44}, "video_processor_type": "InternVLVideoProcessor"}}, True
    fuyu = {"image_processor_type": "FuyuImageProcessor", "do_resize": True, "size": {"height": 240, "width": 420}, "resample": 2, "do_pad": True,
            "padding_value": 1.0, "padding_mode": "constant", "do_normalize": True, "image_mean": 0.5, "image_std": 0.5, "do_rescale": True,
            "rescale_factor": 1 / 255, "patch_size": square(30)}
    yield "fuyu", {"preprocessor_config.json": fuyu, "processor_config.json": {"processor_class": "FuyuProcessor"}}, False


def make_tokenizer(folder):
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(letters))}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<s>", extra_special_tokens={
        "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>",
    } if "internvl" in os.path.basename(folder) else {}).save_pretrained(folder)


# ---- what transformers gives ------------------------------------------------------------
def reference_image(family, processor, image_processor, image):
    """Tensors by our names, the text that replaces the placeholder."""
    if family == "fuyu":
        got = image_processor([image], return_tensors="np")
        height, width = (min(full, -(-int(got[key][0][0]) // 30) * 30)
                         for full, key in zip(got["images"].shape[-2:], ("image_unpadded_heights", "image_unpadded_widths")))
        if height % 30 or width % 30:
            raise ValueError("not whole patches")
        pixels = np.asarray(got["images"]).reshape(1, 3, *got["images"].shape[-2:])[:, :, :height, :width]
        if image_processor.backend != "pil":
            pixels = torch.from_numpy(pixels)
        patches = np.asarray(image_processor.patchify_image(pixels)).reshape(-1, 2700)
        text = processor.replace_image_token(got, 0, num_patches=len(patches), row_width=width // 30)
        return {"image_patches": patches}, text
    options = {"crop_to_patches": True} if family == "internvl" else {}
    got = image_processor([image], return_tensors="np", **options)
    tensors = {"pixel_values": np.asarray(got["pixel_values"])}
    if family.startswith("llava_"):
        tensors["pixel_values"] = tensors["pixel_values"][0]
        tensors["image_sizes"] = np.asarray(got["image_sizes"])
    if family.startswith("qwen"):
        tensors["image_grid_thw"] = np.asarray(got["image_grid_thw"])
    if family == "clip":
        return tensors, ""
    if family.startswith("llava_onevision"):
        got["batch_num_images"] = [1]
    return tensors, processor.replace_image_token(got, image_idx=0)


def reference_video(family, processor, pixels, fps, total):
    metadata = {"fps": fps or None, "total_num_frames": total, "frames_indices": list(range(len(pixels)))}
    pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))  # a clip one pixel wide would be taken for this otherwise
    got, text = processor._process_videos([pixels], video_metadata=[metadata], return_tensors="pt",
                                          **({"return_metadata": True} if family == "qwen2_5_vl" else {}))
    if family.startswith("qwen"):
        tensors = {k: np.asarray(got[k]) for k in ("pixel_values_videos", "video_grid_thw")}
        if family == "qwen2_5_vl":
            tensors["second_per_grid_ts"] = np.asarray(got["second_per_grid_ts"], np.float32)
        return tensors, text[0]
    name = "pixel_values" if family == "internvl" else "pixel_values_videos"
    return {name: np.asarray(got["pixel_values_videos"])[0]}, text[0]


def differences(got, tensors, text):
    if "error" in got:
        return f"refused: {got['error']}"
    if got["text"] != text:
        return f"{len(got['text'])} characters of tokens instead of {len(text)}"
    for name, want in tensors.items():
        if name not in got or got[name].shape != want.shape:
            return f"{name}: shape {got[name].shape if name in got else None} instead of {want.shape}"
        if not np.array_equal(got[name], want):
            worst = np.abs(got[name].astype(np.float64) - want)
            return f"{name}: largest difference {worst.max():.3g}, {np.count_nonzero(worst)} of {worst.size} differ"
    return None


def compare(theirs, ours):
    """`theirs` may raise: then ours must have refused the data."""
    try:
        tensors, text = theirs()
    except Exception as error:  # noqa: BLE001 (whatever transformers raises)
        return None if ours.get("code") == 3 else f"transformers refuses ({error}), ours gave {ours.get('error', 'a result')}"
    return differences(ours, tensors, text)


# ---- tests -----------------------------------------------------------------------------
def test_folder(ours, name, folder, takes_video, pictures, clips):
    processor = AutoProcessor.from_pretrained(folder) if "clip" != name else None
    for backend in ("pil", "torchvision"):
        family = ours.ask("load", "it", backend, folder)
        if "error" in family:
            return check(f"{name}: loads", [family["error"]], 1)
        family = family["family"]
        image_processor = AutoImageProcessor.from_pretrained(folder, backend=backend)
        if processor is not None:
            processor.image_processor = image_processor
        wrong = []
        for path, image in pictures:
            got = ours.ask("image", "it", path)
            problem = compare(lambda: reference_image(family, processor, image_processor, image), got)
            counted = ours.ask("tokens", "it", *image.size)
            if not problem and "error" not in got and counted["tokens"] != got["tokens"]:
                problem = f"image_tokens() says {counted['tokens']}, there are {got['tokens']}"
            if problem:
                wrong.append(f"{os.path.basename(path)} {image.size}: {problem}")
        check(f"{name}, {backend}: pictures", wrong, len(pictures))
    if not takes_video:
        return
    wrong = []
    for path, pixels, fps, total in clips:
        problem = compare(lambda: reference_video(family, processor, pixels, fps, total), ours.ask("video", "it", path))
        if problem:
            wrong.append(f"{os.path.basename(path)}: {problem}")
    check(f"{name}: clips", wrong, len(clips))


def test_ids(ours, name, folder, takes_video, pictures, clips, temporary):
    """A whole prompt through AutoProcessor, against the text with our runs in it through our tokenizer."""
    placeholders = ours.ask("load", "it", "torchvision", folder)
    if not placeholders["image"] or not placeholders["family"].startswith(("llava", "qwen", "internvl")):
        return
    processor = AutoProcessor.from_pretrained(folder)
    wrong, count = [], 0
    for (path, image), (clip, pixels, fps, total) in zip(pictures[1::9], clips[:5]):
        prompt = f"User: what is this {placeholders['image']} picture?\n"
        arguments = {"images": [image]}
        answers = {placeholders["image"]: ours.ask("image", "it", path)["text"]}
        if takes_video:
            prompt += f"and {placeholders['video']}\nAssistant: "
            arguments["videos"] = [np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))]
            answers[placeholders["video"]] = ours.ask("video", "it", clip)["text"]
        want = processor(text=[prompt], return_tensors="pt", **arguments)["input_ids"][0]
        first, _, rest = prompt.partition(placeholders["image"])
        text = first + answers[placeholders["image"]] + rest
        if takes_video:  # a picture's tokens never hold the video's
            text = text.replace(placeholders["video"], answers[placeholders["video"]], 1)
        file = os.path.join(temporary, "prompt.txt")
        with open(file, "w") as f:
            f.write(text)
        got = ours.ask("ids", folder, file)["ids"]
        count += 1
        if list(got) != [int(i) for i in want]:
            wrong.append(f"{os.path.basename(path)}: {len(got)} ids instead of {len(want)}, or others")
    check(f"{name}: ids of whole prompts", wrong, count)


def files_of(ours, folder):
    os.makedirs(folder, exist_ok=True)
    ours.ask("files", "it", folder)
    return {os.path.basename(p): json.load(open(p)) for p in glob.glob(os.path.join(folder, "*processor_config.json"))}


def test_files(ours, name, folder, takes_video):
    """What we write loads as the same in transformers and here; what transformers 5 writes loads here as the same."""
    ours.ask("load", "it", "pil", folder)
    wrong, written = [], folder + "-written"
    mine = files_of(ours, written)
    for file in glob.glob(os.path.join(folder, "token*")):
        os.link(file, os.path.join(written, os.path.basename(file)))
    for kind in [AutoImageProcessor] + ([AutoVideoProcessor] if takes_video else []):
        a, b = kind.from_pretrained(folder).to_dict(), kind.from_pretrained(written).to_dict()
        unlike = [k for k in a if k in b and a[k] != b[k] and k not in ("processor_class", "crop_to_patches", "min_pixels", "max_pixels", "do_pad")]
        if unlike:
            wrong.append(f"{kind.__name__}: {', '.join(f'{k}: {a[k]} became {b[k]}' for k in unlike)}")
    ours.ask("load", "it", "pil", written)
    if files_of(ours, written + "-again") != mine:
        wrong.append("our files are read as another processor")
    if name != "clip":
        nested = folder + "-nested"
        AutoProcessor.from_pretrained(folder).save_pretrained(nested)
        if "error" in (reply := ours.ask("load", "it", "pil", nested)):
            wrong.append(f"transformers' own files: {reply['error']}")
        elif files_of(ours, nested + "-again") != mine:
            wrong.append("transformers' own files are read as another processor")
    check(f"{name}: files", wrong, 3)


def main():
    start, ours, rng = time.time(), Ours(), np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as temporary:
        pictures, clips = make_pictures(temporary, rng), make_clips(temporary, rng)
        print(f"     {len(pictures)} pictures, {len(clips)} clips")
        for name, files, takes_video in folders():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            folder = os.path.join(temporary, name.replace(" ", "-"))
            os.makedirs(folder)
            for file, content in files.items():
                with open(os.path.join(folder, file), "w") as f:
                    json.dump(content, f)
            make_tokenizer(folder)
            # Variants of a family, written with a space, need not see all.
            test_folder(ours, name, folder, takes_video, pictures[1::3] if " " in name else pictures, clips)
            test_ids(ours, name, folder, takes_video, pictures, clips, temporary)
            test_files(ours, name, folder, takes_video)
    print(f"{len(failures)} failed" if failures else "all passed", f"in {time.time() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
