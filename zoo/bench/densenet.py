"""The benchmark of DenseNets: its cells, and the least memory that they can do with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zoo.bench.cells import Cell
from zoo.bench.measures import MIB

CONFIGS = {
    "densenet121": ((6, 12, 24, 16), 32),
    "densenet161": ((6, 12, 36, 24), 48),
    "densenet169": ((6, 12, 32, 32), 32),
    "densenet201": ((6, 12, 48, 32), 32),
    "densenet264": ((6, 12, 64, 48), 32),
}
_KERAS_NETS = ("densenet121", "densenet169", "densenet201")
LEVELS = ("store", "recompute", "minimal")
PRECISIONS = ("float32", "bfloat16")
PEERS = ("keras", "torchvision", "torchvision_memory_efficient", "none")
_TORCH_NETS = ("densenet121", "densenet161", "densenet169", "densenet201")


@dataclass(frozen=True)
class Grid:
    """Which cells to measure: every network in every level, type and way, and beside it the peers that have it.

    Args:
        nets: Names, or "LxK" for a DenseNet-BC of depth L and growth K.
        levels: Memory levels of zoo's networks.
        precisions: "float32", "bfloat16".
        xla: Whether XLA compiles the step.
        peers: Out of ``PEERS``.
        base: What all cells share.
        peer_python: Interpreter of torchvision's cells.
    """

    nets: Sequence[str]
    levels: Sequence[str]
    precisions: Sequence[str]
    xla: Sequence[bool]
    peers: Sequence[str]
    base: Cell
    peer_python: str

    def left_out(self) -> list[str]:
        """Says which peers do not have which networks."""
        return [
            f"{peer} has no {net}: left out"
            for net in self.nets
            for peer, theirs in (("keras", _KERAS_NETS), ("torchvision", _TORCH_NETS))
            if net not in theirs and any(name.startswith(peer) for name in self.peers)
        ]

    def cells(self) -> list[Cell]:
        """Returns the cells, zoo's before its peers'.

        Raises:
            ValueError: There is no such network.
        """
        found = []
        for net in self.nets:
            cell = _cell_of(net, self.base)
            for precision in self.precisions:
                for flag in self.xla:
                    found += [replace(cell, memory=level, precision=precision, xla=flag) for level in self.levels]
                    if "keras" in self.peers and net in _KERAS_NETS:
                        found.append(replace(cell, peer="keras", precision=precision, xla=flag))
                for peer in self.peers:
                    if peer.startswith("torchvision") and net in _TORCH_NETS:
                        level = "store" if peer == "torchvision" else "memory_efficient"
                        theirs = replace(cell, peer="torchvision", memory=level, precision=precision)
                        found.append(replace(theirs, python=self.peer_python))
        return found


def _cell_of(net: str, base: Cell) -> Cell:
    if net in CONFIGS:
        return replace(base, net=net)
    depth, _, growth = net.partition("x")
    if not (depth.isdigit() and growth.isdigit()):
        raise ValueError(
            f"--nets takes {', '.join(CONFIGS)}, or a depth and a growth rate such as 100x12; got {net!r}."
        )
    if int(depth) < 10 or int(depth) % 6 != 4 or not int(growth):
        raise ValueError(
            f"The depth of a DenseNet-BC is 6n + 4 (10, 16, ... 40, ... 100), its growth from 1; got {net!r}."
        )
    options = {"depth": int(depth), "growth_rate": int(growth)}
    return replace(base, net="densenet_cifar", size=32, classes=10, options=options)


def bound_mib(cell: Cell) -> float:
    """Returns the least that an image of a cell can do with, in MiB."""
    width = 2 if cell.precision == "bfloat16" else 4
    level = "recompute" if cell.memory == "memory_efficient" else cell.memory
    if cell.net in CONFIGS:
        blocks, growth = CONFIGS[cell.net]
        return kept_bytes(blocks, growth, memory=level, size=cell.size, value_bytes=width) / MIB
    depth, growth = cell.options["depth"], cell.options["growth_rate"]
    return (
        kept_bytes([(depth - 4) // 6] * 3, growth, memory=level, size=cell.size, stem="cifar", value_bytes=width) / MIB
    )


def kept_bytes(
    block_config: Sequence[int],
    growth_rate: int,
    *,
    memory: str,
    size: int = 224,
    stem: str = "imagenet",
    value_bytes: int = 4,
) -> int:
    """Counts what must be kept of one image of a DenseNet-BC between the forward and the backward pass, in bytes.

    A block of m layers on P pixels with c channels in and k maps a layer has S = m c + k m (m - 1) / 2 input channels
    over all its layers and U = c + m k maps. "minimal" keeps P U; "recompute" also the bottlenecks' outputs, 4 k m P;
    "store" the concatenations and ReLU outputs of both norms, P (2 S + 8 k m + m k + c + 2 U). The stem's convolution,
    of 2 k maps, adds its output (twice under "store"). What the backward pass works with comes on top.

    Args:
        block_config: Layers of each block.
        growth_rate: k.
        memory: "store", "recompute" or "minimal".
        size: Height and width of the image.
        stem: "imagenet" or "cifar".
        value_bytes: 4 for float32, 2 for bfloat16.
    """
    channels, width, values = 2 * growth_rate, 4 * growth_rate, 0
    if stem == "imagenet":
        size = (size + 1) // 2
        values += channels * size * size * (2 if memory == "store" else 1)
        size = (size + 1) // 2
    for layers in block_config:
        maps = channels + layers * growth_rate
        kept = maps
        if memory == "recompute":
            kept += width * layers
        elif memory == "store":
            seen = layers * channels + growth_rate * layers * (layers - 1) // 2
            kept = 2 * seen + 2 * width * layers + layers * growth_rate + channels + 2 * maps
        values += kept * size * size
        channels, size = maps // 2, size // 2
    return values * value_bytes
