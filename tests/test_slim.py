"""tf_slim repaired: what TensorFlow 2.16+ broke works, scopes are shared, layers agree, and nets run in models."""

import ast
import importlib
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_slim

import zoo.slim as slim
from zoo import layers, scoping

v1 = tf.compat.v1


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# name, arguments, input shape: the same call on zoo's layer and on tf_slim's own code
PARITY = [
    ("conv2d", {"num_outputs": 6, "kernel_size": [3, 3]}, (2, 7, 8, 4)),
    ("conv2d", {"num_outputs": 6, "kernel_size": 3, "stride": 2, "padding": "VALID"}, (2, 7, 8, 4)),
    ("conv2d", {"num_outputs": 6, "kernel_size": 3, "rate": 2, "activation_fn": None}, (2, 7, 8, 4)),
    ("conv2d", {"num_outputs": 6, "kernel_size": [1, 3], "biases_initializer": None}, (2, 7, 8, 4)),
    ("conv2d_transpose", {"num_outputs": 3, "kernel_size": [3, 4], "stride": 2}, (2, 5, 4, 3)),
    ("conv2d_transpose", {"num_outputs": 3, "kernel_size": 3, "stride": 2, "padding": "VALID"}, (2, 5, 4, 3)),
    ("separable_conv2d", {"num_outputs": 6, "kernel_size": 3, "depth_multiplier": 2}, (2, 7, 8, 3)),
    ("separable_conv2d", {"num_outputs": None, "kernel_size": 3, "stride": 2, "rate": 1}, (2, 7, 8, 3)),
    ("fully_connected", {"num_outputs": 5}, (3, 7)),
    ("fully_connected", {"num_outputs": 5, "activation_fn": tf.nn.tanh}, (3, 2, 7)),
    ("max_pool2d", {"kernel_size": [3, 2]}, (2, 7, 8, 3)),
    ("avg_pool2d", {"kernel_size": 3, "stride": 1, "padding": "SAME"}, (2, 7, 8, 3)),
    ("layer_norm", {}, (2, 4, 5, 6)),
    ("group_norm", {"groups": 3}, (2, 4, 5, 6)),
    ("flatten", {}, (2, 3, 4)),
    ("softmax", {}, (2, 3, 4)),
]


@pytest.mark.parametrize(("name", "options", "shape"), PARITY)
def test_zoo_layers_equal_slims(name, options, shape):
    """Outputs and gradients in a graph, on the same weights, and the same names in the same order."""
    theirs, ours = getattr(slim, name), getattr(layers, name)
    assert theirs is not ours
    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.constant(values(*shape))
        found = []
        for layer in (theirs, ours):
            with scoping.variable_scope("a" if layer is theirs else "b"):
                y = layer(x, **options)
                z = layer(x, **options)  # a second default scope
            own = [v for v in v1.global_variables() if v.op.name[0] == y.op.name[0]]
            found.append(
                (y, z, own, tf.gradients(tf.reduce_sum(y**2), [x, *[v for v in own if "_1/" not in v.op.name]]))
            )
        session.run(v1.global_variables_initializer())
        assert [v.op.name[2:] for v in found[0][2]] == [v.op.name[2:] for v in found[1][2]]
        for a, b in zip(found[0][2], found[1][2], strict=True):
            b.load(session.run(a), session)
        for a, b in zip([found[0][0], *found[0][3]], [found[1][0], *found[1][3]], strict=True):
            assert a.shape.as_list() == b.shape.as_list()
            np.testing.assert_allclose(*session.run([b, a]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 5, 6, 3), (9, 3)])
