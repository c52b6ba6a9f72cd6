"""Inception-v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv 1512.00567).

The released network, not the paper's Table 1, which differs. Variables have the names of the slim checkpoint, its
oddities included (``Mixed_5c/Branch_1/Conv_1_0c_5x5``; ``Mixed_6a/Branch_0/Conv2d_1a_1x1`` is a 3 x 3 kernel).
"""

import contextlib
from collections.abc import Callable

import tensorflow as tf

from zoo import layers
from zoo.data.preprocessing import PRESETS
from zoo.nets.inception_blocks import Conv, Mixed, Pool, apply_stage, average_3x3, block_8, block_17, block_35
from zoo.registry import register_net
from zoo.scoping import NetSpec, arg_scope, dense_tensor, variable_scope

# 35 x 35 -> 17 x 17 and 17 x 17 -> 8 x 8 (figure 10).
_REDUCE_35 = (
    (Conv("Conv2d_1a_1x1", 384, (3, 3), 2, "VALID"),),
    (Conv("Conv2d_0a_1x1", 64), Conv("Conv2d_0b_3x3", 96), Conv("Conv2d_1a_1x1", 96, (3, 3), 2, "VALID")),
    (Pool("max", "MaxPool_1a_3x3"),),
)
_REDUCE_17 = (
    (Conv("Conv2d_0a_1x1", 192), Conv("Conv2d_1a_3x3", 320, stride=2, padding="VALID")),
    (
        Conv("Conv2d_0a_1x1", 192),
        Conv("Conv2d_0b_1x7", 192),
        Conv("Conv2d_0c_7x1", 192),
        Conv("Conv2d_1a_3x3", 192, stride=2, padding="VALID"),
    ),
    (Pool("max", "MaxPool_1a_3x3"),),
)

# The trunk; each name is an end point, each size that of a 299 x 299 image.
STAGES: tuple[Conv | Pool | Mixed, ...] = (
    Conv("Conv2d_1a_3x3", 32, stride=2, padding="VALID"),  # 149 x 149 x 32
    Conv("Conv2d_2a_3x3", 32, padding="VALID"),  # 147 x 147 x 32
    Conv("Conv2d_2b_3x3", 64),  # 147 x 147 x 64
    Pool("max", "MaxPool_3a_3x3"),  # 73 x 73 x 64
    Conv("Conv2d_3b_1x1", 80, padding="VALID"),  # 73 x 73 x 80
    Conv("Conv2d_4a_3x3", 192, padding="VALID"),  # 71 x 71 x 192
    Pool("max", "MaxPool_5a_3x3"),  # 35 x 35 x 192
    block_35("Mixed_5b", 32),  # 35 x 35 x 256
    block_35("Mixed_5c", 64, "Conv2d_0b_1x1", "Conv_1_0c_5x5"),  # 35 x 35 x 288
    block_35("Mixed_5d", 64),  # 35 x 35 x 288
    Mixed("Mixed_6a", _REDUCE_35),  # 17 x 17 x 768
    block_17("Mixed_6b", 128),  # 17 x 17 x 768
    block_17("Mixed_6c", 160),  # 17 x 17 x 768
    block_17("Mixed_6d", 160),  # 17 x 17 x 768
    block_17("Mixed_6e", 192),  # 17 x 17 x 768
    Mixed("Mixed_7a", _REDUCE_17),  # 8 x 8 x 1280
    block_8("Mixed_7b", "Conv2d_0b_3x1"),  # 8 x 8 x 2048
    block_8("Mixed_7c", "Conv2d_0c_3x1"),  # 8 x 8 x 2048
)
END_POINTS = tuple(stage.scope for stage in STAGES)
AUX_FROM = "Mixed_6e"


def inception_arg_scope(
    *,
    is_training: bool = False,
    weight_decay: float = 4e-5,
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    batch_norm_scale: bool = False,
    count_include_pad: bool = False,
    recompute: bool = False,
) -> contextlib.AbstractContextManager[object]:
    """Opens the defaults of the network's layers: He initial weights, L2, batch norm and ReLU after each convolution.

    Args:
        is_training: Batch norm uses the batch's statistics, dropout drops.
        weight_decay: Factor of the L2 loss of the kernels; batch norm is not decayed.
        batch_norm_decay: Decay of the moving statistics.
        batch_norm_epsilon: Added to the variance.
        batch_norm_scale: Whether batch norm has a gamma; the released weights have none.
        count_include_pad: Average pooling as torchvision's, see ``average_3x3``.
        recompute: Computes ReLUs again in the backward pass, see ``layers.batch_norm``.

    Returns:
        A context manager.
    """
    batch_norm = {
        "decay": batch_norm_decay,
        "epsilon": batch_norm_epsilon,
        "scale": batch_norm_scale,
        "is_training": is_training,
        "recompute": recompute,
    }
    stack = contextlib.ExitStack()
    stack.enter_context(
        arg_scope(
            [layers.conv2d],
            weights_initializer=layers.variance_scaling_initializer(),
            weights_regularizer=layers.l2_regularizer(weight_decay),
            normalizer_fn=layers.batch_norm,
            normalizer_params=batch_norm,
        )
    )
    stack.enter_context(arg_scope([layers.dropout], is_training=is_training))
    stack.enter_context(arg_scope([average_3x3], count_include_pad=count_include_pad, recompute=recompute))
    return stack


