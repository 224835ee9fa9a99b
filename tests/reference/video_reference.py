#!/usr/bin/env python3
"""Compares video decoding with FFmpeg's command line, and frame sampling with transformers.

Run by contrib/run-tests with MSO_BUILD (the build folder) and MSO_VIDEOS (a folder with real clips, may be missing).
Exits 1 where a limit is broken, 77 where ffmpeg or a package is missing.
"""
import glob
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from served import Served

try:
    import numpy as np
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.video_utils import VideoMetadata, default_sample_indices_fn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if not shutil.which("ffmpeg"):
    print("skipped: no ffmpeg")
    sys.exit(77)

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../unit/io/fixtures/media")
VIDEOS = os.environ.get("MSO_VIDEOS", "")
failures = []


class Ours(Served):
    def __init__(self):
        super().__init__("decode_media")

    def video(self, rule, count, path, fps=2, tolerate=0, threads=1):
        data = self.ask("video", rule, fps, count, tolerate, threads, path)
        width, height, frames, total = struct.unpack_from("<4q", data)
        (rate,) = struct.unpack_from("<d", data, 32)
        indices = np.frombuffer(data, "<i8", frames, 40)
        times = np.frombuffer(data, "<f8", frames, 40 + 8 * frames)
        rgb = np.frombuffer(data, np.uint8, offset=40 + 16 * frames).reshape(frames, height, width, 3)
        return total, rate, indices, times, rgb


def fail(name, text):
    print(f"FAIL {name}: {text}")
    failures.append(name)


def ffmpeg(*words):
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-nostdin", *words], check=True)


def reference(path, autorotate):
    """Every frame, and its time from the first one's."""
    turn = [] if autorotate else ["-noautorotate"]
    show = subprocess.run(
        ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_frames", "-show_entries",
         "frame=best_effort_timestamp_time,width,height:stream_side_data=rotation", "-of", "json", path],
        capture_output=True, check=True)
    frames = json.loads(show.stdout)["frames"]
    width, height = frames[0]["width"], frames[0]["height"]
    raw = subprocess.run(
        ["ffmpeg", "-v", "error", "-nostdin", *turn, "-i", path, "-map", "0:v:0", "-vsync", "passthrough", "-f", "rawvideo",
         "-pix_fmt", "rgb24", "-threads", "1", "-"], capture_output=True, check=True).stdout
    if autorotate == "swap":
        width, height = height, width
    rgb = np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)
    times = [float(f["best_effort_timestamp_time"]) if "best_effort_timestamp_time" in f else None for f in frames]
    return rgb, times


QWEN = Qwen2VLVideoProcessor()


def transformers_indices(total, rate, fps=None, num_frames=None):
    metadata = VideoMetadata(total_num_frames=total, fps=rate)
    return QWEN.sample_frames(metadata, fps=fps, num_frames=num_frames).tolist()


def test_sampler(ours):
    """Against transformers over many lengths and rates. Its float32 arange may be a frame off, or one too many."""
    cases = different = 0
    for total in [1, 2, 3, 4, 5, 7, 8, 9, 16, 25, 49, 60, 97, 100, 131, 250, 300, 767, 768, 769, 1000, 1537, 4321, 20000]:
        for rate in [0.5, 1, 10, 23.976, 24, 25, 29.97002997, 30, 50, 60, 120]:
            for fps, count in [(2, 0), (1, 0), (4.5, 0), (2, 2), (2, 8), (2, 33)]:
                got = np.frombuffer(ours.ask("sample", "qwen2_vl", fps, count, 4, 768, total, rate), "<i8").tolist()
                try:
                    want = transformers_indices(total, rate, None if count else fps, count or None)
                except (ValueError, ZeroDivisionError):
                    want = None  # fewer frames than it takes: ours takes the clip whole
                cases += 1
                if want is None or not want:
                    if not got or got != list(range(len(got))):
                        fail("sampler", f"short clip {total} {rate} {fps} {count}: {got}")
                    continue
                # One index more than n, at the end of the clip, is a rounding of ceil().
                if len(want) == len(got) + 1 and want[-1] >= total - 1:
                    want = want[:-1]
                if len(got) != len(want) or max(abs(a - b) for a, b in zip(got, want)) > 1:
                    fail("sampler", f"{total} frames at {rate}, fps {fps}, {count}: {got[:9]} {want[:9]}")
                different += sum(a != b for a, b in zip(got, want)) > 0
                uniform = np.frombuffer(ours.ask("sample", "uniform", fps, count, 4, 768, total, rate), "<i8").tolist()
                try:
                    plain = default_sample_indices_fn(VideoMetadata(total_num_frames=total, fps=rate), count or None, fps).tolist()
                except ValueError:
                    continue
                if uniform != plain:
                    fail("sampler", f"uniform {total} {rate} {fps} {count}: {uniform[:9]} {plain[:9]}")
    print(f"ok   sampler: {cases} cases, {different} where float32 of transformers is a frame off")
    if different > cases // 20:
        fail("sampler", "too many differ")


