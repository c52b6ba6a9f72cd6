"""One update against the formula: total loss, clipping, multipliers, frozen scopes, accumulation, replicas, scaling."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_model, make_trainer, weights

from zoo.training import Trainer


def expected_update(model, inputs, labels, rate=0.1, clip=None, factors=None):
    """SGD on the mean cross-entropy plus regularization, in plain TensorFlow."""
    with tf.GradientTape() as tape:
        task = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs, training=True)))
        total = task + tf.add_n(model.losses)
    variables = [v.value for v in model.trainable_variables]
    gradients = tape.gradient(total, variables)
    if factors:
        gradients = [g * f for g, f in zip(gradients, factors, strict=True)]
    if clip:
        gradients, _ = tf.clip_by_global_norm(gradients, clip)
    return float(task), [v.numpy() - rate * g.numpy() for v, g in zip(variables, gradients, strict=True)]


def one_step(trainer, count=8):
    inputs, labels = make_data(count)
    history = trainer.fit(tf.data.Dataset.from_tensors((inputs, labels)), steps=1, progress="none", log_every=1)
    return history.lines[-1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip": 0.1},
        {"factors": [1.0, 1.0, 3.0, 3.0]},
        {"accumulate": 4},
        {"accumulate": 3, "clip": 0.1},  # 8 examples in parts of 3, 3 and 2
        {"steps_per_call": 5},
        {"jit_compile": True},
    ],
)
def test_update(options):
    model = make_model()
    inputs, labels = make_data(8)
    clip, factors = options.pop("clip", None), options.pop("factors", None)
    task, expected = expected_update(model, inputs, labels, clip=clip, factors=factors)
    regularization = float(tf.add_n(model.losses))
    trainer = make_trainer(model, clip_norm=clip, multipliers={"logits": 3.0} if factors else None, **options)
    line = one_step(trainer)
    assert line["task_loss"] == pytest.approx(task, rel=1e-5)
    assert line["regularization_loss"] == pytest.approx(regularization, rel=1e-5)
    assert line["loss"] == pytest.approx(task + regularization, rel=1e-5)
    assert int(trainer.engine.step) == 1
    for one, other in zip(expected, weights(model), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_two_replicas_are_one_device():
    inputs, labels = make_data(7)  # 4 and 3 examples: the mean is over the examples, not over replicas
    start = weights(make_model())
    task, expected = None, None
    devices = [device.name for device in tf.config.list_logical_devices("CPU")[:2]]
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
    for clip in (None, 0.1):
        plain = make_model()
        plain.set_weights(start)
        task, expected = expected_update(plain, inputs, labels, clip=clip)
        with strategy.scope():
            model = make_model()
        model.set_weights(start)
        trainer = Trainer(model, learning_rate=0.1, strategy=strategy, clip_norm=clip, averages=0.5)
        data = tf.data.Dataset.from_tensors((inputs, labels))
        line = trainer.fit(data, steps=1, validation=data, progress="none", restore_best=False).lines[0]
        assert line["task_loss"] == pytest.approx(task, rel=1e-5)
        assert line["regularization_loss"] == pytest.approx(float(tf.add_n(plain.losses)), rel=1e-5)
        for before, one, other, shadow in zip(
            start, expected, weights(model), trainer.averages.shadows.values(), strict=True
        ):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(shadow.numpy(), (before + other) / 2, rtol=1e-4, atol=1e-6)


def test_steps_in_one_call_are_the_same_steps():
    data = make_data(24)
    found = []
    for count in (1, 3):
        keras.utils.set_random_seed(5)
        trainer = make_trainer(make_model(dropout=0.5), optimizer="momentum", steps_per_call=count)
        found.append((trainer.fit(data, epochs=4, progress="none").lines, weights(trainer.model)))
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert [line["loss"] for line in found[0][0]] == pytest.approx([line["loss"] for line in found[1][0]], rel=1e-5)


def test_train_only_freezes_the_rest_batch_norm_included():
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(5, name="body"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(3, name="head"),
        ]
    )
    before = {v.path: np.array(v) for v in model.weights}
    make_trainer(model, train_only="head").fit(make_data(), epochs=1, progress="none")
    changed = {v.path for v in model.weights if not np.array_equal(before[v.path], v)}
    assert {path.split("/")[-2] for path in changed} == {"head"}
    with pytest.raises(ValueError, match="pattern 'haed' matches none"):
        make_trainer(make_model(), train_only=["haed"]).fit(make_data(), epochs=1)


def test_multipliers_must_mean_something_and_one_thing():
    with pytest.raises(ValueError, match="pattern 'nothing' matches none"):
        make_trainer(multipliers={"nothing": 2.0}).fit(make_data(), epochs=1)
    with pytest.raises(ValueError, match="both mean"):
        make_trainer(multipliers={"logits": 2.0, "*kernel": 3.0}).fit(make_data(), epochs=1)


def test_float16_scales_the_loss_and_leaves_out_bad_updates():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make_model()
    finally:
        keras.config.set_dtype_policy("float32")
    trainer = make_trainer(model, clip_norm=1.0)
    assert isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer)
    trainer.optimizer.initial_scale = 2.0**40  # the first scaled gradients overflow
    before = weights(model)
    one_step(trainer)
    assert float(trainer.optimizer.dynamic_scale) == 2.0**39
    for one, other in zip(before, weights(model), strict=True):
        np.testing.assert_array_equal(one, other)
    trainer.optimizer.dynamic_scale.assign(2.0**10)
    history = trainer.fit(make_data(), steps=30, progress="none")
    assert history.lines[-1]["loss"] < history.lines[0]["loss"]


def test_own_optimizer_loss_metric_and_schedule():
    model = make_model()
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5))
    trainer = Trainer(
        model,
        optimizer=optimizer,
        loss=lambda labels, logits: tf.reduce_mean(tf.square(tf.one_hot(labels, 3) - logits), -1),
        metrics=[keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2"), "accuracy"],
    )
    data = tf.data.Dataset.from_tensor_slices(make_data()).batch(8)
    history = trainer.fit(data, epochs=2, progress="none", log_every=1)
    assert [line["learning_rate"] for line in history.lines[:3]] == pytest.approx([0.1, 0.1 * 0.5**0.2, 0.1 * 0.5**0.4])
    assert history.lines[-1].keys() >= {"top2", "accuracy", "loss"}
    by_step = make_trainer(learning_rate=lambda step: 0.1 / (1.0 + tf.cast(step, tf.float32)))
    lines = by_step.fit(make_data(), steps=3, log_every=1, progress="none").lines
    assert [line["learning_rate"] for line in lines] == pytest.approx([0.1, 0.05, 0.1 / 3])


def test_mistakes():
    for options, message in (
        ({"accumulate": 0}, "accumulate must be at least 1"),
        ({"clip_norm": 0}, "clip_norm must be positive"),
        ({"metrics": ["acuracy"]}, "unknown metric 'acuracy'"),
        ({"global_batch": None}, "give it global_batch"),
    ):
        with pytest.raises(ValueError, match=message):
            make_trainer(**options).fit(make_data(), epochs=1, progress="none")
    with pytest.raises(ValueError, match="global_batch is 8, but the data has batches of 4"):
        make_trainer().fit(tf.data.Dataset.from_tensor_slices(make_data()).batch(4, drop_remainder=True), epochs=1)
    with pytest.raises(ValueError, match="has no end"):
        make_trainer().fit(tf.data.Dataset.from_tensors(make_data(8)).repeat(), epochs=1)
    with pytest.raises(ValueError, match="as epochs or as steps"):
        make_trainer().fit(make_data())
    with pytest.raises(TypeError, match="unknown option of fit"):
        make_trainer().fit(make_data(), epochs=1, keeep=3)
