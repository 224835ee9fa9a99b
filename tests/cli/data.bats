#!/usr/bin/env bats
# mso data: pack, index, ls, stat, verify. MSO: the program (default: mso in $MSO_BUILD, else here). Needs python3.

setup() {
  mso=${MSO:-${MSO_BUILD:-$PWD}/mso}
  work=$BATS_TEST_TMPDIR
  [ -x "$mso" ] || skip "no program $mso"
  "$mso" data --help >/dev/null || skip "built without the data pipeline"
  mkdir -p "$work/src/animals/birds"
  # Three PNGs: 2 × 1 red, 3 × 2 half transparent, and one without a caption.
  python3 - "$work/src/animals" <<'PYTHON'
import struct, sys, zlib
def png(path, width, height, kind, pixel):
    rows = b"".join(b"\0" + pixel * width for _ in range(height))
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
                           + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
root = sys.argv[1]
png(root + "/cat.png", 2, 1, 2, b"\xff\0\0")
png(root + "/birds/owl.png", 3, 2, 6, b"\0\0\0\x80")
png(root + "/dog.png", 4, 4, 2, b"\0\xff\0")
PYTHON
  printf 'A cat.\nde.utf8=Eine Katze.\nfr.utf8=Un chat.\n' >"$work/src/animals/cat.txt"
  printf 'An owl.\nde.utf8=Eine Eule.\n' >"$work/src/animals/birds/owl.txt"
  # A sound; what a file is, its content decides.
  python3 -c 'import sys, wave; w = wave.open(sys.argv[1], "wb"); w.setparams((1, 2, 8000, 0, "NONE", "")); w.writeframes(bytes(1600))' \
    "$work/src/animals/birds/owl_desc.ogg"
  printf '<svg/>' >"$work/src/animals/cow.svg"
}
mso() { "$mso" "$@"; }

@test "pack writes what tar and Python read, with the right captions" {
  run mso data pack "$work/src" "$work/out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"packed 2 samples of 2 pictures into 1 shard"* ]]
  [[ "$output" == *"skipped: 1 vector pictures"* ]]
  [[ "$output" == *"skipped: 1 pictures without a .txt"* ]]
  [ "$(tar tf "$work/out/shard-000000.tar" | wc -l)" -eq 7 ]
  python3 - "$work/out/shard-000000.tar" <<'PYTHON'
import json, sys, tarfile
tar = tarfile.open(sys.argv[1])
captions = {}
for member in tar:
    assert member.mtime == 0 and member.uid == 0 and member.mode == 0o644, member
    key, extension = member.name.split(".", 1)
    data = tar.extractfile(member).read()
    if extension == "jpg":
        assert data[:3] == b"\xff\xd8\xff"
    if extension == "json":
        captions[key] = json.loads(data)
    if extension == "txt":
        assert data in (b"A cat.", b"An owl.")
by_source = {c["source"]: c for c in captions.values()}
cat = by_source["animals/cat.png"]
assert cat["captions"] == {"de": "Eine Katze.", "en": "A cat.", "fr": "Un chat."}, cat
assert (cat["category"], cat["width"], cat["height"], cat["language"]) == ("animals", 2, 1, "en")
assert by_source["animals/birds/owl.png"]["category"] == "animals/birds"
assert (cat["image_source"], cat["text_source"]) == ("animals/cat.png", "animals/cat.txt"), cat
assert "audio_source" not in cat and by_source["animals/birds/owl.png"]["audio_source"] == "animals/birds/owl_desc.ogg"
PYTHON
}

@test "pack gives the same bytes again, on any number of threads, and replaces its own folder" {
  mso data pack "$work/src" "$work/out" --threads 1
  mso data pack "$work/src" "$work/two" --threads 3
  cmp "$work/out/shard-000000.tar" "$work/two/shard-000000.tar"
  # An index knows when its tar was changed.
  for folder in out two; do touch -d @1700000000 "$work/$folder/shard-000000.tar"; rm "$work/$folder/shard-000000.idx"; mso data index "$work/$folder"; done
  cmp "$work/out/shard-000000.idx" "$work/two/shard-000000.idx"
  mso data pack "$work/src" "$work/out/" --max-samples-per-shard 1
  [ "$(ls "$work/out")" = "$(printf 'dataset.json\nshard-000000.idx\nshard-000000.tar\nshard-000001.idx\nshard-000001.tar')" ]
  [ -z "$(ls -d "$work"/out.* 2>/dev/null)" ]
}

