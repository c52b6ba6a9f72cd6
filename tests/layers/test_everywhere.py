"""Every layer of the table: in the four places, under XLA, in half precision, on unknown sizes, and its gradient."""

import numpy as np
import pytest
import tensorflow as tf
from layers.cases import CASES, IDS

from zoo import scoping

v1 = tf.compat.v1
every = pytest.mark.parametrize("case", CASES, ids=IDS)
BATCH = 3


def batch(case, dtype=np.float32):
    return np.random.default_rng(1).normal(size=(BATCH, *case.shape)).astype(dtype)


def in_store(case, x, **options):
    """Runs a layer in eager mode; returns its output and its variables, whose values are not the trivial ones."""
    with scoping.variable_store(seed=3) as store, scoping.variable_scope("net"):
        case(x, **scope_of(case), **options)
    values = np.random.default_rng(2)
    for variable in store.variables.values():
        variable.assign(values.uniform(0.5, 1.5, variable.shape))
    with store, scoping.variable_scope("net", reuse=True):
        return case(x, **scope_of(case), **options), store.variables


def scope_of(case):
    return {"scope": "layer"}


@every
def test_same_variables_and_outputs_in_all_four_places(case):
    x = batch(case)
    y, variables = in_store(case, x)
    values = {name: v.numpy() for name, v in variables.items()}
    expected = {f"net/layer/{name}": shape for name, shape in case.variables.items()}
    assert {name: tuple(value.shape) for name, value in values.items()} == expected
    assert y.shape == (BATCH, *case.output)

    def network(inputs, is_training=False):
        with scoping.variable_scope("net"):
            return case(inputs, **scope_of(case))

    # the store's run above moved the statistics: start again from the same values
    start = {n: np.random.default_rng(5).uniform(0.5, 1.5, v.shape).astype("float32") for n, v in values.items()}
    model = scoping.Model(network, input_shape=case.shape)
    assert sorted(model.variable_names) == sorted(expected)
    outputs = {}
    for place, call in {"model": model, "function": tf.function(model)}.items():
        for name, value in start.items():
            model.variable(name).assign(value)
        outputs[place] = call(x).numpy()

    with tf.Graph().as_default():
        images = v1.placeholder(tf.float32, [None, *case.shape])
        z = network(images)
        assert z.shape.as_list() == [None, *case.output]
        graph_variables = {v.op.name: v for v in v1.global_variables()}
        assert sorted(graph_variables) == sorted(expected)
        with v1.Session() as session:
            for name, value in start.items():
                graph_variables[name].load(value, session)
            outputs["graph"] = session.run(z, {images: x})
    with scoping.variable_store() as store:
        network(x)
        for name, value in start.items():
            store.variables[name].assign(value)
    with store, scoping.variable_scope("", reuse=True):
        outputs["store"] = network(x).numpy()
    for place, value in outputs.items():
        np.testing.assert_allclose(value, outputs["graph"], rtol=1e-5, atol=1e-5, err_msg=place)


QUICK = ("conv2d", "conv2d_normalized", "fully_connected", "max_pool2d", "dropout_at_inference")


