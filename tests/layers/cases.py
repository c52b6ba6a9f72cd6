"""One table of layers, small, that every contract runs through."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from zoo import layers


@dataclass(frozen=True)
class Case:
    """A layer, the shape it takes and gives (without the batch), and its variables by name relative to its scope."""

    name: str
    layer: Callable[..., Any]
    shape: tuple[int, ...]
    output: tuple[int, ...]
    variables: dict[str, tuple[int, ...]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    nchw: dict[str, Any] | None = None  # the options for the same layer on [N, C, H, W]

    def __call__(self, x: tf.Tensor, **options: Any) -> tf.Tensor:
        return self.layer(x, **{**self.options, **options})


IMAGE = (8, 10, 4)
NCHW = {"data_format": "NCHW"}
NORM = {"beta": (4,), "moving_mean": (4,), "moving_variance": (4,)}
ACT = {"activation_fn": tf.nn.tanh}  # smooth, so that numerical gradients mean something

CASES = [
    Case(
        *("conv2d", layers.conv2d, IMAGE, (8, 10, 6), {"weights": (3, 3, 4, 6), "biases": (6,)}),
        {"num_outputs": 6, "kernel_size": 3, **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_strided", layers.conv2d, IMAGE, (3, 4, 6), {"weights": (3, 3, 4, 6), "biases": (6,)}),
        {"num_outputs": 6, "kernel_size": 3, "stride": 2, "padding": "VALID", **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_padded", layers.conv2d, IMAGE, (9, 10, 6), {"weights": (3, 2, 4, 6), "biases": (6,)}),
        {"num_outputs": 6, "kernel_size": [3, 2], "padding": ((1, 2), (0, 1)), **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_dilated", layers.conv2d, IMAGE, (4, 6, 6), {"weights": (3, 3, 4, 6), "biases": (6,)}),
        {"num_outputs": 6, "kernel_size": 3, "rate": 2, "padding": "VALID", **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_grouped", layers.conv2d, IMAGE, (8, 10, 6), {"weights": (3, 3, 2, 6), "biases": (6,)}),
        {"num_outputs": 6, "kernel_size": 3, "groups": 2, **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_normalized", layers.conv2d, IMAGE, (8, 10, 4)),
        {"weights": (1, 1, 4, 4), **{f"BatchNorm/{name}": shape for name, shape in NORM.items()}},
        {"num_outputs": 4, "kernel_size": 1, "normalizer_fn": layers.batch_norm, **ACT},
    ),
    Case(
        *("conv2d_transpose", layers.conv2d_transpose, IMAGE, (16, 20, 3), {"weights": (3, 3, 3, 4), "biases": (3,)}),
        {"num_outputs": 3, "kernel_size": 3, "stride": 2, **ACT},
        NCHW,
    ),
    Case(
        *("conv2d_transpose_valid", layers.conv2d_transpose, IMAGE, (17, 21, 3)),
        {"weights": (3, 3, 3, 4), "biases": (3,)},
        {"num_outputs": 3, "kernel_size": 3, "stride": 2, "padding": "VALID", **ACT},
        NCHW,
    ),
    Case(
        *("separable_conv2d", layers.separable_conv2d, IMAGE, (4, 5, 5)),
        {"depthwise_weights": (3, 3, 4, 2), "pointwise_weights": (1, 1, 8, 5), "biases": (5,)},
        {"num_outputs": 5, "kernel_size": 3, "depth_multiplier": 2, "stride": 2, **ACT},
        NCHW,
    ),
    Case(
        *("depthwise_dilated", layers.separable_conv2d, IMAGE, (8, 10, 8)),
        {"depthwise_weights": (3, 3, 4, 2), "biases": (8,)},
        {"num_outputs": None, "kernel_size": 3, "depth_multiplier": 2, "rate": 2, **ACT},
        NCHW,
    ),
    Case(
        *("separable_padded", layers.separable_conv2d, IMAGE, (8, 10, 5)),
        {"depthwise_weights": (3, 3, 4, 1), "pointwise_weights": (1, 1, 4, 5), "biases": (5,)},
        {"num_outputs": 5, "kernel_size": 3, "padding": 1, **ACT},
        NCHW,
    ),
    Case(
        *("fully_connected", layers.fully_connected, (7,), (5,), {"weights": (7, 5), "biases": (5,)}),
        {"num_outputs": 5, **ACT},
    ),
    Case(
        *("fully_connected_3d", layers.fully_connected, (3, 7), (3, 5), {"weights": (7, 5), "biases": (5,)}),
        {"num_outputs": 5, **ACT},
    ),
    Case("batch_norm", layers.batch_norm, IMAGE, IMAGE, {"gamma": (4,), **NORM}, {"scale": True}, NCHW),
    Case("batch_norm_unfused", layers.batch_norm, IMAGE, IMAGE, NORM, {"fused": False}, NCHW),
    Case("batch_norm_2d", layers.batch_norm, (4,), (4,), NORM),
    Case("batch_norm_3d", layers.batch_norm, (3, 4), (3, 4), NORM),
    Case(
        *("batch_norm_renorm", layers.batch_norm, IMAGE, IMAGE),
        {**NORM, "renorm_mean": (4,), "renorm_stddev": (4,)},
        {"renorm": True, "renorm_clipping": {"rmin": 0.5, "rmax": 2.0, "dmax": 1.0}},
        NCHW,
    ),
    Case("layer_norm", layers.layer_norm, IMAGE, IMAGE, {"beta": (4,), "gamma": (4,)}),
    Case(
        *("group_norm", layers.group_norm, IMAGE, IMAGE, {"beta": (4,), "gamma": (4,)}, {"groups": 2}),
        {"channels_axis": -3, "reduction_axes": (-2, -1)},
    ),
    Case("max_pool2d", layers.max_pool2d, IMAGE, (4, 5, 4), {}, {"kernel_size": 2}, NCHW),
    Case("max_pool2d_same", layers.max_pool2d, IMAGE, (4, 5, 4), {}, {"kernel_size": 3, "padding": "SAME"}, NCHW),
    Case("avg_pool2d", layers.avg_pool2d, IMAGE, (3, 4, 4), {}, {"kernel_size": 3}, NCHW),
    Case("global_avg_pool", layers.global_avg_pool, IMAGE, (4,), {}, {}, NCHW),
    Case("flatten", layers.flatten, IMAGE, (320,)),
    Case("softmax", layers.softmax, (3, 7), (3, 7)),
    Case("dropout_at_inference", layers.dropout, IMAGE, IMAGE, {}, {"is_training": False}),
]

IDS = [case.name for case in CASES]
