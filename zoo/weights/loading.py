"""Loads weights into a model, all or nothing, with a report of what went where; and a builder's ``weights`` option."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data.preprocessing import HALF, Preprocessing
from zoo.scoping import Model, NetSpec, Parts, parts_of
from zoo.weights import bundled, published
from zoo.weights.cards import Card
from zoo.weights.conventions import change_epsilon, drop_classes, fit_gamma, fold_input_transform
from zoo.weights.formats import WeightFile, open_weights
from zoo.weights.layer_order import pair_units
from zoo.weights.names import HasVariables, Variables, assign, named_variables, select_names
from zoo.weights.tf1 import AVERAGE_SUFFIX, TRAINING_NAMES

logger = logging.getLogger(__name__)
_SHOWN = 8
IMAGENET_WITH_BACKGROUND = 1001
_WHY_UNUSED = {
    "trunk": "the model has no such variable",
    "aux": "the model has no such auxiliary head (aux_logits=False, or another image size)",
    "head": "the model has no such classifier",
}


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load did.

    Args:
        source: Where the weights came from.
        format: The file's format, and whose conventions its weights follow.
        loaded: Names of the model's variables that were set.
        skipped: Names left alone because the caller said so, with the reason.
        missing: Names left as they were because the file has nothing that fits, with the reason.
        unexpected: Names in the file that were not used, with the reason.
        notes: What was rewritten on the way.
        card: The conventions under which the model now works.
    """

    source: str
    format: str
    loaded: list[str]
    skipped: dict[str, str]
    missing: dict[str, str]
    unexpected: dict[str, str]
    notes: list[str]
    card: Card

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} variables loaded from {self.source} ({self.format})"]
        for title, names in (
            ("skipped", self.skipped),
            ("missing", self.missing),
            ("unexpected", self.unexpected),
        ):
            lines += _by_reason(title, names, by_scope=True)
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


class WeightsMismatchError(ValueError):
    """The weights are not this network's: variables of its trunk are missing or have other shapes. Nothing was set.

    Args:
        source: Where the weights came from.
        missing: The model's names with the reason.
        unexpected: The file's unused names with the reason.
    """

    def __init__(self, source: str, missing: Mapping[str, str], unexpected: Mapping[str, str]) -> None:
        self.missing, self.unexpected = dict(missing), dict(unexpected)
        lines = [f"The weights in {source} do not fit the model; nothing was loaded."]
        lines += [*_by_reason("missing", missing), *_by_reason("unexpected", unexpected)]
        lines.append(
            "  Build the model with the options the weights were made with, choose names with include= or exclude=, or "
            "leave what is missing as it is with strict=False."
        )
        super().__init__("\n".join(lines))


def load(
    model: HasVariables,
    source: str | os.PathLike[str] | WeightFile,
    *,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    averages: bool | None = None,
    labels_offset: int | None = None,
    transform_input: str = "preprocessing",
    strict: bool = True,
) -> Report:
    """Loads weights of any format into a model, all or nothing.

    The classifiers are left as they are, and reported, when the file has none or theirs has other classes.

    Args:
        model: A built model.
        source: A file, folder or checkpoint prefix in any format of ``zoo.weights.sniff``; the name of published
            weights (``zoo weights list``), which are fetched; or weights that are open already.
        include: Patterns of the model's names to load: globs or scope names, full or without the root scope.
        exclude: Patterns of names to leave alone, as in slim; each must match something.
        averages: True takes TF1's moving averages (an error without), False the raw weights, None averages if there.
        labels_offset: Columns to drop from the front of the classifiers. None drops the background column of files with
            1001 classes when the model has 1000.
        transform_input: For torchvision's Inception-v3, which maps ImageNet-normalised inputs to [-1, 1] itself:
            "preprocessing" leaves that to the preprocessing (the model takes [-1, 1]), "fold" puts it into the first
            convolution (the model takes ImageNet-normalised inputs), "none" is for weights trained without.
        strict: False leaves also missing parts of the trunk as they are.

    Returns:
        The report. The conventions of the weights are kept in ``model.card``.

    Raises:
        WeightsMismatchError: Variables of the trunk are missing or have other shapes; nothing was changed.
        ValueError: A pattern matches nothing, an option is out of its range, or the file is damaged or unknown.
        FileNotFoundError: Nothing is there.
    """
    if transform_input not in ("preprocessing", "fold", "none"):
        raise ValueError(f"transform_input is 'preprocessing', 'fold' or 'none'. Received: {transform_input!r}")
    file = source if isinstance(source, WeightFile) else open_source(source, network_name(model))
    variables, parts = named_variables(model), parts_of(model)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    notes: list[str] = []
    values, unexpected = _values(file, variables, shapes, parts, averages, notes)
    card = _adapt(model, file, values, shapes, labels_offset, transform_input, notes)

    chosen, skipped = _choose(shapes, [*values, *file.names], include, exclude)
    heads = [name for name in chosen if parts.part_of(name) == "head" and name.endswith("/biases") and name in values]
    if heads:
        card = dataclasses.replace(card, num_classes=int(values[heads[0]].shape[-1]))
    missing = {name: _why_not(name, values, shapes, parts) for name in chosen}
    missing = {name: reason for name, reason in missing.items() if reason}
    for name in values:
        if name not in shapes and name not in skipped:
            unexpected[name] = _WHY_UNUSED[parts.part_of(name)]
    broken = {name: reason for name, reason in missing.items() if parts.part_of(name) == "trunk"}
    loaded = [name for name in chosen if name not in missing]
    if (broken and strict) or not loaded:
        raise WeightsMismatchError(file.path, missing, unexpected)
    arrays = {name: np.asarray(values[name]) for name in loaded}
    _refuse_not_finite(arrays, file.path)
    assign({name: variables[name] for name in loaded}, arrays, file.path, remedy="Take another copy.")
    report = Report(file.path, f"{file.format}, {file.family}", loaded, skipped, missing, unexpected, notes, card)
    if isinstance(model, Model):
        specs = model.input_specs
        size = specs.shape.as_list()[1:] if hasattr(specs, "shape") else None
        model.card = card.complete(Card.from_dict(model.card).preprocessing, size)
    for note in notes:
        logger.info("%s: %s", file.path, note)
    return report