@pytest.mark.parametrize("scale", [True, False])
def test_batch_norm_equals_slims_own_fused_code(shape, scale):
    """`_fused_batch_norm` is tf_slim's, unchanged but for the functions that TensorFlow moved."""
    original = sys.modules["tf_slim.layers.layers"]._fused_batch_norm
    x = values(*shape)
    results = []
    for layer in (original, layers.batch_norm):
        with tf.Graph().as_default(), v1.Session() as session:
            flag = v1.placeholder(tf.bool, [])
            y = layer(tf.constant(x), decay=0.9, scale=scale, is_training=flag, scope="bn")
            gradients = tf.gradients(tf.reduce_sum(y**3), v1.trainable_variables())
            session.run(v1.global_variables_initializer())
            trained = session.run([y, gradients], {flag: True})
            session.run(v1.get_collection(v1.GraphKeys.UPDATE_OPS), {flag: True})
            moved = {v.op.name: session.run(v) for v in v1.global_variables()}
            results.append([trained, moved, session.run(y, {flag: False})])
    assert sorted(results[0][1]) == sorted(results[1][1])
    results[1][1] = {n: results[1][1][n] for n in results[0][1]}
    if scale:  # the two make gamma and beta in another order
        results[0][0][1].reverse()
    for a, b in zip(tf.nest.flatten(results[0]), tf.nest.flatten(results[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_every_public_name_is_there():
    names = [n for n in dir(tf_slim) if not n.startswith("_")]
    assert not [n for n in names if not hasattr(slim, n)]
    assert slim.nets.inception.inception_v3.__name__ == "inception_v3"
    assert slim.batch_norm is tf_slim.batch_norm is layers.batch_norm
    assert slim.arg_scope is tf_slim.arg_scope is scoping.arg_scope
    assert slim.variable_scope is scoping.variable_scope


def test_tensorflow_itself_is_left_alone():
    from tensorflow.python.ops import control_flow_ops, variable_scope

    assert not hasattr(control_flow_ops, "cond")
    assert not hasattr(variable_scope, "variable")
    assert slim.local_variable(1.0).shape == ()


def test_import_order_and_what_was_taken_before_does_not_matter():
    code = """
import tf_slim
from tf_slim import conv2d, arg_scope as old_scope
from tf_slim.nets import inception_v3
old = tf_slim.fully_connected
import zoo.slim
import tensorflow as tf, zoo
from zoo import layers
assert tf_slim.fully_connected is not old and tf_slim.batch_norm is layers.batch_norm
with tf.Graph().as_default():
    x = tf.zeros([2, 5, 5, 3])
    with zoo.arg_scope([conv2d, old], biases_initializer=None, normalizer_fn=None):
        old(conv2d(x, 4, 3), 5)
    assert len(tf.compat.v1.global_variables()) == 2, tf.compat.v1.global_variables()
    with zoo.arg_scope([layers.conv2d], biases_initializer=None, groups=1):
        tf_slim.conv2d(x, 4, 3, normalizer_fn=tf_slim.batch_norm)
        inception_v3.layers.conv2d(x, 4, 3)
    assert len(tf.compat.v1.global_variables()) == 7, tf.compat.v1.global_variables()
assert "tf_keras" not in __import__("sys").modules
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("scoped", ["slim.conv2d", "layers.conv2d"])
def test_one_scope_configures_both(scoped):
    with tf.Graph().as_default():
        x = tf.zeros([2, 5, 5, 3])
        with slim.arg_scope(
            [{"slim.conv2d": slim.conv2d, "layers.conv2d": layers.conv2d}[scoped]], biases_initializer=None
        ):
            slim.conv2d(x, 4, 3)
            layers.conv2d(x, 4, 3)
        assert [v.op.name for v in v1.global_variables()] == ["Conv/weights", "Conv_1/weights"]
        with slim.arg_scope([slim.relu], biases_initializer=None):  # a partial of fully_connected
            slim.linear(x, 4)
            layers.fully_connected(x, 4)
        assert len(v1.global_variables()) == 4
    with pytest.raises(TypeError, match="no argument 'groups'"):
        slim.arg_scope([slim.conv2d], groups=2)


def test_an_explicit_argument_wins_by_position():
    """tensorflow#4657: this was "got multiple values for argument"."""
    with tf.Graph().as_default(), slim.arg_scope([slim.fully_connected], num_outputs=20):
        assert slim.fully_connected(tf.zeros([2, 3]), 30).shape == (2, 30)


def test_inception_v3_has_the_checkpoints_388_variables():
    with tf.Graph().as_default():
        images = v1.placeholder(tf.float32, [2, 299, 299, 3])
        with slim.arg_scope(slim.nets.inception.inception_v3_arg_scope()):
            logits, end_points = slim.nets.inception.inception_v3(images, num_classes=1001, is_training=True)
        assert logits.shape == (2, 1001)
        assert "AuxLogits" in end_points
        names = {v.op.name for v in slim.get_model_variables()}
        assert len(names) == 388
        assert "InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/BatchNorm/moving_variance" in names
        assert not any("gamma" in name for name in names)
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == 2 * 96
        exclude = ["InceptionV3/Logits", "InceptionV3/AuxLogits"]
        assert len(slim.get_variables_to_restore(exclude=exclude)) == 376


def test_flags_as_tensors():
    with tf.Graph().as_default(), v1.Session() as session:
        flag = v1.placeholder(tf.bool, [])
        x = tf.constant(values(4, 6))
        y = slim.fully_connected(x, 5, normalizer_fn=slim.batch_norm, normalizer_params={"is_training": flag})
        z = slim.dropout(y, is_training=flag)
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(*session.run([y, z], {flag: False}))
        a, b = session.run([y, z], {flag: True})
        assert np.any(a != b)


def test_local_and_global_variables():
    with tf.Graph().as_default():
        local, shared = slim.local_variable(1.0, name="l"), slim.global_variable([2.0], name="g")
        assert v1.get_collection(v1.GraphKeys.LOCAL_VARIABLES) == [local]
        assert v1.global_variables() == [shared]
        assert not v1.trainable_variables()


def resnet(x, is_training=False):
    block = slim.nets.resnet_v1.resnet_v1_block
    with slim.arg_scope(slim.nets.resnet_v1.resnet_arg_scope(batch_norm_decay=0.5)):
        blocks = [
            block("block1", base_depth=2, num_units=1, stride=1),
            block("block2", base_depth=4, num_units=2, stride=1),
        ]
        return slim.nets.resnet_v1.resnet_v1(x, blocks, num_classes=3, is_training=is_training)[0][:, 0, 0]


def test_a_slim_net_in_a_model_trains_freezes_and_has_end_points():
    x = tf.constant(values(8, 33, 33, 3))
    model = scoping.Model(resnet, input_shape=(33, 33, 3))
    name = "resnet_v1/block2/unit_1/bottleneck_v1/conv1/BatchNorm/moving_mean"
    assert name in model.variable_names
    with tf.Graph().as_default():
        resnet(v1.placeholder(tf.float32, [8, 33, 33, 3]), is_training=True)
        assert sorted(v.op.name for v in v1.global_variables()) == sorted(model.variable_names)
        losses = len(v1.get_collection("regularization_losses"))
    assert len(model.losses) == losses
    model.freeze("resnet_v1/block1*")
    before = {n: model.variable(n).numpy() for n in model.variable_names}
    model.compile(optimizer="sgd", loss="mse")
    model.fit(x, np.zeros([8, 3]), batch_size=4, verbose=0)
    changed = {n for n in model.variable_names if np.any(model.variable(n).numpy() != before[n])}
    assert not [n for n in changed if "/block1/" in n]
    assert {n for n in before if "/block2/" in n and "moving" in n} <= changed
    y = model(x)
    np.testing.assert_array_equal(y[:4], model(x[:4]))
    np.testing.assert_allclose(tf.function(model)(x), y, rtol=1e-4, atol=1e-5)


def test_slim_functions_and_end_points_in_the_eager_store():
    utils = sys.modules["tf_slim.layers.utils"]
    with scoping.variable_store() as store:
        y = slim.stack(values(2, 6), slim.fully_connected, [5, 4], scope="fc", outputs_collections="out")
        assert y.shape == (2, 4)
        assert list(utils.convert_collection_to_dict("out", clear_collection=True)) == ["fc/fc_1", "fc/fc_2"]
        assert not utils.convert_collection_to_dict("out")
    assert list(store.variables) == [f"fc/fc_{i}/{n}" for i in (1, 2) for n in ("weights", "biases")]


def test_end_points_of_a_vgg_in_a_model():
    def network(x, is_training=False):
        with slim.arg_scope(slim.nets.vgg.vgg_arg_scope()), slim.arg_scope([slim.conv2d], num_outputs=2):
            return slim.repeat(x, 2, slim.conv2d, kernel_size=3, scope="conv1", outputs_collections="ends"), (
                sys.modules["tf_slim.layers.utils"].convert_collection_to_dict("ends")
            )

    model = scoping.Model(network, input_shape=(6, 6, 3))
    for _ in range(2):  # each run of the model has collections of its own
        assert list(model.end_points(tf.zeros([1, 6, 6, 3]))) == ["conv1/conv1_1", "conv1/conv1_2"]


def test_create_train_op_runs_the_updates():
    with tf.Graph().as_default(), v1.Session() as session:
        y = slim.batch_norm(slim.fully_connected(tf.constant(values(8, 4)), 3, activation_fn=None), decay=0.5)
        slim.losses.mean_squared_error(y, tf.zeros_like(y))
        train = slim.learning.create_train_op(slim.losses.get_total_loss(), v1.train.GradientDescentOptimizer(0.1))
        session.run(v1.global_variables_initializer())
        session.run(train)
        mean = slim.get_variables_by_name("moving_mean")[0]
        assert np.all(session.run(mean) != 0)


def test_learning_train_runs():
    with tf.Graph().as_default():
        y = slim.fully_connected(tf.constant(values(8, 4)), 1, activation_fn=None)
        loss = slim.losses.mean_squared_error(y, tf.fill([8, 1], 0.5))
        train = slim.learning.create_train_op(loss, v1.train.GradientDescentOptimizer(0.1), clip_gradient_norm=1.0)
        assert slim.learning.train(train, None, number_of_steps=200) < 0.01


def test_no_module_of_tf_slim_reaches_for_something_that_tensorflow_lacks():
    """Reads tf_slim's source: every `module.attribute` of a module it imports must be there."""
    missing = set()
    for info in pkgutil.walk_packages(tf_slim.__path__, "tf_slim."):
        if info.name.endswith(("_test", "test_utils")):
            continue
        module = importlib.import_module(info.name)
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = vars(module).get(node.value.id)
                try:
                    if isinstance(owner, types.ModuleType):
                        getattr(owner, node.attr)
                except (AttributeError, ImportError):
                    missing.add((info.name, node.value.id, node.attr))
    # the class behind tf_slim's own batch_norm, which zoo's replaces
    assert missing == {("tf_slim.layers.layers", "normalization_layers", "BatchNormalization")}
