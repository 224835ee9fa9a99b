"""What the tests that train on real ranks share: the data set, starting and killing runs, reading the diary.

Environment: MSO (program), MSO_BUILD (build folder), MSO_SRCDIR (source folder). Standard library only.
"""
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

MSO = os.environ["MSO"]
BUILD = pathlib.Path(os.environ["MSO_BUILD"])
SOURCE = pathlib.Path(os.environ["MSO_SRCDIR"])
STAMPS = pathlib.Path("/usr/share/tuxpaint/stamps")
TINY = SOURCE / "tests/mpi/tiny.yaml"
SCRATCH = BUILD / "test-runs"
RAM = pathlib.Path(os.environ.get("MSO_TEST_RAM", "/dev/shm")) / f"mso-tests-{os.getpid()}"
LIMIT = 120  # seconds after which a run counts as hung

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


def data_set():
    """The pictures of animals of tuxpaint-stamps, packed once into small shards."""
    target = BUILD / "test-data/animals"
    if not (target / "packed").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([MSO, "data", "pack", str(STAMPS / "animals"), str(target), "--max-samples-per-shard", "40"],
                       check=True, stdout=subprocess.DEVNULL)
        (target / "packed").touch()
    return target


CLIPS = ["h264.mp4", "rot90.mp4", "vfr.mkv", "vp8.webm", "vp9.webm", "edit_list.mp4", "hevc.mp4", "mpeg2.ts"]