@test "pack leaves foreign folders and files alone" {
  mkdir "$work/mine"
  echo precious >"$work/mine/thesis.txt"
  run mso data pack "$work/src" "$work/mine"
  [ "$status" -eq 2 ]
  [[ "$output" == *thesis.txt* ]]
  [ "$(cat "$work/mine/thesis.txt")" = precious ]
  mkdir "$work/shards"
  echo "not ours" >"$work/shards/shard-000000.tar"
  run mso data pack "$work/src" "$work/shards"
  [ "$status" -eq 2 ]
  echo file >"$work/file"
  run mso data pack "$work/src" "$work/file"
  [ "$status" -eq 2 ]
  run mso data pack "$work/none" "$work/out"
  [ "$status" -eq 2 ]
  mkdir "$work/empty"
  run mso data pack "$work/empty" "$work/out"
  [ "$status" -eq 3 ]
  [ ! -e "$work/out" ]
}

@test "pack takes up where a killed run left its partial folder" {
  mkdir "$work/out.partial"
  echo half >"$work/out.partial/shard-000000.tar"
  echo half >"$work/out.partial/shard-000000.idx.tmp123"
  mso data pack "$work/src" "$work/out"
  run mso data verify "$work/out"
  [ "$status" -eq 0 ]
}

@test "pack --every-language makes a sample for each caption" {
  mso data pack "$work/src" "$work/out" --every-language
  [ "$(mso data ls "$work/out" | wc -l)" -eq 5 ]
  [ "$(tar xOf "$work/out/shard-000000.tar" --wildcards '*.txt' | tr -d '\n' | wc -m)" -eq 42 ]
}

@test "a picture that cannot be decoded is skipped by name" {
  head -c 40 "$work/src/animals/cat.png" >"$work/src/animals/cut.png"
  echo "Cut." >"$work/src/animals/cut.txt"
  run mso data pack "$work/src" "$work/out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"1 pictures that cannot be decoded"* ]]
  [[ "$output" == *animals/cut.png* ]]
}

# Eight conversations over three files, five of the conversations bad.
conversations() {
  mkdir -p "$work/media/a"
  cp "$work/src/animals/cat.png" "$work/media/a/cat.PNG"
  cp "$work/src/animals/dog.png" "$work/media/dog.png"
  printf 'OggS' >"$work/media/s.ogg"
  python3 - "$work" <<'PYTHON'
import json, sys
def turns(question): return [{"from": "human", "value": question}, {"from": "gpt", "value": "Yes."}]
entries = [
    {"id": "one", "image": "a/cat.PNG", "conversations": turns("<image>\nA cat?")},
    {"id": "two", "image": ["dog.png", "a/cat.PNG"], "audio": "s.ogg", "conversations": turns("<image><image> and <audio>?")},
    {"id": "text", "conversations": turns("Hello?")},
    {"id": "lost", "image": "nosuch.png", "conversations": turns("<image>?")},
    {"id": "unmarked", "image": "dog.png", "conversations": turns("?")},
    {"id": "out", "image": "../src/animals/dog.png", "conversations": turns("<image>?")},
    {"id": "web", "image": "https://example.org/a.png", "conversations": turns("<image>?")},
    {"id": "sound", "image": "s.ogg", "conversations": turns("<image>?")},
]
open(sys.argv[1] + "/c.json", "w").write(json.dumps(entries, indent=1))
open(sys.argv[1] + "/c.jsonl", "w").write("".join(json.dumps(e) + "\n" for e in entries))
PYTHON
}