@pytest.mark.parametrize(
    "case", [c if c.name in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in CASES], ids=IDS
)
def test_compiles_under_xla_to_the_same_numbers(case):
    x = tf.constant(batch(case))

    def network(inputs, is_training=False):
        return case(inputs, **scope_of(case))

    model = scoping.Model(network, input_shape=case.shape)
    start = [w.numpy() for w in model.weights]

    def outputs_and_gradients(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = model(inputs)
            loss = tf.reduce_sum(y**2)
        return y, *tape.gradient(loss, [inputs, *[v.value for v in model.trainable_variables]])

    plain = outputs_and_gradients(x)
    for weight, value in zip(model.weights, start, strict=True):
        weight.assign(value)
    for a, b in zip(tf.function(outputs_and_gradients, jit_compile=True)(x), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@every
@pytest.mark.parametrize("dtype", [pytest.param(tf.float16, marks=pytest.mark.slow), tf.bfloat16])
def test_half_precision_inputs_keep_float32_variables(case, dtype):
    x = batch(case)
    exact, _ = in_store(case, x)
    half, variables = in_store(case, tf.cast(x, dtype))
    assert half.dtype == dtype
    assert {v.dtype for v in variables.values()} <= {tf.float32}
    scale = np.abs(exact).max()
    np.testing.assert_allclose(tf.cast(half, tf.float32) / scale, exact / scale, atol=0.05)


@every
def test_unknown_batch_height_and_width(case):
    x = batch(case)
    unknown = [None] * len(case.shape) + list(case.shape[-1:])
    with scoping.variable_store(seed=3) as store:
        case(x, scope="layer")
    start = {name: tf.ones_like(v) * 0.5 for name, v in store.variables.items()}

    def restart():
        for name, value in start.items():
            store.variables[name].assign(value)

    restart()
    with store, scoping.variable_scope("", reuse=True):
        expected = case(x, scope="layer")
    restart()
    shapes = []

    @tf.function(input_signature=[tf.TensorSpec(unknown)])
    def run(inputs):
        with store, scoping.variable_scope("", reuse=True):
            y = case(inputs, scope="layer")
        shapes.append(y.shape)
        return y

    np.testing.assert_allclose(run(tf.constant(x)), expected, rtol=1e-3, atol=1e-4)
    assert shapes[0].rank == len(case.output) + 1
    if len(case.output) == len(case.shape):
        assert shapes[0][-1] == case.output[-1]


@pytest.mark.parametrize("case", [c for c in CASES if c.nchw], ids=[c.name for c in CASES if c.nchw])
def test_channels_first_gives_the_same(case):
    x = batch(case)
    y, variables = in_store(case, x)
    with scoping.variable_store() as store:
        case(x, scope="layer")
    names = {name.removeprefix("net/"): v for name, v in variables.items()}

    def gradients(inputs, **options):
        for name, v in store.variables.items():
            v.assign(names[name] if "moving" not in name and "renorm" not in name else tf.ones_like(v))
        with tf.GradientTape() as tape, store, scoping.variable_scope("", reuse=True):
            tape.watch(inputs)
            z = case(inputs, scope="layer", **options)
            loss = tf.reduce_sum(z**3)
        return z, *tape.gradient(loss, [inputs, *store.trainable_variables])

    y, dx, *rest = gradients(tf.constant(x))
    z, dz, *others = gradients(tf.constant(x.transpose(0, 3, 1, 2)), **case.nchw)
    if y.shape.rank == 4:
        z = tf.transpose(z, [0, 2, 3, 1])
    np.testing.assert_allclose(z, y, rtol=1e-4, atol=1e-5)
    for a, b in zip([tf.transpose(dz, [0, 2, 3, 1]), *others], [dx, *rest], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@every
def test_gradients_are_those_of_finite_differences(case):
    """In float64, for the input and every trainable variable."""
    x = batch(case, np.float64)[:2]
    options = {"is_training": True} if "batch_norm" in case.name else {}
    if "renorm" in case.name:
        pytest.skip("renorm's corrections are without gradient, so finite differences see another function")
    _, variables = in_store(case, x, **options)
    trainable = {n: v for n, v in variables.items() if v.trainable}
    assert all(v.dtype == tf.float64 for v in variables.values())
    weights = np.random.default_rng(4).normal(size=(2, *case.output))
    with scoping.variable_store() as store, scoping.variable_scope("net"):
        case(x, scope="layer", **options)

    def loss(inputs, *values):
        for (name, _), value in zip(trainable.items(), values, strict=True):
            store.variables[name].assign(value)
        with store, scoping.variable_scope("net", reuse=True):
            return tf.reduce_sum(case(inputs, scope="layer", **options) * weights)

    inputs = tf.constant(x)
    values = [v.read_value() for v in trainable.values()]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        for name, v in trainable.items():
            store.variables[name].assign(v)
        y = loss(inputs, *values)
    exact = tape.gradient(y, [inputs, *[store.variables[n] for n in trainable]])
    rng = np.random.default_rng(6)
    for i, gradient in enumerate(exact):
        direction = rng.normal(size=gradient.shape)
        points = [inputs, *values]
        ends = []
        for step in (1e-6, -1e-6):
            moved = list(points)
            moved[i] = points[i] + step * direction
            ends.append(loss(*moved).numpy())
        numeric = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(gradient * direction), numeric, rtol=1e-6, atol=1e-7)
