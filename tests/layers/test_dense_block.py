"""The dense block: its three memory levels against plain TensorFlow and against each other."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import scoping
from zoo.layers import shared_norm
from zoo.layers.dense_block import dense_block, norm_pool
from zoo.layers.dense_passes import Block, Layer, Maps, Pooled, dense_layer, run_block, run_pooled

LEVELS = ("store", "recompute", "minimal")
EPSILON = 1e-5
CHANNELS, LAYERS, GROWTH = 6, 4, 4

PLACES = {
    "eager": lambda function: function,
    "function": lambda function: tf.function(function, autograph=False),
    "xla": lambda function: tf.function(function, autograph=False, jit_compile=True),
}


def make_layers(dtype, bottleneck=True):
    rng = np.random.default_rng(0)

    def kernel(*shape):
        return tf.constant(rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[:-1])), dtype)

    def vector(channels, mean):
        return tf.constant(rng.normal(mean, 0.3, channels), dtype)

    layers = []
    for index in range(LAYERS):
        seen, width = CHANNELS + index * GROWTH, 4 * GROWTH
        if bottleneck:
            second = vector(width, 1), vector(width, 0), kernel(3, 3, width, GROWTH)
            layers.append(Layer(vector(seen, 1), vector(seen, 0), kernel(1, 1, seen, width), *second))
        else:
            layers.append(Layer(vector(seen, 1), vector(seen, 0), kernel(3, 3, seen, GROWTH)))
    return layers


def plain_block(x, layers, given=None):
    """The textbook's block: concatenation, TensorFlow's own moments and batch norm."""

    def activate(x, gamma, beta, which):
        mean, variance = (given or {}).get(which) or tf.nn.moments(x, [0, 1, 2])
        return tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON))

    for index, layer in enumerate(layers):
        y = tf.nn.conv2d(activate(x, layer.gamma, layer.beta, (index, 1)), layer.kernel, 1, "SAME")
        if layer.kernel2 is not None:
            y = tf.nn.conv2d(activate(y, layer.gamma2, layer.beta2, (index, 2)), layer.kernel2, 1, "SAME")
        x = tf.concat([x, y], -1)
    return x


@pytest.mark.parametrize("bottleneck", [True, False])
def test_the_dense_layer_of_the_source_is_the_paper_s(bottleneck):
    layer, x = make_layers(tf.float64, bottleneck)[0], example(tf.float64)[0]
    block = Block([layer], GROWTH, 1, epsilon=EPSILON)
    norms = [(layer.gamma, layer.beta, tf.nn.moments(x, [0, 1, 2]))]
    y, z, moments = dense_layer(block, 0, [x], norms)
    assert worst([y], [plain_block(x, [layer])[..., CHANNELS:]]) < 1e-12
    assert (z is None) == (moments is None) == (not bottleneck)
    if bottleneck:
        assert worst(moments, tf.nn.moments(z, [0, 1, 2])) < 1e-12
    split = [x[..., :2], x[..., 2:]]  # in pieces it is the same
    vectors = zip(*(tf.split(v, [2, CHANNELS - 2]) for v in (*norms[0][:2], *norms[0][2])), strict=True)
    again, _, _ = dense_layer(block, 0, split, [(gamma, beta, (m, v)) for gamma, beta, m, v in vectors])
    assert worst([again], [y]) < 1e-12


def block_of(memory, group, given=None, **options):
    def apply(x, layers):
        block = Block(layers, GROWTH, group, epsilon=EPSILON, given=given or {}, **options)
        return tf.concat(run_block(block, x, memory).maps.pieces, -1)

    return apply


def value_and_gradients(block, x, layers, towards):
    tensors = [x, *(w for layer in layers for w in layer if w is not None)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = block(x, layers)
        loss = tf.reduce_sum(y * towards)
    return y, tape.gradient(loss, tensors)


def example(dtype):
    rng = np.random.default_rng(1)
    x = tf.constant(rng.normal(1, 2, [3, 5, 6, CHANNELS]), dtype)
    return x, tf.constant(rng.normal(0, 1, [3, 5, 6, CHANNELS + LAYERS * GROWTH]), dtype)


def worst(found, wanted):
    return max(
        float(np.max(np.abs(np.float64(a) - np.float64(b))) / np.max(np.abs(np.float64(b))))
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("bottleneck", [True, False])
@pytest.mark.parametrize("memory", LEVELS)
def test_gradients_are_exact_in_float64(memory, bottleneck):
    layers, (x, towards) = make_layers(tf.float64, bottleneck), example(tf.float64)
    wanted = value_and_gradients(plain_block, x, layers, towards)
    for place in ("eager", "function"):
        for group in (2, 9):
            run = PLACES[place](lambda x, group=group: value_and_gradients(block_of(memory, group), x, layers, towards))
            y, gradients = run(x)
            assert all(g is not None for g in gradients)
            assert worst([y], [wanted[0]]) < 1e-12
            assert worst(gradients, wanted[1]) < 1e-8


@pytest.mark.parametrize("place", PLACES)
def test_gradients_agree_in_float32(place):
    layers, (x, towards) = make_layers(tf.float32), example(tf.float32)
    y, wanted = value_and_gradients(plain_block, x, layers, towards)
    found = {
        memory: PLACES[place](lambda x, m=memory: value_and_gradients(block_of(m, 3), x, layers, towards))(x)
        for memory in LEVELS
    }
    for memory in LEVELS:
        assert worst([found[memory][0]], [y]) < 1e-5
        assert worst(found[memory][1], wanted) < 1e-5
    if place != "xla":  # XLA fuses the levels' forward passes in its own ways
        assert np.array_equal(found["store"][0], found["recompute"][0])
        assert np.array_equal(found["store"][0], found["minimal"][0])


def test_bfloat16_stays_near_float32():
    layers, (x, towards) = make_layers(tf.float32), example(tf.float32)
    _, wanted = value_and_gradients(plain_block, x, layers, towards)
    half = tf.cast(x, tf.bfloat16), layers, tf.cast(towards, tf.bfloat16)
    y, store = value_and_gradients(block_of("store", 3), *half)
    z, recompute = value_and_gradients(block_of("recompute", 3), *half)
    assert y.dtype == tf.bfloat16
    assert np.array_equal(tf.cast(y, tf.float32), tf.cast(z, tf.float32))
    assert recompute[1].dtype == tf.float32  # the weights' gradients
    assert worst([tf.cast(g, tf.float32) for g in recompute], [tf.cast(g, tf.float32) for g in store]) < 0.05

    # single values differ where a ReLU flips, so against float32 compare the whole gradient
    def apart(found):
        return sum(float(tf.reduce_sum((tf.cast(a, tf.float32) - b) ** 2)) for a, b in zip(found, wanted, strict=True))

    assert apart(recompute) < 1.05 * apart(store)  # no farther than what stores everything
    assert apart(recompute) < 0.15**2 * sum(float(tf.reduce_sum(b**2)) for b in wanted)


@pytest.mark.parametrize("memory", ["recompute", "minimal"])
def test_dropout_draws_the_same_mask_again(memory):
    layers, (x, towards) = make_layers(tf.float64), example(tf.float64)
    options = {"dropout_rate": 0.4, "seed": tf.constant([3, 4])}
    y, wanted = value_and_gradients(block_of("store", 2, **options), x, layers, towards)
    z, found = value_and_gradients(block_of(memory, 2, **options), x, layers, towards)
    assert np.array_equal(y, z)
    assert worst(found, wanted) < 1e-8
    other = block_of(memory, 2, dropout_rate=0.4, seed=tf.constant([3, 5]))(x, layers)
    assert not np.array_equal(z, other)
    dropped = z[..., CHANNELS:].numpy() == 0
    assert 0.3 < dropped.mean() < 0.5


@pytest.mark.parametrize("memory", LEVELS)
def test_given_statistics_replace_the_batch_s(memory):
    layers, (x, towards) = make_layers(tf.float64), example(tf.float64)
    rng = np.random.default_rng(2)
    given = {}
    for which in ((1, 1), (2, 2)):  # one first and one second norm are frozen, the others are not
        size = layers[which[0]][0 if which[1] == 1 else 3].shape[0]
        given[which] = tf.constant(rng.normal(0, 1, size)), tf.constant(rng.uniform(0.5, 2, size))
    wanted = value_and_gradients(lambda x, own: plain_block(x, own, given), x, layers, towards)
    y, found = value_and_gradients(block_of(memory, 2, given), x, layers, towards)
    assert worst([y], [wanted[0]]) < 1e-12
    assert worst(found, wanted[1]) < 1e-8


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize(("pool", "rate"), [("AVG", 0.0), ("AVG", 0.3), ("MAX", 0.0)])
def test_pooling_between_blocks_is_exact(pool, rate, memory):
    rng = np.random.default_rng(0)
    pieces = [tf.constant(rng.normal(1, 2, [2, 6, 7, c])) for c in ((3, 5) if pool == "AVG" else (8,))]
    gamma, beta = tf.constant(rng.normal(1, 0.3, 8)), tf.constant(rng.normal(0, 0.3, 8))
    kernel = tf.constant(rng.normal(0, 1, [1, 1, 8, 4])) if pool == "AVG" else None
    seed = tf.constant([1, 2])

    def ours(gamma, beta, *pieces):
        maps = Maps(pieces, tuple(shared_norm.differentiable_moments(x) for x in pieces))
        return run_pooled(
            Pooled(gamma, beta, kernel, pool, "VALID", epsilon=EPSILON, dropout_rate=rate, seed=seed), maps, memory
        )

    def plain(gamma, beta, *pieces):
        x = tf.concat(pieces, -1)
        a = tf.nn.relu(tf.nn.batch_normalization(x, *tf.nn.moments(x, [0, 1, 2]), beta, gamma, EPSILON))
        if pool == "MAX":
            return tf.nn.max_pool2d(a, 3, 2, "VALID")
        y = tf.nn.conv2d(a, kernel, 1, "SAME")  # the paper's order: convolution, dropout, pooling
        if rate:
            kept = tf.random.stateless_uniform(tf.shape(y), seed, alg="philox") >= rate
            y = tf.where(kept, y / (1 - rate), 0)
        return tf.nn.avg_pool2d(y, 2, 2, "VALID")

    def run(function):
        tensors = [gamma, beta, *pieces]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
            loss = tf.reduce_sum(tf.sin(y))
        return y, tape.gradient(loss, tensors)

    (y, found), (z, wanted) = run(ours), run(plain)
    assert worst([y], [z]) < 1e-8
    assert worst(found, wanted) < 1e-7


def test_statistics_do_not_cancel():
    rng = np.random.default_rng(0)
    x = (rng.normal(0, 1, [4, 8, 8, 3]) + 1000).astype("float32")
    _, variance = shared_norm.moments(tf.constant(x))
    assert np.allclose(variance, x.astype("float64").var((0, 1, 2)), rtol=1e-4)
    naive = np.mean(x * x, (0, 1, 2), dtype="float32") - np.mean(x, (0, 1, 2), dtype="float32") ** 2
    assert not np.allclose(naive, x.astype("float64").var((0, 1, 2)), rtol=1e-4)


def test_recompute_is_ordered_and_not_merged():
    """What the backward pass computes again waits for its turn, so nothing big is shared with the forward pass."""
    layers, (x, towards) = make_layers(tf.float32), example(tf.float32)

    def step(x):
        return value_and_gradients(block_of("recompute", 9), x, layers, towards)

    graph = tf.function(step, autograph=False).get_concrete_function(x).graph
    norms = [op for op in graph.get_operations() if op.type == "FusedBatchNormV3" and not op.get_attr("is_training")]
    keys = [tuple(tensor.name for tensor in op.inputs) for op in norms]
    assert len(set(keys)) == len(keys)
    sums = [op for op in graph.get_operations() if op.type == "AddV2" and op.outputs[0].shape == x.shape]
    assert any(op.control_inputs for op in sums)


def test_options_are_checked():
    with scoping.variable_store():
        x = tf.zeros([1, 4, 4, 3])
        with pytest.raises(ValueError, match="memory is one of store, recompute, minimal; got 'none'"):
            dense_block(x, 1, 4, memory="none")
        with pytest.raises(ValueError, match="dropout_rate"):
            dense_block(x, 1, 4, dropout_rate=1.0)
        with pytest.raises(ValueError, match="growth_rate"):
            dense_block(x, 1, 0)
        with pytest.raises(ValueError, match="pool"):
            norm_pool(x, 4, pool="MAX")