@test "pack reads conversations, an array or lines, and names bad entries" {
  conversations
  run mso data pack "$work/c.json" "$work/out" --media "$work/media"
  [ "$status" -eq 0 ]
  [[ "$output" == *"packed 3 conversations into 1 shard"* ]]
  [[ "$output" == *"images: 3"* && "$output" == *"audio: 1"* ]]
  [[ "$output" == *"1 missing_file"*"c.json entry 3 (id lost)"*"nosuch.png"* ]]
  [[ "$output" == *"1 missing_media"*"c.json entry 4 (id unmarked)"*"dog.png"* ]]
  [[ "$output" == *"1 outside_folder"*"c.json entry 5 (id out)"* ]]
  [[ "$output" == *"1 web_address"* && "$output" == *"1 decode_error"*"(id sound)"* ]]
  python3 - "$work/out/shard-000000.tar" "$work" <<'PYTHON'
import json, sys, tarfile
tar = tarfile.open(sys.argv[1])
samples = {}
for member in tar:
    key, extension = member.name.split(".", 1)
    samples.setdefault(key, {})[extension] = tar.extractfile(member).read()
by_id = {json.loads(s["json"])["id"]: s for s in samples.values()}
assert set(by_id) == {"one", "two", "text"}, by_id.keys()
cat, dog = (open(sys.argv[2] + "/media/" + f, "rb").read() for f in ("a/cat.PNG", "dog.png"))
assert by_id["one"]["png"] == cat and json.loads(by_id["one"]["json"])["image"] == "png"
two = by_id["two"]
assert (two["png"], two["image1.png"], two["ogg"]) == (dog, cat, b"OggS"), two.keys()
entry = json.loads(two["json"])
assert (entry["image"], entry["audio"]) == (["png", "image1.png"], "ogg"), entry
assert list(by_id["text"]) == ["json"]
PYTHON
  mso data pack "$work/c.jsonl" "$work/lines" --media "$work/media" --threads 1
  cmp "$work/out/shard-000000.tar" "$work/lines/shard-000000.tar"
  [ "$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["skipped"])' "$work/out/dataset.json")" = \
    "{'decode_error': 1, 'missing_file': 1, 'missing_media': 1, 'outside_folder': 1, 'web_address': 1}" ]
}

@test "pack refuses files that are no conversations" {
  echo '[{"a": 1}, ' >"$work/cut.json"
  run mso data pack "$work/cut.json" "$work/out"
  [ "$status" -eq 3 ]
  [[ "$output" == *"cut.json"* ]]
  echo '{"a": 1}' >"$work/odd.json"
  run mso data pack "$work/odd.json" "$work/out"
  [ "$status" -eq 3 ]
  [[ "$output" == *"odd.json line 1"*"neither"* ]]
  echo '{"a": 1}' >"$work/x.json"
  run mso data pack "$work/x.json" "$work/out" --media "$work/none"
  [ "$status" -eq 2 ]
  [ ! -e "$work/out" ]
}

@test "stat counts" {
  mso data pack "$work/src" "$work/out"
  run mso data stat "$work/out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"with picture        2"* ]]
  [[ "$output" == *animals/birds* ]]
}

@test "stat and ls tell what the headers of videos and sounds say, and counts by source" {
  local media="${MSO_SRCDIR:-$BATS_TEST_DIRNAME/../..}/tests/unit/io/fixtures/media"
  mkdir -p "$work/av"
  python3 - "$media" "$work/av/s.tar" <<'PYTHON'
import io, json, sys, tarfile
with tarfile.open(sys.argv[2], "w") as tar:
    def add(name, content):
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    def file(name):
        return open(sys.argv[1] + "/" + name, "rb").read()
    for number, name in enumerate(["rot90.mp4", "vfr.mkv", "wrong_count.avi"]):
        source = "camera" if number else "phone"
        add(f"street/{number}.json", json.dumps({"video_source": source, "category": "walk" if number else "run"}).encode())
        add(f"street/{number}." + name[-3:], file(name))
        add(f"street/{number}.txt", b"seen")
    add("talk/3.ogg", file("speech.ogg"))
    add("talk/4.flac", file("tone_8ch_96k.flac"))
    add("talk/5.mp4", b"no video at all")
PYTHON
  run mso data stat --json "$work/av"
  [ "$status" -eq 0 ]
  python3 - "$output" "$media" <<'PYTHON'
import json, os, sys
stat, media = json.loads(sys.argv[1]), sys.argv[2]
size = lambda *names: sum(os.path.getsize(f"{media}/{name}") for name in names)
video, sound = stat["video"], stat["sound"]
assert (video["files"], video["unreadable"], video["turned"]) == (4, 1, 1), video
assert video["codecs"] == {"h264": 2, "mpeg4": 1}, video
assert abs(video["seconds"] - (0.04 + 2.46 + 1.2)) < 1e-6, video
assert video["frames"] == [[1, 1], [16, 2]] and video["milliseconds"] == [[0, 1], [1000, 1], [2000, 1]], video
assert sound["codecs"] == {"vorbis": 1, "flac": 1} and sound["sample_rates"] == [[11025, 1], [96000, 1]], sound
assert sound["channels"] == [[1, 1], [8, 1]] and abs(sound["seconds"] - 0.876939) < 1e-6, sound
assert stat["sources"]["video"] == {"": {"samples": 1, "bytes": 15},
                                    "camera": {"samples": 2, "bytes": size("vfr.mkv", "wrong_count.avi")},
                                    "phone": {"samples": 1, "bytes": size("rot90.mp4")}}, stat["sources"]
assert stat["sources"]["audio"] == {"": {"samples": 2, "bytes": size("speech.ogg", "tone_8ch_96k.flac")}}, stat["sources"]
assert {name: c["samples"] for name, c in stat["categories"].items()} == {"run": 1, "walk": 2, "talk": 3}, stat["categories"]
assert stat["categories"]["talk"]["bytes"] == size("speech.ogg", "tone_8ch_96k.flac") + 15, stat["categories"]
PYTHON
  run mso data stat "$work/av" --html "$work/av.html"
  [ "$status" -eq 0 ]
  [[ "$output" == *"sources of video (3)"* && "$output" == *"length of sounds"* && "$output" != *"sources of audio"* ]]
  [[ "$output" == *"1  with a header that cannot be read"* ]]
  for text in "Length of videos" "Sample rates" "Sources of video" "camera"; do grep -q "$text" "$work/av.html"; done
  run mso data ls "$work/av"
  [ "$status" -eq 0 ]
  [[ "$output" == *'"rotation":90'* && "$output" == *'"frames":30,"frames_per_second":25.0'* && "$output" == *'"unreadable":true'* ]]
}