def test_clip(ours, name, path, rotated=None, whole=True):
    """`rotated`: turns of np.rot90 that make the stored picture upright, and whether columns are mirrored first."""
    try:
        rgb, times = reference(path, False)
    except (subprocess.CalledProcessError, KeyError, ValueError) as error:
        return fail(name, f"reference: {error}")
    if rotated is not None:
        turns, mirror = rotated
        rgb = np.rot90(rgb[:, :, ::-1] if mirror else rgb, turns, axes=(1, 2))
    try:
        if whole:
            total, rate, indices, stamps, got = ours.video("all", 0, path)
            if total != len(rgb) or got.shape != rgb.shape:
                return fail(name, f"{total} frames {got.shape}, FFmpeg has {rgb.shape}")
            if not np.array_equal(got, rgb):
                worst = np.abs(got.astype(int) - rgb).max(axis=(1, 2, 3))
                return fail(name, f"frames differ: {np.nonzero(worst)[0][:8]} by up to {worst.max()}")
            if times[0] is not None and None not in times:
                off = np.abs(np.array(times) - times[0] - stamps).max()
                if off > 2e-3:
                    return fail(name, f"times are off by {off} s")
        for rule, count, threads in [("qwen2_vl", 0, 1), ("qwen_vl_utils", 0, 1), ("uniform", 3, 1), ("uniform", 7, 2), ("qwen2_vl", 2, 1)]:
            total, rate, indices, stamps, got = ours.video(rule, count, path, threads=threads)
            if total != len(rgb):
                return fail(name, f"{rule}: {total} frames, FFmpeg has {len(rgb)}")
            if not np.array_equal(got, rgb[indices]):
                worst = np.abs(got.astype(int) - rgb[indices]).max(axis=(1, 2, 3))
                return fail(name, f"{rule} {count}: chosen frames {indices[worst > 0][:8]} differ")
            if rule == "qwen2_vl" and total >= 2:
                want = transformers_indices(total, rate, None if count else 2, count or None)[: len(indices)]
                if len(want) != len(indices) or max(abs(a - b) for a, b in zip(indices, want)) > 1:
                    return fail(name, f"{rule}: indices {indices}, transformers {want}")
    except RuntimeError as error:
        return fail(name, str(error))
    print(f"ok   {name}: {len(rgb)} frames, {rgb.shape[2]}×{rgb.shape[1]}")


