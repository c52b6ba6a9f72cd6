"""Inception-v3: the checkpoint's names, the published counts and shapes, the end points, the refusals."""

import hashlib
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.nets.inception_v3 import END_POINTS, inception_v3
from zoo.scoping.cost import scope_costs

SHAPES = {
    "Conv2d_1a_3x3": (149, 149, 32),
    "Conv2d_2a_3x3": (147, 147, 32),
    "Conv2d_2b_3x3": (147, 147, 64),
    "MaxPool_3a_3x3": (73, 73, 64),
    "Conv2d_3b_1x1": (73, 73, 80),
    "Conv2d_4a_3x3": (71, 71, 192),
    "MaxPool_5a_3x3": (35, 35, 192),
    "Mixed_5b": (35, 35, 256),
    "Mixed_5c": (35, 35, 288),
    "Mixed_5d": (35, 35, 288),
    "Mixed_6a": (17, 17, 768),
    "Mixed_6b": (17, 17, 768),
    "Mixed_6c": (17, 17, 768),
    "Mixed_6d": (17, 17, 768),
    "Mixed_6e": (17, 17, 768),
    "Mixed_7a": (8, 8, 1280),
    "Mixed_7b": (8, 8, 2048),
    "Mixed_7c": (8, 8, 2048),
}
# SHA-256 of the released checkpoint's 388 lines "name [shape]", in the order of creation.
CHECKPOINT_NAMES = "ba2c0245c4c6ef2f8c73815d6236513b3ab70e2fad1f3b65ea4f8036c387faa3"
SMALL = {"depth_multiplier": 0.25, "min_depth": 4}


def variables(size=299, channels=3, **options):
    rows = scope_costs(inception_v3.network, (size, size, channels), **options)
    return [variable for row in rows for variable in row.variables]


def counts(**options):
    found = variables(**options)
    return len(found), sum(v.size for v in found if v.trainable), sum(v.size for v in found)


def in_graph(shape, **options):
    """Builds the network on a placeholder in the current TF1 graph."""
    images = tf.compat.v1.placeholder(tf.float32, shape)
    return images, *inception_v3(images, **options)


def small(**options):
    options = {"num_classes": 5, "input_shape": (107, 107, 3), "seed": 1, **SMALL, **options}
    return inception_v3(**options)


def images(batch=2, size=107, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (batch, size, size, 3)).astype(np.float32)


def test_variables_are_the_checkpoints():
    with tf.Graph().as_default():
        in_graph([1, 299, 299, 3], num_classes=1001)
        found = [f"{v.op.name} {v.shape.as_list()}" for v in tf.compat.v1.global_variables()]
    assert len(found) == 388
    assert hashlib.sha256("\n".join(found).encode()).hexdigest() == CHECKPOINT_NAMES
    assert not [name for name in found if "gamma" in name]
    for odd in (
        "Mixed_5c/Branch_1/Conv_1_0c_5x5/weights [5, 5, 48, 64]",
        "Mixed_6a/Branch_0/Conv2d_1a_1x1/weights [3, 3, 288, 384]",
        "Mixed_7b/Branch_1/Conv2d_0b_3x1/weights [3, 1, 384, 384]",
    ):
        assert f"InceptionV3/{odd}" in found


@pytest.mark.parametrize(
    ("options", "trainable", "total"),
    [
        ({"num_classes": 1000, "aux_logits": False}, 23_817_352, 23_851_784),
        ({"num_classes": 1000}, 27_143_152, 27_179_376),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in [
                ({"num_classes": 1001, "aux_logits": False}, 23_819_401, 23_853_833),
                ({"num_classes": 1001}, 27_145_970, 27_182_194),
                ({"num_classes": 5, "aux_logits": False}, 21_778_597, 21_813_029),
                ({"num_classes": 5}, 24_339_242, 24_375_466),
                ({"num_classes": 0}, 21_768_352, 21_802_784),
                ({"num_classes": None}, 21_768_352, 21_802_784),
                ({"num_classes": 1000, "depth_multiplier": 0.25}, None, 2_248_572),
                ({"num_classes": 0, "depth_multiplier": 0.25}, None, 1_382_156),
                ({"num_classes": 1000, "depth_multiplier": 0.5}, None, 7_514_144),
                ({"num_classes": 0, "depth_multiplier": 0.5}, None, 5_463_824),
                ({"num_classes": 1000, "depth_multiplier": 2.0}, None, 102_969_104),
                ({"num_classes": 0, "depth_multiplier": 2.0}, None, 87_106_112),
                ({"num_classes": 1000, "aux_logits": False, "batch_norm_scale": True}, 23_834_568, 23_869_000),
            ]
        ),
    ],
)
def test_published_counts(options, trainable, total):
    _, found_trainable, found_total = counts(**options)
    assert found_total == total
    assert trainable in (None, found_trainable)


