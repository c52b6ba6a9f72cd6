"""Figures of many devices, as CSV files in benchmarks/results/.

Usage: python benchmarks/scaling.py PART, where PART is one of

    asynchronous   LeNet-5 on the digits: one device, towers that average, towers that each apply their own gradients
    cluster        the same network by `zoo launch`: two workers; a chief, two workers and a parameter server
    kill           two workers killed in the middle and started again, against an undisturbed run: bits of the weights
    link           all-reduces of two and three processes on the loopback, and the link fitted to them
    model          the cost model against published speeds, and a table of all networks up to 1,024 GPUs

The overhead of two devices is measured by `zoo bench scaling --devices cpu:0,cpu:1`.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from paired import write

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ZOO = [sys.executable, "-c", "from zoo.cli import main; main()"]
TRAIN = ["lenet5", "--validation", "0", "--epochs", "15", "--batch", "64", "--summaries", "none", "--progress", "none"]
# Images a second on one GPU, 8 GPUs of a machine, and 64 of eight machines: TensorFlow's benchmarks of May 2017.
K80 = {1: 29.7, 8: 229, 16: 459, 32: 902, 64: 1783}
P100 = {1: 142, 2: 278, 4: 551, 8: 1079}
# Recurrent networks by options and steps of a sequence: word_lm's recipes, a round number, a picture's rows.
SEQUENCES = (
    ("word_lm", {"size": "small"}, 20),
    ("word_lm", {"size": "medium"}, 35),
    ("word_lm", {"size": "large"}, 35),
    ("sequence_tagger", {}, 100),
    ("row_classifier", {}, 28),
)


def asynchronous():
    """Accuracy by devices and mode, three seeds; a step is one batch of 64 whatever the number of towers."""
    rows = []
    kinds = {
        "one device": [],
        "2 towers, averaged": ["--strategy", "towers", "--devices", "cpu:0,cpu:1"],
        "2 towers, asynchronous": ["--strategy", "towers", "--devices", "cpu:0,cpu:1", "--asynchronous"],
        "4 towers, asynchronous": ["--strategy", "towers", "--devices", "cpu:0,cpu:1,cpu:2,cpu:3", "--asynchronous"],
    }
    recipe = {"optimizer": "momentum", "learning-rate": "0.05"}
    words = [word for name, value in recipe.items() for word in (f"--{name}", value)]
    for name, options in kinds.items():
        found = [accuracy([*words, *options], seed) for seed in range(3)]
        rows.append({"devices": name, **recipe, **summary(found)})
    write("scaling_asynchronous", rows)


def cluster():
    """Accuracy of one process, of two workers, and with a parameter server; three seeds."""
    rows = []
    for name, launch, options in (
        ("single", [], []),
        ("multiworker, 2 workers", ["--workers", "2"], ["--strategy", "multiworker"]),
        ("ps, chief, 2 workers, 1 ps", ["--workers", "2", "--ps", "1"], ["--strategy", "ps"]),
    ):
        rows.append({"job": name, **summary([accuracy(options, seed, launch) for seed in range(3)])})
    write("scaling_cluster", rows)


def accuracy(options, seed, launch=()):
    """Trains LeNet-5 on the digits; returns its test accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", *TRAIN, "--seed", str(seed), "--out", f"{folder}/run", *options]
        command = (
            [*ZOO, "launch", *launch, "--logs", f"{folder}/logs", "--", "zoo", *words] if launch else [*ZOO, *words]
        )
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(re.findall(r"test accuracy ([\d.]+)", said)[-1])


def summary(scores):
    """The mean of the runs and all of them."""
    return {"accuracy": sum(scores) / len(scores), "runs": json.dumps(scores)}


def kill():
    """Kills worker 1 of two with SIGKILL, three times at other steps, and compares the final checkpoints."""
    import numpy as np

    from zoo.training import read_checkpoint

    with tempfile.TemporaryDirectory() as folder:

        def job(out):
            words = ["zoo", "train", *TRAIN, "--strategy", "multiworker", "--checkpoint-steps", "20", "--out", out]
            return subprocess.Popen(
                [*ZOO, "launch", "--workers", "2", "--logs", f"{folder}/logs", "--", *words], stdout=subprocess.DEVNULL
            )

        if job(f"{folder}/whole").wait():
            raise SystemExit("the undisturbed run failed")
        steps = []
        for after in (60, 160, 260):
            running = job(f"{folder}/killed")
            while not (Path(folder) / "killed" / f"model.ckpt-{after}").exists():
                time.sleep(0.05)
            found = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=True)
            os.kill(int(found.stdout.split()[1]), signal.SIGKILL)
            running.wait()
            steps.append(max(int(path.name.rpartition("-")[2]) for path in Path(folder, "killed").glob("model.ckpt-*")))
        if job(f"{folder}/killed").wait():
            raise SystemExit("the last start failed")
        one, two = (read_checkpoint(f"{folder}/{name}/model.ckpt-345").arrays for name in ("whole", "killed"))
        different = [name for name in one if not np.array_equal(one[name], two[name])]
        row = {"kills": len(steps), "resumed_at": json.dumps(steps), "arrays": len(one), "different": len(different)}
    write("scaling_kill", [row])


