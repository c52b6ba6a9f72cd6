"""Whether a model's inputs are like those that its card says the weights were trained on: their range, their look."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

logger = logging.getLogger(__name__)
# The function from pixels to inputs of a model whose card has a preprocessing, as messages name it.
PREPARE = 'zoo.data.preprocessing.Preprocessing.from_dict(model.card["preprocessing"])'
# What a card's `pictures` says of those that weights were trained on.
LOOKS = ("brightness", "contrast", "detail")


def check_range(inputs: Any, low: float, high: float) -> bool:
    """Says whether concrete inputs lie in the range that the weights expect; if not, the logger "zoo" warns.

    Symbolic tensors and empty ones pass unchecked. `low` and `high` are the least and the most of a prepared picture.
    """
    if tf.is_symbolic_tensor(inputs) or not np.size(inputs):
        return True
    values = np.asarray(inputs)
    least, most = float(values.min()), float(values.max())
    slack = 0.05 * (high - low)
    if not (np.isfinite(least) and np.isfinite(most)):
        bad = values[~np.isfinite(values.astype(np.float32))].astype(np.float32)
        logger.warning(
            "%d of %d input values are not finite (%d NaN, %d infinite), but these weights expect %.3g to %.3g: the "
            "outputs mean nothing, though they may be finite, as ReLU and max-pooling can swallow NaN.",
            *(bad.size, values.size, np.isnan(bad).sum(), np.isinf(bad).sum(), low, high),
        )
        return False
    if least < low - slack or most > high + slack:
        guess = "they look like unscaled 0..255 pixels" if most > 16 else "they were scaled some other way"
    elif low < 0 <= least < 0.05 and most <= 1 and most - least > 0.2:
        guess = "no value is negative, as if they had been scaled to 0..1"
    else:
        return True
    logger.warning(
        "Inputs span %.3g to %.3g, but these weights expect %.3g to %.3g: %s. Prepare uint8 pictures with the "
        "preprocessing in the model's card: %s(pictures).",
        *(least, most, low, high, guess, PREPARE),
    )
    return False


def check_card(card: Any) -> None:
    """Checks those values of a card that a model itself compares its inputs with.

    Raises:
      ValueError: The card is no mapping, or its ``input_range`` or what it says of ``pictures`` are no two numbers.
    """
    if not isinstance(card, Mapping):
        raise ValueError(f"A model's card is a mapping of names to plain values. Received: {str(card)[:80]!r}")
    looks = card.get("pictures")
    known = isinstance(looks, Mapping) and any(name in looks for name in LOOKS)
    pairs = {f"pictures: {name}": looks.get(name) for name in LOOKS} if known else {}  # type: ignore[union-attr]
    if "input_range" in card:
        pairs["input_range"] = card["input_range"]
    for name, pair in pairs.items():
        plain = isinstance(pair, (list, tuple)) and len(pair) == 2 and all(type(x) in (int, float) for x in pair)
        if not plain or not pair[0] < pair[1]:
            raise ValueError(f"A card's {name} is the least and the most of two numbers. Received: {str(pair)[:80]!r}")


def looks_of(images: Any) -> dict[str, np.ndarray]:
    """Returns what pictures [N, H, W, C] look like, a number [N] each.

    ``brightness`` is the mean of a picture's values, ``contrast`` their deviation, and ``detail`` the mean difference
    of neighbours.
    """
    images = np.asarray(images, np.float32)
    down, right = (np.abs(np.diff(images, axis=axis)).mean((1, 2, 3)) for axis in (1, 2))
    return dict(zip(LOOKS, (images.mean((1, 2, 3)), images.std((1, 2, 3)), down + right), strict=True))


def check_looks(inputs: Any, trained_on: Any) -> bool:
    """Says whether pictures [N, H, W, C] look like those that weights were trained on; if not, the logger "zoo" warns.

    `trained_on` is a card's ``pictures``: ``what`` they are, and the least and the most of each number of `looks_of`.
    The middle picture has to lie within them, or within a tenth of them beside.
    """
    if not isinstance(trained_on, Mapping) or LOOKS[0] not in trained_on:
        return True
    if tf.is_symbolic_tensor(inputs) or len(inputs.shape) != 4 or not np.size(inputs):
        return True
    strange = []
    for name, values in looks_of(inputs).items():
        low, high = trained_on[name]
        middle, slack = float(np.median(values)), 0.1 * (high - low)
        if not low - slack <= middle <= high + slack:
            strange.append(f"{name} {middle:.2g} (trained on {low:.2g} to {high:.2g})")
    if strange:
        logger.warning(
            "The inputs look unlike the pictures that these weights were trained on, %s: %s. What the model says of "
            "them may mean little; train it on pictures like these.",
            *(trained_on.get("what", "pictures"), ", ".join(strange)),
        )
    return not strange


def check_inputs(card: Mapping[str, Any], inputs: Any, looks: bool) -> bool:
    """Warns of an array of float pictures in another range than the card says, or with `looks` of another look.

    Returns:
      Whether it has looked: the card gives a range, and the inputs are an array of values.
    """
    if "input_range" not in card or isinstance(inputs, (dict, list, tuple)) or not hasattr(inputs, "dtype"):
        return False
    symbolic = tf.is_symbolic_tensor(inputs) or isinstance(inputs, keras.KerasTensor)
    if symbolic or not tf.as_dtype(inputs.dtype).is_floating:
        return False
    if check_range(inputs[:32], *card["input_range"]) and looks:
        check_looks(inputs[:32], card.get("pictures"))
    return True
