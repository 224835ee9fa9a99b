#!/usr/bin/env python3
"""Compares sound decoding with FFmpeg's command line, and features with transformers' WhisperFeatureExtractor.

Run by contrib/run-tests with MSO_BUILD (the build folder). Exits 1 where a limit is broken, 77 where ffmpeg or a package
is missing.
"""
import glob
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from served import Served

try:
    import numpy as np
    from transformers import WhisperFeatureExtractor
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if not shutil.which("ffmpeg"):
    print("skipped: no ffmpeg")
    sys.exit(77)

STAMPS = os.environ.get("MSO_STAMPS", "/usr/share/tuxpaint/stamps")
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../unit/io/fixtures/media")
failures = []


class Ours(Served):
    def __init__(self):
        super().__init__("decode_media")

    def audio(self, path, rate=16000):
        data = self.ask("audio", rate, 0, path)
        return np.frombuffer(data, np.float32, offset=8)


def check(name, value, limit):
    good = value <= limit
    print(f"{'ok  ' if good else 'FAIL'} {name}: {value:.3g} (limit {limit:.3g})")
    if not good:
        failures.append(name)


def channels_of(path):
    show = subprocess.run(["ffprobe", "-v", "error", "-select_streams", "a:0", "-show_entries", "stream=channels", "-of",
                           "default=nk=1:nw=1", path], capture_output=True, check=True)
    return int(show.stdout.split()[0])


def reference(path, rate):
    """Mean of the channels by FFmpeg's pan filter, then its resampler."""
    channels = channels_of(path)
    mean = "aformat=sample_fmts=dblp,pan=mono|c0=" + "+".join(f"{1 / channels:.17g}*c{c}" for c in range(channels))
    resample = [] if rate == 0 else ["-ar", str(rate)]
    raw = subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-i", path, "-map", "0:a:0", "-af", mean + ",aformat=sample_fmts=flt",
                          *resample, "-f", "f32le", "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.float32)


def test_decode(ours, name, path, rate):
    want = reference(path, rate)
    try:
        got = ours.audio(path, rate)
    except RuntimeError as error:
        print(f"FAIL {name}: {error}")
        failures.append(name)
        return
    if abs(len(got) - len(want)) > 1:
        print(f"FAIL {name}: {len(got)} samples, FFmpeg has {len(want)}")
        failures.append(name)
        return
    n = min(len(got), len(want))
    check(f"{name} at {rate or 'its own'} Hz, {len(got)} samples", np.abs(got[:n] - want[:n]).max() if n else 0, 2e-5)


def make_sounds(folder):
    """Noise and a sweep, so that every band counts."""
    def source(channels, rate, seconds):
        one = f"0.3*sin(2*PI*(100+900*t)*t)+0.1*(random({{}})-0.5)"
        return "aevalsrc='" + "|".join(one.format(c) for c in range(channels)) + f"':s={rate}:d={seconds}"

    cases = [
        ("pcm_s16.wav", 1, 16000, ["-c:a", "pcm_s16le"]), ("pcm_u8.wav", 1, 8000, ["-c:a", "pcm_u8"]),
        ("pcm_s24.wav", 2, 44100, ["-c:a", "pcm_s24le"]), ("pcm_s32.wav", 2, 48000, ["-c:a", "pcm_s32le"]),
        ("pcm_f32.wav", 2, 22050, ["-c:a", "pcm_f32le"]), ("pcm_f64.wav", 1, 11025, ["-c:a", "pcm_f64le"]),
        ("alaw.wav", 1, 8000, ["-c:a", "pcm_alaw"]), ("mulaw.au", 1, 8000, ["-c:a", "pcm_mulaw"]),
        ("adpcm.wav", 2, 22050, ["-c:a", "adpcm_ms"]), ("big_endian.aiff", 2, 44100, ["-c:a", "pcm_s16be"]),
        ("six.wav", 6, 48000, ["-c:a", "pcm_s16le"]), ("eight_96k.wav", 8, 96000, ["-c:a", "pcm_s16le"]),
        ("eight_96k.flac", 8, 96000, ["-c:a", "flac"]), ("flac_192k.flac", 2, 192000, ["-c:a", "flac"]),
        ("flac.ogg", 1, 16000, ["-c:a", "flac"]), ("low_rate.wav", 1, 500, ["-c:a", "pcm_s16le"]),
        ("three.wav", 3, 32000, ["-c:a", "pcm_s16le"]), ("vorbis.ogg", 2, 44100, ["-c:a", "libvorbis"]),
        ("vorbis_mono.ogg", 1, 22050, ["-c:a", "libvorbis"]), ("opus.ogg", 2, 48000, ["-c:a", "libopus"]),
        ("opus.webm", 1, 48000, ["-c:a", "libopus"]), ("mp3.mp3", 2, 44100, ["-c:a", "libmp3lame"]),
        ("mp3_mono_16k.mp3", 1, 16000, ["-c:a", "libmp3lame"]), ("mp3_vbr.mp3", 2, 48000, ["-c:a", "libmp3lame", "-q:a", "6"]),
        ("mp2.mp2", 2, 48000, ["-c:a", "mp2"]), ("aac.m4a", 2, 44100, ["-c:a", "aac"]), ("aac.aac", 1, 48000, ["-c:a", "aac"]),
        ("aac.mkv", 2, 48000, ["-c:a", "aac"]), ("alac.m4a", 2, 44100, ["-c:a", "alac"]), ("ac3.ac3", 6, 48000, ["-c:a", "ac3"]),
        ("wma.wma", 2, 44100, ["-c:a", "wmav2"]), ("aac.ts", 2, 48000, ["-c:a", "aac"]), ("wavpack.wv", 2, 44100, ["-c:a", "wavpack"]),
        ("tta.tta", 2, 44100, ["-c:a", "tta"]), ("speex.ogg", 1, 16000, ["-c:a", "libspeex"]),
    ]
    for name, channels, rate, words in cases:
        path = os.path.join(folder, name)
        try:
            subprocess.run(["ffmpeg", "-v", "error", "-y", "-nostdin", "-f", "lavfi", "-i", source(channels, rate, 1.3), *words, path], check=True,
                           capture_output=True)
        except subprocess.CalledProcessError as error:
            print(f"     not made: {name} {error.stderr.decode()[-100:]}")
            continue
        yield name, path


