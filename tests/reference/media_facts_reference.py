#!/usr/bin/env python3
"""Compares what the index knows of videos and sounds with ffprobe, which reads and counts every packet.

Run by contrib/run-tests with MSO (the program) and MSO_VIDEOS (a folder with real clips, may be missing).
Exits 1 where something differs, 77 where ffmpeg is missing.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
    print("skipped: no ffmpeg")
    sys.exit(77)
HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "../unit/io/fixtures/media")
VIDEOS = os.environ.get("MSO_VIDEOS", "")
MSO = os.environ.get("MSO", "mso")
VIDEO = {"mp4", "mkv", "avi", "ts", "webm", "mov", "flv", "ogv", "mpg", "wmv", "m4v"}
SOUND = {"wav", "mp3", "m4a", "ogg", "opus", "flac", "aac", "aif", "wma"}
failures = []


def fail(name, what, ours, theirs):
    print(f"FAIL {name}: {what} {ours}, ffprobe {theirs}")
    failures.append(name)


def ffmpeg(*words):
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-nostdin", *words], check=True)


def make_more(folder):
    """Containers and cases that the fixtures do not have."""
    clip = ["-f", "lavfi", "-i", "testsrc2=size=160x90:rate=30000/1001:duration=1.5"]
    tone = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100:duration=1.5"]
    path = lambda name: os.path.join(folder, name)
    h264 = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"]
    ffmpeg(*clip, *tone, *h264, "-c:a", "aac", path("both.mp4"))
    ffmpeg(*clip, *h264, "-bf", "2", "-movflags", "frag_keyframe+empty_moov", "-g", "10", path("fragmented.mp4"))
    ffmpeg(*clip, *h264, "-bf", "2", "-movflags", "faststart", path("streamed.mov"))
    ffmpeg(*clip, *tone, "-c:v", "flv", "-c:a", "mp3", path("both.flv"))
    ffmpeg(*clip, *tone, "-c:v", "mpeg1video", "-r", "25", "-c:a", "mp2", path("both.mpg"))
    ffmpeg(*clip, "-c:v", "libtheora", path("theora.ogv"))
    ffmpeg(*clip, *tone, "-c:v", "wmv2", "-c:a", "wmav2", path("both.wmv"))
    ffmpeg(*clip, *h264, "-bf", "3", path("b_frames.mkv"))
    ffmpeg(*clip, "-c:v", "mpeg4", path("mpeg4.avi"))
    ffmpeg(*clip, *h264, path("ts.ts"))
    ffmpeg(*tone, "-c:a", "aac", path("adts.aac"))
    ffmpeg(*tone, "-c:a", "libmp3lame", "-b:a", "64k", "-write_xing", "0", path("no_xing.mp3"))
    ffmpeg(*tone, "-c:a", "libmp3lame", "-q:a", "4", path("vbr.mp3"))
    ffmpeg(*tone, "-c:a", "pcm_s16be", path("be.aif"))
    ffmpeg(*tone, "-c:a", "wmav2", path("tone.wma"))


def probe(path, kind):
    shown = subprocess.run(
        ["ffprobe", "-v", "quiet", "-count_packets", "-count_frames", "-select_streams", "V:0" if kind == "video" else "a:0",
         "-show_streams", "-show_format", "-show_entries", "frame=pts_time,pkt_duration_time", "-of", "json", path],
        capture_output=True, check=True)
    return json.loads(shown.stdout)


def check(name, path, ours, theirs):
    stream = theirs["streams"][0]
    if ours.get("unreadable"):
        return fail(name, "unreadable", True, stream["codec_name"])
    if ours["codec"] != stream["codec_name"]:
        fail(name, "codec", ours["codec"], stream["codec_name"])
    stored = float(stream.get("duration") or theirs["format"].get("duration") or 0)
    if ours["kind"] == "sound":
        for key, value in (("sample_rate", int(stream["sample_rate"])), ("channels", stream["channels"])):
            if ours[key] != value:
                fail(name, key, ours[key], value)
        # Where ffprobe guesses from the bit rate, the frames it decodes tell.
        if path.endswith((".aac", "no_xing.mp3")):
            frames = theirs["frames"]
            stored = float(frames[-1]["pts_time"]) + float(frames[-1]["pkt_duration_time"]) - float(frames[0]["pts_time"])
        limit = 0.03 if path.endswith((".aac", "no_xing.mp3")) else 2e-6
        if abs(ours.get("seconds", 0) - stored) > limit:
            fail(name, "seconds", ours.get("seconds"), stored)
        return
    if ours["size"] != [stream["width"], stream["height"]]:
        fail(name, "size", ours["size"], (stream["width"], stream["height"]))
    # Of whole files as many frames come out of the decoder as were counted.
    frames = int(stream["nb_read_packets" if "damaged" in name else "nb_read_frames"])
    if ours.get("frames") != frames:
        fail(name, "frames", ours.get("frames"), frames)
    turned = [s.get("rotation", 0) for s in stream.get("side_data_list", []) if "rotation" in s]
    if ours.get("rotation", 0) != (-turned[0] % 360 if turned else 0):
        fail(name, "rotation", ours.get("rotation"), turned)
    if path.endswith(".h264") or "wrong_count" in name:
        stored = frames / 25  # no times in the file, or a header that lies
    # A frame may be counted to its end or to its begin.
    over, under = (int(n) for n in stream["avg_frame_rate"].split("/"))
    rate = over / under if over and under else ours["frames_per_second"]
    limit = 0.06 if path.endswith(".wmv") else 1.01 / rate + 1e-3  # its header counts the sound in
    if abs(ours.get("seconds", 0) - stored) > limit:
        fail(name, "seconds", ours.get("seconds"), stored)
    if path.endswith(".mp4") and abs(ours.get("seconds", 0) - stored) > 2e-6:
        fail(name, "seconds of an MP4", ours.get("seconds"), stored)
    if "vfr" not in name and "edit" not in name and abs(ours["frames_per_second"] - rate) > 0.05 * rate:
        fail(name, "frames a second", ours["frames_per_second"], rate)


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_more(folder)
        files = [f for pattern in (FIXTURES + "/*", VIDEOS + "/*.mp4" if VIDEOS else "", folder + "/*")
                 for f in sorted(glob.glob(pattern))]
        shard, known = os.path.join(folder, "s.tar"), {}
        with tarfile.open(shard, "w") as tar:
            for number, path in enumerate(files):
                extension = path.rsplit(".", 1)[1]
                extension = "ts" if extension == "h264" else extension  # no extension of a video; the content tells
                if extension not in VIDEO | SOUND:
                    continue
                tar.add(path, f"{number:03}.{extension}")
                known[f"{number:03}"] = path
            tar.add(os.path.join(FIXTURES, "mel.bin"), "no_video.mp4")
        listed = subprocess.run([MSO, "data", "ls", shard], capture_output=True, check=True, text=True).stdout
        checked = {"video": 0, "sound": 0}
        for line in listed.splitlines():
            sample = json.loads(line)
            (ours,) = sample["media"]
            if sample["key"] == "no_video":
                if not ours.get("unreadable"):
                    fail("no_video", "facts", ours, "none")
                continue
            path = known[sample["key"]]
            check(os.path.basename(path), path, ours, probe(path, ours["kind"]))
            checked[ours["kind"]] += 1
        stat = json.loads(subprocess.run([MSO, "data", "stat", "--json", shard], capture_output=True, check=True, text=True).stdout)
        for kind in checked:
            if stat[kind]["files"] - stat[kind]["unreadable"] != checked[kind]:
                fail("stat", kind, stat[kind]["files"], checked[kind])
        print(f"{checked['video']} videos and {checked['sound']} sounds")
        if checked["video"] < 25 or checked["sound"] < 15:
            fail("test", "files", checked, "more")
    return 1 if failures else 0


sys.exit(main())
