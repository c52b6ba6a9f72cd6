"""ReLUs and averages that are computed again: the same numbers, and they are not kept."""

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import layers
from zoo.layers import recompute
from zoo.nets.inception_blocks import average_3x3


def network(images, *, is_training=False, recompute=True, scale=False, scope="Net"):
    """Two convolutions on one recomputed ReLU, and one on its averages."""
    norm = {"is_training": is_training, "recompute": recompute, "scale": scale}
    with (
        zoo.variable_scope(scope),
        zoo.arg_scope([layers.conv2d], normalizer_fn=layers.batch_norm, normalizer_params=norm),
    ):
        net = layers.conv2d(images, 8, 3, stride=2, scope="a")
        averages = average_3x3(net, recompute=recompute and is_training)
        branches = [layers.conv2d(net, 4, 1, scope="b"), layers.conv2d(averages, 4, [1, 3], padding="VALID", scope="c")]
        return tf.reduce_mean(branches[0], [1, 2]) + tf.reduce_mean(branches[1], [1, 2]), {"relu": net}


def images():
    return tf.constant(np.random.default_rng(0).normal(size=(3, 17, 17, 3)).astype(np.float32))


def gradients(model, graph):
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x, training=True)
            loss = tf.reduce_sum(y**3)
        return y, tape.gradient(loss, [x, *(v.value for v in model.trainable_variables)])

    return (tf.function(run) if graph else run)(images())


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_gradients_are_those_of_a_network_that_keeps_everything(graph, scale):
    kept, again_ = (
        zoo.Model(network, input_shape=(17, 17, 3), seed=1, scale=scale, recompute=r) for r in (False, True)
    )
    expected, found = gradients(kept, graph), gradients(again_, graph)
    np.testing.assert_array_equal(found[0], expected[0])
    for name, a, b in zip(["images", *kept.variable_names], found[1], expected[1], strict=False):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max(), err_msg=name)
    for name in kept.variable_names:  # the statistics moved once
        np.testing.assert_array_equal(again_.variable(name), kept.variable(name))


@pytest.mark.parametrize("recompute", [False, True])
def test_the_backward_pass_reads_no_relu_and_no_average_of_the_forward_pass(recompute):
    model = zoo.Model(network, input_shape=(17, 17, 3), recompute=recompute)
    forward = []

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = model(x, training=True)
        forward.extend(y.graph.get_operations())
        return tape.gradient(y, [v.value for v in model.trainable_variables])

    operations = step.get_concrete_function(images()).graph.get_operations()
    known = {op.name for op in forward}
    kept = {op.outputs[0].name for op in forward if op.type in ("Relu", "AvgPool")}
    backward = [op for op in operations if op.name not in known and op.type in ("ReluGrad", "Conv2DBackpropFilter")]
    read = kept & {tensor.name for op in backward for tensor in op.inputs}
    assert len(kept) == 4
    assert len(backward) == 6
    assert len(read) == (0 if recompute else 4)


@pytest.mark.slow
def test_xla_computes_relus_again():
    """XLA ignores control dependencies, and would merge what is computed again with the forward pass."""

    def maxima(recompute):
        model = zoo.Model(network, input_shape=(17, 17, 3), recompute=recompute)

        def step(x):
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(model(x, training=True) ** 3)
            return tape.gradient(value, [v.value for v in model.trainable_variables])

        compiled = tf.function(step, autograph=False, jit_compile=True)
        return compiled.experimental_get_compiler_ir(images())(stage="optimized_hlo").count(" maximum(")

    assert maxima(True) > maxima(False)


def test_only_training_with_the_fused_kernel_and_relu_is_marked():
    with tf.Graph().as_default():
        x = tf.zeros([2, 4, 4, 3])
        assert recompute.how(layers.batch_norm(x, recompute=True)) is not None
        assert recompute.how(layers.batch_norm(x)) is None
        assert recompute.how(layers.batch_norm(x, recompute=True, is_training=False)) is None
        assert recompute.how(layers.batch_norm(tf.cast(x, tf.float64), recompute=True)) is None
        norm = {"normalizer_fn": layers.batch_norm, "normalizer_params": {"recompute": True}}
        assert recompute.how(layers.conv2d(x, 4, 3, **norm)) is not None
        assert recompute.how(layers.conv2d(x, 4, 3, activation_fn=tf.nn.elu, **norm)) is None
