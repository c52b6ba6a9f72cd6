"""Every registered network under towers and mirrored replicas: the same as on one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from parallel.nets import CASES, CPUS, IDS, NORM, train

import zoo
from zoo.parallel import Towers, build_towers
from zoo.parallel.strategies import mirrored

EXACT = {"rtol": 1e-8, "atol": 1e-8}
_alone: dict = {}


def alone(case, **options):
    """The run on one device, once for all that compare with it."""
    key = (case.net, str(case.options), str(options))
    if key not in _alone:
        data = case.data()
        keras.utils.set_random_seed(0)
        values, losses, _ = train(case, None, data, **options)
        _alone[key] = (values, losses, data)
    return _alone[key]


def same(found, values, **tolerance):
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **(tolerance or EXACT))


def test_every_registered_network_is_here():
    presets = {f"densenet{depth}" for depth in (121, 161, 169, 201, 264)} | {"densenet_cifar"}
    assert set(zoo.list_nets()) - presets == {case.net for case in CASES}


# Tracing a hundred synchronized norms takes half a minute in towers, and a minute and a half in mirrored replicas.
LONG = [
    pytest.param(c, id=i, marks=[pytest.mark.slow] * (c.net == "inception_v3")) for c, i in zip(CASES, IDS, strict=True)
]


@pytest.mark.parametrize("case", LONG)
def test_towers_are_one_device(case):
    values, losses, data = alone(case)
    found, tower_losses, _ = train(case, Towers(CPUS[:2], batch_norm="sync"), data)
    np.testing.assert_allclose(tower_losses, losses, rtol=1e-6)  # logged in float32
    same(found, values)


@pytest.mark.parametrize("case", LONG)
def test_mirrored_replicas_are_one_device(case):
    values, losses, data = alone(case)
    found, replica_losses, _ = train(case, mirrored(CPUS[:2]), data, sync_batch_norm=case.norm)
    np.testing.assert_allclose(replica_losses, losses, rtol=1e-6)
    same(found, values)


# Plain, sparse embeddings, batch norm; RMSProp's slots have nothing to do with batch norm.
SHORT = [(CASES[0], "adam"), (CASES[0], "rmsprop"), (CASES[6], "adam"), (CASES[6], "rmsprop"), (NORM, "adam")]


@pytest.mark.parametrize(("case", "optimizer"), SHORT, ids=[f"{case.net}-{optimizer}" for case, optimizer in SHORT])
def test_three_devices_and_other_optimizers(case, optimizer):
    options = {"optimizer": optimizer, "learning_rate": 0.01, "averages": 0.9}
    values, _, data = alone(case, **options)
    found, _, trainer = train(case, Towers(CPUS[:3], batch_norm="sync"), data, **options)
    same(found, values)
    assert len(trainer.averages.shadows) == len(trainer.model.trainable_variables)
    found, _, _ = train(case, mirrored(CPUS[:3]), data, sync_batch_norm=case.norm, **options)
    same(found, values)


def test_float32_within_a_thousandth_of_the_rate():
    case, rate = CASES[0], 0.05
    data = case.data()
    one, _, _ = train(case, None, data, model=case.build("float32"))
    with Towers(CPUS[:2]).scope():
        model = case.build("float32")
    two, _, _ = train(case, Towers(CPUS[:2]), data, model=model)
    same(two, one, rtol=0, atol=1e-3 * rate)


def test_accumulated_parts_and_clipping():
    case = CASES[0]
    values, _, data = alone(case, accumulate=2, clip_norm=0.5)
    found, _, _ = train(case, Towers(CPUS[:2]), data, accumulate=2, clip_norm=0.5)
    same(found, values)


def test_a_last_batch_smaller_than_the_towers():
    """One example for three towers: two stand in with weight 0, in gradients, statistics and metrics."""
    for case in (CASES[0], NORM):
        images, labels = next(iter(case.data().unbatch().batch(8)))
        data = tf.data.Dataset.from_tensor_slices((images[:8], labels[:8])).batch(7)
        values, losses, one = train(case, None, data, steps=2)
        found, tower_losses, towers = train(case, Towers(CPUS[:3], batch_norm="sync"), data, steps=2)
        np.testing.assert_allclose(tower_losses, losses, rtol=1e-6)
        same(found, values)
        assert towers.evaluate(data) == pytest.approx(one.evaluate(data), rel=1e-6)


@pytest.mark.parametrize("policy", ["first", "mean"])
def test_batch_norm_by_tower(policy):
    """Each tower normalises by its own part; statistics move once a step."""
    case = NORM
    found, _, trainer = train(case, Towers(CPUS[:2], batch_norm=policy), case.data(), steps=3)
    assert all(np.isfinite(value).all() for value in found.values())
    assert int(trainer.engine.step.numpy()) == 3
    one = train(case, Towers(CPUS[:1], batch_norm=policy), case.data(), steps=3)[0]
    moved = [name for name in one if "moving" in name]
    assert any(np.abs(found[name] - one[name]).max() > 1e-6 for name in moved)


def test_asynchronous_towers_make_an_update_each():
    case = CASES[0]
    data = case.data()
    found, losses, trainer = train(case, Towers(CPUS[:2], synchronous=False), data, steps=3)
    assert int(trainer.engine.step.numpy()) == 3
    assert int(trainer.optimizer.iterations.numpy()) == 6
    assert np.isfinite(losses).all()
    both, _, _ = train(case, Towers(CPUS[:2]), data, steps=3)
    assert any(np.abs(found[name] - both[name]).max() > 1e-6 for name in both)


def test_dropout_differs_between_towers_and_is_drawn_once():
    def network(x, *, is_training=False):
        with zoo.variable_scope("net"):
            dropped = zoo.dropout(x, 0.5, is_training=is_training)
            return zoo.fully_connected(dropped, 2), {"dropped": dropped}

    model = zoo.Model(network, input_shape=(50,), seed=1)
    towers = Towers(CPUS[:2])

    @tf.function
    def masks(x):
        return towers.run(lambda share: model.end_points(share.batch, training=True)["dropped"] == 0, x)

    before = model.seed_generator.state.numpy()
    first, second = masks(tf.ones([4, 50]))
    assert not np.array_equal(first, second)
    assert model.seed_generator.state.numpy().tolist() != before.tolist()
    model.seed_generator.state.assign(before)
    again, _ = masks(tf.ones([4, 50]))
    np.testing.assert_array_equal(first, again)


def gradients(dtype, devices, start=None):
    """The loss and the gradients of DenseNet-121 on four pictures of 32 pixels, and the variables it began with."""
    model = zoo.densenet121(input_shape=(32, 32, 3), num_classes=10, dtype=dtype, seed=1)
    start = start or [np.asarray(variable, "float64") for variable in model.variables]
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
    variables, optimizer = model.trainable_variables, keras.optimizers.SGD(0.0)
    optimizer.build(variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        def tower_fn(batch):
            return loss_of(batch[1], model(batch[0], training=True))

        built = build_towers(tower_fn, (images, labels), devices, optimizer, train=variables, batch_norm="sync")
        return built.loss, [gradient for gradient, _ in built.gradients]

    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3))
    loss, found = step(tf.cast(images, dtype), np.array([1, 5, 7, 2]))
    return float(loss), [np.asarray(gradient, "float64") for gradient in found], start


def apart(found, wanted):
    """The largest relative distance of two lists of gradients, tensor by tensor."""
    return max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.slow
def test_densenet121_in_float64_is_that_of_one_device():
    """In float32 the gradients are some per cent apart: they are that far from float64's on one device, too.

    The last block's maps are one pixel, so that each norm has four values, whose differences are small.
    """
    loss, wanted, start = gradients("float64", CPUS[:1])
    tower_loss, found, _ = gradients("float64", CPUS[:2], start)
    assert tower_loss == pytest.approx(loss, rel=1e-12)
    assert apart(found, wanted) < 1e-8
    rounded, single, _ = gradients("float32", CPUS[:1], start)
    _, double, _ = gradients("float32", CPUS[:2], start)
    assert rounded == pytest.approx(loss, rel=1e-4)
    assert apart(double, wanted) < 2 * apart(single, wanted) + 1e-3
    print(f"float64 {apart(found, wanted):.2g}; float32 to float64: one device {apart(single, wanted):.2g}, ", end="")
    print(f"towers {apart(double, wanted):.2g}; towers to one device {apart(double, single):.2g}")
