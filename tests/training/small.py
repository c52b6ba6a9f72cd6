"""A tiny network and tiny data for the training tests."""

import keras
import numpy as np

from zoo.training import Trainer


def make_model(dropout=0.0, name="small"):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh", name="hidden", kernel_regularizer=keras.regularizers.L2(1e-3)),
            layers.Dropout(dropout, name="drop"),
            layers.Dense(3, name="logits"),
        ],
        name=name,
    )


def make_data(count=40, seed=0):
    numbers = np.random.default_rng(seed)
    inputs = numbers.normal(size=(count, 6)).astype("float32")
    return inputs, (inputs[:, 0] > 0).astype("int64") + (inputs[:, 1] > 0.5)


def make_trainer(model=None, **options):
    settings = {"learning_rate": 0.1, "global_batch": 8, **options}
    return Trainer(model or make_model(), **settings)


def weights(model):
    return [np.array(v) for v in model.weights]
