"""What a set of weights has to say about itself: where it comes from, and the conventions it was trained under."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.data.preprocessing import PRESETS, Preprocessing, get_preprocessing
from zoo.files import PathLike, reading, validated


@dataclasses.dataclass(frozen=True)
class Card:
    """The conventions and the origin of a set of weights; it travels in the model and in our files.

    Args:
        net: Name of the network, "" when unknown.
        format: Family of the file: "slim", "keras", "torchvision", "tfjs" or "zoo".
        num_classes: Width of the classifier; None without one.
        labels_offset: 1 when column 0 of the classifier is background and class i is column i + 1.
        batch_norm_epsilon: What batch norm adds to the variance.
        moving_variance: "unbiased" (N - 1, slim's fused batch norm and PyTorch) or "biased" (Keras).
        count_include_pad: Whether average pooling counts the padding, as torchvision's does.
        preprocessing: How pictures become inputs; None when unknown.
        sha256: Hash of the file; "" when unknown.
        source: Name in the table of sources, an address or a file's name.
        licence: Licence of the weights as published.
        accuracy: Top-1 and top-5 accuracy in per cent as published, such as {"top1": 77.9, "top5": 93.7}; of zoo's own
            weights the accuracy in [0, 1].
        more: Anything else, kept as it is.
    """

    net: str = ""
    format: str = "zoo"
    num_classes: int | None = None
    labels_offset: int = 0
    batch_norm_epsilon: float | None = None
    moving_variance: str = "unbiased"
    count_include_pad: bool = False
    preprocessing: Preprocessing | None = None
    sha256: str = ""
    source: str = ""
    licence: str = ""
    accuracy: Mapping[str, Any] | float = dataclasses.field(default_factory=dict)
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON; what is unknown or empty is left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        more = dict(values.pop("more"))
        if self.preprocessing is not None:
            values["preprocessing"] = self.preprocessing.to_dict()
        return more | {key: value for key, value in values.items() if value not in (None, "", {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: PathLike = "The card") -> Card:
        """Reads what ``to_dict`` wrote; keys it does not know go into ``more``.

        Args:
            values: Plain values.
            path: The file that they come from, for messages.

        Raises:
            ValueError: A value is of another type or out of its range; the message names the file and the fields.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{path} is no card: a JSON object is needed. Received: {str(values)[:80]!r}")
        known = {field.name for field in dataclasses.fields(cls)} - {"more"}
        mine = {key: value for key, value in values.items() if key in known}
        with reading(path, "a card"):
            if mine.get("preprocessing") is not None:
                preprocessing = get_preprocessing(mine["preprocessing"])
                mine["preprocessing"] = validated(Preprocessing, dataclasses.asdict(preprocessing), path)
        card = validated(cls, mine, path)
        return dataclasses.replace(card, more={key: value for key, value in values.items() if key not in known})

    def complete(self, preprocessing: Preprocessing | None, size: Sequence[int | None] | None) -> dict[str, Any]:
        """Returns plain values with how pictures are prepared for a model: its size, and the range of its inputs.

        Args:
            preprocessing: The network's own, for weights that do not say theirs; None for inputs that are no pictures.
            size: The shape of one input, [H, W, C]; others leave the size as it is.
        """
        preprocessing = self.preprocessing or preprocessing
        if preprocessing is None:
            return self.to_dict()
        if isinstance(size, tuple | list) and len(size) == 3 and size[0] and size[1]:
            preprocessing = preprocessing.with_size((size[0], size[1]))
        ready = {"preprocessing": preprocessing.to_dict(), "input_range": list(preprocessing.value_range)}
        return self.to_dict() | ready

    def to_markdown(self) -> str:
        """Returns the card as a small Markdown page."""
        rows = [
            f"| {key} | {value if isinstance(value, str | int | float) else json.dumps(value)} |"
            for key, value in self.to_dict().items()
        ]
        return "\n".join(
            [f"# {self.source or self.net or 'weights'}", "", "| what | value |", "| --- | --- |", *rows, ""]
        )


# Family -> the conventions under which its Inception-v3 and DenseNet weights were trained.
CONVENTIONS: dict[str, dict[str, Card]] = {
    "slim": {
        "inception_v3": Card(format="slim", batch_norm_epsilon=1e-3, preprocessing=PRESETS["inception"]),
        "densenet": Card(format="slim", batch_norm_epsilon=1.1e-5, preprocessing=PRESETS["imagenet_slim"]),
    },
    "keras": {
        "inception_v3": Card(
            format="keras",
            batch_norm_epsilon=1e-3,
            moving_variance="biased",
            preprocessing=PRESETS["inception_keras"],
        ),
        "densenet": Card(
            format="keras",
            batch_norm_epsilon=1.001e-5,
            moving_variance="biased",
            preprocessing=PRESETS["imagenet_keras"],
        ),
    },
    "torchvision": {
        "inception_v3": Card(
            format="torchvision",
            batch_norm_epsilon=1e-3,
            count_include_pad=True,
            preprocessing=PRESETS["inception_torchvision"],
        ),
        "densenet": Card(
            format="torchvision",
            batch_norm_epsilon=1e-5,
            count_include_pad=True,
            preprocessing=PRESETS["imagenet_torchvision"],
        ),
    },
}


def convention(family: str, net: str) -> Card:
    """Returns the card of a family's weights of a network; an unknown pair gives a card without conventions.

    Args:
        family: "slim", "keras", "torchvision", "tfjs" (as Keras) or another.
        net: Name of the network, such as "inception_v3" or "densenet121".
    """
    table = CONVENTIONS.get("keras" if family == "tfjs" else family, {})
    for name, card in table.items():
        if net.startswith(name):
            return dataclasses.replace(card, net=net, format=family)
    return Card(net=net, format=family)
