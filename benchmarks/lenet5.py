"""LeNet-5 against the same network in plain keras.Sequential: train step, predict, eager forward, building.

    python benchmarks/lenet5.py [--pairs 30]

Writes results/lenet5_speed.csv. Goals: train step and predict at most 1.02 x Keras' time, eager forward at most 0.8 x,
building (after the first in a process) under 120 ms.
"""

import argparse
import itertools

import keras
import numpy as np
import tensorflow as tf
from paired import measure, write

import zoo


def sequential() -> keras.Model:
    """The peer: 61,706 parameters, the same layers."""
    conv, pool, dense = keras.layers.Conv2D, keras.layers.MaxPool2D, keras.layers.Dense
    return keras.Sequential(
        [
            keras.Input((32, 32, 1)),
            conv(6, 5, activation="relu"),
            pool(),
            conv(16, 5, activation="relu"),
            pool(),
            conv(120, 5, activation="relu"),
            keras.layers.Flatten(),
            dense(84, activation="relu"),
            dense(10),
        ]
    )


def steps(model: keras.Model, batch: int, kind: str):
    """Returns a function that runs one step of Keras' compiled train or predict function."""
    images = np.random.default_rng(0).random((batch, 32, 32, 1), "float32")
    data = (tf.constant(images), tf.constant(np.arange(batch) % 10)) if kind == "train" else (tf.constant(images),)
    iterator = iter(tf.data.Dataset.from_tensors(data).repeat()) if kind == "train" else [data]
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    getattr(model, f"make_{kind}_function")()
    function = getattr(model, f"{kind}_function")
    return lambda: tf.nest.map_structure(np.asarray, function(iterator))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    pairs = parser.parse_args().pairs
    ours, theirs = zoo.lenet5(), sequential()
    assert ours.count_params() == theirs.count_params() == 61_706

    rows = []
    for kind, batch in itertools.product(("train", "predict"), (32, 256)):
        calls = 512 // batch
        paired = measure(steps(ours, batch, kind), steps(theirs, batch, kind), pairs=pairs, calls=calls)
        rows.append({"what": f"{kind} step, graph", "batch": batch, **paired.row()})
    for batch in (1, 32):
        images = tf.random.uniform([batch, 32, 32, 1])
        paired = measure(lambda x=images: ours(x), lambda x=images: theirs(x), pairs=pairs, calls=20)
        rows.append({"what": "forward, eager", "batch": batch, **paired.row()})
    rows.append({"what": "build", "batch": "", **measure(zoo.lenet5, sequential, pairs=pairs, warm_up=2).row()})
    write("lenet5_speed", rows)


if __name__ == "__main__":
    main()
