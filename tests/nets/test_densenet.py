"""DenseNet: the published counts, and memory levels that agree wherever the network runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.bench.densenet import kept_bytes

SMALL = {"depth": 10, "growth_rate": 4, "num_classes": 3, "input_shape": (8, 8, 3), "seed": 1}
LEVELS = ("store", "recompute", "minimal")


def counts(name, options):
    """Trainable and total parameters from the shapes alone: nothing is initialised."""
    network = getattr(zoo, name).network
    with tf.Graph().as_default():
        size = 32 if name == "densenet_cifar" else 224
        network(tf.compat.v1.placeholder(tf.float32, [None, size, size, 3]), **options)
        trainable = sum(v.shape.num_elements() for v in tf.compat.v1.trainable_variables())
        total = sum(v.shape.num_elements() for v in tf.compat.v1.global_variables())
        names = [v.op.name for v in tf.compat.v1.global_variables()]
    return {"trainable": trainable, "total": total}, names


def published(name):
    spec = getattr(zoo, name).spec
    return [(name, {}, spec.published_params), *((name, dict(options), wanted) for options, wanted in spec.variants)]


BIG = ("densenet121", "densenet161", "densenet169", "densenet201", "densenet264")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "wanted"), [row for name in (*BIG, "densenet_cifar") for row in published(name)]
)
def test_published_counts(name, options, wanted):
    found, _ = counts(name, options)
    assert {key: found[key] for key in wanted} == dict(wanted)


@pytest.mark.parametrize("memory", LEVELS)
def test_every_kernel_is_decayed_once_at_every_memory_level(memory):
    model = zoo.create("densenet_cifar", **SMALL, memory=memory, weight_decay=0.5)
    kernels = [np.asarray(model.variable(name)) for name in model.variable_names if name.endswith("/weights")]
    assert len(model.losses) == len(kernels) == 10
    wanted = [0.25 * float(np.square(kernel).sum()) for kernel in kernels]  # 0.5 / 2 of the sum of squares
    assert sorted(map(float, model.losses)) == pytest.approx(sorted(wanted), rel=1e-5)
    assert not zoo.create("densenet_cifar", **SMALL, memory=memory, weight_decay=0.0).losses


def test_densenet121_has_the_slim_checkpoint_s_names():
    found, names = counts("densenet121", {})
    assert found == {"trainable": 7_978_856, "total": 8_062_504}
    assert len(names) == 606
    assert {
        "densenet121/conv1/weights",
        "densenet121/BatchNorm/gamma",
        "densenet121/dense_block1/conv_block1/x1/BatchNorm/moving_mean",
        "densenet121/dense_block4/conv_block16/x1/Conv/weights",
        "densenet121/dense_block4/conv_block16/x2/BatchNorm/beta",
        "densenet121/transition_block3/blk/Conv/weights",
        "densenet121/transition_block1/blk/BatchNorm/moving_variance",
        "densenet121/final_block/BatchNorm/gamma",
        "densenet121/logits/weights",
        "densenet121/logits/biases",
    } <= set(names)


def cifar(depth, k, bottleneck):
    return ("densenet_cifar", {"depth": depth, "growth_rate": k, "bottleneck": bottleneck}, 32)


QUICK = [(*cifar(40, 12, False), 0.265)]
SLOW = [
    (*cifar(100, 12, True), 0.288),
    *((*cifar(100, k, False), gmacs) for k, gmacs in ((12, 1.770), (24, 6.889))),
    *((*cifar(40, k, True), gmacs) for k, gmacs in ((36, 0.647), (48, 1.150), (60, 1.796))),
    *((*cifar(depth, k, True), gmacs) for depth, k, gmacs in ((250, 24, 5.419), (190, 40, 9.302))),
    *((name, {}, 224, getattr(zoo, name).spec.gmacs) for name in BIG),
    ("densenet264", {"growth_rate": 48}, 224, 12.851),
]


@pytest.mark.parametrize(
    ("name", "options", "size", "gmacs"), [*QUICK, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)]
)
def test_multiplications(name, options, size, gmacs):
    """In the paper's order (dropout keeps it) the multiplications are the published ones; pooled first, fewer."""

    def macs(dropout_rate):
        with tf.Graph().as_default() as graph:
            images = tf.compat.v1.placeholder(tf.float32, [1, size, size, 3])
            settings = {"dropout_rate": dropout_rate, "is_training": True, "memory": "store"}
            getattr(zoo, name).network(images, **options, **settings)
            products = [op for op in graph.get_operations() if op.type == "Conv2D"]
            return sum(op.outputs[0].shape.num_elements() * op.inputs[1].shape[:3].num_elements() for op in products)

    assert round(macs(0.2) / 1e9, 3) == gmacs
    assert macs(0.0) < macs(0.2)