def signals():
    rng = np.random.default_rng(3)
    t = np.arange(16000 * 31) / 16000
    noise = rng.standard_normal(len(t)) * 0.1
    yield "noise 30 s", noise[: 16000 * 30]
    yield "noise 31 s", noise
    yield "noise 29.99 s", noise[: 16000 * 30 - 160]
    yield "a sample short of 30 s", noise[: 16000 * 30 - 1]
    for n in [0, 1, 2, 159, 160, 161, 199, 200, 201, 399, 400, 401, 2559, 2560, 2561, 16000, 40001]:
        yield f"noise of {n} samples", noise[:n]
    yield "silence", np.zeros(5000)
    yield "constant", np.full(16000, 0.5)
    yield "full scale square", np.sign(np.sin(2 * np.pi * 440 * t[:32000]))
    yield "one click", np.eye(1, 16000, 8000)[0]
    yield "click at the start", np.eye(1, 16000, 0)[0]
    yield "click at the end", np.eye(1, 480000, 479999)[0]
    for hertz in [1, 50, 440, 1000, 3999.5, 7999]:
        yield f"sine {hertz} Hz", 0.8 * np.sin(2 * np.pi * hertz * t[:48000])
    yield "sweep", 0.5 * np.sin(2 * np.pi * 130 * t[: 16000 * 30] ** 2)
    yield "faint noise", noise[:32000] * 1e-5
    yield "fainter noise", noise[:32000] * 1e-8
    yield "loud noise", noise[:32000] * 100
    yield "sine in faint noise", np.sin(2 * np.pi * 440 * t[:32000]) + 1e-4 * noise[:32000]
    yield "speech-like bursts", noise[:160000] * (np.sin(2 * np.pi * 3 * t[:160000]) > 0.3)
    yield "odd offset", 0.9 + 0.01 * noise[:20000]


def test_features(ours, folder, speech):
    path = os.path.join(folder, "samples.f32")
    worst, rounded = {}, 0
    cases = list(signals()) + speech
    for bins in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=bins)
        for name, samples in cases if bins == 80 else cases[::3]:
            samples = np.asarray(samples, np.float32)
            samples.tofile(path)
            got = np.frombuffer(ours.ask("mel", bins, path), np.float32).reshape(bins, 3000)
            want = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"][0]
            difference = np.abs(got - want).max()
            if difference > 9e-5:
                # transformers computes in float32 with torch, in double precision without: pure tones far above their
                # surroundings differ by 1e-4 between the two. Ours must be the nearer one then.
                padded = np.zeros(480000)
                padded[: min(len(samples), 480000)] = samples[:480000]
                exact = extractor._np_extract_fbank_features([padded], "cpu")[0]
                ours_off, torch_off = np.abs(got - exact).max(), np.abs(want - exact).max()
                print(f"     {name}, {bins} bins: from double precision ours {ours_off:.2g}, torch's {torch_off:.2g}")
                if ours_off < torch_off:
                    difference = ours_off
                    rounded += 1
            worst[name] = max(worst.get(name, 0), difference)
    for name, difference in worst.items():
        check(f"features of {name}", difference, 1e-4)
    check("sounds compared with double precision", rounded, 6)
    print(f"     {len(cases)} sounds, largest difference {max(worst.values()):.2g}")


