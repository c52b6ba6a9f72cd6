"""Inception-v3 against keras.applications.InceptionV3: building and first call, train step, forward, peak memory.

    python benchmarks/inception.py build|train|forward|memory [--pairs 15] [--batch 8]

Each part writes results/inception_PART.csv. Both contenders have 23,851,784 parameters, random weights, 299 x 299
images in float32, and run in turn in one process (memory: a process each). Goals, zoo's time or memory over Keras':
build and first call at most 1.0, train step at most 0.95, peak memory at most 0.9, forward at most 1.0.
"""

import argparse
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from paired import Paired, measure, median, write

SIDE = 299


def contender(name: str) -> Any:
    """Builds one of the two networks: the same layers, without the auxiliary head."""
    if name == "zoo":
        from zoo.nets.inception_v3 import inception_v3

        return inception_v3(aux_logits=False)
    import keras

    return keras.applications.InceptionV3(weights=None, classifier_activation=None)


def images(batch: int) -> Any:
    import tensorflow as tf

    return tf.constant(np.random.default_rng(0).uniform(-1, 1, (batch, SIDE, SIDE, 3)).astype(np.float32))


def train_step(name: str, batch: int) -> Callable[[], Any]:
    """Returns one step of Keras' own compiled train function, with SGD."""
    import keras
    import tensorflow as tf

    model = contender(name)
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.make_train_function()
    data = tf.data.Dataset.from_tensors((images(batch), tf.range(batch))).repeat()
    iterator = iter(data)
    return lambda: tf.nest.map_structure(np.asarray, model.train_function(iterator))


def forward(name: str, batch: int) -> Callable[[], Any]:
    """Returns the forward pass in a ``tf.function``."""
    import tensorflow as tf

    model, x = contender(name), images(batch)
    function = tf.function(lambda inputs: model(inputs, training=False))
    return lambda: function(x).numpy()


def build_and_call(name: str) -> Callable[[], Any]:
    """Returns the building of a new network with its first call on one image."""
    x = images(1)
    return lambda: contender(name)(x).numpy()


def peak(name: str, batch: int) -> tuple[float, float]:
    """MiB that three training steps need at most: TensorFlow's allocator in all, and what resident memory grows by."""
    import tensorflow as tf

    step = train_step(name, batch)
    before = resident()
    most, done = before, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    tf.config.experimental.reset_memory_stats("CPU:0")
    for _ in range(3):
        step()
    done.set()
    watcher.join()
    return tf.config.experimental.get_memory_info("CPU:0")["peak"] / 2**20, most - before


def resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def memory(pairs: int, batch: int) -> list[dict[str, Any]]:
    """Measures each contender in processes of its own, in turn."""
    found: dict[str, list[list[float]]] = {"zoo": [], "keras": []}
    for _ in range(pairs):
        for name, peaks in found.items():
            command = [sys.executable, __file__, "peak", "--who", name, "--batch", str(batch)]
            said = subprocess.run(command, check=True, capture_output=True, text=True)
            peaks.append([float(word) for word in said.stdout.split()[-2:]])
    rows = []
    for i, measured in enumerate(("TensorFlow's allocator", "growth of resident memory")):
        ours, theirs = ([peaks[i] for peaks in found[name]] for name in ("zoo", "keras"))
        ratios = {key: value for key, value in Paired(ours, theirs).row().items() if not key.endswith("_ms")}
        what = f"peak of 3 train steps, {measured}"
        rows.append({"what": what, "batch": batch, "ours_mib": median(ours), "theirs_mib": median(theirs), **ratios})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["build", "train", "forward", "memory", "peak"])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--who", default="zoo")
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if args.part == "peak":
        print(*peak(args.who, args.batch))
        return
    if args.part == "memory":
        write("inception_memory", memory(args.pairs, args.batch))
        return
    if args.part == "build":
        pair = measure(build_and_call("zoo"), build_and_call("keras"), pairs=args.pairs, warm_up=1)
        rows = [{"what": "build and first call", "batch": 1, **pair.row()}]
    else:
        make = train_step if args.part == "train" else forward
        pair = measure(make("zoo", args.batch), make("keras", args.batch), pairs=args.pairs, warm_up=2)
        rows = [{"what": f"{args.part}, graph", "batch": args.batch, **pair.row()}]
    write(f"inception_{args.part}", rows)


if __name__ == "__main__":
    main()
