"""Towers in `tf.function`, the shares of a batch, and state that towers keep together."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from parallel.nets import CASES, CPUS, NORM

import zoo
from zoo.parallel import Towers, build_towers, merge_rows, split_batch, sum_gradients
from zoo.parallel.shards import rows_of
from zoo.parallel.strategies import mirrored


@pytest.mark.parametrize("case", [CASES[0], NORM, CASES[6]], ids=lambda case: case.net)
@pytest.mark.parametrize("count", [2, 3])
def test_build_towers_in_a_function_is_one_device(case, count):
    inputs, labels = next(iter(case.data()))
    found = []
    for devices in (CPUS[:1], CPUS[:count]):
        model = case.build()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        def loss(part, model=model):
            logits = model(part[0], training=True)
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(part[1], logits))

        @tf.function
        def step(inputs, labels, model=model, optimizer=optimizer, devices=devices, loss=loss):
            built = build_towers(
                loss,
                (inputs, labels),
                devices,
                optimizer,
                train=model.trainable_variables,
                batch_norm="sync",
                regularization=lambda: model.losses,
                clip_norm=1.0,
            )
            return built.loss

        losses = [float(step(inputs, labels)) for _ in range(5)]
        found.append((losses, {name: np.array(model.variable(name)) for name in model.variable_names}))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-9)
    for name, value in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], value, rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [5, 6, 7, 11])
def test_shares_are_even_and_none_is_lost(size, count):
    batch = {"x": tf.range(size), "y": tf.range(size)[:, None] * 2}
    shares = split_batch(batch, count)
    assert [share.size for share in shares] == [size // count + (i < size % count) for i in range(count)]
    np.testing.assert_array_equal(tf.concat([share.batch["x"] for share in shares], 0), np.arange(size))
    np.testing.assert_array_equal(tf.concat([share.batch["y"][:, 0] for share in shares], 0), 2 * np.arange(size))
    assert sum(float(share.weight) for share in shares) == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_workers_rows_are_all_rows_once(count):
    for size in range(9):
        rows = [rows_of(tf.range(size), count, index).numpy() for index in range(count)]
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(size))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_sums_of_sparse_dense_and_absent_gradients():
    sparse = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]), tf.constant([4, 3]))
    dense = tf.ones([4, 3])
    both, mixed, one, none = sum_gradients([[sparse, sparse, None, None], [sparse, dense, dense, None]])
    assert isinstance(both, tf.IndexedSlices)
    np.testing.assert_array_equal(tf.convert_to_tensor(both)[1], [4, 4, 4])
    np.testing.assert_array_equal(mixed[:, 0], [1, 3, 1, 1])
    assert one is dense
    assert none is None
    merged = merge_rows(both)
    assert merged.indices.numpy().tolist() == [1]
    np.testing.assert_array_equal(merged.values, [[4, 4, 4]])
    with pytest.raises(ValueError, match="one gradient a variable"):
        sum_gradients([[dense], [dense, dense]])


def test_towers_own_their_rows_of_a_carried_state():
    tokens = np.random.default_rng(0).integers(0, 12, (3, 4, 5)).astype(np.int32)
    found = []
    for towers in (Towers(CPUS[:1]), Towers(CPUS[:2])):
        model = zoo.word_lm(vocab_size=12, hidden=6, keep_prob=1.0, carry=4, seed=1)

        @tf.function
        def step(words, first, model=model, towers=towers):
            parts = {"tokens": words, "first": first}
            return tf.concat(towers.run(lambda share: model(share.batch, training=True), parts), 0)

        outputs = [step(words, tf.fill([4], number == 0)) for number, words in enumerate(tokens)]
        state = [np.array(model.variable(name)) for name in model.variable_names if "carried_state/train" in name]
        found.append((outputs, state))
    for one, two in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)
    for one, two in zip(found[0][1], found[1][1], strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


def test_each_tower_computes_on_its_device_forwards_and_backwards():
    towers = Towers(
        CPUS[1:3], variables=tf.compat.v1.train.replica_device_setter(ps_tasks=1, ps_device="/device:CPU:3")
    )
    with towers.scope():
        model = CASES[0].build("float32")
    assert {v.value.device[-5:] for v in model.weights} == {"CPU:3"}
    raw = [v.value for v in model.trainable_variables]

    @tf.function
    def step(images):
        def tower(share):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(share.batch, training=True))
            return tape.gradient(loss, raw)

        return [gradients[0] for gradients in towers.run(tower, images)]

    graph = step.get_concrete_function(tf.TensorSpec([None, 32, 32, 1])).graph
    for index in range(2):
        work = [op for op in graph.get_operations() if f"tower_{index}/" in op.name and "Conv2D" in op.type]
        assert {op.type for op in work} >= {"Conv2D", "Conv2DBackpropFilter"}
        assert {op.device[-5:] for op in work} == {f"CPU:{index + 1}"}


def test_a_tower_may_branch_on_its_values(caplog):
    """AutoGraph converts the towers' functions, and has no complaints about the way to them."""
    weight = tf.Variable(2.0)
    optimizer = keras.optimizers.SGD(0.0)
    optimizer.build([weight])

    def loss(part):
        found = tf.reduce_mean(part) * weight
        if found > 3.0:
            found = -found
        return found

    @tf.function
    def step(batch):
        return build_towers(loss, batch, CPUS[:2], optimizer, train=[weight]).loss

    assert float(step(tf.constant([1.0, 1.0, 2.0]))) == pytest.approx((2.0 * 2 - 4.0) / 3)
    assert "AutoGraph" not in caplog.text


def test_towers_that_differ_are_noticed():
    def unequal(share):
        group = zoo.scoping.replicas()
        return group.sum([tf.ones([])]) if share.index == 0 else None

    @tf.function
    def step(x):
        return Towers(CPUS[:2]).run(unequal, x)

    with pytest.raises(RuntimeError, match="met a different number of times"):
        step(tf.ones([4]))


def test_hierarchical_reduction_gives_the_same():
    strategy = mirrored(CPUS[:2], "hierarchical")
    with strategy.scope():
        variable = tf.Variable(1.0)

    @tf.function
    def total():
        return strategy.reduce("SUM", strategy.run(lambda: variable * 2.0), axis=None)

    assert float(total()) == 4.0
