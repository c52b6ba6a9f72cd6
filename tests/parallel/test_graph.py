"""`build_towers` in TF1 graphs: equal to one device, whatever optimizer; names, devices, slots, updates, mistakes."""

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.parallel import build_towers

V1 = tf.compat.v1
DEVICES = [f"CPU:{i}" for i in range(4)]
X = np.random.default_rng(0).normal(size=(7, 6))
WORDS = np.random.default_rng(2).integers(0, 5, (7, 3))
Y = np.random.default_rng(1).integers(0, 3, 7)
OPTIMIZERS = {
    "nesterov": lambda: V1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: V1.train.AdamOptimizer(0.01),
    "rmsprop": lambda: V1.train.RMSPropOptimizer(0.01, momentum=0.9),
}


def network(batch, norm=False, unused=False):
    x, words, y = batch
    with zoo.variable_scope("Net", dtype=tf.float64):
        table = zoo.get_variable("table", [5, 4], initializer=zoo.layers.random_uniform_initializer(-1, 1))
        net = tf.concat([x, tf.reduce_sum(tf.nn.embedding_lookup(table, words), 1)], 1)
        net = zoo.layers.fully_connected(
            net, 5, tf.tanh, weights_regularizer=zoo.layers.l2_regularizer(0.01), scope="hidden"
        )
        if norm:
            net = zoo.layers.batch_norm(net, decay=0.5, scope="norm")
        if unused:
            zoo.get_variable("unused", [2])
        logits = zoo.layers.fully_connected(net, 3, None, scope="logits")
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))


def run(count, make=OPTIMIZERS["adam"], steps=5, fed=True, build=build_towers, **options):
    """Values of all variables after some steps, and the losses."""
    norm, unused = options.pop("norm", False), options.pop("unused", False)
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(1)
        parts = [V1.placeholder(a.dtype, [None, *a.shape[1:]]) if fed else tf.constant(a) for a in (X, WORDS, Y)]
        step = build(lambda b: network(b, norm, unused), parts, DEVICES[:count], make(), **options)
        session.run(V1.global_variables_initializer())
        feed = dict(zip(parts, (X, WORDS, Y), strict=True)) if fed else {}
        losses = [session.run([step.loss, step.train_op], feed)[0] for _ in range(steps)]
        return {v.op.name: session.run(v) for v in V1.global_variables()}, losses, step


def plain(make, steps=5):
    """One device, without any of zoo.parallel."""
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(1)
        loss = network([tf.constant(a) for a in (X, WORDS, Y)])
        total = loss + tf.add_n(V1.losses.get_regularization_losses())
        op = make().minimize(total)
        session.run(V1.global_variables_initializer())
        losses = [(session.run(total), session.run(op))[0] for _ in range(steps)]
        return {v.op.name: session.run(v) for v in V1.global_variables()}, losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_towers_are_one_device(count, optimizer):
    values, losses = plain(OPTIMIZERS[optimizer])
    found, towers_losses, _ = run(count, OPTIMIZERS[optimizer], fed=count != 2)
    assert found.keys() == values.keys()
    np.testing.assert_allclose(towers_losses, losses, rtol=1e-12)
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_clipping_sees_the_average():
    one, _, _ = run(1, clip_norm=0.1)
    three, _, _ = run(3, clip_norm=0.1)
    free, _, _ = run(3)
    for name, value in one.items():
        np.testing.assert_allclose(three[name], value, rtol=1e-8, atol=1e-10, err_msg=name)
    assert any(not np.allclose(free[name], value) for name, value in one.items())


def test_gradients_sparse_stay_sparse_and_none_is_left_out():
    _, _, step = run(3, unused=True)
    by_name = {v.op.name: g for g, v in step.gradients}
    assert isinstance(by_name["Net/table"], tf.IndexedSlices)
    assert "Net/unused" not in by_name
    assert "Net/unused" in [v.op.name for v in step.variables]


def test_names_devices_and_slots():
    ema = tf.train.ExponentialMovingAverage(0.9)
    with tf.Graph().as_default() as graph:
        batch = [tf.constant(a) for a in (X, WORDS, Y)]
        counter = V1.train.get_or_create_global_step()
        step = build_towers(
            network, batch, DEVICES[1:3], V1.train.AdamOptimizer(0.1), averages=ema, global_step=counter
        )
        names = [v.op.name for v in V1.trainable_variables()]
        assert names == [
            f"Net/{v}" for v in ("table", "hidden/weights", "hidden/biases", "logits/weights", "logits/biases")
        ]
        everything = [v.op.name for v in V1.global_variables()]
        assert {f"{n}/Adam" for n in names} | {f"{n}/ExponentialMovingAverage" for n in names} <= set(everything)
        assert len(V1.losses.get_regularization_losses()) == 1
        for variable in V1.trainable_variables():
            assert variable.device.endswith("CPU:0")
        for index in range(2):
            work = graph.get_operation_by_name(f"tower_{index}/Net/hidden/MatMul")
            assert work.device.endswith(f"CPU:{index + 1}")
            backward = [
                op for op in graph.get_operations() if op.type == "MatMul" and f"tower_{index}/gradients" in op.name
            ]
            assert backward
            assert all(op.device.endswith(f"CPU:{index + 1}") for op in backward)
        assert "Net/hidden/weights  10 x 5  CPU:0" in step.placement().replace("   ", "  ")


