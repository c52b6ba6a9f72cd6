"""Every function with a gradient of its own x every way to differentiate it: equal to plain operations.

Float64 is compared with plain operations in float64 to 1e-8, float32 with the same to 1e-4, and bfloat16 by the length
of the difference. What cannot be had is in ``REFUSED``. cuDNN's recurrent layers run on a GPU only, and are not here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tensorflow as tf
from parallel.nets import CASES as NETS
from parallel.nets import CPUS, IDS

import zoo
from zoo import layers, rnn
from zoo.layers.dense_block import MEMORY_LEVELS
from zoo.layers.dense_passes import Block, Layer, Maps, Pooled, run_block, run_pooled
from zoo.layers.shared_norm import differentiable_moments, differentiable_normalise
from zoo.nets.inception_blocks import average_3x3
from zoo.parallel import Towers
from zoo.parallel.builders import CallingTowers
from zoo.rnn import fused
from zoo.rnn.vocabulary import softmax_cross_entropy
from zoo.training import losses

Tensors = Sequence[tf.Tensor]
EPSILON = 1e-3
LENGTHS = [3, 1]


@dataclass(frozen=True)
class Case:
    """A function of zoo, the same in plain operations, and the shapes of what both take.

    ``wide`` numbers the tensors that stay float32 when the others are bfloat16; ``half`` says whether bfloat16 applies.
    """

    name: str
    ours: Callable[..., tf.Tensor]
    plain: Callable[..., tf.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    wide: tuple[int, ...] = ()
    half: bool = True


# Dense blocks and what stands between them

BLOCK = (
    (2, 3, 4, 3),
    *((3,), (3,), (1, 1, 3, 4), (4,), (4,), (3, 3, 4, 2)),
    *((5,), (5,), (1, 1, 5, 4), (4,), (4,), (3, 3, 4, 2)),
)


def plain_norm(x, gamma, beta, given=None):
    axes = list(range(x.shape.rank - 1))
    if given is None:  # not tf.nn.moments, whose second derivative leaves out the mean's part in the variance
        mean = tf.reduce_mean(x, axes)
        given = mean, tf.reduce_mean((x - mean) ** 2, axes)
    mean, variance = given
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON)


def block(x, *weights, memory):
    own = [Layer(*weights[i : i + 6]) for i in range(0, len(weights), 6)]
    forward = run_block(Block(own, growth_rate=2, group=1, epsilon=EPSILON), x, memory)
    return tf.concat(forward.maps.pieces, -1)


def plain_block(x, *weights):
    for i in range(0, len(weights), 6):
        y = x
        for gamma, beta, kernel in (weights[i : i + 3], weights[i + 3 : i + 6]):
            y = tf.nn.conv2d(tf.nn.relu(plain_norm(y, gamma, beta)), tf.cast(kernel, y.dtype), 1, "SAME")
        x = tf.concat([x, y], -1)
    return x


def pooled(gamma, beta, *others, memory, pool="AVG"):
    kernel, pieces = others[:-2], others[-2:]
    if pool == "MAX":
        kernel, pieces = (), others
    maps = Maps(tuple(pieces), tuple(differentiable_moments(x) for x in pieces))
    return run_pooled(Pooled(gamma, beta, kernel[0] if kernel else None, pool, "VALID", epsilon=EPSILON), maps, memory)


def plain_pooled(gamma, beta, *others, pool="AVG"):
    if pool == "MAX":
        return tf.nn.max_pool2d(tf.nn.relu(plain_norm(others[0], gamma, beta)), 3, 2, "VALID")
    kernel, *pieces = others
    a = tf.nn.relu(plain_norm(tf.concat(pieces, -1), gamma, beta))
    return tf.nn.avg_pool2d(tf.nn.conv2d(a, tf.cast(kernel, a.dtype), 1, "SAME"), 2, 2, "VALID")


# Layers with variables, which are given as tensors here


@cache
def store(part: int) -> zoo.variable_store:
    """Made once for each tower, since a function may not make its seed at each call."""
    with tf.init_scope():
        return zoo.variable_store()


@cache
def statistic(name: str, channels: int, dtype: tf.DType) -> tf.Variable:
    """A moving statistic, which is made once, outside of any function."""
    with tf.init_scope():
        return tf.Variable(tf.fill([channels], tf.cast(name == "moving_variance", dtype)), trainable=False)


def with_weights(function, **weights):
    """Runs a scoped function that finds these tensors by the names of its variables."""

    def getter(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        known = [tensor for key, tensor in weights.items() if name.endswith(key.replace("__", "/"))]
        if known or zoo.scoping.in_graph():
            return known[0] if known else getter(name, *args, **kwargs)
        return statistic(name.rpartition("/")[2], int(kwargs["shape"][0]), kwargs["dtype"])

    if zoo.scoping.in_graph():
        with zoo.variable_scope("net", custom_getter=getter):
            return function()
    part = getattr(zoo.scoping.replicas(), "index", 0)
    with store(part), zoo.variable_scope("net", custom_getter=getter):
        return function()


def norm(x, gamma, beta, **options):
    made = partial(layers.batch_norm, x, scale=True, epsilon=EPSILON, **options)
    return with_weights(made, gamma=gamma, beta=beta)


def frozen_norm_of_ours(x, gamma, beta):
    size = x.shape[-1]
    fixed = {"moving_mean": tf.zeros([size], gamma.dtype), "moving_variance": tf.ones([size], gamma.dtype)}
    made = partial(layers.batch_norm, x, scale=True, epsilon=EPSILON, is_training=False)
    return with_weights(made, gamma=gamma, beta=beta, **fixed)


def frozen_norm(x, gamma, beta):
    return plain_norm(x, gamma, beta, (tf.zeros_like(gamma), tf.ones_like(gamma)))


def weighted_norm(x, gamma, beta):
    return norm(x, gamma, beta, batch_weights=tf.constant([1.0, 3.0], x.dtype))


def plain_weighted_norm(x, gamma, beta):
    shares = tf.constant([0.25, 0.75], x.dtype)[:, None, None, None] / (x.shape[1] * x.shape[2])
    mean = tf.reduce_sum(x * shares, [0, 1, 2])
    return plain_norm(x, gamma, beta, (mean, tf.reduce_sum((x - mean) ** 2 * shares, [0, 1, 2])))


def layer_norm(x, gamma, beta):
    return with_weights(partial(layers.layer_norm, x), gamma=gamma, beta=beta)


def plain_layer_norm(x, gamma, beta):
    centred = x - tf.reduce_mean(x, [1, 2], keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, [1, 2], keepdims=True) + 1e-12) * gamma + beta


def group_norm(x, gamma, beta):
    return with_weights(partial(layers.group_norm, x, groups=2), gamma=gamma, beta=beta)


def plain_group_norm(x, gamma, beta):
    parts = tf.reshape(x, [2, 2, 3, 2, 2])
    centred = parts - tf.reduce_mean(parts, [1, 2, 4], keepdims=True)
    normed = centred * tf.math.rsqrt(tf.reduce_mean(centred**2, [1, 2, 4], keepdims=True) + 1e-6)
    return tf.reshape(normed, x.shape) * gamma + beta


def marked(x, kernel, gamma, beta, second, third):
    """A batch norm and ReLU, computed again for a convolution of it and for one of its averages."""

    def function():
        params = {"recompute": True, "scale": True, "epsilon": EPSILON}
        with zoo.arg_scope([layers.conv2d], normalizer_fn=None, activation_fn=None, biases_initializer=None):
            net = layers.conv2d(
                *(x, 3, 3),
                activation_fn=tf.nn.relu,
                normalizer_fn=layers.batch_norm,
                normalizer_params=params,
                scope="a",
            )
            averages = average_3x3(net, recompute=True)
            return layers.conv2d(net, 2, 3, scope="b") + layers.conv2d(averages, 2, 1, scope="c")

    return with_weights(function, a__weights=kernel, gamma=gamma, beta=beta, b__weights=second, c__weights=third)


def plain_marked(x, kernel, gamma, beta, second, third):
    net = tf.nn.relu(plain_norm(tf.nn.conv2d(x, kernel, 1, "SAME"), gamma, beta))
    averages = tf.nn.avg_pool2d(net, 3, 1, "SAME")
    return tf.nn.conv2d(net, second, 1, "SAME") + tf.nn.conv2d(averages, third, 1, "SAME")


# Recurrent layers, losses, embeddings


def lstm(inputs, kernel, bias, c, h, masked=False, loop=False):
    mask = tf.sequence_mask(LENGTHS, 3)
    mask = tf.transpose(mask)[:, :, None] if masked else None
    with patch.object(fused, "UNROLL_LIMIT", 0 if loop else 64):  # in a graph
        outputs, c, h = fused.lstm(inputs, kernel, bias, c, h, 1.0, mask)
    return tf.concat([outputs, c[None], 2 * h[None]], 0)


def plain_lstm(inputs, kernel, bias, c, h, masked=False, loop=False):
    outputs = []
    for t in range(3):
        inside = tf.constant([[t < n] for n in LENGTHS]) if masked else tf.constant([[True], [True]])
        i, j, f, o = tf.split(tf.matmul(tf.concat([inputs[t], h], 1), kernel) + bias, 4, 1)
        new_c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        outputs.append(tf.where(inside, new_h, tf.zeros_like(new_h)))
        c, h = tf.where(inside, new_c, c), tf.where(inside, new_h, h)
    return tf.stack([*outputs, c, 2 * h])


def gru(inputs, gates, gates_bias, candidate, candidate_bias):
    def function():
        return rnn.dynamic_rnn(rnn.GRUCell(3), inputs, dtype=inputs.dtype)[0]

    names = {"gates__kernel": gates, "gates__bias": gates_bias}
    return with_weights(function, **names, candidate__kernel=candidate, candidate__bias=candidate_bias)


def plain_gru(inputs, gates, gates_bias, candidate, candidate_bias):
    h, outputs = tf.zeros([2, 3], inputs.dtype), []
    for t in range(3):
        r, u = tf.split(tf.sigmoid(tf.matmul(tf.concat([inputs[:, t], h], 1), gates) + gates_bias), 2, 1)
        new = tf.tanh(tf.matmul(tf.concat([inputs[:, t], r * h], 1), candidate) + candidate_bias)
        h = u * h + (1 - u) * new
        outputs.append(h)
    return tf.stack(outputs, 1)


LABELS = [1, 0, 3]


def plain_cross_entropy(logits):
    return tf.reduce_logsumexp(logits, -1) - tf.gather(logits, tf.constant(LABELS), batch_dims=1)


def embedding(table):
    return with_weights(lambda: rnn.embedding([[1, 0, 3], [1, 1, 2]], 4, 3, name="table"), table=table)


LSTM = ((3, 2, 2), (5, 12), (12,), (2, 3), (2, 3))
NORM = ((2, 3, 4, 3), (3,), (3,))
POOL = ((5,), (5,), (1, 1, 5, 2), (2, 4, 4, 3), (2, 4, 4, 2))
MARKED = ((2, 4, 4, 2), (3, 3, 2, 3), (3,), (3,), (3, 3, 3, 2), (1, 1, 3, 2))
CASES = [
    *(
        Case(f"dense_block_{m}", partial(block, memory=m), plain_block, BLOCK, tuple(range(1, 13)))
        for m in MEMORY_LEVELS
    ),
    *(Case(f"norm_pool_{m}", partial(pooled, memory=m), plain_pooled, POOL, (0, 1, 2)) for m in ("store", "recompute")),
    Case(
        "norm_max_pool",
        partial(pooled, memory="recompute", pool="MAX"),
        partial(plain_pooled, pool="MAX"),
        POOL[:2] + ((2, 4, 4, 5), (2, 4, 4, 5))[:1],
        (0, 1),
    ),
    Case("batch_norm", norm, plain_norm, NORM, (1, 2)),
    Case("batch_norm_frozen", frozen_norm_of_ours, frozen_norm, NORM, (1, 2)),
    Case("batch_norm_composed", partial(norm, fused=False), plain_norm, NORM, (1, 2)),
    Case("batch_norm_weighted", weighted_norm, plain_weighted_norm, NORM, (1, 2)),
    Case("layer_norm", layer_norm, plain_layer_norm, ((2, 3, 4), (4,), (4,)), (1, 2)),
    Case("group_norm", group_norm, plain_group_norm, ((2, 2, 3, 4), (4,), (4,)), (1, 2)),
    Case("recomputed", marked, plain_marked, MARKED, (2, 3)),
    Case("lstm", lstm, plain_lstm, LSTM),
    Case("lstm_masked", partial(lstm, masked=True), partial(plain_lstm, masked=True), LSTM),
    Case("lstm_loop", partial(lstm, loop=True), plain_lstm, LSTM),
    Case("lstm_loop_masked", partial(lstm, masked=True, loop=True), partial(plain_lstm, masked=True), LSTM),
    Case("gru", gru, plain_gru, ((2, 3, 2), (5, 6), (6,), (5, 3), (3,))),
    Case("word_losses", lambda x: softmax_cross_entropy(tf.constant(LABELS), x), plain_cross_entropy, ((3, 4),)),
    Case("losses", lambda x: losses.softmax_cross_entropy(tf.constant(LABELS), x), plain_cross_entropy, ((3, 4),)),
    Case("embedding", embedding, lambda table: tf.gather(table, [[1, 0, 3], [1, 1, 2]]), ((4, 3),), half=False),
]


# Ways to differentiate: each takes a function and its tensors and returns arrays


def loss(function: Callable[..., tf.Tensor], tensors: Tensors) -> tf.Tensor:
    y = function(*tensors)
    return tf.reduce_sum(tf.sin(y + tf.reshape(tf.cast(tf.range(tf.size(y)), y.dtype), tf.shape(y))))


def directions(tensors: Tensors) -> list[tf.Tensor]:
    return [tf.reshape(tf.cast(tf.cos(tf.range(tf.size(t), dtype=tf.float32)), t.dtype), t.shape) for t in tensors]


def dense(gradients: Sequence[Any]) -> list[tf.Tensor]:
    """The gradients, of which an embedding's is sparse."""
    return [tf.convert_to_tensor(g) for g in gradients]


