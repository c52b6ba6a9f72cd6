"""The trained network that gives the features: where its weights come from, and which of its end points are offered."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.preprocessing import Preprocessing
from zoo.registry import create, get_net
from zoo.weights import bundled
from zoo.weights.names import assign, named_variables

if TYPE_CHECKING:
    from zoo.scoping import Model

EMBEDDED = "inception_v3_x025"


@dataclasses.dataclass(frozen=True)
class Trunk:
    """A network with trained weights, used for its end points.

    Args:
        model: The built model.
        net: Name of the network.
        options: Its options.
        source: What the weights were asked for by, and where they came from.
        digest: SHA-256 of all its variables.
        preprocessing: How pictures become its inputs.
        size: Shape of an input, (H, W, C).
        near: Cosine of two pictures' standardised features at ``detail`` from which they are near-duplicates: at most
            1 % of pictures reach it with one of another class (``benchmarks/transfer.py near``).
    """

    model: "Model"
    net: str
    options: dict[str, Any]
    source: str
    digest: str
    preprocessing: Preprocessing
    size: tuple[int, int, int]
    near: float = 0.95

    @property
    def end_points(self) -> list[str]:
        """The end points that can be pooled, in the order of the network."""
        specs = self.model.end_point_specs
        return [
            name for name, spec in specs.items() if getattr(spec, "shape", None) is not None and spec.shape.rank == 4
        ]

    @property
    def bottleneck(self) -> str:
        """The last map of the network: pooled, it is the classical bottleneck."""
        last = get_net(self.net).spec.last_map
        return last if last in self.end_points else self.end_points[-1]

    @property
    def detail(self) -> str:
        """An end point in the middle, whose features tell pictures apart better than the last map's do."""
        offered = self.offered()
        return offered[min(1, len(offered) - 1)]

    def width(self, end_point: str) -> int:
        """Returns the number of channels of an end point."""
        return int(self.model.end_point_specs[end_point].shape[-1])

    def offered(self) -> tuple[str, ...]:
        """Returns the end points that ``auto`` chooses among: those its `NetSpec` names, or four in the later half."""
        if known := tuple(get_net(self.net).spec.worth_reading):
            return known
        maps = self.end_points[: self.end_points.index(self.bottleneck) + 1]
        later = maps[len(maps) // 2 :]
        places = np.unique(np.linspace(0, len(later) - 1, 4).round().astype(int))
        return tuple(later[i] for i in places)

    def copy_on(self, device: str) -> "Model":
        """Returns the model again, with its variables on another device."""
        import tensorflow as tf

        with tf.device(device):
            model = create(self.net, input_shape=self.size, **self.options)
            assign(model, named_variables(self.model), f"the trunk {self.net}", remedy=bundled.REMEDY)
        return model

    def describe(self) -> dict[str, Any]:
        """Returns what a run folder keeps about the trunk."""
        kept = {"net": self.net, "options": self.options, "source": self.source, "digest": self.digest}
        return {**kept, "size": list(self.size), "parameters": self.model.count_params()}


def load_trunk(
    net: str = "inception_v3",
    weights: str | Path | None = "imagenet",
    *,
    size: int | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Trunk:
    """Builds a network without its classifier and loads its weights.

    Args:
        net: A registered network for images.
        weights: "imagenet" (the published ones, fetched once and verified), "embedded" (a small Inception-v3 that
            comes with zoo), the name of other published weights, a file in any format, or "none" for an untrained
            network.
        size: Side of the input; the weights' own by default.
        options: Options of the network.
        seed: Seed of an untrained network.

    Returns:
        The trunk.

    Raises:
        ValueError: The network or the weights are unknown or do not fit; or the default weights cannot be fetched.
    """
    spec = get_net(net).spec
    if len(spec.input_size) != 3:
        raise ValueError(f"{net} does not take pictures; `zoo list` shows which networks do.")
    chosen = dict(options or {})
    if weights == "embedded":
        if net != "inception_v3":
            raise ValueError(f"The embedded weights are an Inception-v3's. Received: {net!r}; leave --net out.")
        return _embedded(size, chosen)
    chosen = {**(spec.headless or {}), **chosen}
    shape = (size or spec.input_size[0] or 224, size or spec.input_size[1] or 224, spec.input_size[2] or 3)
    wanted = None if weights in (None, "none") else str(weights)
    try:
        model = create(net, weights=wanted, input_shape=shape, seed=seed, **chosen)
    except (OSError, RuntimeError) as error:
        if weights != "imagenet" or isinstance(error, FileNotFoundError):
            raise
        raise ValueError(
            f"The ImageNet weights of {net} are not here and cannot be fetched ({error}). Where there is a network, "
            f"`zoo weights fetch` gets them (`zoo weights list` has the names, {net}.keras for example); or take the "
            "small trunk that comes with zoo: --weights embedded."
        ) from error
    card = model.card
    preprocessing = Preprocessing.from_dict(card["preprocessing"]) if "preprocessing" in card else Preprocessing()
    if wanted is None:
        source = "untrained"
    elif Path(wanted).exists():  # the same wherever the file lies
        source = "/".join(Path(wanted).resolve().parts[-2:])
    else:
        source = wanted + (f" ({card['source']})" if card.get("source") else "")
    built_with = dict(model.options)  # what the weights asked for included
    return _trunk(model, net, built_with, source, preprocessing, shape)


def _embedded(size: int | None, options: dict[str, Any]) -> Trunk:
    card, values = bundled.read(EMBEDDED)
    options = {**card["options"], **options}
    shape = (size or card["size"], size or card["size"], 3)
    model = create("inception_v3", input_shape=shape, **options)
    what = f"the embedded weights (made with options {card['options']})"
    assign(model, values, what, remedy=bundled.REMEDY)
    preprocessing = Preprocessing.from_dict(card["preprocessing"])
    trunk = _trunk(model, "inception_v3", options, f"embedded ({EMBEDDED})", preprocessing, shape)
    return dataclasses.replace(trunk, near=card["near"])


def _trunk(
    model: "Model",
    net: str,
    options: dict[str, Any],
    source: str,
    preprocessing: Preprocessing,
    shape: tuple[int, int, int],
) -> Trunk:
    preprocessing = dataclasses.replace(
        preprocessing,
        method="bilinear_antialias",  # pictures are of any size, from thumbnails to cameras
        central_fraction=None,  # ``Reader.fit`` does this instead
        shorter_side=None,
    ).with_size(shape[:2])
    trunk = Trunk(model, net, options, source, digest_of(model), preprocessing, shape)
    if not trunk.end_points:
        raise ValueError(
            f"{net} has no end point with a map [N, H, W, C], so nothing can be pooled; take a convolutional network."
        )
    return trunk


def digest_of(model: "Model") -> str:
    """Returns the SHA-256 of all variables with their names."""
    digest = hashlib.sha256()
    for name in model.variable_names:
        value = np.ascontiguousarray(model.variable(name))
        digest.update(f"{name} {value.shape} {value.dtype}\n".encode() + value.tobytes())
    return digest.hexdigest()
