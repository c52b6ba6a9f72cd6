"""What a builder does with its ``weights`` option: the options that the weights need, then the weights themselves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from zoo.data.preprocessing import Preprocessing
from zoo.scoping import NetSpec
from zoo.weights import bundled
from zoo.weights.cards import Card
from zoo.weights.files import WeightFile
from zoo.weights.loading import Report, load, open_source
from zoo.weights.sources import list_sources


def open_for(
    spec: NetSpec, weights: str | os.PathLike[str] | WeightFile, given: Mapping[str, Any], known: Mapping[str, Any]
) -> tuple[WeightFile | None, dict[str, Any]]:
    """Opens the weights a builder was asked for, and completes its options with what they were made with.

    Args:
        spec: The network.
        weights: The name of weights that come with zoo (``"digits"``) or are published (``"imagenet"``, ``"slim"``),
            or a path in any format; or weights that are open already.
        given: The options that the caller chose; they are kept.
        known: The options that the network has.

    Returns:
        The open weights, None for those that come with zoo, and the options to build with.

    Raises:
        ValueError: No weights are called so, or the file is damaged or of an unknown format.
    """
    net = spec.name
    if isinstance(weights, bool) or not isinstance(weights, str | os.PathLike | WeightFile):
        raise ValueError(
            f"{net}: weights is the name of trained weights, a path, or None for new weights; got {weights!r}. "
            + _what_there_is(net)
        )
    if isinstance(weights, str) and weights in bundled.names(net):
        made_with = bundled.card(net, weights).get("options", {})
        return None, {**made_with, **given}
    try:
        file = weights if isinstance(weights, WeightFile) else open_source(weights, net)
    except (FileNotFoundError, ValueError) as error:
        if isinstance(error, ValueError) and not (os.path.isdir(str(weights)) and os.sep not in str(weights)):
            raise  # a path was meant, and says what is wrong with it
        at = "It is no published name (`zoo weights list`) and no file either."
        if os.path.isdir(str(weights)):
            at = f"There is a folder of that name here, but no weights in it ({error})."
        raise ValueError(f"{net} has no weights {str(weights)!r}. {_what_there_is(net)} {at}") from error
    file, card = dataclasses.replace(file, parts=spec.parts(given)), file.card(net)
    needs = {
        "aux_logits": file.has_aux,
        "batch_norm_scale": file.has_gamma,
        "batch_norm_epsilon": card.batch_norm_epsilon,
        "count_include_pad": card.count_include_pad,
    }
    needs = {key: value for key, value in needs.items() if key in known and value not in (None, known[key])}
    made_with = card.more.get("options", {}) if file.own_card is not None and card.net == net else {}
    options = {**needs, **{key: value for key, value in made_with.items() if key in known}, **given}
    return dataclasses.replace(file, parts=spec.parts(options)), options


def _what_there_is(net: str) -> str:
    """Words the weights that can be asked for by name."""
    come_with = ", ".join(map(repr, bundled.names(net))) or "none"
    published = ", ".join(repr(source.name.partition(".")[2]) for source in list_sources(f"{net}.*")) or "none"
    return f"Those that come with zoo are: {come_with}; published ones: {published}."


def input_shape(file: WeightFile | None) -> tuple[int, int, int] | None:
    """Returns the shape of the pictures that zoo's own weights were made for; None for others'."""
    if file is None or file.own_card is None or file.family != "zoo" or file.own_card.preprocessing is None:
        return None
    return (*file.own_card.preprocessing.size, file.own_card.preprocessing.channels)


def load_for(model: Any, net: str, weights: Any, file: WeightFile | None) -> Report | None:
    """Loads what ``open_for`` opened into the built model.

    Args:
        model: The model.
        net: Name of the network.
        weights: As given to the builder.
        file: The open weights; None for those that come with zoo.

    Returns:
        The report; None for weights that come with zoo, which fit whole or not at all.
    """
    if file is not None:
        return load(model, file)
    bundled.load(model, net, str(weights))
    model.card = Card.from_dict(bundled.card(net, str(weights))).to_dict()
    return None


def complete_card(model: Any, net: str, preprocessing: Preprocessing | None, size: Any) -> None:
    """Writes into a model's card how its pictures are prepared, for the size the model was built for.

    Args:
        model: The model.
        net: Name of the network.
        preprocessing: The network's own, for weights that do not say theirs; None for inputs that are no pictures.
        size: The shape of one input, [H, W, C].
    """
    model.card = Card.from_dict({"net": net, **model.card}).complete(preprocessing, size)