@register_net(
    NetSpec(
        name="inception_v3",
        paper="Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer Vision, "
        "2015, arXiv:1512.00567",
        input_size=(299, 299, 3),
        num_classes=1000,
        published_params={"trainable": 27_143_152, "total": 27_179_376},
        gmacs=5.713,
        preprocessing=PRESETS["inception"],
        variants=(
            ({"aux_logits": False}, {"trainable": 23_817_352, "total": 23_851_784}),
            ({"num_classes": 1001}, {"trainable": 27_145_970, "total": 27_182_194}),
            ({"num_classes": 1001, "aux_logits": False}, {"trainable": 23_819_401, "total": 23_853_833}),
            ({"num_classes": 0}, {"trainable": 21_768_352, "total": 21_802_784}),
        ),
        inputs=lambda options: (299, 299, options.get("in_channels", 3)),
        computing=("batch_norm_epsilon", "count_include_pad"),
        heads=("Logits",),
        aux_heads=("AuxLogits",),
        headless={"num_classes": 0, "global_pool": True, "aux_logits": False},
        last_map="Mixed_7c",
        worth_reading=("Mixed_6b", "Mixed_6e", "Mixed_7a", "Mixed_7c"),
        aux_weights={"AuxLogits": 0.4},
        dropout="dropout_keep_prob",
        elsewhere={"keras": "InceptionV3", "torchvision": "inception_v3", "slim": "inception_v3"},
    )
)
def inception_v3(
    images: tf.Tensor,
    num_classes: int | None = 1000,
    *,
    is_training: bool = False,
    aux_logits: bool = True,
    dropout_keep_prob: float = 0.8,
    depth_multiplier: float = 1.0,
    min_depth: int = 16,
    final_endpoint: str | None = None,
    global_pool: bool = False,
    spatial_squeeze: bool = True,
    in_channels: int = 3,
    weight_decay: float = 4e-5,
    batch_norm_decay: float = 0.9997,
    batch_norm_epsilon: float = 0.001,
    batch_norm_scale: bool = False,
    count_include_pad: bool = False,
    memory: str = "recompute",
    scope: str = "InceptionV3",
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Inception-v3: 5.7 billion multiply-adds for a 299 x 299 image, 2048 features, an auxiliary head for training.

    Args:
        images: [N, H, W, C] in [-1, 1]; H and W at least 75, and at least 107 with the auxiliary head.
        num_classes: Width of the logits; None or 0 ends at the pooled features.
        is_training: Batch statistics and dropout.
        aux_logits: Builds the auxiliary head on Mixed_6e (weigh its loss by 0.4).
        dropout_keep_prob: Share of the pooled features that dropout keeps in training.
        depth_multiplier: Widens (2.0) or thins (.5) every layer of the trunk; above 0.
        min_depth: Fewest channels of a thinned layer.
        final_endpoint: Ends at this stage of the trunk and returns it instead of logits.
        global_pool: Averages over whatever map the image gives; otherwise over 8 x 8 at stride 2, as released.
        spatial_squeeze: Returns logits [N, num_classes] instead of [N, 1, 1, num_classes].
        in_channels: Channels that the images must have.
        weight_decay: Factor of the L2 loss of the kernels.
        batch_norm_decay: Decay of the moving statistics.
        batch_norm_epsilon: Added to the variance.
        batch_norm_scale: Whether batch norm has a gamma (torchvision's weights do).
        count_include_pad: Average pooling in the blocks counts the padding, as torchvision's.
        memory: What training keeps for the backward pass: "store" everything, or "recompute" the ReLUs inside the
            blocks, which then are not kept; both give the same gradients.
        scope: Variable scope of the network.

    Returns:
        Logits [N, num_classes] (without classes the pooled features [N, 1, 1, 2048]; with ``final_endpoint`` that map),
        and the end points: the stages in ``END_POINTS``, ``AuxLogits``, ``AvgPool_1a`` or ``global_pool``,
        ``PreLogits``, ``Logits``, ``Predictions``.

    Raises:
        ValueError: An option is out of its range, or the images are too small, or too large for ``spatial_squeeze``.

    Source: section 6 and the released slim network.
    """
    if num_classes is not None and num_classes < 0:
        raise ValueError(f"inception_v3: num_classes is 0 or more, or None. Received: {num_classes}")
    if depth_multiplier <= 0:
        raise ValueError(f"depth_multiplier must be above 0. Received: {depth_multiplier}")
    if final_endpoint is not None and final_endpoint not in END_POINTS:
        raise ValueError(f"final_endpoint must be one of {', '.join(END_POINTS)}. Received: {final_endpoint!r}")
    if memory not in ("store", "recompute"):
        raise ValueError(f"memory must be 'store' or 'recompute'. Received: {memory!r}")
    aux_classes = num_classes if aux_logits and final_endpoint is None else None
    images = dense_tensor(images, "inception_v3")
    _check_images(images, in_channels, 107 if aux_classes else 75)

    def widen(depth: int) -> int:
        return max(int(depth * depth_multiplier), min_depth)

    end_points: dict[str, tf.Tensor] = {}
    with (
        variable_scope(scope),
        inception_arg_scope(
            is_training=is_training,
            weight_decay=weight_decay,
            batch_norm_decay=batch_norm_decay,
            batch_norm_epsilon=batch_norm_epsilon,
            batch_norm_scale=batch_norm_scale,
            count_include_pad=count_include_pad,
            recompute=is_training is True and memory == "recompute",
        ),
    ):
        net = images
        for stage in STAGES:
            net = end_points[stage.scope] = apply_stage(net, stage, widen, relu_last=is_training is True)
            if stage.scope == final_endpoint:
                return net, end_points
        if aux_classes:
            end_points["AuxLogits"] = aux_head(end_points[AUX_FROM], aux_classes, widen, spatial_squeeze)
        with variable_scope("Logits"):
            if global_pool:
                net = end_points["global_pool"] = tf.reduce_mean(net, [1, 2], keepdims=True, name="global_pool")
            else:
                kernel = [min(8, side or 8) for side in net.shape.as_list()[1:3]]
                net = layers.avg_pool2d(net, kernel, padding="VALID", scope="AvgPool_1a_{}x{}".format(*kernel))
                end_points["AvgPool_1a"] = net
            if not num_classes:
                return net, end_points
            # 1 x 1 x 2048
            net = end_points["PreLogits"] = layers.dropout(net, dropout_keep_prob, scope="Dropout_1b")
            logits = layers.conv2d(
                net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="Conv2d_1c_1x1"
            )
            if spatial_squeeze:
                logits = _squeeze(logits, images)
        end_points["Logits"] = logits
        end_points["Predictions"] = layers.softmax(logits, scope="Predictions")
    return logits, end_points


def aux_head(
    net: tf.Tensor, num_classes: int, widen: Callable[[int], int] = int, spatial_squeeze: bool = True
) -> tf.Tensor:
    """The auxiliary classifier on the 17 x 17 grid (section 4), under the scope ``AuxLogits``.

    Args:
        net: [N, H, W, 768], H and W at least 5.
        num_classes: Width of the logits.
        widen: From the published depth of a layer to the depth that is used.
        spatial_squeeze: Removes the axes of the map when it is 1 x 1.

    Returns:
        [N, num_classes], or [N, H', W', num_classes].
    """
    with variable_scope("AuxLogits"):
        net = layers.avg_pool2d(net, [5, 5], stride=3, padding="VALID", scope="AvgPool_1a_5x5")  # 5 x 5 x 768
        net = layers.conv2d(net, widen(128), [1, 1], scope="Conv2d_1b_1x1")  # 5 x 5 x 128
        kernel = [min(5, side or 5) for side in net.shape.as_list()[1:3]]
        net = layers.conv2d(
            net,
            widen(768),
            kernel,
            padding="VALID",
            weights_initializer=layers.truncated_normal_initializer(stddev=0.01),
            scope="Conv2d_2a_{}x{}".format(*kernel),
        )  # 1 x 1 x 768
        net = layers.conv2d(
            net,
            num_classes,
            [1, 1],
            activation_fn=None,
            normalizer_fn=None,
            weights_initializer=layers.truncated_normal_initializer(stddev=0.001),
            scope="Conv2d_2b_1x1",
        )
        return tf.squeeze(net, [1, 2], name="SpatialSqueeze") if spatial_squeeze else net


def _check_images(images: tf.Tensor, in_channels: int, smallest: int) -> None:
    """Refuses images of another rank, with other channels, or too small for the network."""
    if images.shape.rank != 4 or images.shape[3] != in_channels:
        raise ValueError(f"images must be [N, H, W, {in_channels}]; see in_channels. Received shape {images.shape}")
    if any(side is not None and side < smallest for side in images.shape.as_list()[1:3]):
        cure = "; aux_logits=False takes 75" if smallest == 107 else ""
        raise ValueError(f"images must be at least {smallest} pixels a side{cure}. Received shape {images.shape}")


def _squeeze(logits: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """[N, 1, 1, C] -> [N, C]; images that leave a larger map are refused with the way out."""
    if any(side not in (None, 1) for side in logits.shape.as_list()[1:3]):
        raise ValueError(
            f"Images of shape {images.shape} leave a logits map of {logits.shape[1]} x {logits.shape[2]}, which cannot "
            "be squeezed to one vector an image: pass global_pool=True, or spatial_squeeze=False to get the map."
        )
    return tf.squeeze(logits, [1, 2], name="SpatialSqueeze")
