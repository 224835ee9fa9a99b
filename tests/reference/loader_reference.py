#!/usr/bin/env python3
"""Compares whole batches of the loader with the processors of transformers: token ids, labels, image positions, pixel tensors,
grids, of captioned pictures, clips and conversations, through `mso data bench --processor FOLDER --dump FILE`.

Run by contrib/run-tests with MSO_BUILD (the build folder); arguments choose folders by name. Exits 1 where something
differs, 77 where a package is missing.
"""
import glob
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processors_reference import (AutoProcessor, BUILD, Image, check, failures, folders, make_tokenizer, np,  # noqa: E402
                                  photo, reference_rgb, STAMPS)
from safetensors.numpy import load_file  # noqa: E402
from served import Served  # noqa: E402

MSO = os.environ.get("MSO", os.path.join(BUILD, "mso"))
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../unit/io/fixtures/media")
# Turns of parts, as the families' templates write them; {media} is replaced by the family's placeholders.
CHAT = """{% for message in messages %}<{{ message['role'] }}>
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}IMAGE{% elif part['type'] == 'video' %}VIDEO{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}|END|
{% endfor %}{% if add_generation_prompt %}<assistant>
{% endif %}"""
CAPTIONS = ["a café by the sea", "two dogs, one cat", "x", "what's <this>?", "日本語の説明", "  spaces  inside ", "line\nbreak"]


