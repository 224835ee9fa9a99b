"""What the benchmarks share: starting both sides, reading mso's metrics, medians, CPU time of threads.

Environment, set by contrib/bench/run: MSO (program), MSO_PYTHON (with torch, transformers, webdataset), OUT (results),
MSO_BENCH_DATA (what make_data.py made), MSO_BENCH_ROUNDS, MSO_BENCH_STEPS.
"""
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MSO = os.environ.get("MSO", "mso")
PYTHON = os.environ.get("MSO_PYTHON", sys.executable)
OUT = pathlib.Path(os.environ.get("OUT", "bench-out")).resolve()
DATA = pathlib.Path(os.environ.get("MSO_BENCH_DATA", OUT / "data")).resolve()
ROUNDS = int(os.environ.get("MSO_BENCH_ROUNDS", "3"))
STEPS = int(os.environ.get("MSO_BENCH_STEPS", "12"))  # measured ones
WARM_UP = 3
RANKS = 2
RAM = pathlib.Path("/dev/shm") / f"mso-bench-{os.getuid()}"
BUSY = 1.0  # a load average above this before a run makes its figures doubtful

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
               "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MSO": MSO,
               "TORCHINDUCTOR_CACHE_DIR": str(OUT / "inductor-cache")}


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    """For the result files: the median and what it is the median of."""
    return {"median": median(values), "all": values}


def write_result(name, result):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def fresh_folder(name):
    folder = OUT / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def run_checked(command, log, limit_s=600, **more):
    """Runs to the end; its output goes to the file `log`, and is shown where it fails."""
    with open(log, "w") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=ENVIRONMENT, start_new_session=True, **more)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = "time is over"
            process.terminate()  # torchrun ends its workers, which are in sessions of their own
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                kill_tree(process)
    if code != 0:
        tail = pathlib.Path(log).read_text(errors="replace")[-3000:]
        raise SystemExit(f"{' '.join(map(str, command))}: {code}\n{tail}")


# ---- mso -----------------------------------------------------------------------------------------------------------

def mso_arguments(run_dir, steps, **overrides):
    """Arguments of `mso train` for the benchmark's model, in a new run folder; what is not named here has its default."""
    shutil.rmtree(run_dir, ignore_errors=True)
    RAM.mkdir(exist_ok=True)
    settings = {"data.path": DATA / "shards", "model.tokenizer": DATA / "tokenizer", "train.run_dir": run_dir,
                "train.steps": steps, "ecm.level0_path": RAM, **overrides}
    return ["train", "-c", HERE / "llava_14m.yaml", *(f"{key}={value}" for key, value in settings.items())]


def mpirun(*arguments, nodes=False):
    """mso under mpirun; with `nodes` each rank believes to be on a node of its own."""
    head = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if not nodes:
        return [*head, "-n", str(RANKS), MSO, *arguments]
    for rank in range(RANKS):
        head += [*([":"] if rank else []), "-n", "1", "-x", f"MSO_NODE=node-{rank}", MSO, *arguments]
    return head


def read_metrics(run_dir, kind):
    records = []
    path = pathlib.Path(run_dir) / "metrics.jsonl"
    if not path.exists():
        return records
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # the last line, while it is being written
            continue
        if record.get("type") == kind:
            records.append(record)
    return records


def remove_snapshots(run_dir):
    run_id = pathlib.Path(run_dir) / "run_id"
    if run_id.exists():
        shutil.rmtree(RAM / f"mso-{os.getuid()}" / run_id.read_text().strip(), ignore_errors=True)
    shutil.rmtree(pathlib.Path(run_dir) / "checkpoints", ignore_errors=True)


# ---- peers ---------------------------------------------------------------------------------------------------------

def torchrun(script, *arguments, restarts=0):
    return [PYTHON, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={RANKS}", "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0", f"--max-restarts={restarts}", "--monitor-interval=0.1", HERE / script, *arguments]


# ---- processes -----------------------------------------------------------------------------------------------------

def kill_tree(process):
    """Ends a process that was started in a session of its own, and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def thread_cpu_s(pid):
    """CPU seconds of each thread of a process, by the thread's name; what threads of one name used is added up."""
    by_name = {}
    try:
        for task in os.scandir(f"/proc/{pid}/task"):
            try:
                name = pathlib.Path(task.path, "comm").read_text().strip()
                spent = int(pathlib.Path(task.path, "schedstat").read_text().split()[0]) * 1e-9
            except OSError:
                continue
            by_name[name] = by_name.get(name, 0) + spent
    except OSError:
        pass
    return by_name


def load_average():
    return os.getloadavg()[0]


def note_load(what):
    load = load_average()
    if load > BUSY + 0.5:
        say(f"load average {load:.1f} before {what}: the machine is not quiet, the figures will not be good")
    return load