def gradient(function, tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = loss(function, tensors)
    return [value, *dense(tape.gradient(value, tensors))]


def first(function, tensors):
    return gradient(function, tensors)


def total(found, factors):
    return tf.add_n([tf.reduce_sum(tf.cast(a * b, tf.float64)) for a, b in zip(found, factors, strict=True)])


def second(function, tensors, factors=None):
    with tf.GradientTape() as outer:
        outer.watch(tensors)
        found = gradient(function, tensors)[1:]
        value = total(found, factors or found)
    return dense(outer.gradient(value, tensors))


def penalty(function, tensors):
    return second(function, tensors)


def hessian_product(function, tensors):
    return second(function, tensors, directions(tensors))


def jacobian(function, tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = tf.reshape(function(*tensors), [-1])[-4:]
    return dense(tape.jacobian(y, tensors))


def forward(function, tensors):
    with tf.autodiff.ForwardAccumulator(list(tensors), directions(tensors)) as accumulator:
        value = loss(function, tensors)
    return [accumulator.jvp(value)]


def forward_over_reverse(function, tensors):
    with tf.autodiff.ForwardAccumulator(list(tensors), directions(tensors)) as accumulator:
        found = gradient(function, tensors)[1:]
    return dense([accumulator.jvp(g) for g in found])


def forward_in_function(function, tensors):
    return tf.function(partial(forward, function), autograph=False)(tensors)


def forward_around_function(function, tensors):
    compiled = tf.function(lambda *given: function(*given), autograph=False)
    return forward(compiled, tensors)


def persistent(function, tensors):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        value = loss(function, tensors)
        found = dense(tape.gradient(value, tensors))
        squares = total(found, found)
    return [*dense(tape.gradient(value, tensors)), *dense(tape.gradient(squares, tensors))]


def in_function(function, tensors):
    return tf.function(partial(penalty, function), autograph=False)(tensors)


def around_function(function, tensors):
    compiled = tf.function(lambda *given: function(*given), autograph=False)
    return penalty(compiled, tensors)


def graph(function, tensors):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = [tf.constant(t.numpy()) for t in tensors]
        value = loss(function, given)
        found = dense(tf.gradients(value, given))
        again = dense(tf.gradients(total(found, found), given))
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run([*found, *again])


WAYS = [
    *(first, penalty, hessian_product, jacobian),
    *(forward, forward_in_function, forward_around_function, forward_over_reverse),
    *(persistent, in_function, around_function, graph),
]


# What TensorFlow itself cannot do, with what comes instead: an error's words, or no number
NO_TANGENT = "FusedBatchNormV3 has none through a tf.function, alone either"
LOST = "the same kernel inside: its part of the tangent is missing"
NO_LOOP = "'variant'"  # a TensorArray under an accumulator in a tf.function; an accumulator around it works
REFUSED = {
    **dict.fromkeys(
        [("batch_norm", forward_around_function), ("batch_norm_frozen", forward_around_function)], NO_TANGENT
    ),
    ("recomputed", forward_around_function): LOST,
    **dict.fromkeys([(name, forward_in_function) for name in ("lstm_loop", "lstm_loop_masked", "gru")], NO_LOOP),
}


def tensors_of(case: Case, dtype: tf.DType) -> list[tf.Tensor]:
    random = np.random.default_rng(3)
    values = [random.normal(0.2, 0.7, shape) for shape in case.shapes]
    wide = tf.float32 if dtype == tf.bfloat16 else dtype
    return [tf.cast(tf.constant(v), wide if i in case.wide else dtype) for i, v in enumerate(values)]


def arrays(found) -> list[np.ndarray]:
    return [np.asarray(tf.cast(f, tf.float64) if tf.is_tensor(f) else f, np.float64) for f in found]


def cells():
    """Every cell; second derivatives in float32 are quick, and the others take minutes together."""
    for case in CASES:
        for way in WAYS:
            for dtype in (tf.float64, tf.float32, tf.bfloat16) if case.half else (tf.float64, tf.float32):
                quick = dtype == tf.float32 and way in (penalty, hessian_product)
                quick = quick or (case.name, way, dtype) == ("dense_block_recompute", jacobian, tf.float32)
                name = f"{case.name}-{way.__name__}-{dtype.name}"
                yield pytest.param(case, way, dtype, id=name, marks=() if quick else pytest.mark.slow)


@cache
def wanted_of(case, way):
    return arrays(way(case.plain, tensors_of(case, tf.float64)))


@pytest.mark.parametrize(("case", "way", "dtype"), list(cells()))
def test_every_derivative_is_that_of_plain_operations(case, way, dtype):
    refused = REFUSED.get((case.name, way))
    if refused == NO_LOOP:
        with pytest.raises(TypeError, match=NO_LOOP):
            way(case.ours, tensors_of(case, dtype))
        return
    if refused == NO_TANGENT and dtype != tf.float64:
        assert way(case.ours, tensors_of(case, dtype)) == [None]
        return
    found = arrays(way(case.ours, tensors_of(case, dtype)))
    wanted = wanted_of(case, way_of_plain(way))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
    if refused == LOST and dtype != tf.float64:
        assert worst(found, wanted) > 0.1
    elif dtype == tf.bfloat16:  # of which plain operations lose up to a fifth: a norm's gradient is a small difference
        plain = arrays(way_of_plain(way)(case.plain, [tf.cast(t, dtype) for t in tensors_of(case, dtype)]))
        assert apart(found, wanted) < min(0.25, 0.06 + apart(plain, wanted))
    else:
        assert worst(found, wanted) < (1e-8 if dtype == tf.float64 else 1e-4)


def way_of_plain(way):
    same = {in_function: penalty, around_function: penalty, forward_in_function: forward}
    return (same | {forward_around_function: forward}).get(way, way)


def worst(found, wanted):
    scale = max(np.abs(b).max() for b in wanted)
    return max(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3 * scale) for a, b in zip(found, wanted, strict=True))


def apart(found, wanted):
    return np.sqrt(
        sum(((a - b) ** 2).sum() for a, b in zip(found, wanted, strict=True)) / sum((b**2).sum() for b in wanted)
    )


def test_few_cells_are_refused():
    """Functions through which TensorFlow's own forward mode finds no way, and a model on towers, below."""
    assert len(REFUSED) == 6
    assert len(CASES) * len(WAYS) == 252


def fused_norm(x, scale, offset):
    nothing = tf.constant([])
    return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=nothing, variance=nothing).y