def test_multiply_adds():
    rows = scope_costs(inception_v3.network, (299, 299, 3), aux_logits=False)
    assert round(sum(row.macs for row in rows) / 1e9, 3) == 5.713


def test_end_points_and_shapes():
    with tf.Graph().as_default():
        _, logits, end_points = in_graph([5, 299, 299, 3])
    heads = ["AuxLogits", "AvgPool_1a", "PreLogits", "Logits", "Predictions"]
    assert list(end_points) == [*SHAPES, *heads]
    assert {name: tuple(end_points[name].shape[1:]) for name in SHAPES} == SHAPES
    assert [end_points[name].shape.as_list() for name in ("Logits", "AuxLogits", "Predictions")] == [[5, 1000]] * 3
    assert end_points["PreLogits"].shape == [5, 1, 1, 2048]
    assert logits.op.name.startswith("InceptionV3/Logits")


@pytest.mark.parametrize("names", [END_POINTS[:8], pytest.param(END_POINTS[8:], marks=pytest.mark.slow)])
def test_every_final_endpoint_ends_there(names):
    assert tuple(SHAPES) == END_POINTS
    for name in names:
        i = END_POINTS.index(name)
        with tf.Graph().as_default():
            _, net, end_points = in_graph([1, 299, 299, 3], final_endpoint=name)
            assert list(end_points) == list(END_POINTS[: i + 1])
            assert net is end_points[name]
            assert tuple(net.shape[1:]) == SHAPES[name]


def test_without_classes_it_ends_at_the_pooled_features():
    with tf.Graph().as_default():
        _, net, end_points = in_graph([5, 299, 299, 3], num_classes=None)
    assert net.shape == [5, 1, 1, 2048]
    assert net.op.name.startswith("InceptionV3/Logits/AvgPool")
    assert not {"Logits", "Predictions", "AuxLogits"} & set(end_points)


@pytest.mark.parametrize("multiplier", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_multiplier_scales_every_stage(multiplier):
    with tf.Graph().as_default():
        _, _, end_points = in_graph([1, 299, 299, 3], depth_multiplier=multiplier, aux_logits=False)
    for name, shape in SHAPES.items():
        assert end_points[name].shape[3] == int(shape[2] * multiplier)


def test_min_depth_holds():
    with tf.Graph().as_default():
        _, _, end_points = in_graph([1, 299, 299, 3], depth_multiplier=0.1, num_classes=0)
    assert end_points["Conv2d_1a_3x3"].shape[3] == 16
    assert end_points["Mixed_7c"].shape[3] == 203


@pytest.mark.parametrize(
    ("size", "maps", "aux"),
    [
        (75, (7, 3, 1), None),
        pytest.param(107, (11, 5, 2), "Conv2d_2a_1x1", marks=pytest.mark.slow),
        pytest.param(150, (16, 7, 3), "Conv2d_2a_1x1", marks=pytest.mark.slow),
        (224, (25, 12, 5), "Conv2d_2a_3x3"),
        pytest.param(331, (39, 19, 9), "Conv2d_2a_5x5", marks=pytest.mark.slow),
    ],
)
def test_other_sizes(size, maps, aux):
    with tf.Graph().as_default():
        _, logits, end_points = in_graph([2, size, size, 3], aux_logits=aux is not None)
        names = [v.op.name for v in tf.compat.v1.global_variables()]
    assert tuple(end_points[name].shape[1] for name in ("Mixed_5d", "Mixed_6e", "Mixed_7c")) == maps
    assert logits.shape == [2, 1000]
    assert (f"InceptionV3/AuxLogits/{aux}/weights" in names) == (aux is not None)


def test_too_small_and_too_large_images_are_refused():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"at least 107 pixels a side; aux_logits=False takes 75"):
            in_graph([1, 75, 75, 3])
        with pytest.raises(ValueError, match="at least 75 pixels"):
            in_graph([1, 74, 200, 3], aux_logits=False)
        with pytest.raises(ValueError, match=r"logits map of 2 x 2.*global_pool=True"):
            in_graph([1, 400, 400, 3], aux_logits=False, num_classes=7, **SMALL)