def _refuse_not_finite(values: Mapping[str, np.ndarray], path: str) -> None:
    """Raises ValueError for weights that are no numbers, or endless: a model with them answers nothing."""
    floats = {name: array for name, array in values.items() if array.dtype.kind == "f" or "float" in array.dtype.name}
    wrong = [name for name, array in floats.items() if not np.isfinite(array).all()]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ValueError(
            f"{path} has weights that are NaN or infinite: {', '.join(wrong[:_SHOWN])}{more}; nothing was loaded. Take "
            "another copy, or leave them out with exclude=."
        )


def open_source(source: str | os.PathLike[str], net: str = "") -> WeightFile:
    """Opens a path, or fetches published weights by name (``"inception_v3.keras"``, or ``"imagenet"`` of a network)."""
    known = None if os.path.isfile(source) else published.find_source(os.fspath(source), net)  # "./imagenet" is a path
    if known is None:
        return open_weights(source)
    file = open_weights(published.fetch(known.name))
    card = dataclasses.replace(file.card(known.net), source=known.name, licence=known.licence, accuracy=known.accuracy)
    return dataclasses.replace(file, own_card=card)


def network_name(model: HasVariables) -> str:
    """Returns the name of a zoo model's network; "" for other models."""
    return getattr(getattr(model, "network", None), "__name__", "")


def network_option(model: HasVariables, name: str) -> Any:
    """Returns the value of a network's option in a model; None when the network has no such option."""
    options = getattr(model, "options", {})
    if name in options or not hasattr(model, "network"):
        return options.get(name)
    parameter = inspect.signature(model.network).parameters.get(name)
    return None if parameter is None else parameter.default