def make_clips(folder):
    """Name, words after the source, options of the source."""
    x264 = ["-c:v", "libx264", "-preset", "fast", "-threads", "2"]
    hevc = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=0:keyint=12:bframes=3"]
    cases = {
        "h264.mp4": x264,
        "h264_gop.mkv": [*x264, "-g", "10", "-bf", "3"],
        "h264_open.mp4": [*x264, "-g", "8", "-bf", "4", "-x264-params", "open-gop=1:b-pyramid=strict"],
        "h264_10bit.mp4": [*x264, "-pix_fmt", "yuv420p10le"],
        "h264_444.mp4": [*x264, "-pix_fmt", "yuv444p"],
        "h264_422.mkv": [*x264, "-pix_fmt", "yuv422p"],
        "h264_709.mp4": [*x264, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"],
        "h264_2020.mp4": [*x264, "-colorspace", "bt2020nc"],
        "h264_full.mp4": [*x264, "-pix_fmt", "yuvj420p"],
        "h264_rgb.mkv": ["-c:v", "libx264rgb", "-preset", "fast"],
        "h264_gray.mp4": [*x264, "-pix_fmt", "gray"],
        "h264_intra.mov": [*x264, "-g", "1"],
        "h264_refresh.ts": [*x264, "-x264-params", "intra-refresh=1:keyint=10:bframes=0"],
        "h264_interlaced.ts": [*x264, "-flags", "+ildct+ilme", "-g", "12"],
        "h264.flv": [*x264, "-bf", "2"],
        "h264.avi": [*x264, "-bf", "2"],
        "h264.3gp": x264,
        "h264_fragments.mp4": [*x264, "-movflags", "frag_keyframe+empty_moov"],
        "h264_faststart.mp4": [*x264, "-movflags", "+faststart"],
        "hevc.mp4": hevc,
        "hevc.mkv": [*hevc, "-pix_fmt", "yuv420p10le"],
        "hevc.ts": hevc,
        "vp8.webm": ["-c:v", "libvpx", "-b:v", "300k", "-auto-alt-ref", "1", "-lag-in-frames", "10", "-deadline", "realtime", "-cpu-used", "8"],
        "vp9.webm": ["-c:v", "libvpx-vp9", "-b:v", "300k", "-lag-in-frames", "12", "-deadline", "realtime", "-cpu-used", "8"],
        "mpeg4.mp4": ["-c:v", "mpeg4", "-bf", "2", "-q:v", "4"],
        "mpeg4.avi": ["-c:v", "mpeg4", "-bf", "2", "-q:v", "4"],
        "mpeg2.mpg": ["-c:v", "mpeg2video", "-bf", "2", "-q:v", "4"],
        "mpeg2.ts": ["-c:v", "mpeg2video", "-bf", "2", "-q:v", "4"],
        "mpeg1.mpg": ["-c:v", "mpeg1video", "-q:v", "4"],
        "mjpeg.avi": ["-c:v", "mjpeg", "-q:v", "3"],
        "theora.ogv": ["-c:v", "libtheora", "-q:v", "7"],
        "wmv2.wmv": ["-c:v", "wmv2", "-q:v", "4"],
        "flv1.flv": ["-c:v", "flv", "-q:v", "4"],
        "prores.mov": ["-c:v", "prores_ks"],
        "ffv1.mkv": ["-c:v", "ffv1"],
        "raw.avi": ["-c:v", "rawvideo", "-pix_fmt", "bgr24"],
        "raw.y4m": ["-pix_fmt", "yuv420p"],
        "animated.gif": [],
        "animated.apng": ["-plays", "0"],
        "elementary.h264": [*x264, "-bf", "2"],
        "elementary.h265": hevc,
    }
    source = "testsrc2=s=96x64:r=25:d=1.6"
    for name, words in cases.items():
        path = os.path.join(folder, name)
        pixels = [] if "-pix_fmt" in words or name.split(".")[0] in ("animated", "prores", "h264_rgb", "mjpeg") else ["-pix_fmt", "yuv420p"]
        try:
            ffmpeg("-f", "lavfi", "-i", source, *words, *pixels, path)
        except subprocess.CalledProcessError:
            print(f"     not made: {name}")
            continue
        yield name, path
    odd = [
        ("one_frame.mp4", "testsrc2=s=96x64:r=25", ["-frames:v", "1"]),
        ("two_frames.mp4", "testsrc2=s=96x64:r=25", ["-frames:v", "2"]),
        ("three_frames.mp4", "testsrc2=s=96x64:r=25", ["-frames:v", "3"]),
        ("odd_size.mkv", "testsrc2=s=97x65:r=25:d=0.6", ["-pix_fmt", "yuv444p"]),
        ("odd_420.mkv", "testsrc2=s=99x67:r=25:d=0.4", ["-c:v", "ffv1", "-pix_fmt", "yuv420p"]),
        ("tiny.mkv", "testsrc2=s=16x16:r=25:d=0.6", ["-c:v", "ffv1", "-pix_fmt", "yuv420p"]),
        ("one_pixel.mkv", "color=red:s=8x8:r=5:d=1,format=rgb24,scale=1:1", ["-c:v", "ffv1", "-pix_fmt", "yuv444p"]),
        ("long_and_slow.mp4", "testsrc2=s=96x64:r=2:d=40", ["-g", "5"]),
        ("fast.mp4", "testsrc2=s=96x64:r=240:d=0.5", []),
        ("ntsc.mp4", "testsrc2=s=96x64:r=30000/1001:d=1.5", []),
        ("variable.mp4", "testsrc2=s=96x64:r=30:d=2", ["-vf", "select='not(mod(n\\,7))+lt(n\\,20)'", "-vsync", "passthrough"]),
        ("variable.mkv", "testsrc2=s=96x64:r=30:d=2", ["-vf", "select='gt(random(1)\\,0.5)'", "-vsync", "passthrough", "-bf", "2"]),
        ("late_start.ts", "testsrc2=s=96x64:r=25:d=1", ["-output_ts_offset", "100", "-g", "10"]),
        ("sar.mp4", "testsrc2=s=96x64:r=25:d=0.5", ["-vf", "setsar=2"]),
    ]
    for name, source, words in odd:
        path = os.path.join(folder, name)
        codec = [] if "-c:v" in words else x264
        pixels = [] if "-pix_fmt" in words else ["-pix_fmt", "yuv420p"]
        ffmpeg("-f", "lavfi", "-i", source, *codec, *words, *pixels, path)
        yield name, path
    base = os.path.join(folder, "h264_gop.mkv")
    for name, words in {
        "cut.mp4": ["-ss", "0.5", "-i", base, "-c", "copy"],  # an edit list hides the first frames
        "with_audio.mp4": ["-i", base, "-f", "lavfi", "-i", "sine=d=1.6", "-c:v", "copy", "-c:a", "aac"],
        "rewrapped.ts": ["-i", base, "-c", "copy"],
    }.items():
        path = os.path.join(folder, name)
        ffmpeg(*words, path)
        yield name, path


def test_rotation(ours, folder):
    base = os.path.join(folder, "h264_gop.mkv")
    for degrees, turns in [(90, 3), (180, 2), (270, 1)]:
        path = os.path.join(folder, f"rotated_{degrees}.mp4")
        ffmpeg("-i", base, "-c", "copy", "-metadata:s:v", f"rotate={degrees}", path)
        # FFmpeg's "rotate" counts counter-clockwise in files it writes; what players show is what it turns to itself.
        upright, _ = reference(path, "swap" if degrees != 180 else True)
        *_, got = ours.video("all", 0, path)
        if got.shape != upright.shape or not np.array_equal(got, upright):
            fail(f"rotated_{degrees}", f"{got.shape} {upright.shape}")
        else:
            print(f"ok   rotated_{degrees}: as FFmpeg turns it")


def test_damage(ours, folder):
    base = os.path.join(folder, "h264_gop.mkv")
    with open(base, "rb") as f:
        data = f.read()
    whole, _ = reference(base, False)
    path = os.path.join(folder, "damaged.mkv")
    noticed = 0
    for trial in range(12):
        at = len(data) * (trial + 3) // 18
        spoiled = bytearray(data)
        for i in range(at, min(len(data), at + 60)):
            spoiled[i] = (i * 37 + trial) & 255
        with open(path, "wb") as f:
            f.write(spoiled)
        try:
            *_, got = ours.video("all", 0, path)
            if len(got) == len(whole) and np.array_equal(got, whole):
                continue
        except RuntimeError as error:
            noticed += 1
            if "damaged" not in str(error):
                fail("damage", str(error))
        try:
            total, *_ = ours.video("all", 0, path, tolerate=1)
            if total > len(whole):
                fail("damage", "more frames than there were")
        except RuntimeError as error:
            if "damaged" not in str(error):
                fail("damage", str(error))
    # The rest decodes to other pixels without a word of FFmpeg: arithmetic coding takes any bits.
    print(f"ok   damage: {noticed} of 12 noticed")
    if noticed < 6:
        fail("damage", f"{noticed} of 12 noticed")


def main():
    ours = Ours()
    test_sampler(ours)
    clips = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in make_clips(folder):
            test_clip(ours, name, path)
            clips += 1
        test_rotation(ours, folder)
        test_damage(ours, folder)
    for path in sorted(glob.glob(os.path.join(FIXTURES, "*"))):
        name = os.path.basename(path)
        if name.split(".")[-1] in ("mp4", "mkv", "ts", "webm", "avi", "gif", "h264") and not name.startswith(("rot", "mirror", "damaged")):
            test_clip(ours, f"fixture {name}", path)
            clips += 1
    real = sorted(glob.glob(os.path.join(VIDEOS, "*.mp4"))) if VIDEOS else []
    for path in real:
        test_clip(ours, f"real {os.path.basename(path)}", path, whole=False)
        clips += 1
    if not real:
        print("     no real clips: MSO_VIDEOS is not set")
    print(f"{clips} clips, " + (f"{len(failures)} failed" if failures else "all passed"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
