#!/usr/bin/env python3
"""Clips and seconds of sound a second: ours, torchcodec, PyAV, decord, and FFmpeg's command line as the bound.

usage: media_bench.py [--build DIR] [--videos DIR] [--sounds DIR] [--seconds N] [--rounds N] [--threads N]

All on the same files, in turns, medians of several rounds. Video: 2 frames a second at least 4 (Qwen2-VL's sampling), as
RGB in memory. The bound decodes the whole clip with FFmpeg's own program and converts nothing ("ffmpeg -f null"). Sound:
16 kHz mono, and with log-mel features against transformers. Peers that are not installed are left out.
"""
import argparse
import glob
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

FLOOR = 4


def indices(total, rate):
    n = max(FLOOR, int(total / rate * 2))
    n = min(n, total) // 2 * 2 or 1
    return [i * total // n for i in range(n)]


def torchcodec_video():
    from torchcodec.decoders import VideoDecoder

    def work(path, data):
        decoder = VideoDecoder(data, num_ffmpeg_threads=1, dimension_order="NHWC")
        m = decoder.metadata
        return decoder.get_frames_at(indices(m.num_frames, m.average_fps)).data

    return work


def torchcodec_approximate():
    from torchcodec.decoders import VideoDecoder

    def work(path, data):
        decoder = VideoDecoder(data, num_ffmpeg_threads=1, dimension_order="NHWC", seek_mode="approximate")
        m = decoder.metadata
        return decoder.get_frames_at(indices(m.num_frames, m.average_fps)).data

    return work


def pyav_video():
    import io

    import av

    def work(path, data):
        with av.open(io.BytesIO(data)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            total = stream.frames or sum(1 for p in container.demux(stream) if p.size)
            wanted = set(indices(total, float(stream.average_rate)))
            container.seek(0)
            out = []
            for i, frame in enumerate(container.decode(stream)):
                if i in wanted:
                    out.append(frame.to_ndarray(format="rgb24"))
                    if len(out) == len(wanted):
                        break
            return out

    return work


def decord_video():
    import io

    import decord

    def work(path, data):
        reader = decord.VideoReader(io.BytesIO(data), num_threads=1)
        return reader.get_batch(indices(len(reader), reader.get_avg_fps())).asnumpy()

    return work


def ffmpeg_video():
    def work(path, data):
        subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", "-i", path, "-map", "0:v:0", "-f", "null", "-"], check=True)

    return work


def torchcodec_audio():
    from torchcodec.decoders import AudioDecoder

    def work(path, data):
        return AudioDecoder(data, sample_rate=16000, num_channels=1).get_all_samples().data

    return work


def pyav_audio():
    import io

    import av
    import numpy as np

    def work(path, data):
        with av.open(io.BytesIO(data)) as container:
            resampler = av.AudioResampler(format="flt", layout="mono", rate=16000)
            out = []
            for frame in container.decode(audio=0):
                out += [f.to_ndarray() for f in resampler.resample(frame)]
            out += [f.to_ndarray() for f in resampler.resample(None)]
            return np.concatenate(out, axis=1)

    return work


def transformers_mel():
    from transformers import WhisperFeatureExtractor

    extractor, decode = WhisperFeatureExtractor(), torchcodec_audio()

    def work(path, data):
        return extractor(decode(path, data).numpy()[0], sampling_rate=16000, return_tensors="np")

    return work


def cpu_time():
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + child.ru_utime + child.ru_stime


def rate_of(work, files, threads, seconds):
    """By the clock, and by the CPU time of all threads, which counts on a busy machine."""
    start, cpu_start, rounds = time.monotonic(), cpu_time(), 0
    with ThreadPoolExecutor(threads) as pool:
        while True:
            list(pool.map(lambda f: work(*f), files))
            rounds += 1
            if time.monotonic() - start >= seconds:
                break
    files = rounds * len(files)
    return files / (time.monotonic() - start), files / (cpu_time() - cpu_start)


def ours(build, what, threads, seconds, paths):
    out = subprocess.run([os.path.join(build, "media_bench"), what, str(threads), str(seconds), *paths],
                         capture_output=True, check=True, text=True).stdout
    words = out.split()
    return float(words[0]), float(words[2])


def compare(title, build, what, peers, paths, args):
    files = [(p, open(p, "rb").read()) for p in paths]
    works = {}
    for name, make in peers.items():
        try:
            work = make()
            work(*files[0])
            works[name] = work
        except Exception as error:  # not installed, or it cannot read the file
            print(f"  {name}: left out ({type(error).__name__}: {str(error)[:80]})")
    rates = {name: [] for name in ["ours", *works]}
    for _ in range(args.rounds):
        rates["ours"].append(ours(build, what, args.threads, args.seconds, paths))
        for name, work in works.items():
            rates[name].append(rate_of(work, files, args.threads, args.seconds))
    print(f"{title}: {len(paths)} files, {args.threads} threads, {args.rounds} rounds of {args.seconds} s")
    for which, unit in enumerate(["/s", "/CPU s"]):
        mine = statistics.median(r[which] for r in rates["ours"])
        for name, both in rates.items():
            values = [r[which] for r in both]
            middle = statistics.median(values)
            print(f"  {name:26s} {middle:9.2f}{unit:7s} ({min(values):.2f} … {max(values):.2f})  ours/it {mine / middle:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--videos", default=os.environ.get("MSO_VIDEOS", ""))
    parser.add_argument("--sounds", default="/usr/share/tuxpaint/stamps")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    video_peers = {"torchcodec": torchcodec_video, "torchcodec approximate": torchcodec_approximate, "PyAV": pyav_video,
                   "decord": decord_video, "ffmpeg, whole clip": ffmpeg_video}
    with tempfile.TemporaryDirectory() as folder:
        real = sorted(glob.glob(os.path.join(args.videos, "*.mp4"))) if args.videos else []
        if real:
            compare("video, real clips", args.build, "video", video_peers, real, args)
        made = []
        for name, words in {
            "h264_320.mp4": ["-c:v", "libx264", "-g", "250"], "h264_short_gop.mp4": ["-c:v", "libx264", "-g", "30"],
            "vp9.webm": ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "500k"],
        }.items():
            path = os.path.join(folder, name)
            source = ["-i", real[0], "-vf", "scale=320:240"] if real else ["-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=5"]
            subprocess.run(["ffmpeg", "-v", "error", "-y", "-nostdin", *source, "-an", *words, path], check=True)
            made.append(path)
        for path in made:
            compare(f"video, {os.path.basename(path)}", args.build, "video", video_peers, [path], args)
    sounds = sorted(glob.glob(os.path.join(args.sounds, "**", "*.ogg"), recursive=True))
    sounds = sounds[:: max(1, len(sounds) // 100)]
    if sounds:
        compare("sound", args.build, "audio", {"torchcodec": torchcodec_audio, "PyAV": pyav_audio}, sounds, args)
        compare("sound to features", args.build, "mel", {"torchcodec + transformers": transformers_mel}, sounds, args)


if __name__ == "__main__":
    sys.exit(main())