# Six ways to break a file. (A stream that is cut, Ogg or MPEG-TS, is a shorter one: nothing in it tells.)
BREAK = [lambda b: b"", lambda b: b[:len(b) // 3], lambda b: bytes(len(b)), lambda b: b"no such format" + b[14:],
         lambda b: b[:16] + bytes(x ^ 0xA5 for x in b[16:]), lambda b: b[len(b) // 2:]]


def mixed_data_set(name="mixed", broken=()):
    """Real samples of all modalities: captions, pictures and spoken captions of tuxpaint-stamps, and the short clips of
    tests/unit/io. `broken`: numbers of the samples with media whose file is damaged, in six ways by turns."""
    target = BUILD / "test-data" / name
    if (target / "made").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    texts, pictures, sounds, clips = [], [], [], []
    for text in sorted(STAMPS.glob("animals/*/*.txt")):
        caption = text.read_bytes().split(b"\n")[0]
        stem = text.with_suffix("")
        key = f"{text.parent.name}/{text.stem}"
        picture = next((p for p in (stem.with_suffix(".png"), stem.with_suffix(".jpg")) if p.exists()), None)
        texts.append((f"texts/{key}", None, b"", caption))
        if picture:
            pictures.append((f"pictures/{key}", picture.suffix, picture.read_bytes(), caption))
        sound = stem.parent / (stem.name + "_desc.ogg")
        if not sound.exists():
            sound = stem.with_suffix(".ogg")
        if sound.exists():
            sounds.append((f"sounds/{key}", ".ogg", sound.read_bytes(), caption))
    for i in range(24):
        file = SOURCE / "tests/unit/io/fixtures/media" / CLIPS[i % len(CLIPS)]
        clips.append((f"clips/{file.stem}-{i}", file.suffix, file.read_bytes(), f"clip {file.stem} number {i}".encode()))
    samples = [s for group in (texts[:60], pictures[:40], sounds[:24], clips) for s in group]
    check(len(samples) == 148, f"tuxpaint-stamps gave {len(samples)} samples instead of 148")
    with_media = 0
    for shard in range(4):
        with tarfile.open(target / f"shard-{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for key, extension, content, caption in samples[shard::4]:
                members = [(".txt", caption)]
                if extension:
                    if with_media in broken:
                        ways = BREAK[2:5] if extension == ".ogg" else BREAK
                        content = ways[with_media % len(ways)](content)
                    members.insert(0, (extension, content))
                    with_media += 1
                for suffix, data in members:
                    info = tarfile.TarInfo(key + suffix)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    subprocess.run([MSO, "data", "index", str(target)], check=True, stdout=subprocess.DEVNULL)
    (target / "made").touch()
    return target


class Run:
    """One run folder; every start() is an attempt."""

    def __init__(self, name, ranks=2, config=TINY, data=None, **overrides):
        self.directory = SCRATCH / name
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.ram = RAM / name
        shutil.rmtree(self.ram, ignore_errors=True)
        self.ram.mkdir(parents=True)
        self.ranks = ranks
        self.config = config
        self.overrides = {"data.path": data or data_set(), "train.run_dir": self.directory,
                          **overrides}
        self.process = None
        self.output = ""

    def node_ram(self, rank):
        """The RAM disk of the node that rank is on: every rank is a node of its own (MSO_NODE)."""
        return self.ram / f"node-{rank}"

    def command(self, ranks, extra, overrides):
        merged = {**self.overrides, **overrides}
        train = [MSO, "train", "-c", str(self.config), *extra, *(f"{k}={v}" for k, v in merged.items())]
        command = list(MPIRUN)
        for rank in range(ranks):
            self.node_ram(rank).mkdir(parents=True, exist_ok=True)
            command += ([":"] if rank else []) + ["-n", "1", "-x", f"MSO_NODE=node-{rank}", "-x",
                                                  f"MSO_SNAPSHOT_DIR={self.node_ram(rank)}", *train]
        return command

    def start(self, ranks=None, extra=(), env=None, overrides=None):
        ranks = self.ranks if ranks is None else ranks
        self.log = open(self.directory.parent / (self.directory.name + ".log"), "ab")
        self.log_start = self.log.tell()
        self.process = subprocess.Popen(self.command(ranks, extra, overrides or {}), stdout=self.log,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})}, start_new_session=True)
        return self

    def wait(self, limit=LIMIT):
        """The exit code; a run that takes longer than `limit` is killed and fails the test."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill_all()
            fail(f"{self.directory.name}: hung for {limit} s\n" + self.read_output())
        return code

    def read_output(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            f.seek(self.log_start)
            return f.read().decode(errors="replace")

    def finish(self, expect=0, **kw):
        """Starts and waits; fails the test unless the exit code is `expect`."""
        self.start(**kw)
        code = self.wait()
        if code != expect:
            fail(f"{self.directory.name}: exit {code}, expected {expect}\n" + self.read_output()[-6000:])
        return self

    def rank_pids(self):
        pids = {}
        for file in sorted((self.directory / "pids").glob("rank-*")):
            try:
                pids[int(file.name.split("-")[1])] = int(file.read_text().split()[0])
            except (OSError, ValueError, IndexError):
                pass
        return pids

    def kill_rank(self, rank):
        pid = self.rank_pids().get(rank)
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill_all(self):
        """kill -9 of mpirun and of every rank, as a power cut would."""
        try:
            os.killpg(self.process.pid, signal.SIGSTOP)  # so that nothing tidies up between two kills
        except ProcessLookupError:
            pass
        for pid in [*self.rank_pids().values(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        while any(pathlib.Path(f"/proc/{pid}/exe").exists() for pid in self.rank_pids().values()):
            time.sleep(0.01)

    def records(self, kind=None):
        file = self.directory / "metrics.jsonl"
        if not file.exists():
            return []
        out = []
        for line in file.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # the torn last line of a killed run
            if kind is None or record["type"] == kind:
                out.append(record)
        return out

    def last_step(self):
        return max((r["step"] for r in self.records("step")), default=0)

    def wait_for_step(self, step, limit=LIMIT):
        end = time.monotonic() + limit
        while self.last_step() < step:
            if self.process.poll() is not None:
                fail(f"{self.directory.name}: ended before step {step}\n" + self.read_output()[-4000:])
            if time.monotonic() > end:
                fail(f"{self.directory.name}: no step {step} within {limit} s")
            time.sleep(0.01)

    def curve(self):
        """step → (loss, grad_norm, digest, samples) as written; a repeated step must equal its first run."""
        curve = {}
        for r in self.records("step"):
            value = (r["loss"], r["grad_norm"], r["sample_digest"], r["samples"], r["tokens"])
            if r["step"] in curve and curve[r["step"]] != value:
                fail(f"{self.directory.name}: step {r['step']} repeated by attempt {r['attempt']} as {value}, "
                     f"was {curve[r['step']]}")
            curve[r["step"]] = value
        return curve

    def weights_digest(self):
        """The hash over the final master weights and moments that the end record carries."""
        ends = [r for r in self.records("end") if r["exit_code"] == 0]
        if not ends:
            fail(f"{self.directory.name}: no end record")
        return ends[-1]["message"]

    def clean(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.ram, ignore_errors=True)


def fail(message):
    print("FAILED:", message, flush=True)
    shutil.rmtree(RAM, ignore_errors=True)
    sys.exit(1)


def check(condition, message):
    if not condition:
        fail(message)


def same_as(run, reference, what):
    """Bit-identical loss curve and final state, every step there once."""
    a, b = run.curve(), reference.curve()
    check(sorted(a) == sorted(b), f"{what}: steps {sorted(set(b) ^ set(a))} differ")
    for step in sorted(b):
        check(a[step] == b[step], f"{what}: step {step} is {a[step]}, undisturbed {b[step]}")
    check(run.weights_digest() == reference.weights_digest(), f"{what}: final state differs")


def done(message):
    shutil.rmtree(RAM, ignore_errors=True)
    print(message)
