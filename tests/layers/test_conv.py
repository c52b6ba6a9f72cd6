"""Convolutions: TF1's guide, plain TensorFlow ops on the same weights, paddings, groups, rates, errors."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

v1 = tf.compat.v1


def images(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def run(layer, x, *args, **options):
    with scoping.variable_store(seed=1) as store:
        return layer(x, *args, scope="layer", **options), {n.split("/")[-1]: v for n, v in store.variables.items()}


def test_conv_relu_is_that_of_the_guide():
    """Two scopes on two images: four variables, and the plain ops on them."""

    def image_filter(inputs):
        with scoping.variable_scope("conv1"):
            relu1 = layers.conv_relu(inputs, [5, 5, 3, 8], [8])
        with scoping.variable_scope("conv2"):
            return layers.conv_relu(relu1, [5, 5, 8, 8], [8])

    a, b = images(2, 9, 9, 3), images(2, 9, 9, 3) + 1
    with scoping.variable_store(seed=1) as store:
        with scoping.variable_scope("filter"):
            y = image_filter(a)
        with scoping.variable_scope("filter", reuse=True):
            z = image_filter(b)
        with pytest.raises(scoping.ScopeError, match="already exists"), scoping.variable_scope("filter"):
            image_filter(b)
    v = store.variables
    assert list(v) == [f"filter/{conv}/{name}" for conv in ("conv1", "conv2") for name in ("weights", "biases")]
    assert 0.9 < np.std(v["filter/conv2/weights"]) < 1.1
    assert not np.any(v["filter/conv1/biases"])
    for x, result in ((a, y), (b, z)):
        for conv in ("filter/conv1", "filter/conv2"):
            x = tf.nn.relu(tf.nn.conv2d(x, v[f"{conv}/weights"], 1, "SAME") + v[f"{conv}/biases"])
        np.testing.assert_allclose(result, x, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"strides": 1, "padding": "SAME"}),
        ({"stride": [2, 1], "padding": "valid"}, {"strides": [1, 2, 1, 1], "padding": "VALID"}),
        ({"padding": 2}, {"strides": 1, "padding": [[0, 0], [2, 2], [2, 2], [0, 0]]}),
        ({"padding": (1, 0), "stride": 2}, {"strides": 2, "padding": [[0, 0], [1, 1], [0, 0], [0, 0]]}),
        ({"padding": [[0, 0], [1, 2], [0, 3], [0, 0]]}, {"strides": 1, "padding": [[0, 0], [1, 2], [0, 3], [0, 0]]}),
        ({"rate": 2}, {"strides": 1, "padding": "SAME", "dilations": 2}),
    ],
)
def test_conv2d_is_the_plain_op(options, expected):
    x = images(2, 9, 8, 4)
    y, v = run(layers.conv2d, x, 6, [3, 2], biases_initializer=layers.constant_initializer(0.3), **options)
    np.testing.assert_allclose(y, tf.nn.relu(tf.nn.conv2d(x, v["weights"], **expected) + 0.3), rtol=1e-4, atol=1e-5)


def test_defaults_are_slims():
    y, v = run(layers.conv2d, images(1, 5, 5, 100), 50, 3)
    assert y.shape == (1, 5, 5, 50)  # SAME, stride 1
    assert np.min(y) == 0  # ReLU
    assert not np.any(v["biases"])
    limit = np.sqrt(6 / (9 * (100 + 50)))  # Glorot's uniform
    assert 0.95 * limit < np.max(v["weights"]) <= limit
    y, v = run(layers.conv2d, images(1, 5, 5, 4), 3, 1, biases_initializer=None, activation_fn=None)
    assert list(v) == ["weights"]
    _, v = run(layers.conv2d, images(2, 5, 5, 4), 3, 1, normalizer_fn=layers.batch_norm)
    assert list(v) == ["weights", "beta", "moving_mean", "moving_variance"]  # no biases, no gamma


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("options", [{"groups": 3}, {"rate": 2, "padding": (2, 1)}, {"groups": 2, "stride": 2}])
def test_groups_and_rates_train_in_every_type_on_a_cpu(dtype, options):
    """The CPU lacks these gradients in some types: they are put together from plain convolutions."""
    x = tf.constant(images(2, 7, 7, 6, dtype=dtype))
    with scoping.variable_store(seed=1) as store, tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.conv2d(x, 12, 3, activation_fn=None, scope="layer", **options)
        loss = tf.reduce_sum(tf.cast(y, tf.float64) ** 2)
    weights = store.variables["layer/weights"]
    dx, dw = tape.gradient(loss, [x, weights])
    groups, rate = options.get("groups", 1), options.get("rate", 1)
    kernel = tf.cast(weights, tf.float64)
    with tf.GradientTape() as tape:
        exact = tf.cast(x, tf.float64)
        tape.watch([exact, kernel])
        parts = zip(tf.split(exact, groups, 3), tf.split(kernel, groups, 3), strict=True)
        pads = options.get("padding", "SAME")
        pads = pads if isinstance(pads, str) else [[0, 0], [2, 2], [1, 1], [0, 0]]
        ys = []
        for a, k in parts:
            a = a if isinstance(pads, str) else tf.pad(a, pads)
            padding = pads if isinstance(pads, str) else "VALID"
            ys.append(tf.nn.convolution(a, k, options.get("stride", 1), padding, dilations=rate))
        z = tf.concat(ys, 3)
        loss = tf.reduce_sum(z**2)
    ex, ew = tape.gradient(loss, [exact, kernel])
    tolerance = 0.03 if dtype == np.float16 else 1e-4
    for a, b in ((y, z), (dx, ex), (dw, ew)):
        np.testing.assert_allclose(a / np.abs(b).max(), b / np.abs(b).max(), atol=tolerance)


def test_transposed_is_the_gradient_of_the_convolution():
    x = images(2, 5, 4, 3)
    y, v = run(layers.conv2d_transpose, x, 2, [3, 4], stride=[2, 3], padding="VALID", activation_fn=None)
    assert y.shape == (2, 5 * 2 + 1, 4 * 3 + 1, 2)
    np.testing.assert_allclose(
        y, tf.nn.conv2d_transpose(x, v["weights"], y.shape, [1, 2, 3, 1], "VALID"), rtol=1e-4, atol=1e-5
    )


def test_separable_is_depthwise_then_pointwise():
    x = images(2, 6, 6, 3)
    y, v = run(layers.separable_conv2d, x, 5, 3, depth_multiplier=2, pointwise_initializer=layers.ones_initializer())
    assert np.all(v["pointwise_weights"] == 1)
    z = tf.nn.separable_conv2d(x, v["depthwise_weights"], v["pointwise_weights"], [1, 1, 1, 1], "SAME")
    np.testing.assert_allclose(y, tf.nn.relu(z), rtol=1e-4, atol=1e-5)
    y, v = run(layers.separable_conv2d, x, None, 3, depth_multiplier=2, stride=2)
    assert list(v) == ["depthwise_weights", "biases"]
    z = tf.nn.depthwise_conv2d(x, v["depthwise_weights"], [1, 2, 2, 1], "SAME")
    np.testing.assert_allclose(y, tf.nn.relu(z), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape", "options", "message"),
    [
        (layers.conv2d, (2, 5, 5, 5, 3), {}, "conv2d expects input with rank 4, got 5"),
        (layers.conv2d, (2, 5), {}, "rank 4, got 2"),
        (layers.conv2d, (2, 5, 5, 3), {"stride": 2, "rate": 2}, "rate other than 1 needs stride 1"),
        (layers.conv2d, (2, 5, 5, 3), {"kernel_size": [1, 2, 3]}, r"kernel_size.*\[1, 2, 3\]"),
        (layers.conv2d, (2, 5, 5, 3), {"kernel_size": 0}, "kernel_size is a positive integer"),
        (layers.conv2d, (2, 5, 5, 3), {"kernel_size": True}, "kernel_size is a positive integer"),
        (layers.conv2d, (2, 5, 5, 3), {"stride": 1.5}, "stride is a positive integer"),
        (layers.conv2d, (2, 5, 5, 3), {"padding": "FULL"}, 'padding is "SAME".*FULL'),
        (layers.conv2d, (2, 5, 5, 3), {"padding": -1}, "padding is.*-1"),
        (layers.conv2d, (2, 5, 5, 3), {"padding": [[1, 1], [0, 0], [0, 0], [0, 0]]}, "padding is"),
        (layers.conv2d, (2, 5, 5, 3), {"data_format": "NWHC"}, "data_format has to be either NCHW or NHWC.*NWHC"),
        (layers.conv2d, (2, 5, 5, 3), {"groups": 2}, "groups=2 for 3 channels and 6 filters"),
        (layers.conv2d, (2, 5, 5, 3), {"num_outputs": 6.0}, "num_outputs is a positive integer, got 6.0"),
        (layers.conv2d, (2, 3, 3, 3), {"kernel_size": 5, "padding": "VALID"}, "window of 5x5 does not fit.*SAME"),
        (layers.conv2d, (2, 6, 6, 3), {"kernel_size": 3, "rate": 3, "padding": "VALID"}, "window of 7x7 does not fit"),
        (layers.conv2d_transpose, (2, 5, 5, 3), {"padding": 1}, 'padding is "SAME" or "VALID", got 1'),
        (layers.conv2d_transpose, (2, 5, 3), {}, "rank 4, got 3"),
        (layers.separable_conv2d, (2, 5, 5, 3), {"stride": [1, 2]}, "step down equals the step to the right"),
        (layers.separable_conv2d, (2, 5, 5, 3), {"depth_multiplier": 0}, "depth_multiplier is a positive integer"),
        (layers.separable_conv2d, (2, 5, 5, 3), {"stride": 2, "rate": 2}, "rate other than 1 needs stride 1"),
    ],
)
def test_bad_arguments(layer, shape, options, message):
    with scoping.variable_store() as store, pytest.raises(ValueError, match=message):
        layer(tf.zeros(shape), **{"num_outputs": 6, "kernel_size": 3, **options})
    assert not store.variables


def test_integer_images_and_unknown_channels_are_refused():
    with scoping.variable_store(), pytest.raises(ValueError, match=r"floating-point inputs, got uint8.*convert_image"):
        layers.conv2d(np.zeros((1, 5, 5, 3), np.uint8), 4, 3)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="known number of channels, it is undefined"):
        layers.conv2d(v1.placeholder(tf.float32, [None, 5, 5, None]), 4, 3)


def test_outside_any_model_store_and_graph_a_layer_raises():
    with pytest.raises(RuntimeError, match="variable_store"):
        layers.conv2d(tf.zeros([1, 5, 5, 3]), 4, 3)


def test_default_scopes_count_and_reuse_shares():
    def variables(network):
        with tf.Graph().as_default() as graph:
            network(v1.placeholder(tf.float32, [2, 5, 5, 3]))
            return [v.op.name for v in v1.global_variables()], graph

    def network(x):
        layers.conv2d(layers.conv2d(x, 3, 3), 3, 3)
        layers.conv2d(x, 4, 3, scope="c", weights_regularizer=layers.l2_regularizer(0.1))
        layers.conv2d(x, 4, 3, scope="c", weights_regularizer=layers.l2_regularizer(0.1), reuse=True)

    names, graph = variables(network)
    assert names == [f"{scope}/{name}" for scope in ("Conv", "Conv_1", "c") for name in ("weights", "biases")]
    assert len(graph.get_collection("regularization_losses")) == 1


def test_collections_of_variables_and_outputs():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2, 5, 5, 3])
        with scoping.variable_scope("net"):
            y = layers.conv2d(
                x, 4, 3, scope="c", variables_collections={"weights": ["w"], "biases": "b"}, outputs_collections="out"
            )
            z = layers.max_pool2d(y, 2, scope="p", outputs_collections=["out", "pools"])
        assert v1.get_collection("out") == [y, z]
        assert v1.get_collection("pools") == [z]
        assert (y.aliases, z.aliases) == (["net/c"], ["net/p"])
        assert [v.op.name for v in v1.get_collection("w") + v1.get_collection("b")] == ["net/c/weights", "net/c/biases"]
        assert len(v1.get_collection(v1.GraphKeys.MODEL_VARIABLES)) == 2
        assert len(v1.trainable_variables()) == 2
        layers.conv2d(x, 4, 3, scope="d", trainable=False)
        assert len(v1.trainable_variables()) == 2
    with scoping.variable_store(), scoping.variable_scope("net"):
        y = layers.conv2d(tf.zeros([1, 5, 5, 3]), 4, 3, scope="c", outputs_collections="out")
        y = layers.max_pool2d(y, 2, scope="p", outputs_collections="out")
        assert [t.aliases for t in scoping.get_collection("out")] == [["net/c"], ["net/p"]]


def test_one_arg_scope_for_many_layers():
    with (
        scoping.variable_store() as store,
        scoping.arg_scope([layers.conv2d, layers.fully_connected], activation_fn=None, biases_initializer=None),
        scoping.arg_scope([layers.conv2d], padding="VALID", num_outputs=7),
    ):
        y = layers.conv2d(images(1, 5, 5, 3), kernel_size=3)
        assert layers.conv2d(images(1, 5, 5, 3), 2, 3, padding="SAME").shape == (1, 5, 5, 2)
        layers.fully_connected(layers.flatten(y), 3)
    assert y.shape == (1, 3, 3, 7)
    assert np.min(y) < 0
    assert list(store.variables) == ["Conv/weights", "Conv_1/weights", "fully_connected/weights"]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kernel", [(1, 3), (3, 1), (3, 3)])
def test_float16_on_a_map_of_one_pixel(kernel, recompute):
    """oneDNN's float16 kernels for AVX512-FP16 gave other numbers, or NaN, in each run: a CPU computes in float32."""
    x = np.random.default_rng(0).normal(size=(4, 1, 1, 38)).astype("float32")

    def network(x):
        if recompute:
            norm = {"recompute": True, "updates_collections": tf.compat.v1.GraphKeys.UPDATE_OPS}
            x = layers.conv2d(x, 38, 1, normalizer_fn=layers.batch_norm, normalizer_params=norm, scope="b")
        return layers.conv2d(x, 38, kernel, scope="a")

    found = []
    for dtype in (tf.float32, tf.float16):
        with scoping.variable_store(seed=1) as store, tf.GradientTape() as tape:
            y = network(tf.cast(x, dtype))
        assert y.dtype == dtype
        found.append([y, *tape.gradient(y, [v for v in store.variables.values() if v.trainable])])
    for wide, half in zip(*found, strict=True):
        np.testing.assert_allclose(tf.cast(half, tf.float32), wide, atol=0.01 * np.abs(wide).max())
    with tf.Graph().as_default() as graph:
        images = tf.zeros([4, 1, 1, 38], tf.float16)
        tf.gradients(network(images), images)
        types = {op.get_attr("T") for op in graph.get_operations() if op.type.startswith("Conv2D")}
    assert types == ({tf.float32} if not tf.config.list_physical_devices("GPU") else {tf.float16})