def test_processors(ours, folder):
    """Folders as transformers writes them, and as ours does; tokens of Qwen2-Audio."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2AudioProcessor

    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]})
    whisper = os.path.join(folder, "whisper")
    os.makedirs(whisper)
    WhisperFeatureExtractor(feature_size=80, return_attention_mask=True).save_pretrained(whisper)
    qwen = os.path.join(folder, "qwen")
    extractor = WhisperFeatureExtractor(feature_size=128)
    processor = Qwen2AudioProcessor(extractor, tokenizer)
    processor.save_pretrained(qwen)
    token = tokenizer.convert_tokens_to_ids("<|AUDIO|>")
    path = os.path.join(folder, "samples.f32")
    rng, cases = np.random.default_rng(5), 0
    for n in [0, 1, 160, 161, 320, 321, 480, 481, 640, 800, 801, 1000, 16000, 16001, 159999, 160000, 479999, 480000, 500000]:
        samples = (rng.standard_normal(n) * 0.1).astype(np.float32)
        samples.tofile(path)
        data = ours.ask("processor", qwen, path)
        tokens, mask = struct.unpack_from("<2q", data)
        try:
            want = processor(text="<|AUDIO|>", audio=[samples], sampling_rate=16000, return_tensors="np")
        except Exception as error:  # no frames
            print(f"     transformers refuses {n} samples: {type(error).__name__}")
            continue
        if tokens != int((want["input_ids"] == token).sum()) or mask != int(want["feature_attention_mask"].sum()):
            print(f"FAIL Qwen2-Audio, {n} samples: {tokens} tokens, mask {mask}; transformers "
                  f"{int((want['input_ids'] == token).sum())}, {int(want['feature_attention_mask'].sum())}")
            failures.append("qwen tokens")
        features = np.frombuffer(data, np.float32, offset=16).reshape(128, 3000)
        if np.abs(features - want["input_features"][0]).max() > 1e-4:
            failures.append("qwen features")
        tokens, mask = struct.unpack_from("<2q", ours.ask("processor", whisper, path))
        both = WhisperFeatureExtractor.from_pretrained(whisper)(
            samples, sampling_rate=16000, return_tensors="np", return_attention_mask=True)
        if tokens != 0 or mask != int(both["attention_mask"].sum()):
            print(f"FAIL Whisper, {n} samples: mask {mask}, transformers {int(both['attention_mask'].sum())}")
            failures.append("whisper mask")
        cases += 1
    print(f"ok   processors of Whisper and Qwen2-Audio: {cases} sounds")


def main():
    ours = Ours()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in make_sounds(folder):
            test_decode(ours, name, path, 16000)
            count += 1
        for name in ("eight_96k.flac", "vorbis.ogg", "mp3.mp3"):
            test_decode(ours, name, os.path.join(folder, name), 0)
        for path in sorted(glob.glob(os.path.join(FIXTURES, "*"))):
            name = os.path.basename(path)
            # FFmpeg's resampler gives nothing for a sound shorter than its filter; ours gives the sound.
            if name.split(".")[-1] in ("wav", "flac", "mp3", "m4a", "ogg", "opus") and name not in ("one_hertz.wav", "empty.wav"):
                test_decode(ours, f"fixture {name}", path, 16000)
                count += 1
        stamps = sorted(glob.glob(os.path.join(STAMPS, "**", "*.ogg"), recursive=True))
        speech = []
        for path in stamps[:: max(1, len(stamps) // 12)]:
            test_decode(ours, f"speech {os.path.basename(path)}", path, 16000)
            speech.append((f"speech {os.path.basename(path)}", ours.audio(path)))
            count += 1
        print(f"     {count} files decoded")
        test_features(ours, folder, speech[:6])
        test_processors(ours, folder)
    print(f"{len(failures)} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
