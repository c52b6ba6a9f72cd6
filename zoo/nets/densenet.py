"""DenseNet: every layer of a block sees the maps of all layers before it.

G. Huang, Z. Liu, L. van der Maaten and K. Weinberger, "Densely Connected Convolutional Networks", arXiv:1608.06993.

    network        k   blocks          parameters    GMACs    memory of one 224 x 224 image in training, MiB
    densenet121    32   6, 12, 24, 16   7,978,856    2.834    25 (187 if all is stored)
    densenet161    48   6, 12, 36, 24  28,681,000    7.728    40 (350)
    densenet169    32   6, 12, 32, 32  14,149,480    3.360    27 (226)
    densenet201    32   6, 12, 48, 32  20,013,928    4.291    29 (292)
    densenet264    32   6, 12, 64, 48  33,337,704    5.752    31 (399)

The memory column counts the tensors that ``memory="recompute"`` and a network that stores everything keep for the
backward pass. Variables have the names of the slim DenseNet.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import tensorflow as tf

from zoo import layers
from zoo.data.preprocessing import PRESETS, Preprocessing
from zoo.layers.dense_block import dense_block, norm_pool, norm_relu
from zoo.registry import Net, register_net
from zoo.scoping import NetSpec, arg_scope, dense_tensor, get_variable_scope, variable_scope

Output = tuple[tf.Tensor, dict[str, tf.Tensor]]
PAPER = "Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, 2016, arXiv:1608.06993"


def _imagenet_input(options: Mapping[str, Any]) -> tuple[int, int, int]:
    return (224, 224, options.get("in_channels", 3))


@register_net(
    NetSpec(
        name="densenet",
        paper=PAPER,
        input_size=(224, 224, 3),
        num_classes=1000,
        published_params={"trainable": 7_978_856, "total": 8_062_504},
        gmacs=2.834,
        preprocessing=PRESETS["imagenet_torchvision"],
        inputs=_imagenet_input,
        headless={"num_classes": 0},
        last_map="final_block",
        dropout="dropout_rate",
    )
)
def densenet(
    images: tf.Tensor,
    num_classes: int | None = 1000,
    *,
    is_training: bool = False,
    block_config: Sequence[int] = (6, 12, 24, 16),
    growth_rate: int = 32,
    stem_channels: int | None = None,
    stem: str = "imagenet",
    bottleneck: int | None = 4,
    compression: float = 0.5,
    dropout_rate: float = 0.0,
    memory: str = "recompute",
    in_channels: int = 3,
    weight_decay: float = 1e-4,
    batch_norm_decay: float = 0.99,
    batch_norm_epsilon: float = 1e-5,
    same_padding: bool = False,
    spatial_squeeze: bool = True,
    scope: str = "densenet",
) -> Output:
    """A DenseNet of any size; without options DenseNet-121.

    Args:
        images: [N, H, W, in_channels].
        num_classes: Width of the logits; None or 0 ends at the pooled features.
        is_training: Batch statistics and dropout.
        block_config: Layers of each dense block.
        growth_rate: Maps that each layer adds, k.
        stem_channels: Maps of the first convolution; 2k by default.
        stem: "imagenet" (7 x 7 at stride 2, then 3 x 3 max pooling) or "cifar" (3 x 3).
        bottleneck: Width of the 1 x 1 convolution of a layer in units of k; None for no bottleneck.
        compression: Part of a block's maps that a transition keeps, above 0 to 1.
        dropout_rate: Part of the values dropped after each convolution but the first.
        memory: What training keeps for the backward pass: "store" everything, "recompute" each map once and the
            bottlenecks' outputs, "minimal" each map once. The result is the same.
        in_channels: Channels that the images must have.
        weight_decay: Factor of the L2 loss of the kernels.
        batch_norm_decay: Part of the moving statistics that a step keeps.
        batch_norm_epsilon: Added to the variances.
        same_padding: Pads the ImageNet stem as TensorFlow's SAME does, for the slim checkpoints, which were trained
            so; otherwise by 3 and 1 pixels on all sides, as the paper's and everybody else's.
        spatial_squeeze: Returns logits [N, num_classes] instead of [N, 1, 1, num_classes].
        scope: Variable scope of the network.

    Returns:
        Logits [N, num_classes] (without classes the pooled features [N, C]), and the end points: ``conv1``,
        ``pool1``, ``dense_block{i}``, ``transition_block{i}``, ``final_block``, ``global_pool``, ``Logits``,
        ``Predictions``.

    Raises:
        ValueError: An option is out of its range, or the images do not fit.

    Source: section 3 and table 1.
    """
    images = dense_tensor(images, "densenet")
    _check(images, num_classes, in_channels, block_config, growth_rate, stem, compression)
    ends: dict[str, tf.Tensor] = {}
    norm: dict[str, Any] = {"decay": batch_norm_decay, "epsilon": batch_norm_epsilon, "is_training": is_training}
    decay = layers.l2_regularizer(weight_decay)
    with (
        variable_scope(scope),
        arg_scope([dense_block, norm_pool, norm_relu], **norm),
        arg_scope([dense_block, norm_pool], memory=memory, dropout_rate=dropout_rate),
        arg_scope([dense_block, norm_pool, layers.conv2d], weights_regularizer=decay),
        arg_scope([layers.conv2d], weights_initializer=layers.variance_scaling_initializer(), activation_fn=None),
    ):
        channels = stem_channels or 2 * growth_rate
        if stem == "cifar":  # 32 x 32 x 3
            net = ends["conv1"] = layers.conv2d(images, channels, 3, biases_initializer=None, scope="conv1")
        else:  # 224 x 224 x 3
            padding: Any = "SAME" if same_padding else [[0, 0], [3, 3], [3, 3], [0, 0]]
            net = ends["conv1"] = layers.conv2d(
                images, channels, 7, stride=2, padding=padding, biases_initializer=None, scope="conv1"
            )
            # 112 x 112 x 2k
            edges: Any = "SAME" if same_padding else [[0, 0], [1, 1], [1, 1], [0, 0]]
            with arg_scope([norm_pool], dropout_rate=0.0):
                net = ends["pool1"] = norm_pool(net, pool="MAX", padding=edges, scope=get_variable_scope())
        # 56 x 56 x 2k (CIFAR: 32 x 32)
        for i, num_layers in enumerate(block_config, 1):
            maps = dense_block(net, num_layers, growth_rate, bottleneck=bottleneck, scope=f"dense_block{i}")
            ends[f"dense_block{i}"] = tf.concat(maps.pieces, -1)
            channels += num_layers * growth_rate
            if i == len(block_config):
                break
            # half the size, and compression times the maps
            channels = int(channels * compression)
            with variable_scope(f"transition_block{i}"):
                net = ends[f"transition_block{i}"] = norm_pool(maps, channels, scope="blk")
        # 7 x 7 (CIFAR: 8 x 8)
        net = ends["final_block"] = norm_relu(maps, scope="final_block")
        net = ends["global_pool"] = tf.reduce_mean(net, [1, 2], keepdims=True)
        # 1 x 1
        if not num_classes:
            return tf.squeeze(net, [1, 2]) if spatial_squeeze else net, ends
        logits = layers.conv2d(net, num_classes, 1, scope="logits")
        logits = ends["Logits"] = tf.squeeze(logits, [1, 2]) if spatial_squeeze else logits
        ends["Predictions"] = layers.softmax(logits, scope="Predictions")
    return logits, ends


def _published(
    name: str, blocks: tuple[int, ...], growth_rate: int, params: tuple[int, int], gmacs: float, **spec: Any
) -> Net:
    """Registers ``densenet`` with other defaults under a name of its own."""
    network = functools.partial(densenet.network, block_config=blocks, growth_rate=growth_rate, scope=name)
    network.__module__, network.__name__, network.__qualname__ = __name__, name, name  # type: ignore[attr-defined]
    network.__doc__ = (densenet.network.__doc__ or "").replace(
        "A DenseNet of any size; without options DenseNet-121.",
        f"DenseNet-{name.removeprefix('densenet')}: blocks of {', '.join(map(str, blocks))} layers, k = {growth_rate}.",
    )
    counts = {"trainable": params[0], "total": params[1]}
    return register_net(
        replace(densenet.spec, name=name, published_params=counts, gmacs=gmacs, preset_of="densenet", **spec)
    )(network)


densenet121 = _published(
    *("densenet121", (6, 12, 24, 16), 32, (7_978_856, 8_062_504), 2.834),
    variants=(({"num_classes": 0}, {"trainable": 6_953_856, "total": 7_037_504}),),
    elsewhere={"keras": "DenseNet121", "torchvision": "densenet121", "slim": "densenet121"},
)
densenet161 = _published(
    *("densenet161", (6, 12, 36, 24), 48, (28_681_000, 28_900_936), 7.728),
    variants=(({"num_classes": 0}, {"trainable": 26_472_000, "total": 26_691_936}),),
    elsewhere={"torchvision": "densenet161", "slim": "densenet161"},
)
densenet169 = _published(
    *("densenet169", (6, 12, 32, 32), 32, (14_149_480, 14_307_880), 3.360),
    variants=(({"num_classes": 0}, {"trainable": 12_484_480, "total": 12_642_880}),),
    elsewhere={"keras": "DenseNet169", "torchvision": "densenet169", "slim": "densenet169"},
)
densenet201 = _published(
    *("densenet201", (6, 12, 48, 32), 32, (20_013_928, 20_242_984), 4.291),
    variants=(({"num_classes": 0}, {"trainable": 18_092_928, "total": 18_321_984}),),
    elsewhere={"keras": "DenseNet201", "torchvision": "densenet201"},
)
densenet264 = _published(  # table 1 of the paper; its technical report means k = 48
    *("densenet264", (6, 12, 64, 48), 32, (33_337_704, 33_736_232), 5.752),
    variants=(
        ({"num_classes": 0}, {"trainable": 30_648_704, "total": 31_047_232}),
        ({"growth_rate": 48}, {"trainable": 72_686_632, "total": 73_284_424}),
    ),
)


@register_net(
    NetSpec(
        name="densenet_cifar",
        paper=PAPER,
        input_size=(32, 32, 3),
        num_classes=10,
        published_params={"trainable": 769_162, "total": 793_150},
        gmacs=0.288,
        preprocessing=Preprocessing((32, 32), "crop_or_pad", mean=(0.0,) * 3, std=(1.0,) * 3),
        variants=tuple(
            ({"depth": depth, "growth_rate": k, "bottleneck": bc, "num_classes": classes}, {"trainable": count})
            for depth, k, bc, counts in (
                (40, 12, False, (1_019_722, 1_060_132)),
                (100, 12, False, (6_979_642, 7_084_852)),
                (100, 24, False, (27_249_082, 27_457_972)),
                (100, 12, True, (769_162, 800_032)),
                (250, 24, True, (15_324_406, 15_480_556)),
                (190, 40, True, (25_624_430, 25_821_620)),
                (40, 36, True, (1_542_682,)),
                (40, 48, True, (2_733_130,)),
                (40, 60, True, (4_261_690,)),
            )
            for classes, count in zip((10, 100), counts, strict=False)  # some have a count for CIFAR-10 only
        ),
        inputs=lambda options: (32, 32, options.get("in_channels", 3)),
        headless={"num_classes": 0},
        last_map="final_block",
        dropout="dropout_rate",
    )
)
def densenet_cifar(
    images: tf.Tensor,
    depth: int = 100,
    growth_rate: int = 12,
    bottleneck: bool = True,
    compression: float | None = None,
    *,
    num_classes: int | None = 10,
    is_training: bool = False,
    dropout_rate: float = 0.0,
    memory: str = "recompute",
    in_channels: int = 3,
    weight_decay: float = 1e-4,
    batch_norm_decay: float = 0.9,
    batch_norm_epsilon: float = 1e-5,
    spatial_squeeze: bool = True,
    scope: str = "densenet_cifar",
) -> Output:
    """The DenseNets for 32 x 32 images: three blocks of equal depth; by default DenseNet-BC (L = 100, k = 12).

    Args:
        images: [N, H, W, in_channels].
        depth: Layers with weights, L: 3n + 4 without a bottleneck, 6n + 4 with one.
        growth_rate: Maps that each layer adds, k.
        bottleneck: True for DenseNet-BC.
        compression: Part of a block's maps that a transition keeps; 0.5 with a bottleneck, 1 without.
        num_classes: Width of the logits; None or 0 ends at the pooled features.
        is_training: Batch statistics and dropout.
        dropout_rate: Part of the values dropped after each convolution but the first; the paper drops 0.2 where it
            trains without augmentation.
        memory: As in ``densenet``.
        in_channels: Channels that the images must have.
        weight_decay: Factor of the L2 loss of the kernels.
        batch_norm_decay: Part of the moving statistics that a step keeps.
        batch_norm_epsilon: Added to the variances.
        spatial_squeeze: Returns logits [N, num_classes] instead of [N, 1, 1, num_classes].
        scope: Variable scope of the network.

    Returns:
        As ``densenet``.

    Raises:
        ValueError: The depth fits no such network, or an option is out of its range.

    Source: sections 3 and 4.2.
    """
    step = 6 if bottleneck else 3
    if depth < step + 4 or (depth - 4) % step:
        rule = f"{step}n + 4 {'with' if bottleneck else 'without'} a bottleneck"
        raise ValueError(
            f"densenet_cifar: depth is {rule}; got {depth}. Take {max(1, round((depth - 4) / step)) * step + 4}."
        )
    return densenet.network(
        images,
        num_classes,
        is_training=is_training,
        block_config=[(depth - 4) // step] * 3,
        growth_rate=growth_rate,
        stem_channels=2 * growth_rate if bottleneck else 16,
        stem="cifar",
        bottleneck=4 if bottleneck else None,
        compression=(0.5 if bottleneck else 1.0) if compression is None else compression,
        dropout_rate=dropout_rate,
        memory=memory,
        in_channels=in_channels,
        weight_decay=weight_decay,
        batch_norm_decay=batch_norm_decay,
        batch_norm_epsilon=batch_norm_epsilon,
        spatial_squeeze=spatial_squeeze,
        scope=scope,
    )


def _check(
    images: tf.Tensor,
    num_classes: int | None,
    in_channels: int,
    block_config: Sequence[int],
    growth_rate: int,
    stem: str,
    compression: float,
) -> None:
    shape = images.shape
    if shape.rank != 4 or shape[3] != in_channels:
        raise ValueError(f"densenet takes images [N, H, W, {in_channels}]; got {shape}. Set in_channels for others.")
    if num_classes is not None and num_classes < 0:
        raise ValueError(f"densenet: num_classes is 0 or more; got {num_classes}.")
    if not block_config or any(not isinstance(n, Integral) or n < 1 for n in block_config):
        raise ValueError(
            "densenet: block_config holds the layers of each block, whole numbers from 1, as (6, 12, 24, 16); "
            f"got {block_config!r}."
        )
    if not isinstance(growth_rate, Integral) or growth_rate < 1:
        raise ValueError(f"densenet: growth_rate is a whole number from 1; got {growth_rate!r}.")
    if stem not in ("imagenet", "cifar"):
        raise ValueError(f"densenet: stem is 'imagenet' or 'cifar'; got {stem!r}.")
    if not 0 < compression <= 1:
        raise ValueError(f"densenet: compression is above 0 and at most 1; got {compression}.")
    least = 2 ** (len(block_config) - 1) * (4 if stem == "imagenet" else 1)
    if any(side is not None and side < least for side in shape.as_list()[1:3]):
        raise ValueError(
            f"densenet: {len(block_config)} blocks halve the image down to nothing below {least}; got {shape}."
        )