def fit(memory, bottleneck=True, **options):
    keras.utils.set_random_seed(0)
    model = zoo.densenet_cifar(
        memory=memory,
        bottleneck=bottleneck,
        **{**SMALL, "depth": 10 if bottleneck else 7, "dropout_rate": 0.2, **options},
    )
    start = [np.array(v) for v in model.variables]
    random = np.random.default_rng(0)
    x, y = random.normal(size=(4, 8, 8, 3)).astype("float32"), np.array([0, 1, 2, 0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), loss, jit_compile=False)
    losses = model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
    return model, start, losses, model.predict(x, verbose=0)


@pytest.mark.parametrize("bottleneck", [pytest.param(True, marks=pytest.mark.slow), False])
def test_levels_agree_after_three_steps_of_fit(bottleneck):
    found = {memory: fit(memory, bottleneck) for memory in LEVELS}
    store, start, losses, predicted = found["store"]
    for memory in ("recompute", "minimal"):
        model, _, other_losses, other = found[memory]
        assert np.allclose(other_losses, losses, rtol=1e-5)
        assert np.allclose(other, predicted, atol=1e-4)
        for a, b in zip(model.variables, store.variables, strict=True):
            assert np.allclose(a, b, atol=1e-4), a.path
    moving = [(np.array(v), s) for v, s in zip(store.variables, start, strict=True) if "moving" in v.path]
    assert moving
    assert all(not np.array_equal(now, then) for now, then in moving)


@pytest.mark.parametrize("memory", LEVELS)
def test_moving_statistics_move_once_a_step(memory):
    model = zoo.densenet_cifar(memory=memory, batch_norm_decay=0.9, **SMALL)
    x = tf.random.stateless_normal([4, 8, 8, 3], [0, 1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True) ** 2)
    tape.gradient(loss, model.trainable_variables)
    conv1 = model.end_points(x)["conv1"].numpy()
    name = "dense_block1/conv_block1/x1/BatchNorm/moving_"
    assert np.allclose(model.variable(f"{name}mean"), 0.1 * conv1.mean((0, 1, 2)), atol=1e-5)
    unbiased = conv1.reshape(-1, conv1.shape[-1]).var(0, ddof=1)
    assert np.allclose(model.variable(f"{name}variance"), 0.9 + 0.1 * unbiased, rtol=1e-4)


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_frozen_batch_norm_keeps_its_statistics(memory):
    model = zoo.densenet_cifar(memory=memory, **SMALL)
    x = tf.random.stateless_normal([4, 8, 8, 3], [0, 1])
    model.freeze("dense_block*")
    model.freeze("transition_block*")
    model.freeze("final_block")
    before = [np.array(v) for v in model.variables]
    trained, inferred = model(x, training=True), model(x, training=False)
    assert np.allclose(trained, inferred, atol=1e-5)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.variables, strict=True))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x, training=True) ** 2)
    gradient = tape.gradient(loss, model.trainable_variables)
    assert gradient
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradient)


