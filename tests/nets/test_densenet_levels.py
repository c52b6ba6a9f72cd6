"""DenseNet's memory levels under the Trainer, compiled or not, in float64 and in mixed precision: one result."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.training import Trainer

OPTIONS = {"depth": 10, "growth_rate": 4, "num_classes": 3, "input_shape": (8, 8, 3), "seed": 1, "dropout_rate": 0.2}


def train(memory, dtype, jit_compile=False, steps=3):
    """Losses of each step, and all variables at the end by name."""
    keras.utils.set_random_seed(0)
    model = zoo.densenet_cifar(memory=memory, dtype=dtype, **OPTIONS)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(4, 8, 8, 3)), np.array([0, 1, 2, 0])
    x = x.astype("float64" if dtype == "float64" else "float32")
    trainer = Trainer(
        model, optimizer=keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), jit_compile=jit_compile, metrics=()
    )
    data = tf.data.Dataset.from_tensors((x, y)).repeat(steps)
    lines = trainer.fit(data, steps=steps, log_every=1, progress="none").lines
    values = {name: np.array(model.variable(name), np.float64) for name in model.variable_names}
    return [line["loss"] for line in lines if line["kind"] == "train"], values


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_levels_agree_under_the_trainer(jit_compile):
    losses, wanted = train("store", "float64", jit_compile)
    assert len(losses) == 3
    for memory in ("recompute", "minimal"):
        other, found = train(memory, "float64", jit_compile)
        np.testing.assert_allclose(other, losses, rtol=1e-6)  # logged in float32
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-8, err_msg=name)


def test_levels_agree_in_mixed_precision():
    losses, wanted = train("store", "mixed_bfloat16")
    for memory in ("recompute", "minimal"):
        other, found = train(memory, "mixed_bfloat16")
        assert other[0] == losses[0]  # the same forward pass, to the bit
        np.testing.assert_allclose(other, losses, rtol=0.02)
        for name, value in wanted.items():
            if name.endswith("moving_mean"):
                np.testing.assert_allclose(found[name], value, atol=0.02, err_msg=name)
