"""Learning rates at chosen steps, against the formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.training import SCHEDULES, WarmUp, make_schedule
from zoo.training.optimizers import OPTIMIZERS, make_optimizer


def rates(schedule, *steps):
    return [float(schedule(tf.constant(step, tf.int64))) for step in steps]


@pytest.mark.parametrize(
    ("name", "options", "steps", "expected"),
    [
        (
            "exponential",
            {"learning_rate": 1.0, "decay_steps": 10, "decay_rate": 0.5},
            (0, 5, 10, 25),
            (1, 2**-0.5, 0.5, 2**-2.5),
        ),
        (
            "exponential",
            {"learning_rate": 1.0, "decay_steps": 10, "decay_rate": 0.5, "staircase": True},
            (0, 9, 10, 25),
            (1, 1, 0.5, 0.25),
        ),
        (
            "per_epoch",
            {"learning_rate": 0.01, "steps_per_epoch": 100},
            (0, 199, 200, 400),
            (0.01, 0.01, 0.0094, 0.008836),
        ),
        ("piecewise", {"boundaries": [10, 20], "values": [1.0, 0.5, 0.1]}, (0, 10, 11, 20, 21), (1, 1, 0.5, 0.5, 0.1)),
        (
            "polynomial",
            {"learning_rate": 1.0, "decay_steps": 10, "end_learning_rate": 0.0},
            (0, 5, 10, 99),
            (1, 0.5, 0, 0),
        ),
        ("cosine", {"learning_rate": 2.0, "decay_steps": 10}, (0, 5, 10, 99), (2, 1, 0, 0)),
        ("constant", {"learning_rate": 0.3, "warmup_steps": 4}, (0, 1, 3, 4, 99), (0.075, 0.15, 0.3, 0.3, 0.3)),
        ("cosine", {"learning_rate": 2.0, "decay_steps": 10, "warmup_steps": 10}, (4, 9, 10, 15, 20), (1, 2, 2, 1, 0)),
    ],
)
def test_rates(name, options, steps, expected):
    np.testing.assert_allclose(rates(make_schedule(name, **options), *steps), expected, atol=1e-6)


def test_names_and_mistakes():
    assert make_schedule("constant", learning_rate=0.1) == 0.1
    assert set(SCHEDULES) == {"constant", "exponential", "per_epoch", "piecewise", "polynomial", "cosine"}
    with pytest.raises(ValueError, match="unknown schedule 'linear'"):
        make_schedule("linear", learning_rate=1)
    with pytest.raises(ValueError, match="takes learning_rate, decay_steps"):
        make_schedule("cosine", learning_rate=1.0, decay_step=3)
    with pytest.raises(ValueError, match="one value more"):
        make_schedule("piecewise", boundaries=[1], values=[1.0])
    with pytest.raises(ValueError, match="must rise"):
        make_schedule("piecewise", boundaries=[2, 1], values=[1.0, 1, 1])


def test_warm_up_is_serializable():
    before = WarmUp(keras.optimizers.schedules.CosineDecay(1.0, 10), 5)
    after = WarmUp.from_config(before.get_config())
    np.testing.assert_allclose(rates(after, 0, 7, 12), rates(before, 0, 7, 12))


def test_optimizers_have_the_recipes_defaults():
    made = {name: make_optimizer(name, 0.1) for name in OPTIMIZERS}
    assert set(made) == {"sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "lion"}
    assert made["sgd"].momentum == 0
    assert (made["momentum"].momentum, made["momentum"].nesterov) == (0.9, False)
    assert made["nesterov"].nesterov
    slim = made["rmsprop"]
    assert (slim.rho, slim.momentum, slim.epsilon) == (0.9, 0.9, 1.0)
    assert make_optimizer("momentum", 0.1, momentum=0.5).momentum == 0.5
    own = keras.optimizers.Adam()
    assert make_optimizer(own, 0.1) is own
    assert isinstance(make_optimizer("sgd", 0.1, loss_scaling=True), keras.optimizers.LossScaleOptimizer)
    with pytest.raises(ValueError, match="unknown optimizer 'sdg'"):
        make_optimizer("sdg", 0.1)
    with pytest.raises(ValueError, match="does not take"):
        make_optimizer("sgd", 0.1, speed=2)
    with pytest.raises(TypeError, match="received int"):
        make_optimizer(3, 0.1)