def test_tensorflow_has_no_tangent_of_the_fused_norm_through_a_function():
    case = next(case for case in CASES if case.name == "batch_norm")
    assert forward_around_function(fused_norm, tensors_of(case, tf.float32)) == [None]


# Statistics of the whole batch in towers, whose tapes are inside


def norm_of_maps(x, gamma, beta):
    return differentiable_normalise(x, gamma, beta, *differentiable_moments(x), EPSILON)


def cubes(function, x, weights):
    """The gradients of a sum of cubes, and those of the squared gradient of x."""
    with tf.GradientTape() as outer:
        outer.watch([x, *weights])
        with tf.GradientTape() as inner:
            inner.watch([x, *weights])
            value = tf.reduce_sum(function(x, *weights) ** 3)
        found = inner.gradient(value, [x, *weights])
        squares = tf.reduce_sum(found[0] ** 2)
    return found, outer.gradient(squares, [x, *weights])


SYNCHRONIZED = {
    "batch_norm": (norm, plain_norm, ((5, 3, 4, 3), (3,), (3,))),
    "maps": (norm_of_maps, plain_norm, ((5, 3, 4, 3), (3,), (3,))),
    **{m: (partial(block, memory=m), plain_block, ((5, 3, 4, 3), *BLOCK[1:])) for m in MEMORY_LEVELS},
}


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [tf.float64, pytest.param(tf.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [*list(SYNCHRONIZED)[:2], *(pytest.param(m, marks=pytest.mark.slow) for m in MEMORY_LEVELS)]
)
def test_synchronized_statistics_in_towers(name, dtype, compiled):
    ours, plain, shapes = SYNCHRONIZED[name]
    given = tensors_of(Case(name, ours, plain, shapes), dtype)
    towers = Towers(CPUS[:2], batch_norm="sync")

    def step(x, *weights):
        parts = towers.run(lambda share: cubes(ours, share.batch, weights), x)
        firsts, seconds = zip(*parts, strict=True)
        return [
            found
            for columns in (firsts, seconds)
            for found in [
                tf.concat([c[0] for c in columns], 0),
                *map(tf.add_n, zip(*(c[1:] for c in columns), strict=True)),
            ]
        ]

    found = arrays((tf.function(step, autograph=False) if compiled else step)(*given))
    x, *weights = tensors_of(Case(name, ours, plain, shapes), tf.float64)
    first_ones, second_ones = cubes(plain, x, weights)
    assert worst(found, arrays([*first_ones, *second_ones])) < (1e-8 if dtype == tf.float64 else 1e-4)


def on_towers():
    def network(x, *, is_training=False):
        return layers.batch_norm(x, is_training=is_training, scale=True, epsilon=EPSILON)

    model = zoo.Model(network, input_shape=(3, 4, 3), dtype="float64")
    model.towers = CallingTowers(CPUS[:2], batch_norm="sync")
    return lambda x: model(x, training=True)


QUICK = (first, penalty)


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=() if w in QUICK else pytest.mark.slow) for w in WAYS if w is not graph]
)  # a model runs in no graph of its user's
def test_a_model_on_towers_has_first_derivatives_and_refuses_others(way):
    case = Case(
        "towers", on_towers(), lambda x: plain_norm(x, tf.ones([3], x.dtype), tf.zeros([3], x.dtype)), ((5, 3, 4, 3),)
    )
    if way in (first, jacobian):
        found, wanted = (arrays(way(f, tensors_of(case, tf.float64))) for f in (case.ours, case.plain))
        assert worst(found, wanted) < 1e-8
        return
    with pytest.raises(NotImplementedError, match=r"model\.towers = None"):
        way(case.ours, tensors_of(case, tf.float64))