def pictures(rng):
    """{name: bytes}: real ones, and odd shapes and kinds."""
    made = {}

    def add(name, image, **options):
        file = io.BytesIO()
        image.save(file, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.split(".")[-1]], **options)
        made[name] = file.getvalue()

    for width, height in [(1, 1), (31, 639), (500, 333), (224, 224), (100, 199)]:
        add(f"{width}x{height}.png", photo(rng, width, height))
    add("photo.jpg", photo(rng, 640, 480), quality=90)
    add("gray.jpg", photo(rng, 211, 150).convert("L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    add("turned.jpg", photo(rng, 211, 150), exif=exif)
    rgba = photo(rng, 97, 130).convert("RGBA")
    rgba.putalpha(photo(rng, 97, 130).convert("L"))
    add("alpha.png", rgba)
    add("lossless.webp", photo(rng, 60, 80), lossless=True)
    stamps = sorted(glob.glob(os.path.join(STAMPS, "**", "*.png"), recursive=True))
    for path in stamps[:: max(1, len(stamps) // 6)]:
        with open(path, "rb") as file:
            made["stamp-" + os.path.basename(path)] = file.read()
    return made


def rgb_of(name, content, folder):
    path = os.path.join(folder, "one." + name.split(".")[-1])
    with open(path, "wb") as file:
        file.write(content)
    return Image.fromarray(reference_rgb(path))


def clips():
    """[(path, frames, rate)] of at least eight frames; frames as tests/reference/video_reference.py compares them with FFmpeg."""
    served, found = Served("decode_media"), []
    for path in sorted(glob.glob(os.path.join(FIXTURES, "*"))):
        if path.split(".")[-1] not in ("mp4", "mkv", "webm"):
            continue
        try:
            data = served.ask("video", "all", 2, 0, 0, 1, path)
        except RuntimeError:  # a damaged one
            continue
        width, height, frames, total = struct.unpack_from("<4q", data)
        (rate,) = struct.unpack_from("<d", data, 32)
        if frames == total and frames >= 8 and width * height <= 320 * 240:
            found.append((path, np.frombuffer(data, np.uint8, offset=40 + 16 * frames).reshape(frames, height, width, 3), rate))
    return found[:3]


def shard(path, samples):
    os.makedirs(os.path.dirname(path))
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key, members in samples:
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def load(data, folder, count, *options):
    """The one batch with all samples: {sample id: (tokens, labels)}, the tensors, and the report."""
    file = os.path.join(os.path.dirname(data), "batch.safetensors")
    run = subprocess.run([MSO, "data", "bench", data, "--processor", folder, "--image-backend", "torchvision", "--exact-jpeg", "--batch", str(count),
                          "--threads", "2", "--dump", file, *options], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip()[-600:])
    batch, starts = load_file(file), None
    starts = batch["sample_starts"]
    return batch, [(int(id), slice(starts[i], starts[i + 1])) for i, id in enumerate(batch["sample_ids"])], json.loads(run.stdout)


def unbatched(family, got, processor, images):
    """Transformers' tensors as the loader joins them: without the padding of pictures of fewer tiles."""
    tensors = {}
    for name in ("pixel_values", "pixel_values_videos", "image_sizes", "image_grid_thw", "video_grid_thw", "second_per_grid_ts"):
        if name not in got:
            continue
        value = np.asarray(got[name])
        if name == "pixel_values" and family.startswith(("llava_next", "llava_onevision")):
            tiles = [len(processor.image_processor([image], return_tensors="np")["pixel_values"][0]) for image in images]
            value = np.concatenate([padded[:count] for padded, count in zip(value, tiles)])
        elif name == "pixel_values_videos" and not family.startswith("qwen"):
            value = value.reshape(-1, *value.shape[2:])
        tensors[name] = value.astype(np.float32) if name == "second_per_grid_ts" else value
    return tensors


def fuyu(processor, image, caption):
    """What its __call__ does, which takes the first token away, because its own tokenizer puts one there that it must not."""
    images, text, *_ = processor.prepare_inputs_layout(images=[image], text=[caption])
    processed, replacements = processor._process_images(images, return_tensors="pt")
    text, _ = processor.get_text_with_replacements(text, replacements)
    head, bos, tail = text[0].partition("<s>")
    ids = [int(i) for part in (head + bos, tail) for i in processor.tokenizer(part, add_special_tokens=False)["input_ids"]]
    # Not given any more since transformers 5: numbers of patches in their places, -1 for the newlines and the end.
    rows, numbers, indices = head.split("|NEWLINE|")[:-1], 0, []
    for row in rows:
        width = row.count("|SPEAKER|")
        indices += [*range(numbers, numbers + width), -1]
        numbers += width
    return ids, {"image_patches": np.asarray(processed["image_patches"]), "image_patch_indices": np.array([*indices, -1])}


def compare(name, batch, places, wanted, feature, report):
    """`wanted`: {sample id: (input_ids, tensors in the loader's names, ids that are learned: from there to there)}."""
    wrong = []
    if sorted(id for id, _ in places) != sorted(wanted):
        return check(name, [f"samples {sorted(set(wanted) - {id for id, _ in places})} are missing: {report.get('bad_reasons')}"], len(wanted))
    joined = {}
    positions = np.sort(np.concatenate([batch.get("media_positions.image", np.zeros(0, np.int64)), batch.get("media_positions.video", np.zeros(0, np.int64))]))
    where = []
    for id, place in places:
        ids, tensors, learned = wanted[id]
        got = batch["tokens"][place]
        if list(got) != list(ids):
            first = next((i for i, (a, b) in enumerate(zip(got, ids)) if a != b), min(len(got), len(ids)))
            wrong.append(f"sample {id}: {len(got)} ids instead of {len(ids)}, the first other one at {first}: {list(got[first:first + 6])} instead of {list(ids[first:first + 6])}")
            continue
        labels = np.full(len(ids), -100)
        for start, end in learned:
            labels[start - 1:end - 1] = ids[start:end]
        if list(batch["labels"][place]) != list(labels):
            wrong.append(f"sample {id}: other labels")
        where += [place.start + i for i, token in enumerate(ids) if token in feature]
        for key, value in tensors.items():
            joined.setdefault(key, []).append(value)
    if not wrong and list(positions) != where:
        wrong.append("other positions of features")
    if not wrong:
        for key, values in joined.items():
            want, got = np.concatenate(values), batch.get("media." + key)
            if got is None or got.shape != want.shape or not np.array_equal(got, want):
                wrong.append(f"{key}: {None if got is None else got.shape} instead of {want.shape}, or other values")
        extra = {k[6:] for k in batch if k.startswith("media.")} - set(joined)
        if extra:
            wrong.append(f"tensors that transformers does not give: {extra}")
    check(name, wrong, len(wanted))


def captions(name, folder, family, processor, placeholder, files, images, temporary):
    """One picture with a caption each."""
    texts = [CAPTIONS[i % len(CAPTIONS)] for i in range(len(files))]
    samples, wanted, feature = [], {}, set()
    for (file, content), image, text in zip(files, images, texts):
        caption = text.strip()
        try:
            if family == "fuyu":
                ids, tensors = fuyu(processor, image, caption)
                plain = processor.tokenizer(caption, add_special_tokens=False)["input_ids"]
                wanted[len(samples)] = (ids, tensors, [(len(ids) - 1 - len(plain), len(ids) - 1)])
                samples.append((f"k{len(samples):03}", {file.split(".")[-1]: content, "txt": text.encode()}))
                feature = {processor.tokenizer.convert_tokens_to_ids("|SPEAKER|")}
                continue
            got = processor(text=[placeholder + caption], images=[image], return_tensors="pt")
        except Exception:  # noqa: BLE001 (what transformers refuses is compared by processors_reference.py)
            continue
        ids = [int(i) for i in np.asarray(got["input_ids"])[0]]
        plain = processor.tokenizer(caption, add_special_tokens=False)["input_ids"]
        end = len(ids)
        wanted[len(samples)] = (ids, unbatched(family, got, processor, [image]), [(end - len(plain), end)])
        samples.append((f"k{len(samples):03}", {file.split(".")[-1]: content, "txt": text.encode()}))
        feature |= {processor.tokenizer.convert_tokens_to_ids(placeholder)}
    data = os.path.join(temporary, name.replace(" ", "-") + "-captions", "data")
    shard(os.path.join(data, "s.tar"), samples)
    batch, places, report = load(data, folder, len(samples), "--template", "<image>{caption}" + ("<0x04>" if family == "fuyu" else ""))
    compare(f"{name}: pictures with captions", batch, places, wanted, feature, report)
    if report["tokens_per_picture"] <= 0 or report["bad_samples"]:
        check(f"{name}: report", [str(report)], 1)


def conversations(name, folder, family, processor, placeholders, files, images, films, temporary):
    """Several pictures and clips in the turns of one; the chat template writes the placeholders."""
    image_mark, video_mark = placeholders
    source = CHAT.replace("IMAGE", image_mark).replace("VIDEO", video_mark or "")
    with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
        file.write(source)
    processor.chat_template = source
    samples, wanted, feature = [], {}, set()
    usable = [i for i, image in enumerate(images) if min(image.size) >= 28 and max(image.size) <= 700]
    for k in range(4):
        chosen = [usable[(3 * k + j) % len(usable)] for j in range(k % 3 + 1)]
        film = films[k % len(films)] if video_mark and k % 2 == 1 else None
        question = [{"type": "image", "image": f"p{j}"} for j in range(len(chosen))] + [{"type": "text", "text": "what's this?"}]
        if film is not None:
            question = question[:1] + [{"type": "video", "video": "clip"}] + question[1:]
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": [{"type": "text", "text": f"Number {k}, é."}]},
                 {"role": "user", "content": [{"type": "text", "text": "sure?"}]}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]
        text = processor.apply_chat_template(turns, tokenize=False)
        arguments = {"images": [images[i] for i in chosen]}
        if film is not None:
            path, frames, rate = film
            sampling = {"fps": 2} if family.startswith("qwen") else {"num_frames": 8}
            arguments |= {"videos": [np.ascontiguousarray(frames.transpose(0, 3, 1, 2))], "do_sample_frames": True,
                          "video_metadata": [{"fps": rate, "total_num_frames": len(frames)}], **sampling}
        got = processor(text=[text], return_tensors="pt", **arguments)
        ids = [int(i) for i in got["input_ids"][0]]
        # What the assistant says, with the end of its turn: the loader learns up to the end of the text the template writes for it.
        learned, at = [], 0
        for words in (f"Number {k}, é.|END|\n", "yes|END|\n"):
            plain = processor.tokenizer(words, add_special_tokens=False)["input_ids"]
            start = next(i for i in range(at, len(ids)) if ids[i:i + len(plain)] == plain)
            learned.append((start, start + len(plain)))
            at = start + len(plain)
        wanted[k] = (ids, unbatched(family, got, processor, arguments["images"]), learned)
        members = {}
        names = {}
        for j, i in enumerate(chosen):
            names[f"p{j}"] = f"image{j}." + files[i][0].split(".")[-1]
            members[names[f"p{j}"]] = files[i][1]
        if film is not None:
            names["clip"] = "video0." + film[0].split(".")[-1]
            with open(film[0], "rb") as file:
                members[names["clip"]] = file.read()
        for part in question:
            if part["type"] != "text":
                part[part["type"]] = names[part[part["type"]]]
        samples.append((f"k{k}", {"json": json.dumps({"messages": turns}).encode(), **members}))
        feature |= set(processor.tokenizer.convert_tokens_to_ids(m) for m in placeholders if m)
        if family == "internvl":
            feature = {processor.tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>")}
    data = os.path.join(temporary, name.replace(" ", "-") + "-conversations", "data")
    shard(os.path.join(data, "s.tar"), samples)
    batch, places, report = load(data, folder, len(samples))
    compare(f"{name}: conversations{' with clips' if video_mark else ''}", batch, places, wanted, feature, report)


def main():
    start, rng = time.time(), np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as temporary:
        files = list(pictures(rng).items())
        images = [rgb_of(name, content, temporary) for name, content in files]
        films = clips()
        print(f"     {len(files)} pictures, {len(films)} clips")
        for name, content, takes_video in folders():
            if name == "clip" or (sys.argv[1:] and name not in sys.argv[1:]) or (not sys.argv[1:] and " " in name):
                continue
            folder = os.path.join(temporary, name.replace(" ", "-"))
            os.makedirs(folder)
            for file, value in content.items():
                with open(os.path.join(folder, file), "w") as out:
                    json.dump(value, out)
            make_tokenizer(folder)
            try:
                processor = AutoProcessor.from_pretrained(folder)
                family = name.split(" ")[0]
                image = "" if family == "fuyu" else processor.image_token
                captions(name, folder, family, processor, image, files, images, temporary)
                if image:
                    video = processor.video_token if takes_video and films else ""
                    conversations(name, folder, family, processor, (image, video), files, images, films, temporary)
            except RuntimeError as error:
                check(name, [str(error)], 1)
    print(f"{len(failures)} failed" if failures else "all passed", f"in {time.time() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
