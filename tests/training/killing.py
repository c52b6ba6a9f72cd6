"""Trains one run in child processes that are killed at random moments; prints what came of it as JSON.

Usage: python killing.py FOLDER KILLS SEED. The parent imports TensorFlow but never uses it, so a child starts by
forking in a fraction of a second; that is what makes 20 kills affordable.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from zoo.training import Trainer, read_checkpoint
from zoo.training.runfolder import MetricsLog

STEPS = 120


def train(folder, steps=STEPS):
    """A small network with all that has a state: dropout, batch norm, momentum, averages, schedule, validation."""
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(7)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-4)),
            layers.BatchNormalization(momentum=0.9),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    numbers = np.random.default_rng(3)
    images = numbers.normal(size=(200, 8, 8, 1)).astype("float32")
    labels = numbers.integers(0, 10, 200)
    trainer = Trainer(
        model,
        optimizer="momentum",
        learning_rate=keras.optimizers.schedules.ExponentialDecay(0.05, 20, 0.9, staircase=True),
        averages=0.9,
        global_batch=32,
        steps_per_call=3,
    )
    return trainer.fit(
        (images, labels),
        steps=steps,
        validation=(images[:40], labels[:40]),
        validate_every=10,
        folder=folder,
        checkpoint_steps=4,
        log_every=5,
        keep=3,
        summaries="none",
        progress="none",
    )


def start(folder):
    """Forks a child that trains; returns its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            train(folder)
            status = 0
        finally:
            os._exit(status)
    return pid


def newest(run):
    """Step of the newest checkpoint; -1 when there is none."""
    return max((int(path.name.split("-")[-1]) for path in run.glob("model.ckpt-*")), default=-1)


def wait_for_step(pid, run, step):
    """Waits until a checkpoint of at least that step is there; False when the child ended before."""
    while newest(run) < step:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        time.sleep(0.002)
    return True


def wait_for_saving(pid, run):
    """Waits until a checkpoint is half-written, or the child has ended."""
    while not any(name.endswith(".unfinished") for name in os.listdir(run)):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return


def final(folder):
    """Arrays of the last checkpoint, the measured lines without times, and the best step."""
    checkpoint = read_checkpoint(Path(folder) / f"model.ckpt-{STEPS}")
    lines = [
        {k: v for k, v in line.items() if k != "examples_per_second"}
        for line in MetricsLog(Path(folder) / "metrics.jsonl").read()
    ]
    return checkpoint.arrays, lines, checkpoint.state["monitor"], checkpoint.state["epoch"], checkpoint.state["batch"]


def main(folder, kills, seed):
    """Trains once undisturbed and once with kills, and compares."""
    os.waitpid(start(f"{folder}/whole"), 0)
    chance = random.Random(seed)
    moments, finished = [], 0
    run = Path(folder, "killed")
    while True:
        pid = start(run)
        if len(moments) < kills and wait_for_step(pid, run, chance.randint(newest(run) + 1, STEPS - 1)):
            if len(moments) % 2:
                wait_for_saving(pid, run)
            else:
                time.sleep(chance.uniform(0, 0.05))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            moments.append([newest(run), len(list(run.glob(".*.unfinished")))])
        elif os.WEXITSTATUS(status):
            raise SystemExit(f"a child failed with {os.WEXITSTATUS(status)}")
        elif len(moments) >= kills:
            break
        if newest(run) == STEPS:  # nothing left to disturb: keep it for the comparison and begin another
            finished += 1
            run.rename(f"{folder}/finished{finished}")
    one = final(f"{folder}/whole")
    runs = [Path(folder, "killed"), *Path(folder).glob("finished*")]
    different = []
    for path in runs:
        again = final(path)
        different += [f"{path.name}:{name}" for name in one[0] if not np.array_equal(one[0][name], again[0][name])]
        mine, theirs = (set(one[0]), *one[1:]), (set(again[0]), *again[1:])
        parts = zip(("names", "lines", "monitor", "epoch", "batch"), mine, theirs, strict=True)
        different += [f"{path.name}: {part}" for part, whole, other in parts if whole != other]
    report = {
        "kills": len(moments),
        "while_saving": sum(unfinished for _, unfinished in moments),
        "steps": [step for step, _ in moments],
        "runs": len(runs),
        "arrays": len(one[0]),
        "different": different,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
