"""Batch norm: statistics, their updates in the four places, freezing, weights, renorm, replicas."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

v1 = tf.compat.v1


def values(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(2.0, 3.0, size=shape).astype(dtype)


def formula(x, mean, variance, epsilon=0.001):
    return (x - mean) / np.sqrt(variance + epsilon)


def statistics(x, unbiased=True):
    axes = tuple(range(x.ndim - 1))
    return x.mean(axes), x.var(axes, ddof=int(unbiased))


def norm(x, store=None, **options):
    with store or scoping.variable_store() as store, scoping.variable_scope("", reuse=scoping.AUTO_REUSE):
        y = layers.batch_norm(x, scope="bn", **options)
    return y, {n.removeprefix("bn/"): v.numpy() for n, v in store.variables.items()}, store


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 5, 6, 3), (7, 3)])
def test_training_normalizes_by_the_batch_and_moves_the_statistics(shape, dtype):
    x = values(*shape, dtype=dtype)
    y, v, _ = norm(x, decay=0.9)
    mean, variance = statistics(x)
    np.testing.assert_allclose(y, formula(x, mean, statistics(x, False)[1]), rtol=1e-4, atol=1e-4)
    assert list(v) == ["beta", "moving_mean", "moving_variance"]  # slim's default has no gamma
    np.testing.assert_allclose(v["moving_mean"], 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(v["moving_variance"], 0.9 + 0.1 * variance, rtol=1e-5)  # n / (n - 1), as slim stores
    assert v["moving_mean"].dtype == dtype


@pytest.mark.parametrize("options", [{"fused": False}, {"batch_weights": np.ones(4, np.float32)}])
def test_unfused_statistics_are_biased_as_slims(options):
    x = values(4, 5, 6, 3)
    _, v, _ = norm(x, decay=0.0, **options)
    np.testing.assert_allclose(v["moving_variance"], statistics(x, unbiased=False)[1], rtol=1e-5)


def test_ten_steps_with_decay_a_tenth_reach_the_batch():
    x, store = values(16, 4, 4, 3), None
    for _ in range(10):
        _, v, store = norm(x, store, decay=0.1)
    mean, variance = statistics(x)
    np.testing.assert_allclose(v["moving_mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(v["moving_variance"], variance, rtol=1e-5)


def test_inference_uses_moving_statistics_bit_for_bit_and_leaves_them():
    x = values(4, 5, 6, 3)
    _, before, store = norm(x, decay=0.5, scale=True)
    y, after, _ = norm(x, store, is_training=False, scale=True)
    again, _, _ = norm(x[:2], store, is_training=False, scale=True)
    np.testing.assert_array_equal(y[:2], again)  # whatever else is in the batch
    np.testing.assert_allclose(y, formula(x, before["moving_mean"], before["moving_variance"]), rtol=1e-4, atol=1e-4)
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])


def test_a_graph_collects_the_updates_and_none_runs_them_with_the_layer():
    x = values(4, 5, 6, 3)
    for collections in (v1.GraphKeys.UPDATE_OPS, ["mine", "yours"], None):
        with tf.Graph().as_default(), v1.Session() as session:
            y = layers.batch_norm(tf.constant(x), decay=0.9, updates_collections=collections, scope="bn")
            names = collections if isinstance(collections, list) else [v1.GraphKeys.UPDATE_OPS]
            updates = [v1.get_collection(name) for name in names]
            session.run(v1.global_variables_initializer())
            mean = next(v for v in v1.global_variables() if v.op.name == "bn/moving_mean")
            session.run(y)
            if collections is None:
                assert updates == [[]]
            else:
                assert [len(u) for u in updates] == [2] * len(names)
                assert not np.any(session.run(mean))
                with tf.control_dependencies(updates[0]):
                    session.run(tf.no_op())
            np.testing.assert_allclose(session.run(mean), 0.1 * statistics(x)[0], rtol=1e-5)


@pytest.mark.parametrize("fused", [None, False])
def test_is_training_as_a_tensor(fused):
    x = values(4, 5, 6, 3)
    with tf.Graph().as_default(), v1.Session() as session:
        flag = v1.placeholder(tf.bool, [])
        y = layers.batch_norm(tf.constant(x), decay=0.5, is_training=flag, fused=fused, scope="bn")
        assert y.shape == x.shape
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        session.run(v1.global_variables_initializer())
        moving = [v for v in v1.global_variables() if "moving" in v.op.name]
        session.run(updates, {flag: False})
        np.testing.assert_array_equal(session.run(moving[0]), 0)
        np.testing.assert_allclose(session.run(y, {flag: False}), formula(x, 0, 1), rtol=1e-4, atol=1e-4)
        session.run(updates, {flag: True})
        np.testing.assert_allclose(session.run(moving[0]), 0.5 * statistics(x)[0], rtol=1e-5)
        np.testing.assert_allclose(
            session.run(y, {flag: True}), formula(x, *statistics(x, False)), rtol=1e-3, atol=1e-4
        )


def network(x, is_training=False, **options):
    with scoping.variable_scope("a"):
        x = layers.batch_norm(x, decay=0.5, is_training=is_training, **options)
    with scoping.variable_scope("b"):
        return layers.batch_norm(x, decay=0.5, is_training=is_training, **options)


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"renorm": True}, {"zero_debias_moving_mean": True}])
def test_a_frozen_scope_uses_and_keeps_its_statistics(options):
    x = tf.constant(values(6, 4, 4, 3))
    model = scoping.Model(network, input_shape=(4, 4, 3), **options)
    model(x, training=True)
    frozen = {n: model.variable(n).numpy() for n in model.variable_names if n.startswith("a/")}
    moving = model.variable("b/BatchNorm/moving_mean").numpy()
    model.freeze("a")
    for call in (model, tf.function(model)):
        call(x, training=True)
    for name, value in frozen.items():
        np.testing.assert_array_equal(model.variable(name), value, err_msg=name)
    assert np.any(model.variable("b/BatchNorm/moving_mean").numpy() != moving)
    model.unfreeze("a")
    model(x + 1, training=True)
    assert np.any(model.variable("a/BatchNorm/moving_mean").numpy() != frozen["a/BatchNorm/moving_mean"])


def test_half_precision_normalizes_in_float32():
    x = (values(64, 16, 16, 2) + 200).astype(np.float16)
    for fused in (None, False):
        y, v, _ = norm(x, decay=0.0, fused=fused)
        assert y.dtype == tf.float16
        np.testing.assert_allclose(v["moving_mean"], x.astype(np.float64).mean((0, 1, 2)), rtol=1e-4)
        np.testing.assert_allclose(np.std(np.asarray(y, np.float32), (0, 1, 2)), 1, atol=0.01)


def test_weighted_examples_count_as_often_as_their_weight():
    x = values(3, 4, 4, 2)
    weights = np.array([1, 3, 0], np.float32)
    _, v, _ = norm(x, batch_weights=weights, decay=0.0)
    repeated = np.concatenate([x[:1], x[1:2], x[1:2], x[1:2]])
    np.testing.assert_allclose(v["moving_mean"], repeated.mean((0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(v["moving_variance"], repeated.var((0, 1, 2)), rtol=1e-4)
    with pytest.raises(ValueError, match="one weight an example"):
        norm(x, batch_weights=np.ones(4, np.float32))


def test_zero_debias_gives_the_batch_mean_at_the_first_step():
    x, store = values(8, 3, 3, 2), None
    means = []
    for i in range(3):
        _, v, store = norm(x + i, store, decay=0.9, zero_debias_moving_mean=True)
        means.append(statistics(x + i)[0])
        weights = 0.9 ** np.arange(i, -1, -1)
        expected = np.sum(weights[:, None] * means, 0) / weights.sum()
        np.testing.assert_allclose(v["moving_mean"], expected, rtol=1e-4)
    assert "bn/moving_mean/biased" in v  # TF1's names: the full name below the scope
    assert v["bn/moving_mean/local_step"] == 3
    _, after, _ = norm(x, store, is_training=False, zero_debias_moving_mean=True)
    np.testing.assert_array_equal(after["moving_mean"], v["moving_mean"])


def test_renorm_follows_the_paper():
    """Ioffe 2017, algorithm 1, in numpy, for three steps with clipping."""
    store, average_mean, average_stddev, moving_mean, moving_stddev = None, 0.0, 1.0, 0.0, np.sqrt(1.001)
    clipping = {"rmin": 0.5, "rmax": 2.0, "dmax": 0.7}
    for i in range(3):
        x = values(8, 3, 3, 2, seed=i)
        options = {"renorm": True, "renorm_decay": 0.8, "decay": 0.9, "renorm_clipping": clipping}
        y, v, store = norm(x, store, **options)
        mean, stddev = x.mean((0, 1, 2)), np.sqrt(x.var((0, 1, 2)) + 0.001)
        r = np.clip(stddev / average_stddev, 0.5, 2.0)
        d = np.clip((mean - average_mean) / average_stddev, -0.7, 0.7)
        np.testing.assert_allclose(y, (x - mean) / stddev * r + d, rtol=1e-3, atol=1e-3)
        average_mean, average_stddev = (0.8 * a + 0.2 * b for a, b in ((average_mean, mean), (average_stddev, stddev)))
        np.testing.assert_allclose(v["renorm_mean"], average_mean, rtol=1e-4)
        np.testing.assert_allclose(v["renorm_stddev"], average_stddev, rtol=1e-4)
        moving_mean = 0.9 * moving_mean + 0.1 * average_mean
        moving_stddev = 0.9 * moving_stddev + 0.1 * average_stddev
        np.testing.assert_allclose(v["moving_mean"], moving_mean, rtol=1e-4)
        np.testing.assert_allclose(v["moving_variance"], moving_stddev**2 - 0.001, rtol=1e-3)
    plain, _, _ = norm(x, store, is_training=False, renorm=True)
    np.testing.assert_allclose(plain, formula(x, v["moving_mean"], v["moving_variance"]), rtol=1e-3, atol=1e-3)


def test_adjustment_acts_on_the_normalized_values_in_training_only():
    x = values(8, 3, 3, 2)

    def adjustment(shape):
        return tf.fill(shape[-1:], 1.5), tf.fill(shape[-1:], 0.25)

    initializers = {"beta": layers.constant_initializer(2.0), "gamma": layers.constant_initializer(3.0)}
    options = {"scale": True, "adjustment": adjustment, "param_initializers": initializers}
    y, v, store = norm(x, decay=0.0, **options)
    expected = 3 * (1.5 * formula(x, *statistics(x, False)) + 0.25) + 2
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    y, _, _ = norm(x, store, is_training=False, **options)
    np.testing.assert_allclose(y, 3 * formula(x, v["moving_mean"], v["moving_variance"]) + 2, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())


@pytest.mark.parametrize("synchronized", [True, False])
def test_replicas_synchronized_are_one_big_batch(two_replicas, synchronized):
    x = values(8, 3, 3, 2) * np.arange(1, 9, dtype=np.float32)[:, None, None, None]

    def scoped(inputs, is_training=False):
        return layers.batch_norm(inputs, decay=0.0, is_training=is_training, synchronized=synchronized, scope="bn")

    with two_replicas.scope():
        model = scoping.Model(scoped, input_shape=(3, 3, 2))
    inputs = two_replicas.experimental_distribute_values_from_function(
        lambda context: tf.constant(x[4 * context.replica_id_in_sync_group :][:4])
    )

    @tf.function
    def step(values):
        def one(part):
            with tf.GradientTape() as tape:
                tape.watch(part)
                y = model(part, training=True)
                loss = tf.reduce_sum(y**3)
            return y, tape.gradient(loss, part)

        return two_replicas.run(one, (values,))

    y, gradient = (np.concatenate(two_replicas.experimental_local_results(v)) for v in step(inputs))
    big = tf.constant(x)
    with tf.GradientTape() as tape, scoping.variable_store() as store:
        tape.watch(big)
        z = layers.batch_norm(big, decay=0.0, scope="bn")
        loss = tf.reduce_sum(z**3)
    exact = tape.gradient(loss, big)
    mean, variance = (model.variable(f"bn/moving_{name}").numpy() for name in ("mean", "variance"))
    np.testing.assert_allclose(mean, store.variables["bn/moving_mean"], rtol=1e-5)  # the replicas' mean either way
    same = [np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in ((y, z), (gradient, exact))]
    same.append(np.allclose(variance, store.variables["bn/moving_variance"], rtol=1e-4))
    assert same == [synchronized] * 3


def test_statistics_are_not_partitioned_and_not_regularized():
    with tf.Graph().as_default():
        x = tf.constant(values(4, 3, 3, 6))
        scope = {"partitioner": v1.fixed_size_partitioner(2), "regularizer": layers.l2_regularizer(0.1)}
        with scoping.variable_scope("net", **scope):
            y = layers.batch_norm(x, scope="bn")
        names = [v.op.name for v in v1.global_variables()]
        assert names == [
            *("net/bn/beta/part_0", "net/bn/beta/part_1"),
            *("net/bn/moving_mean", "net/bn/moving_variance"),
        ]
        assert len(v1.get_collection("regularization_losses")) == 2  # of the two parts of beta
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run([y, v1.get_collection(v1.GraphKeys.UPDATE_OPS)])


def test_penalties_initializers_and_activation():
    x = values(4, 3, 3, 2)
    with tf.Graph().as_default():
        penalty = layers.l2_regularizer(0.5)
        layers.batch_norm(tf.constant(x), scale=True, param_regularizers={"gamma": penalty})
        assert len(v1.get_collection("regularization_losses")) == 1
    initializers = {
        "moving_mean": layers.constant_initializer(4.0),
        "moving_variance": layers.constant_initializer(9.0),
    }
    y, _, _ = norm(x, is_training=False, center=False, param_initializers=initializers, activation_fn=tf.nn.relu)
    np.testing.assert_allclose(y, np.maximum(formula(x, 4, 9), 0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3,), {}, "rank 2 or more"),
        ((2, 3, 3, 4), {"data_format": "NWHC"}, "data_format has to be either NCHW or NHWC"),
        ((2, 3, 3, 4), {"param_initializers": {"betta": None}}, "'betta'"),
        ((2, 3, 3, 4), {"param_regularizers": {"moving_mean": None}}, "beta, gamma, got 'moving_mean'"),
        ((2, 3, 3, 4), {"renorm": True, "renorm_clipping": {"max": 1}}, "rmin, rmax, dmax, got 'max'"),
        ((2, 3, 3, 4), {"renorm": True, "batch_weights": np.ones(2)}, "renorm does not take batch_weights"),
    ],
)
def test_bad_arguments(shape, options, message):
    with scoping.variable_store() as store, pytest.raises(ValueError, match=message):
        layers.batch_norm(tf.zeros(shape), **options)
    assert not store.variables


def test_unknown_rank_and_channels():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="undefined rank"):
            layers.batch_norm(v1.placeholder(tf.float32))
        with pytest.raises(ValueError, match="undefined"):
            layers.batch_norm(v1.placeholder(tf.float32, [5, None, 3, 3]), data_format="NCHW")


def test_tiny_epsilon_takes_the_composed_path():
    x = values(8, 3, 3, 2)
    y, v, _ = norm(x, epsilon=1e-8, decay=0.0)
    np.testing.assert_allclose(y, formula(x, *statistics(x, False), epsilon=1e-8), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(v["moving_variance"], statistics(x)[1], rtol=1e-4)