@test "verify names damaged samples and exits 3" {
  mso data pack "$work/src" "$work/out"
  run mso data verify "$work/out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"2 of 2 samples are good"* ]]
  # Overwrite the second half of the first picture.
  python3 - "$work/out/shard-000000.tar" <<'PYTHON'
import sys, tarfile
member = next(iter(tarfile.open(sys.argv[1])))
with open(sys.argv[1], "r+b") as file:
    file.seek(member.offset_data + member.size // 2)
    file.write(b"\0" * (member.size - member.size // 2))
PYTHON
  run mso data verify "$work/out"
  [ "$status" -eq 3 ]
  [[ "$output" == *"000000000"*decode_error* ]]
  [[ "$output" == *"1 of 2 samples are good, 1 decode_error"* ]]
  run mso data verify "$work/out" --list "$work/bad.jsonl"
  [ "$status" -eq 3 ]
  [ "$(python3 -c 'import json,sys; print(json.loads(open(sys.argv[1]).readline())["key"])' "$work/bad.jsonl")" = 000000000 ]
}

@test "ls agrees with Python's tarfile on ustar, GNU and pax archives" {
  mkdir "$work/tars"
  python3 - "$work/tars" <<'PYTHON'
import io, sys, tarfile
for name, kind in (("a", tarfile.USTAR_FORMAT), ("b", tarfile.GNU_FORMAT), ("c", tarfile.PAX_FORMAT)):
    with tarfile.open(f"{sys.argv[1]}/{name}.tar", "w", format=kind) as tar:
        def add(path, data):
            info = tarfile.TarInfo(path)
            info.size, info.mtime = len(data), 1234567890.5 if kind == tarfile.PAX_FORMAT else 7
            tar.addfile(info, io.BytesIO(data))
        for i in range(40):
            long = "" if kind == tarfile.USTAR_FORMAT else "d" * (i * 7) + "/"
            add(f"{long}k{i}.v1.txt" if i == 5 else f"{long}k{i}.txt", b"x" * (i * 37))
            add(f"{long}grün{i}.TXT", ("ü" * i).encode())
PYTHON
  mso data ls "$work/tars" >"$work/ls.jsonl"
  python3 - "$work/tars" "$work/ls.jsonl" <<'PYTHON'
import json, os, sys, tarfile
ours = {}
for line in open(sys.argv[2]):
    sample = json.loads(line)
    for extension, member in sample["members"].items():
        ours[sample["shard"], sample["key"], extension] = (member["offset"], member["size"])
theirs = {}
for name in "abc":
    for member in tarfile.open(f"{sys.argv[1]}/{name}.tar"):
        folder, base = os.path.split(member.name)
        key, extension = base.split(".", 1)
        theirs[f"{name}.tar", os.path.join(folder, key), extension.lower()] = (member.offset_data, member.size)
assert ours == theirs, set(ours.items()) ^ set(theirs.items())
assert len(ours) == 240
PYTHON
}

@test "index says what it found; a truncated shard is named" {
  mso data pack "$work/src" "$work/out"
  rm "$work/out/"*.idx "$work/out/dataset.json"
  truncate -s -1024 "$work/out/shard-000000.tar"
  run mso data index "$work/out"
  [ "$status" -eq 0 ]
  [[ "$output" == *"2 samples, truncated"* ]]
  [ -e "$work/out/shard-000000.idx" ]
  run mso data verify "$work/out"
  [ "$status" -eq 3 ]
  [[ "$output" == *truncated_shard* ]]
}

@test "paths without data are refused with exit 3" {
  run mso data stat "$work/none"
  [ "$status" -eq 3 ]
  mkdir "$work/empty"
  run mso data ls "$work/empty"
  [ "$status" -eq 3 ]
  echo "no tar" >"$work/x.tar"
  run mso data index "$work/x.tar"
  [ "$status" -eq 3 ]
  [[ "$output" == *"x.tar"* ]]
}

@test "a shard that is missing or changed is named by every command that reads the set" {
  mso data pack "$work/src" "$work/out" --max-samples-per-shard 1
  mv "$work/out/shard-000001.tar" "$work/away.tar"
  for command in verify stat index ls bench; do
    run mso data $command "$work/out"
    [ "$status" -eq 3 ]
    [[ "$output" == *"shard-000001.tar is missing"* ]]
  done
  head -c 1000 "$work/away.tar" >"$work/out/shard-000001.tar"
  run mso data stat "$work/out"
  [ "$status" -eq 3 ]
  [[ "$output" == *"shard-000001.tar has 1000 bytes instead of"* ]]
  cp "$work/away.tar" "$work/out/shard-000001.tar"
  mso data verify "$work/out"
}

@test "an unwritable or full place is named, with what to do, and nothing is left" {
  run mso data pack "$work/src" /proc/no/out
  [ "$status" -eq 1 ]
  [[ "$output" == *"/proc/no/out"* && "$output" != *"filesystem error"* ]]
  mkdir "$work/full"
  [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=8k tmpfs "$work/full" || skip "needs root to mount a small file system"
  run mso data pack "$work/src" "$work/full/out"
  left=$(ls "$work/full")
  umount "$work/full"
  [ "$status" -eq 1 ]
  [[ "$output" == *"$work/full/out"*"No space left"* && "$output" == *hint:* ]]
  [ -z "$left" ]
}

@test "numbers out of range are refused, by name" {
  mso data pack "$work/src" "$work/out"
  for option in "--shard-size 0" "--shard-size -1" "--max-samples-per-shard 0" "--max-samples-per-shard -3" "--threads -1" \
    "--threads 99999999999" "--quality 0"; do
    run mso data pack "$work/src" "$work/two" $option
    [ "$status" -eq 2 ] || { echo "$option"; return 1; }
    [[ "$output" == *"${option% *}"* ]]
  done
  for option in "--batch 0" "--batch 99999999999999999999" "--epochs 0" "--threads -1" "--image-size 0" "--patch-size 0" \
    "--patch-size 225"; do
    run mso data bench "$work/out" $option
    [ "$status" -eq 2 ] || { echo "$option"; return 1; }
    [[ "$output" == *"${option% *}"* ]]
  done
}

@test "bench decodes video on the CPU where there is no GPU, and refuses nvdec" {
  [ ! -e /dev/nvidia0 ] || skip "there is a GPU"
  local media="${MSO_SRCDIR:-$BATS_TEST_DIRNAME/../..}/tests/unit/io/fixtures/media"
  mkdir -p "$work/av"
  (cd "$work/av" && cp "$media/h264.mp4" a.mp4 && echo words >a.txt && tar -cf s.tar a.mp4 a.txt && rm a.mp4 a.txt)
  run mso data bench "$work/av" --batch 1 --template "<video>{caption}" --image-size 32 --patch-size 16
  [ "$status" -eq 0 ]
  run mso data bench "$work/av" --batch 1 --template "<video>{caption}" --image-size 32 --patch-size 16 --video-decoder nvdec
  [ "$status" -eq 2 ]
  [[ "$output" == *"no GPU to decode video on: FFmpeg finds no CUDA device"*"auto takes the CPU"* ]]
}

@test "bench takes conversations, and refuses a folder that is no model's" {
  mkdir "$work/chats"
  printf '%s\n' '{"id": "a", "conversations": [{"from": "human", "value": "what?"}, {"from": "gpt", "value": "this"}]}' \
    '{"id": "b", "messages": [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}]}' >"$work/chats/chat.jsonl"
  mso data pack "$work/chats/chat.jsonl" "$work/chat-shards"
  mso data bench "$work/chat-shards" --batch 2 --dump "$work/batch.safetensors" >"$work/chat.json"
  grep -q '"bad_samples": 0' "$work/chat.json"
  [ -s "$work/batch.safetensors" ]
  run mso data bench "$work/chat-shards" --chat-template nosuch
  [ "$status" -eq 2 ]
  [[ "$output" == *"nosuch"* ]]
  mkdir "$work/no-model"
  run mso data bench "$work/chat-shards" --processor "$work/no-model"
  [ "$status" -eq 2 ]
  [[ "$output" == *"no-model"* ]]
}

@test "bench --timeline writes each step, and over nothing" {
  mso data pack "$work/src" "$work/out"
  mso data bench "$work/out" --batch 1 --epochs 3 --image-size 32 --timeline "$work/steps" >"$work/bench.json"
  python3 - "$work" <<'PY'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
steps = [json.loads(line) for line in (work / "steps").read_text().splitlines()]
assert [s["step"] for s in steps] == list(range(len(steps))), steps
assert len(steps) % 3 == 0 and sum(s["samples"] for s in steps) > 0, steps
assert all(a["time"] <= b["time"] for a, b in zip(steps, steps[1:])), steps
PY
  run mso data bench "$work/out" --timeline "$work/out/shard-000000.tar"
  [ "$status" -eq 2 ]
  [[ "$output" == *"would overwrite a file"* ]]
  run mso data bench "$work/out" --timeline /proc/no/steps
  [ "$status" -ne 0 ]
  [[ "$output" == *"/proc/no/steps"* ]]
}

@test "verify --list replaces a list and nothing else" {
  mso data pack "$work/src" "$work/out"
  run mso data verify "$work/out" --list "$work/out/shard-000000.tar"
  [ "$status" -eq 2 ]
  mso data verify "$work/out" --list "$work/bad.jsonl"
  mso data verify "$work/out" --list "$work/bad.jsonl"
}

# A data set of 12 small samples in two categories, by their keys' folders; the picture of tools/k4 is broken.
make_shard() {
  mkdir -p "$work/set"
  python3 - "$work/src/animals/cat.png" "$work/set/a.tar" <<'PYTHON'
import io, sys, tarfile
picture = open(sys.argv[1], "rb").read()
with tarfile.open(sys.argv[2], "w", format=tarfile.USTAR_FORMAT) as tar:
    def add(path, data):
        info = tarfile.TarInfo(path)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    for i in range(12):
        key = f"{'tools' if i % 2 == 0 else 'animals/small'}/k{i}"
        add(f"{key}.png", picture[:50] if i == 4 else picture)
        add(f"{key}.txt", f"thing number {i % 4}".encode())
PYTHON
}

@test "index --embed writes neighbours, says what is broken, and is stale when a shard changes" {
  make_shard
  run mso data index --embed "$work/set"
  [ "$status" -eq 0 ]
  [[ "$output" == *"neighbours.mso: 12 samples in 2 categories, 11 of them healthy, by built-in descriptor"* ]]
  [[ "$output" == *"broken: 1 decode_error"* ]]
  cp "$work/set/neighbours.mso" "$work/one"
  mso data index --embed=builtin --threads 3 "$work/set"
  cmp "$work/set/neighbours.mso" "$work/one"
  run mso plan "data.path=$work/set" model.vision.hidden_size=64
  [[ "$output" != *"Healing"* || "$output" == *"neighbours.mso: 12 samples in 2 categories"* ]]
  run mso data index --embed="$work/no-such-model" "$work/set"
  [ "$status" -eq 2 ]
  [[ "$output" == *"no-such-model"* || "$output" == *"not available"* ]]
  run mso data index --embed --category kind "$work/set"
  [ "$status" -eq 2 ]
  [[ "$output" == *"mdp.healing.category: kind"* ]]
  cmp "$work/set/neighbours.mso" "$work/one"
  [ -z "$(ls "$work/set" | grep tmp)" ]
}

@test "pack replaces its own folder with its neighbours" {
  mso data pack "$work/src" "$work/out"
  mso data index --embed "$work/out"
  [ -e "$work/out/neighbours.mso" ]
  mso data pack "$work/src" "$work/out"
  [ ! -e "$work/out/neighbours.mso" ]
}

@test "pack packs tars anew: several into one, same members, what the index rules out named" {
  make_shard
  mso data pack "$work/src" "$work/out"
  cp "$work/set/a.tar" "$work/again.tar"
  run mso data pack "$work/set" "$work/new" --also "$work/out" --also "$work/again.tar" --max-samples-per-shard 10
  [ "$status" -eq 0 ]
  [[ "$output" == *"packed 26 samples into 3 shards"* ]]
  python3 - "$work/new" "$work/set/a.tar" "$work/out/shard-000000.tar" <<'PYTHON'
import pathlib, sys, tarfile
def members(path):
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}
new = {}
for shard in sorted(pathlib.Path(sys.argv[1]).glob("*.tar")):
    new |= members(shard)
a, out = members(sys.argv[2]), members(sys.argv[3])
again = {name.replace(".", "-2.", 1): data for name, data in a.items()}
# Which of two equal keys is the first, the shuffle decides; together they are the same.
assert sorted(new) == sorted(a | out | again), sorted(new)
assert new == a | out | again
PYTHON
  run mso data pack "$work/new" "$work/new"
  [ "$status" -eq 2 ]
  run mso data pack "$work/src" "$work/x" --also "$work/set"
  [ "$status" -eq 2 ]
  mso data pack "$work/set" "$work/y" --sorted
  mso data pack "$work/set" "$work/z" --sorted
  cmp "$work/y/shard-000000.tar" "$work/z/shard-000000.tar"
  [ "$(mso data ls "$work/y" | python3 -c 'import json,sys; print(json.loads(sys.stdin.readline())["key"])')" = tools/k0 ]
}

@test "verify names every fault of a sample, with its file" {
  make_shard
  python3 - "$work/set/b.tar" <<'PYTHON'
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w", format=tarfile.USTAR_FORMAT) as tar:
    for path, data in (("x.png", b"no picture"), ("x.txt", b" "), ("y.txt", b"good"), ("z.json", b"{}")):
        info = tarfile.TarInfo(path)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
PYTHON
  run mso data verify "$work/set" --list "$work/bad.jsonl"
  [ "$status" -eq 3 ]
  [[ "$output" == *"12 of 15 samples are good, 2 decode_error, 1 empty_caption, 1 no_caption"* ]]
  python3 - "$work/bad.jsonl" <<'PYTHON'
import json, sys
bad = [json.loads(line) for line in open(sys.argv[1])]
assert [(b["shard"], b["key"], b["reason"], b.get("member")) for b in bad] == [
    ("a.tar", "tools/k4", "decode_error", "png"), ("b.tar", "x", "empty_caption", "txt"),
    ("b.tar", "x", "decode_error", "png"), ("b.tar", "z", "no_caption", "txt")], bad
PYTHON
}

@test "stat --html is one page that needs no network, and replaces only such a page" {
  make_shard
  run mso data stat "$work/set" --html "$work/stat.html"
  [ "$status" -eq 0 ]
  for text in "Categories" "Aspect ratio of pictures" "Length of captions" "animals/small" "<svg"; do grep -q "$text" "$work/stat.html"; done
  ! grep -qE 'src=|href=|url\(http|<img' "$work/stat.html"
  python3 - "$work/stat.html" <<'PYTHON'
import html.parser, sys
class Check(html.parser.HTMLParser):
    open_tags = []
    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br", "line", "rect", "path", "circle"):
            self.open_tags.append(tag)
    def handle_startendtag(self, tag, attributes):
        pass
    def handle_endtag(self, tag):
        if tag in ("rect",):
            return
        assert self.open_tags.pop() == tag, tag
check = Check()
check.feed(open(sys.argv[1]).read())
assert not check.open_tags, check.open_tags
PYTHON
  mso data stat "$work/set" --html "$work/stat.html"
  echo precious >"$work/mine.html"
  run mso data stat "$work/set" --html "$work/mine.html"
  [ "$status" -eq 2 ]
  [ "$(cat "$work/mine.html")" = precious ]
}

@test "report counts a ledger by category and reason" {
  mkdir "$work/run"
  python3 - "$work/run/ledger.jsonl" <<'PYTHON'
import json, sys
def line(**more):
    return json.dumps(dict(step=1, epoch=0, position=7, id=3, key="animals/a", shard="s.tar", reason="decode_error", detail="") | more) + "\n"
open(sys.argv[1], "w").write(
    line() + line(epoch=1, step=9) +
    line(id=4, key="animals/b", event="replaced", by_id=5, by_key="animals/c", by_shard="s.tar", similarity=0.95) +
    line(id=6, key="tools/<b>", event="replaced", by_id=5, by_key="animals/c", by_shard="s.tar", similarity=0.93, category="medical") +
    line(id=8, key="tools/d", event="deferred", reason="late") + "no json\n")
PYTHON
  run mso data report "$work/run"
  [ "$status" -eq 0 ]
  [[ "$output" == *"animals "*" 1 "*" 2 "*" 0 "*" 2 "*"0.950"* ]]
  [[ "$output" == *"medical "*"0.930"* ]]
  [[ "$output" == *"all "*" 2 "*" 2 "*" 1 "*" 3"* ]]
  [[ "$output" == *"1 lines could not be read"* ]]
  [[ "$output" == *"$work/run/data-report.html"* ]]
  grep -q "tools/&lt;b&gt;" "$work/run/data-report.html"
  grep -q "Samples that stood in most often" "$work/run/data-report.html"
  run mso data report "$work/none"
  [ "$status" -eq 1 ]
  : >"$work/run/ledger.jsonl"
  run mso data report "$work/run" -o "$work/page.html"
  [ "$status" -eq 0 ]
  grep -q "The ledger is empty" "$work/page.html"
}

@test "report tells what was trained on by source, where order, ledger and index are there" {
  mkdir -p "$work/set" "$work/run"
  python3 - "$work/set/s.tar" "$work/run" <<'PYTHON'
import io, json, sys, tarfile
with tarfile.open(sys.argv[1], "w") as tar:
    def add(name, content):
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    for i in range(12):
        add(f"k/{i}.txt", b"words")
        add(f"k/{i}.json", json.dumps({"text_source": "book" if i % 3 else "web"}).encode())
step = lambda n: json.dumps({"type": "step", "time": 1.0 + n, "step": n, "attempt": 1, "loss": 1.0, "samples": 4})
# Six steps of four: every sample comes twice. The last step of the file was repeated after a restart.
open(sys.argv[2] + "/metrics.jsonl", "w").write("\n".join(step(n) for n in (1, 2, 3, 4, 5, 6, 5, 6)) + "\n")
open(sys.argv[2] + "/ledger.jsonl", "w").close()
open(sys.argv[2] + "/config.yaml", "w").write(f"data:\n  path: {sys.argv[1]}\ntrain:\n  global_batch_samples: 4\n  steps: 6\n  run_dir: {sys.argv[2]}\n")
PYTHON
  run mso data report --json "$work/run"
  [ "$status" -eq 0 ]
  python3 - "$output" <<'PYTHON'
import json, sys
lineage = json.loads(sys.argv[1])["lineage"]
assert lineage["steps"] == 6 and lineage["all"]["trained"] == 24, lineage
assert {name: c["trained"] for name, c in lineage["sources"]["text"].items()} == {"book": 16, "web": 8}, lineage
assert lineage["categories"]["k"]["trained"] == 24, lineage
PYTHON
  run mso data report "$work/run"
  [ "$status" -eq 0 ]
  [[ "$output" == *"source of text"*"book"*" 16 "*"web"*" 8 "*"24 samples trained on in 6 steps"* ]]
  grep -q "By source of text" "$work/run/data-report.html"
  # A ledger of other data is told, and everything else is still there.
  echo '{"step":0,"epoch":0,"position":0,"id":99,"key":"k/99","shard":"s.tar","reason":"decode_error","detail":""}' >"$work/run/ledger.jsonl"
  run mso data report "$work/run"
  [ "$status" -eq 0 ]
  [[ "$output" == *"not known by source: the ledger does not fit the data"* ]]
}

@test "every subcommand's --help ends with an example" {
  for sub in pack index stat verify report ls bench; do
    run mso data $sub --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"Example"*"mso data $sub"* ]]
  done
}
