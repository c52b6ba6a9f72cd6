"""The least memory that training a DenseNet can do with, counted from its table: bytes an image."""

from collections.abc import Sequence


def kept_bytes(
    block_config: Sequence[int],
    growth_rate: int,
    *,
    memory: str,
    size: int = 224,
    stem: str = "imagenet",
    stem_channels: int | None = None,
    bottleneck: int | None = 4,
    compression: float = 0.5,
    value_bytes: int = 4,
) -> int:
    """Counts what must be kept of one image between the forward and the backward pass.

    A block of m layers on P pixels with c channels in and k maps a layer has S = m c + k m (m - 1) / 2 input channels
    over all its layers and U = c + m k maps. "minimal" keeps P U; "recompute" also the bottlenecks' outputs, b k m P;
    "store" the concatenations and ReLU outputs of both norms, P (2 S + 2 b k m + m k + c + 2 U). The stem's
    convolution adds its output (twice under "store"). What the backward pass works with comes on top.

    Args:
        block_config: Layers of each block.
        growth_rate: k.
        memory: "store", "recompute" or "minimal".
        size: Height and width of the image.
        stem: "imagenet" or "cifar".
        stem_channels: Maps of the stem; 2k by default.
        bottleneck: b; None for no bottleneck.
        compression: Part of the maps that a transition keeps.
        value_bytes: 4 for float32, 2 for bfloat16.

    Returns:
        Bytes.
    """
    channels = stem_channels or 2 * growth_rate
    values = 0
    if stem == "imagenet":
        size = (size + 1) // 2
        values += channels * size * size * (2 if memory == "store" else 1)
        size = (size + 1) // 2
    width = (bottleneck or 0) * growth_rate
    for layers in block_config:
        maps = channels + layers * growth_rate
        kept = maps
        if memory == "recompute":
            kept += width * layers
        elif memory == "store":
            seen = layers * channels + growth_rate * layers * (layers - 1) // 2
            kept = 2 * seen + 2 * width * layers + layers * growth_rate + channels + 2 * maps
        values += kept * size * size
        channels, size = int(maps * compression), size // 2
    return values * value_bytes