def test_global_pool_takes_any_size():
    with tf.Graph().as_default():
        _, logits, end_points = in_graph([1, 400, 600, 3], global_pool=True, num_classes=7, aux_logits=False, **SMALL)
    assert end_points["Mixed_7c"].shape[1:3] == [11, 17]
    assert end_points["global_pool"].shape == [1, 1, 1, 512]
    assert logits.shape == [1, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth_multiplier": 0.0}, "depth_multiplier must be above 0. Received: 0.0"),
        ({"depth_multiplier": -0.1}, "Received: -0.1"),
        ({"final_endpoint": "Mixed_8a"}, "final_endpoint must be one of .*Mixed_7c. Received: 'Mixed_8a'"),
        ({"in_channels": 1}, r"\[N, H, W, 1\]; see in_channels"),
        ({"memory": "less"}, "memory must be 'store' or 'recompute'. Received: 'less'"),
    ],
)
def test_options_out_of_range(options, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        in_graph([1, 299, 299, 3], **options)


def test_in_channels_sets_the_models_input():
    assert inception_v3.spec.input_shape({"in_channels": 1}) == (299, 299, 1)
    found = {v.name: v.shape for v in variables(channels=1, in_channels=1, num_classes=0)}
    assert found["InceptionV3/Conv2d_1a_3x3/weights"] == (3, 3, 1, 32)


def test_unknown_sizes_and_batch_are_fed_later():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed, logits, end_points = in_graph([None, None, None, 3], num_classes=7, aux_logits=False, **SMALL)
        assert logits.shape.as_list() == [None, 7]
        session.run(tf.compat.v1.global_variables_initializer())
        x = images(2, 299)
        values = session.run([end_points["Mixed_7c"], logits], {fed: x})
    assert values[0].shape == (2, 8, 8, 512)
    assert values[1].shape == (2, 7)


def test_training_and_evaluation_share_one_set_of_variables():
    options = {"num_classes": 7, **SMALL}
    with tf.Graph().as_default():
        in_graph([5, 107, 107, 3], is_training=True, **options)
        once = len(tf.compat.v1.global_variables())
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
            _, logits, _ = in_graph([2, 107, 107, 3], **options)
        assert len(tf.compat.v1.global_variables()) == once == 388
        losses = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)
    assert logits.shape == [2, 7]
    assert len(losses) == 98  # every kernel once; no bias, no beta


def test_spatial_squeeze_off():
    with tf.Graph().as_default():
        _, logits, end_points = in_graph([1, 299, 299, 3], num_classes=25, spatial_squeeze=False, **SMALL)
    assert logits.shape == [1, 1, 1, 25]
    assert end_points["Predictions"].shape == [1, 1, 1, 25]


def test_inference_repeats_and_does_not_depend_on_the_batch():
    model, x = small(), images(3)
    both = model(x).numpy()
    np.testing.assert_array_equal(model(x).numpy(), both)
    np.testing.assert_allclose(model(x[:1]).numpy(), both[:1], rtol=0, atol=1e-5 * np.abs(both).max())