def test_statistics_over_all_towers_end_with_them():
    """It would wait for ever for towers that have ended."""
    with tf.Graph().as_default(), tf.compat.v1.variable_scope("net", reuse=tf.compat.v1.AUTO_REUSE):
        x = tf.zeros([4, 2, 2, 3])
        parts = Towers(CPUS[:2], batch_norm="sync").run(lambda share: layers.batch_norm(share.batch), x)
        with pytest.raises(RuntimeError, match="in the function that the towers run"):
            tf.gradients(parts, [x])


# Whole networks


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c.net in ("lenet5",) else pytest.mark.slow) for c in NETS], ids=IDS
)
def test_second_derivatives_of_whole_networks(case):
    """The gradient of |g|^2 is 2 H g, and H g the difference of two gradients along g.

    A smaller step rounds more, and a larger one may cross the edge of a ReLU or a maximum: one of two has to agree.
    """
    model = case.build()
    batch, labels = next(iter(case.data(1)))
    kernels = model.trainable_variables

    def gradients():
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)
            value = tf.reduce_mean(losses.softmax_cross_entropy(labels, logits))
        return dense(tape.gradient(value, [k.value for k in kernels], unconnected_gradients="zero"))

    @tf.function(autograph=False)
    def penalty_of_network():
        with tf.GradientTape() as tape:
            squares = tf.add_n([tf.reduce_sum(g**2) for g in gradients()])
        return dense(tape.gradient(squares, [k.value for k in kernels], unconnected_gradients="zero"))

    start, found = [k.numpy() for k in kernels], arrays(penalty_of_network())
    compiled = tf.function(gradients, autograph=False)
    direction = arrays(compiled())
    length = np.sqrt(sum((d**2).sum() for d in direction))

    def distance(step):
        sides = []
        for sign in (1, -1):
            for kernel, value, along in zip(kernels, start, direction, strict=True):
                kernel.assign(value + sign * step * along)
            sides.append(arrays(compiled()))
        return apart(found, [(a - b) / step for a, b in zip(*sides, strict=True)])

    assert min(distance(step / length) for step in (2e-6, 6e-8)) < 1e-8