def _values(
    file: WeightFile,
    variables: Variables,
    shapes: dict[str, tuple[int, ...]],
    parts: Parts,
    averages: bool | None,
    notes: list[str],
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The file's arrays under the model's names, and what of the file has no place."""
    if file.units:
        return pair_units(file.units, shapes, parts)
    if averages and not file.has_averages:
        raise ValueError(f"{file.path} holds no averages (names ending in {AVERAGE_SUFFIX}); leave averages=None")
    values, unused, averaged = {}, {}, 0
    for name in file.names:
        if TRAINING_NAMES.search(name):
            unused[name] = "belongs to the training, not to the network"
        else:
            average = f"{name}{AVERAGE_SUFFIX}"
            use = averages is not False and average in file.names and name in variables
            values[name] = np.asarray(file.names[average if use else name])
            averaged += use
    for name in variables:  # a file with averages only
        average = f"{name}{AVERAGE_SUFFIX}"
        if averages is not False and name not in values and average in file.names:
            values[name] = np.asarray(file.names[average])
            averaged += 1
    if averaged:
        notes.append(f"{averaged} variables come from their moving averages (averages=False takes the raw ones)")
    return values, unused


def _adapt(
    model: HasVariables,
    file: WeightFile,
    values: dict[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
    labels_offset: int | None,
    transform_input: str,
    notes: list[str],
) -> Card:
    """Rewrites the values for the model's conventions, and returns the card of the result."""
    card = file.card(network_name(model))
    changes: dict[str, Any] = {}
    with_background = any(array.shape == (IMAGENET_WITH_BACKGROUND,) for array in values.values())
    background = card.labels_offset == 1 or (file.family == "slim" and with_background)
    dropped = drop_classes(values, shapes, labels_offset, background, parts_of(model))
    if dropped:
        notes.append(f"the first {dropped} of the file's classes (background) were dropped: labels_offset={dropped}")
        changes["labels_offset"] = 0
    elif file.family == "slim" and with_background:
        changes["labels_offset"] = 1
    if file.family == "torchvision" and file.own_card is None and "inception" in card.net:
        if transform_input == "fold":
            notes.append(f"transform_input was folded into {fold_input_transform(values, shapes)}")
        elif transform_input == "preprocessing" and card.preprocessing is not None:
            notes.append("transform_input is left to the preprocessing: the model takes [-1, 1]")
            changes["preprocessing"] = dataclasses.replace(card.preprocessing, mean=HALF, std=HALF)
    folded, ones = fit_gamma(values, shapes)
    if folded:
        notes.append(f"{len(folded)} gammas were folded into the convolutions: exact for inference, not for training")
    if ones:
        notes.append(f"{len(ones)} gammas that the file does not have are 1")
    epsilon = network_option(model, "batch_norm_epsilon")
    if epsilon and card.batch_norm_epsilon and abs(epsilon - card.batch_norm_epsilon) > 1e-9:
        change_epsilon(values, card.batch_norm_epsilon - epsilon)
        notes.append(f"variances were moved from epsilon {card.batch_norm_epsilon:g} to the model's {epsilon:g}")
        changes["batch_norm_epsilon"] = epsilon
    pads = network_option(model, "count_include_pad")
    if pads is not None and pads != card.count_include_pad and file.family != "zoo":
        text = f"the weights were trained with count_include_pad={card.count_include_pad}, the model has {pads}"
        logger.warning("%s: %s", file.path, text)
        notes.append(text)
    return dataclasses.replace(card, **changes)


def _choose(
    shapes: Mapping[str, tuple[int, ...]],
    in_file: Iterable[str],
    include: str | Iterable[str] | None,
    exclude: str | Iterable[str] | None,
) -> tuple[list[str], dict[str, str]]:
    chosen = list(shapes) if include is None else select_names(shapes, include)
    skipped = {name: "not in include" for name in shapes if name not in set(chosen)}
    if exclude is not None:
        everything = dict.fromkeys([*shapes, *in_file])
        out = dict.fromkeys(select_names(everything, exclude), "excluded")
        skipped |= out
        chosen = [name for name in chosen if name not in out]
    return chosen, skipped


def _why_not(name: str, values: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], parts: Parts) -> str:
    """Why a variable cannot be set: it, or for a classifier its kernel or bias, is not there or has another shape."""
    scope, part = name.rpartition("/")[0], parts.part_of(name)
    together = [name] if part == "trunk" else [n for n in shapes if n.rpartition("/")[0] == scope]
    for other in [name, *together]:
        if other not in values:
            sized = part == "aux" and any(
                parts.part_of(n) == "aux" and n.partition("/")[0] == name.partition("/")[0] for n in values
            )
            return "the file's auxiliary head is for another image size" if sized else "not in the file"
        if values[other].shape != shapes[other]:
            if part != "trunk" and values[other].shape[:-1] == shapes[other][:-1]:
                return f"the file has {values[other].shape[-1]} classes, the model {shapes[other][-1]}"
            return f"the file has shape {list(values[other].shape)}, the model {list(shapes[other])}"
    return ""


def _by_reason(title: str, names: Mapping[str, str], by_scope: bool = False) -> list[str]:
    """Words names grouped by reason, a few of each; or many names as their scopes with the number in each."""
    reasons: dict[str, list[str]] = {}
    for name, reason in names.items():
        reasons.setdefault(reason, []).append(name)
    lines = []
    for reason, group in reasons.items():
        shown = group
        if by_scope and len(group) > _SHOWN:
            scopes = Counter("/".join(name.split("/")[:2]) for name in group)
            shown = [f"{scope} ({count})" for scope, count in scopes.items()]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        lines.append(f"  {title} ({len(group)}), {reason}: {', '.join(shown[:_SHOWN])}{more}")
    return lines


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

    Returns the open weights, None for those that come with zoo, and the options to build with. ValueError when no
    weights are called so, or the file is damaged or of an unknown format.
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
    fetched = ", ".join(repr(s.name.partition(".")[2]) for s in published.list_sources(f"{net}.*")) or "none"
    return f"Those that come with zoo are: {come_with}; published ones: {fetched}."


def input_shape(file: WeightFile | None) -> tuple[int, int, int] | None:
    """Returns the shape of the pictures that zoo's own weights were made for; None for others'."""
    if file is None or file.own_card is None or file.family != "zoo" or file.own_card.preprocessing is None:
        return None
    return (*file.own_card.preprocessing.size, file.own_card.preprocessing.channels)


def load_for(
    model: Model, net: str, weights: str | os.PathLike[str] | WeightFile, file: WeightFile | None
) -> Report | None:
    """Loads what ``open_for`` opened into the built model; ``weights`` is as given to the builder.

    Returns the report; None for weights that come with zoo, which fit whole or not at all.
    """
    if file is not None:
        return load(model, file)
    bundled.load(model, net, str(weights))
    model.card = Card.from_dict(bundled.card(net, str(weights))).to_dict()
    return None


def complete_card(model: Model, net: str, preprocessing: Preprocessing | None, size: Sequence[int | None]) -> None:
    """Writes into a model's card how its pictures are prepared, for the shape of one input, `size` [H, W, C].

    ``preprocessing`` is the network's own, for weights that do not say theirs; None for inputs that are no pictures.
    """
    model.card = Card.from_dict({"net": net, **model.card}).complete(preprocessing, size)