CHILD = """
import time, sys, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
for size in (2**12, 2**16, 2**20, 2**23, 2**25):
    data = tf.ones([size // 4])
    @tf.function
    def add():
        parts = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.reshape(data, [-1])))
        return tf.reduce_sum(strategy.experimental_local_results(parts)[0][:1])
    add()
    taken = []
    for _ in range(15):
        started = time.perf_counter(); add().numpy(); taken.append(time.perf_counter() - started)
    print("took", size, sorted(taken)[7], flush=True)
"""


def link():
    """Medians of 15 all-reduces of each size."""
    from zoo.parallel.costs import fit_link

    measured = []
    for count in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            command = [*ZOO, "launch", "--workers", str(count), "--logs", folder, "--", sys.executable, "-c", CHILD]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in said.splitlines():
            if line.startswith("took "):
                _, size, seconds = line.split()
                measured.append((count, int(size), float(seconds)))
    counts, sizes, seconds = zip(*measured, strict=True)
    fitted = fit_link(sizes, counts, seconds)
    rows = [
        {
            "processes": k,
            "bytes": n,
            "measured_ms": 1e3 * s,
            "model_ms": 1e3 * fitted.all_reduce(n, k),
            "bandwidth_mb_s": fitted.bandwidth / 1e6,
            "latency_ms": 1e3 * fitted.latency,
        }
        for k, n, s in measured
    ]
    write("scaling_link", rows)


def model():
    """Fits two published machines on some of their rows, foretells the others, and spreads to all networks."""
    import numpy as np

    import zoo
    from zoo.parallel.costs import Cost, Link, fit_network

    parameters = zoo.create("inception_v3", aux_logits=False).count_params()
    bare = Cost(1 / K80[1], 4.0 * parameters, Link(np.inf), Link(np.inf))
    slow = fit_network(fit_network(bare, 8, 64, K80[8]), 32, 64, K80[32])
    fast = fit_network(replace(bare, example=1 / P100[1]), 8, 64, P100[8])
    rows = [
        {
            "cluster": name,
            "gpus": gpus,
            "published": speed,
            "model": cost.speed(gpus, 64),
            "error_percent": 100 * (cost.speed(gpus, 64) / speed - 1),
            "fitted_on": fitted,
            "inside_gb_s": cost.inside.bandwidth / 1e9,
            "network_gb_s": cost.network.bandwidth / 1e9,
        }
        for name, cost, table, fitted in (
            ("K80, 8 a machine", slow, K80, "8, 32"),
            ("P100, real data", fast, P100, "8"),
        )
        for gpus, speed in table.items()
    ]
    write("scaling_published", rows)
    cards, rows = replace(fast, network=slow.network), []
    for name, macs, trained in networks():
        example = fast.example * macs / (1e9 * zoo.inception_v3.spec.gmacs)
        cost = replace(cards, example=example, gradients=4.0 * trained)
        shares = {f"gpus_{k}": round(cost.efficiency(k, 64), 3) for k in (2, 8, 16, 64, 256, 1024)}
        about = {"net": name, "gmacs": macs / 1e9, "gradient_mb": cost.gradients / 1e6}
        rows.append({**about, "examples_s_1": cost.speed(1, 64), **shares})
    write("scaling_networks", rows)


def networks():
    """Yields name, multiply-accumulates of an example, and trained parameters; a sequence is an example."""
    import zoo
    from zoo.registry import get_net
    from zoo.scoping.cost import one_step, scope_costs

    for name in zoo.list_nets():
        spec = get_net(name).spec
        if spec.gmacs and spec.published_params:
            yield name, 1e9 * spec.gmacs, spec.published_params["trainable"]
    for name, options, steps in SEQUENCES:
        net = get_net(name)
        inputs, times = one_step(net.spec.input_shape(options))
        rows = scope_costs(net.network, inputs, **options)
        trained = sum(variable.size for row in rows for variable in row.variables if variable.trainable)
        macs = sum(row.macs for row in rows) * (steps if times else 1)
        yield f"{' '.join([name, *options.values()])}, {steps} steps", macs, trained


if __name__ == "__main__":
    parts = {"asynchronous": asynchronous, "cluster": cluster, "kill": kill, "link": link, "model": model}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        raise SystemExit(__doc__)
    parts[sys.argv[1]]()