def test_variables_go_to_the_first_device_or_round_the_parameter_servers():
    def devices(where):
        with tf.Graph().as_default():
            step = build_towers(
                network, [tf.constant(a) for a in (X, WORDS, Y)], DEVICES[:2], V1.train.AdamOptimizer(), variables=where
            )
            return [v.device for v in step.variables]

    assert all(d.endswith("CPU:0") for d in devices("first"))
    assert devices(["/job:ps/task:0", "/job:ps/task:1"]) == [f"/job:ps/task:{i % 2}" for i in range(5)]
    setter = V1.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker")
    assert devices(setter) == [f"/job:ps/task:{i % 2}" for i in range(5)]


@pytest.mark.parametrize("policy", ["first", "mean", "sync"])
def test_batch_norm_by_policy(policy):
    found, losses, _ = run(2, norm=True, steps=1, batch_norm=policy, fed=False)
    whole, whole_losses, _ = run(1, norm=True, steps=1, fed=False)
    mean = {"first": 4, "sync": 7, "mean": 7}[policy]
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(1)
        network([tf.constant(a) for a in (X, WORDS, Y)], norm=True)
        session.run(V1.global_variables_initializer())
        hidden = session.run("Net/hidden/Tanh:0")
    np.testing.assert_allclose(found["Net/norm/moving_mean"], hidden[:mean].mean(0) / 2, rtol=1e-10)
    if policy == "sync":
        np.testing.assert_allclose(losses, whole_losses, rtol=1e-12)
        for name, value in whole.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)
    else:
        assert abs(losses[0] - whole_losses[0]) > 1e-6


def test_updates_of_foreign_layers_are_those_of_the_first_tower():
    def tower(batch):
        x, _, y = batch
        mean = V1.get_variable("mean", [6], tf.float64, V1.zeros_initializer(), trainable=False)
        V1.add_to_collection(V1.GraphKeys.UPDATE_OPS, mean.assign_sub((mean - tf.reduce_mean(x, 0)) * 0.5))
        weights = V1.get_variable("w", [6, 3], tf.float64)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(x, weights)))

    with tf.Graph().as_default(), V1.Session() as session:
        step = build_towers(tower, [tf.constant(a) for a in (X, WORDS, Y)], DEVICES[:2], V1.train.AdamOptimizer())
        assert len(V1.get_collection(V1.GraphKeys.UPDATE_OPS)) == 1
        session.run(V1.global_variables_initializer())
        session.run(step.train_op)
        found = session.run({v.op.name: v for v in V1.global_variables()})["mean"]
    np.testing.assert_allclose(found, X[:4].mean(0) / 2)


def test_default_names_are_shared_and_counted_on():
    def tower(batch):
        net = zoo.layers.fully_connected(batch[0], 4)
        return tf.reduce_mean(tf.square(zoo.layers.fully_connected(net, 1)))

    with tf.Graph().as_default():
        zoo.layers.fully_connected(tf.constant(X), 2)
        build_towers(tower, [tf.constant(X)], DEVICES[:3], V1.train.GradientDescentOptimizer(0.1))
        zoo.layers.fully_connected(tf.constant(X), 2)
        names = [v.op.name for v in V1.trainable_variables() if v.op.name.endswith("weights")]
    assert names == [f"fully_connected{n}/weights" for n in ("", "_1", "_2", "_3")]


def test_asynchronous_towers_apply_their_own():
    with tf.Graph().as_default(), V1.Session() as session:
        step = build_towers(
            network,
            [tf.constant(a) for a in (X, WORDS, Y)],
            DEVICES[:2],
            V1.train.GradientDescentOptimizer(0.1),
            synchronous=False,
        )
        assert len(step.tower_ops) == 2
        session.run(V1.global_variables_initializer())
        weights = next(v for v in step.variables if "hidden/weights" in v.op.name)
        values = [session.run(weights)]
        for op in step.tower_ops:
            session.run(op)
            values.append(session.run(weights))
        first, second = values[1] - values[0], values[2] - values[1]
        assert np.abs(first).max() > 0
        assert np.abs(second).max() > 0
        assert not np.allclose(first, second)


def test_mistakes():
    batch = [tf.constant(a) for a in (X, WORDS, Y)]
    with tf.Graph().as_default():
        batch = [tf.constant(a) for a in (X, WORDS, Y)]
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        for devices, message in (
            (["CPU:0", "CPU:9"], "no device 'CPU:9'; there are CPU:0, CPU:1"),
            (["CPU:0", "cpu:0"], "named twice"),
            (["the first"], "a device is named as GPU:0"),
            ([], "at least one device"),
        ):
            with pytest.raises(ValueError, match=message):
                build_towers(network, batch, devices, optimizer)
        with pytest.raises(ValueError, match="batch of 2 cannot be split over 3 towers"):
            build_towers(network, [part[:2] for part in batch], DEVICES[:3], optimizer)
        with pytest.raises(ValueError, match="batch_norm is one of first, mean, sync"):
            build_towers(network, batch, DEVICES[:2], optimizer, batch_norm="all")
        with pytest.raises(ValueError, match="needs synchronous=True"):
            build_towers(network, batch, DEVICES[:2], optimizer, batch_norm="sync", synchronous=False)

        for wrong in (lambda part: None, lambda part: part[0], lambda part: tf.reduce_sum(part[1]), lambda part: ()):
            with pytest.raises(ValueError, match="tower_fn returns the mean loss, a float scalar"):
                build_towers(wrong, batch, DEVICES[:2], optimizer)

        def broken(part):
            raise KeyError("tower's own mistake")

        with pytest.raises(KeyError, match="tower's own mistake"):
            build_towers(broken, batch, DEVICES[:2], optimizer)
    with pytest.raises(ValueError, match="say what is trained"):
        build_towers(network, batch, DEVICES[:2], optimizer)
