"""The table of weights that others have published for zoo's networks."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_KERAS = "https://storage.googleapis.com/tensorflow/keras-applications"
_TORCH = "https://download.pytorch.org/models"


@dataclass(frozen=True)
class Source:
    """One published file of weights.

    Args:
        name: Name in zoo: the network, a dot, and who published it.
        net: The network.
        family: "keras", "slim" or "torchvision".
        url: Where it is.
        digest: What its publisher checks, as "md5:..." or "sha256:..."; a shorter SHA-256 is the beginning of the
            whole. "" where nothing was published: then the SHA-256 of the first download is kept and held to.
        size: Bytes; None where it is not known for certain.
        licence: As published.
        accuracy: Top-1 and top-5 on ImageNet in per cent, single crop, as published.
        preprocessing: Name in ``zoo.data.preprocessing.PRESETS``.
        member: The file inside the archive; "" when it is none.
        num_classes: Width of the classifier; None without one.
    """

    name: str
    net: str
    family: str
    url: str
    digest: str
    size: int | None
    licence: str
    accuracy: dict[str, float] = field(default_factory=dict)
    preprocessing: str = ""
    member: str = ""
    num_classes: int | None = 1000

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


def _keras(net: str, stem: str, md5: str, size: int | None, accuracy: tuple[float, float], top: bool = True) -> Source:
    return Source(
        name=f"{net}.keras" if top else f"{net}.keras_notop",
        net=net,
        family="keras",
        url=f"{_KERAS}/{stem}_weights_tf_dim_ordering_tf_kernels{'' if top else '_notop'}.h5",
        digest=f"md5:{md5}",
        size=size,
        licence="Apache-2.0" if net == "inception_v3" else "BSD-3-Clause",
        accuracy={"top1": accuracy[0], "top5": accuracy[1]},
        preprocessing="inception_keras" if net == "inception_v3" else "imagenet_keras",
        num_classes=1000 if top else None,
    )


def _torch(net: str, file: str, accuracy: tuple[float, float]) -> Source:
    return Source(
        name=f"{net}.torchvision",
        net=net,
        family="torchvision",
        url=f"{_TORCH}/{file}",
        digest=f"sha256:{file.removesuffix('.pth').rpartition('-')[2]}",
        size=None,
        licence="BSD-3-Clause",
        accuracy={"top1": accuracy[0], "top5": accuracy[1]},
        preprocessing="inception_torchvision" if net == "inception_v3" else "imagenet_torchvision",
    )


SOURCES: tuple[Source, ...] = (
    _keras("inception_v3", "inception_v3/inception_v3", "9a0d58056eeedaa3f26cb7ebd46da564", 96112376, (77.9, 93.7)),
    _keras(
        "inception_v3", "inception_v3/inception_v3", "bcbd6486424b2319ff4ef7d526e38f63", 87910968, (77.9, 93.7), False
    ),
    Source(
        name="inception_v3.slim",
        net="inception_v3",
        family="slim",
        url="https://storage.googleapis.com/download.tensorflow.org/models/inception_v3_2016_08_28.tar.gz",
        digest="",
        size=100885009,
        licence="Apache-2.0",
        accuracy={"top1": 78.0, "top5": 93.9},
        preprocessing="inception",
        member="inception_v3.ckpt",
        num_classes=1001,
    ),
    _torch("inception_v3", "inception_v3_google-0cc3c7bd.pth", (77.294, 93.450)),
    _keras("densenet121", "densenet/densenet121", "9d60b8095a5708f2dcce2bca79d332c7", 33188688, (75.0, 92.3)),
    _keras("densenet121", "densenet/densenet121", "30ee3e1110167f948a6b9946edeeb738", 29084464, (75.0, 92.3), False),
    _keras("densenet169", "densenet/densenet169", "d699b8f76981ab1b30698df4c175e90b", None, (76.2, 93.2)),
    _keras("densenet169", "densenet/densenet169", "b8c4d4c20dd625c148057b9ff1c1176b", 51877672, (76.2, 93.2), False),
    _keras("densenet201", "densenet/densenet201", "1ceb130c1ea1b78c3bf6114dbdfd8807", 82524592, (77.3, 93.6)),
    _keras("densenet201", "densenet/densenet201", "c13680b51ded0fb44dff2d8f86ac8bb1", 74836368, (77.3, 93.6), False),
    _torch("densenet121", "densenet121-a639ec97.pth", (74.434, 91.972)),
    _torch("densenet161", "densenet161-8d451a50.pth", (77.138, 93.560)),
    _torch("densenet169", "densenet169-b2777c0a.pth", (75.600, 92.806)),
    _torch("densenet201", "densenet201-c1103571.pth", (76.896, 93.370)),
)

# The names of ImageNet's 1000 classes: {"0": ["n01440764", "tench"], ...}.
IMAGENET_CLASSES = Source(
    name="imagenet.classes",
    net="",
    family="keras",
    url="https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json",
    digest="md5:c2c37ea517e94d9795004a39431a14cb",
    size=None,
    licence="Apache-2.0",
)


def list_sources(pattern: str = "*") -> list[Source]:
    """Returns the published weights whose names match a glob such as ``"inception*"``."""
    return [source for source in SOURCES if fnmatchcase(source.name, pattern)]


def find_source(name: str, net: str = "") -> Source | None:
    """Returns published weights by name, or by what they are called within a network.

    Args:
        name: ``"inception_v3.keras"``; with ``net`` also ``"keras"``, or ``"imagenet"``, which means Keras' where
            there are any and torchvision's where not.
        net: Name of the network.

    Returns:
        The source, or None when no weights are called that.
    """
    wanted = {name, f"{net}.{name}"} if net else {name}
    if name == "imagenet" and net:
        wanted = {f"{net}.keras", f"{net}.torchvision"}
    return next((source for source in SOURCES if source.name in wanted), None)


def get_source(name: str) -> Source:
    """Returns published weights by name; ValueError with the nearest names when there are none."""
    source = find_source(name)
    if source is None:
        names = [source.name for source in SOURCES]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}."
        raise ValueError(f"No published weights are called {name!r}; {hint}")
    return source
