"""Moving averages: TF1's own class is the oracle, with and without num_updates; names; evaluation; TF1 files."""

import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_model, make_trainer, weights

from zoo.training import ExponentialMovingAverage
from zoo.weights.names import named_variables
from zoo.weights.tf1 import read_tf1, restore_tf1, save_tf1


@pytest.mark.parametrize("num_updates", [False, True])
def test_formula_is_tf1s(num_updates):
    values = np.float32([[1, 2], [3, 5], [-1, 0], [4, 4]])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=values[0])
        step = tf.compat.v1.get_variable("step", initializer=0)
        ema = tf.compat.v1.train.ExponentialMovingAverage(0.6, num_updates=step if num_updates else None)
        apply = ema.apply([variable])
        shadow = ema.average(variable)
        session.run(tf.compat.v1.global_variables_initializer())
        expected = []
        for number, value in enumerate(values[1:], 1):
            session.run([variable.assign(value), step.assign(number)])
            session.run(apply)
            expected.append(session.run(shadow))
        name = shadow.op.name
    ours = ExponentialMovingAverage(0.6, num_updates=num_updates)
    variable = tf.Variable(values[0])
    ours.build({"v": variable})
    for number, value in enumerate(values[1:], 1):
        variable.assign(value)
        ours.update(tf.constant(number, tf.int64))
        np.testing.assert_allclose(ours.shadows["v"], expected[number - 1], rtol=1e-6)
    assert ours.shadow_name("v") == name == "v/ExponentialMovingAverage"


def test_trainer_evaluates_with_averages_and_puts_the_weights_back():
    data = make_data()
    trainer = make_trainer(averages=0.8)
    trainer.fit(data, epochs=2, progress="none")
    before = weights(trainer.model)
    with_averages, without = trainer.evaluate(data), trainer.evaluate(data, averages=False)
    assert with_averages["loss"] != without["loss"]
    for one, other in zip(before, weights(trainer.model), strict=True):
        np.testing.assert_array_equal(one, other)
    trainer.averages.to_weights()
    assert trainer.evaluate(data, averages=False)["loss"] == pytest.approx(with_averages["loss"], abs=1e-7)


def test_validation_with_averages_ends_in_averaged_weights():
    data = make_data()
    trainer = make_trainer(averages=ExponentialMovingAverage(0.8, num_updates=True))
    history = trainer.fit(data, epochs=3, validation=data, progress="none")
    assert trainer.evaluate(data, averages=False)["loss"] == pytest.approx(history.best, abs=1e-6)


def test_averages_through_a_tf1_checkpoint(tmp_path):
    trainer = make_trainer(averages=0.5)
    trainer.fit(make_data(), epochs=1, progress="none")
    named = named_variables(trainer.model)
    path = save_tf1({**named, **trainer.averages.with_names()}, tmp_path / "a", step=5)
    assert sorted(read_tf1(path)) == sorted([*named, *(f"{n}/ExponentialMovingAverage" for n in named), "global_step"])
    other = named_variables(make_model())
    restore_tf1(other, path, averages=True)
    for name, variable in other.items():
        np.testing.assert_array_equal(variable, trainer.averages.shadows[name])


def test_mistakes():
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\)"):
        ExponentialMovingAverage(1.0)
    with pytest.raises(ValueError, match="no moving averages are kept"):
        make_trainer().evaluate(make_data(), averages=True)