def test_inference_gradients_are_those_of_the_plain_network():
    x = tf.random.stateless_normal([2, 8, 8, 3], [0, 1])
    found = []
    for memory in ("store", "recompute"):
        model = zoo.densenet_cifar(memory=memory, **SMALL)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(model(x) ** 2)
        found.append(tape.gradient(loss, x).numpy())
    assert np.allclose(found[0], found[1], rtol=1e-4, atol=1e-5 * np.abs(found[0]).max())


def test_bad_options_say_what_to_do():
    with pytest.raises(ValueError, match=r"6n \+ 4 with a bottleneck; got 41. Take 40"):
        zoo.densenet_cifar(41)
    with pytest.raises(ValueError, match="compression"):
        zoo.densenet_cifar(compression=1.5, **SMALL)
    with pytest.raises(ValueError, match="growth_rate is a whole number from 1; got 0"):
        zoo.densenet_cifar(**{**SMALL, "growth_rate": 0})
    kind, numbers = r"takes block_config as whole numbers, as \(6, 12\)", "block_config holds the layers of each block"
    for wrong, message in (("abc", kind), ((2, 1.5), kind), ((2, 0), numbers), ((), numbers)):
        with pytest.raises(ValueError, match=message):
            zoo.densenet(block_config=wrong, growth_rate=4, input_shape=(32, 32, 3))
    with zoo.variable_store(), pytest.raises(ValueError, match=f"{numbers}.*got 'abc'"):  # without a builder's check
        zoo.densenet.network(tf.zeros([1, 32, 32, 3]), block_config="abc", growth_rate=4)
    with pytest.raises(ValueError, match="memory is one of"):
        zoo.densenet_cifar(memory="all", **SMALL)
    with pytest.raises(ValueError, match="Set in_channels"):
        zoo.densenet_cifar(**{**SMALL, "input_shape": (8, 8, 1)})


def test_bounds_are_the_published_ones():
    """The analysis of DenseNet-121 at 224 x 224 in MiB an image."""
    mib = {m: kept_bytes((6, 12, 24, 16), 32, memory=m) / 2**20 for m in LEVELS}
    assert {m: round(v, 1) for m, v in mib.items()} == {"store": 125.1, "recompute": 25.1, "minimal": 8.6}
    depths = (40, 100, 160, 250)
    grown = [kept_bytes([(d - 4) // 6] * 3, 12, memory="recompute", size=32, stem="cifar") for d in depths]
    assert np.max(np.abs(np.polyval(np.polyfit(depths, grown, 1), depths) - grown)) < 0.01 * max(grown)


@pytest.mark.skipif(not hasattr(keras, "RematScope"), reason="this Keras has no RematScope")
def test_remat_scope_does_not_run_in_a_graph():
    """Why not Keras' RematScope: it wraps each layer in a custom gradient, which takes no keywords in a graph."""

    def run(scope):
        with keras.RematScope(mode="full") if scope else tf.name_scope("none"):
            inputs = x = keras.Input((4, 4, 3))
            for _ in range(3):
                y = keras.layers.Conv2D(2, 1)(keras.layers.ReLU()(x))
                x = keras.layers.Concatenate()([x, y])
            model = keras.Model(inputs, x)
        return tf.function(lambda x: model(x), autograph=False)(tf.zeros([1, 4, 4, 3]))

    assert run(False).shape == (1, 4, 4, 9)
    with pytest.raises(ValueError, match="keywords arguments only when eager"):
        run(True)


def test_recompute_grad_updates_keras_batch_norm_twice():
    """Why not tf.recompute_grad around Keras' batch norm: computing it again moves the statistics again."""
    norm = keras.layers.BatchNormalization(momentum=0.5)
    norm.build([None, 3])
    x = tf.random.stateless_normal([8, 3], [0, 1]) + 1.0
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.recompute_grad(lambda x: norm(x, training=True))(x) ** 3)
    tape.gradient(loss, x)
    mean = x.numpy().mean(0)
    assert np.allclose(norm.moving_mean, 0.75 * mean, rtol=1e-5)  # 1 - 0.5^2; once would be 0.5
