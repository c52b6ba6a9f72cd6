"""The CIFAR-10 network of TensorFlow's guide to convolutional networks and to towers on several GPUs.

A. Krizhevsky, I. Sutskever and G. Hinton, "ImageNet classification with deep convolutional neural networks", 2012, for
local response normalisation (section 3.3) and overlapping pooling (section 3.4); the layers are those of the guide.

    layer           output        parameters
    conv1           24x24x64           4,864   5 x 5 x 3 x 64 + 64
    pool1, norm1    12x12x64               -
    conv2           12x12x64         102,464   5 x 5 x 64 x 64 + 64
    norm2, pool2    6x6x64                 -
    local3          384              885,120   2,304 x 384 + 384
    local4          192               73,920   384 x 192 + 192
    softmax_linear  10                 1,930   192 x 10 + 10
    total                          1,068,298
"""

from __future__ import annotations

import contextlib

import tensorflow as tf

from zoo import layers
from zoo.data.preprocessing import Preprocessing
from zoo.registry import register_net
from zoo.scoping import NetSpec, arg_scope, dense_tensor, variable_scope


@register_net(
    NetSpec(
        name="cifarnet",
        paper="Krizhevsky, Sutskever, Hinton: ImageNet classification with deep convolutional neural networks, 2012; "
        "in the form of TensorFlow's CIFAR-10 guide",
        input_size=(24, 24, 3),
        num_classes=10,
        published_params={"trainable": 1_068_298, "total": 1_068_298},
        gmacs=0.018470784,
        preprocessing=Preprocessing((24, 24), "crop_or_pad", mean=(0.5,) * 3, std=(0.25,) * 3),
        heads=("softmax_linear",),
        headless={"num_classes": None},
    )
)
def cifarnet(
    images: tf.Tensor,
    num_classes: int | None = 10,
    *,
    is_training: bool | tf.Tensor = False,
    weight_decay: float = 0.004,
    scope: str | None = None,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Two convolutions with local response normalisation, and two fully connected ("local") layers.

    Args:
        images: [N, 24, 24, 3] floats around 0; other sizes of at least 4 x 4 give another local3.
        num_classes: Number of classes; None ends at local4.
        is_training: Changes nothing: there is neither dropout nor batch norm.
        weight_decay: Factor of the L2 loss of local3 and local4.
        scope: Root scope; None as in the guide's checkpoints: ``conv1/weights``.

    Returns:
        Logits [N, num_classes], and each layer's output by scope name, "Logits" and "Predictions".

    Raises:
        ValueError: Images that are not [N, H, W, 3] with static height and width.
    """
    images = dense_tensor(images, "cifarnet")
    shape = images.shape
    if shape.rank != 4 or shape[3] != 3 or None in shape.as_list()[1:]:
        raise ValueError(f"cifarnet takes images [N, 24, 24, 3], got shape {shape}; crop or resize the pictures first")
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"cifarnet: num_classes is at least 1, or None for no output layer; got {num_classes}")
    decay = layers.l2_regularizer(weight_decay) if weight_decay else None
    ends = {}
    with (
        variable_scope(scope) if scope else contextlib.nullcontext(),
        arg_scope([layers.conv2d], weights_initializer=_normal(0.05)),
        arg_scope(
            [layers.fully_connected],
            weights_initializer=_normal(0.04),
            weights_regularizer=decay,
            biases_initializer=layers.constant_initializer(0.1),
        ),
    ):
        # 24 x 24 x 3
        net = ends["conv1"] = layers.conv2d(images, 64, [5, 5], scope="conv1")
        net = ends["pool1"] = layers.max_pool2d(net, [3, 3], padding="SAME", scope="pool1")
        net = ends["norm1"] = _normalise(net, "norm1")
        # 12 x 12 x 64
        net = layers.conv2d(net, 64, [5, 5], biases_initializer=layers.constant_initializer(0.1), scope="conv2")
        ends["conv2"] = net
        net = ends["norm2"] = _normalise(net, "norm2")
        net = ends["pool2"] = layers.max_pool2d(net, [3, 3], padding="SAME", scope="pool2")
        # 6 x 6 x 64
        net = ends["local3"] = layers.fully_connected(layers.flatten(net), 384, scope="local3")
        # 384
        net = ends["local4"] = layers.fully_connected(net, 192, scope="local4")
        # 192
        if num_classes is None:
            return net, ends
        logits = ends["Logits"] = layers.fully_connected(
            net,
            num_classes,
            None,
            weights_initializer=_normal(1 / 192),
            weights_regularizer=None,
            biases_initializer=layers.zeros_initializer(),
            scope="softmax_linear",
        )
        ends["Predictions"] = layers.softmax(logits, scope="Predictions")
    return logits, ends


def _normal(stddev: float) -> layers.truncated_normal_initializer:
    return layers.truncated_normal_initializer(stddev=stddev)


def _normalise(net: tf.Tensor, scope: str) -> tf.Tensor:
    """Krizhevsky's b = a / (1 + alpha sum a'^2)^beta over the 4 channels on each side (section 3.3)."""
    alpha, beta, radius = 0.001 / 9.0, 0.75, 4
    with tf.name_scope(scope):
        if net.dtype == tf.float64:  # TensorFlow's kernel knows no doubles
            squares = tf.pad(tf.square(net), [[0, 0], [0, 0], [0, 0], [radius, radius]])
            total = tf.add_n([squares[..., i : i + net.shape[-1]] for i in range(2 * radius + 1)])
            return net / (1.0 + alpha * total) ** beta
        # nor do its kernels know bfloat16 on every device
        wide = tf.cast(net, tf.float32)
        return tf.cast(tf.nn.local_response_normalization(wide, radius, 1.0, alpha, beta), net.dtype)