def test_bottleneck_is_pooled_and_before_dropout(caplog):
    model, x = small(), images(2)
    found = model.bottleneck(x).numpy()
    assert found.shape == (2, 512)
    end_points = model.end_points(x)
    np.testing.assert_allclose(found, np.mean(end_points["Mixed_7c"], (1, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.features(x, "Mixed_6e"), end_points["Mixed_6e"], rtol=0, atol=1e-4)
    assert not [r for r in caplog.records if r.name.startswith("zoo")]
    with caplog.at_level(logging.WARNING):
        model.bottleneck(np.full((1, 107, 107, 3), 255.0, np.float32))
        model.bottleneck((x[:1] + 1) / 2)
    unscaled, shifted = (r.message for r in caplog.records if r.name.startswith("zoo"))
    assert "unscaled 0..255" in unscaled
    assert "scaled to 0..1" in shifted


def test_what_training_keeps_changes_no_number():
    x, results = images(3, 75), []
    for memory in ("store", "recompute"):
        model = small(memory=memory, aux_logits=False, dropout_keep_prob=1.0, input_shape=(75, 75, 3))
        with tf.GradientTape() as tape:
            output = model(x, training=True)
            loss = tf.reduce_sum(output**2)
        kernel, beta = (model.variable(f"Mixed_6e/Branch_3/Conv2d_0b_1x1/{n}") for n in ("weights", "BatchNorm/beta"))
        first = model.variable("Conv2d_1a_3x3/weights")
        results.append([output, *tape.gradient(loss, [v.value for v in (kernel, beta, first)])])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    for kept, again in zip(*results, strict=True):
        np.testing.assert_allclose(again, kept, rtol=0, atol=1e-4 * np.abs(kept).max())


def test_dropout_only_in_training():
    model, x = small(dropout_keep_prob=0.5, aux_logits=False, input_shape=(75, 75, 3)), images(4, 75)
    kept = model.end_points(x, training=True)["PreLogits"].numpy()
    assert 0.3 < np.mean(kept == 0) < 0.9
    end_points = model.end_points(x)
    np.testing.assert_array_equal(end_points["PreLogits"], end_points["AvgPool_1a"])


def test_moving_statistics_follow_slims_rule():
    """moving = decay * moving + (1 - decay) * batch, with the batch's variance over N - 1."""
    model, x = small(batch_norm_decay=0.9, aux_logits=False, input_shape=(75, 75, 3)), images(2, 75)
    kernel = model.variable("Conv2d_1a_3x3/weights").numpy()
    convolved = tf.nn.conv2d(x, kernel, 2, "VALID").numpy().reshape(-1, kernel.shape[-1])
    model(x, training=True)
    mean, variance = (model.variable(f"Conv2d_1a_3x3/BatchNorm/moving_{m}").numpy() for m in ("mean", "variance"))
    np.testing.assert_allclose(mean, 0.1 * convolved.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * convolved.var(0, ddof=1), rtol=1e-5)
    model(x)
    np.testing.assert_array_equal(model.variable("Conv2d_1a_3x3/BatchNorm/moving_mean"), mean)


def test_a_new_head_leaves_the_frozen_trunk_bit_identical():
    model, x = small(aux_logits=False, input_shape=(75, 75, 3)), images(8, 75)
    model.freeze("Conv2d*", "Mixed*")
    before = {name: model.variable(name).numpy() for name in model.variable_names}
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, np.arange(8) % 5, epochs=2, verbose=0)
    changed = {name for name in before if not np.array_equal(before[name], model.variable(name).numpy())}
    assert changed == {"InceptionV3/Logits/Conv2d_1c_1x1/weights", "InceptionV3/Logits/Conv2d_1c_1x1/biases"}


def test_average_pooling_can_count_the_padding():
    """A map of ones stays ones, except where the padding counts: 4/9 in corners, 6/9 on edges."""
    from zoo.nets.inception_blocks import average_3x3

    ones = tf.ones([1, 3, 3, 1])
    np.testing.assert_allclose(average_3x3(ones)[0, :, :, 0], np.ones((3, 3)), rtol=1e-6)
    counted = average_3x3(ones, count_include_pad=True)[0, :, :, 0]
    np.testing.assert_allclose(counted, np.array([[4, 6, 4], [6, 9, 6], [4, 6, 4]]) / 9, rtol=1e-6)
