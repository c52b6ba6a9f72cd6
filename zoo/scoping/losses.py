"""Whether losses and metrics get what they take from a network: Keras' take probabilities unless told otherwise."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

PROBABILITIES: Final = ("Softmax", "Sigmoid")
_UNBOUNDED: Final = ("BiasAdd", "MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "LogSoftmax", "Neg")
_PASSED_ON: Final = ("Identity", "IdentityN", "Cast", "Reshape", "Squeeze", "ExpandDims", "EnsureShape", "StridedSlice")


# Metrics without a setting for logits: some try thresholds between 0 and 1.
_OF_PROBABILITIES: Final = (
    *("PrecisionAtRecall", "RecallAtPrecision", "SensitivityAtSpecificity", "SpecificityAtSensitivity"),
    *("KLDivergence", "kl_divergence"),
)


def makers_of(outputs: Any) -> Any:
    """Returns the types of the ops that made a traced network's outputs, in their structure; "" where unknown."""
    return tf.nest.map_structure(_maker, outputs)


def _maker(tensor: Any) -> str:
    """The op that made a tensor, past those that only pass values on; of a sum with a product, the product."""
    op, index = getattr(tensor, "op", None), getattr(tensor, "value_index", 0)
    if op is None:
        return ""
    if op.type in _PASSED_ON:
        return _maker(op.inputs[index if op.type == "IdentityN" else 0])
    if op.type in ("Add", "AddV2"):
        return next((made for made in map(_maker, op.inputs) if made in _UNBOUNDED), op.type)
    return op.type


def check_loss(makers: Any, loss: Any, metrics: Sequence[Any] = (), *, strict: bool = True) -> None:
    """Says that a loss takes probabilities where a network returns logits, or the other way round, by `makers_of`.

    Of a product or a convolution that is a ValueError with the loss to write, or a warning unless `strict`; where the
    outputs could be either, always a warning, as of metrics.
    """
    for given in metrics:
        _check_metrics(makers, given)
    for made, one in _pairs(makers, loss):
        name, from_logits = wants(one)
        if from_logits and made in PROBABILITIES:
            _warn(f"loss {_given(one)} takes logits, and the network returns the probabilities of {made}: drop one.")
        if from_logits is not False or made in PROBABILITIES:
            continue
        advice = f"write loss=keras.losses.{name or 'CategoricalCrossentropy'}(from_logits=True)"
        text = (
            f"loss {_given(one)} takes probabilities, and the network returns what {made or 'an unknown op'} makes, "
            "without softmax or sigmoid: logits would be trained as if they were probabilities. For logits "
            f"{advice}, or let the network return tf.nn.softmax(logits)."
        )
        if made not in _UNBOUNDED:
            text += " For probabilities that were made in another way, ignore this warning."
        elif strict:
            raise ValueError(text)
        _warn(text)


def _pairs(makers: Any, loss: Any) -> Iterator[tuple[str, Any]]:
    """Each output's maker with its loss."""
    if isinstance(makers, Mapping) and isinstance(loss, Mapping):
        for key in makers.keys() & loss.keys():
            yield from _pairs(makers[key], loss[key])
    elif isinstance(loss, Mapping):
        yield from _pairs(makers, list(loss.values()))
    elif isinstance(loss, list | tuple):
        yield from zip(tf.nest.flatten(makers), loss, strict=False)  # Keras itself refuses other lengths
    elif loss is not None:
        yield from ((made, loss) for made in tf.nest.flatten(makers))


def wants(loss: Any) -> tuple[str, bool | None]:
    """Returns what a loss takes: the name of its class ("" if it has no logits form), and its `from_logits`.

    That is None for losses of other things than classes, and for functions that do not say.
    """
    given = loss.keywords if isinstance(loss, functools.partial) else {}
    function = loss.func if isinstance(loss, functools.partial) else loss
    if isinstance(function, str):
        try:
            function = keras.losses.get(function)
        except ValueError:
            return "", True if function == "softmax_cross_entropy" else None  # the trainer's; else Keras says it
    if isinstance(function, keras.losses.KLDivergence) or function is keras.losses.kl_divergence:
        return "", False
    if isinstance(function, keras.losses.Loss):
        return type(function).__name__, getattr(function, "from_logits", None)
    if "from_logits" not in _parameters(function):
        return "", None
    default = _parameters(function)["from_logits"].default
    words = getattr(function, "__name__", "").split("_")
    return "".join(word.capitalize() for word in words), bool(given.get("from_logits", default))


def _check_metrics(makers: Any, metrics: Any) -> None:
    """Warns of metrics that take probabilities where a network returns logits, by `makers_of`: their figures mislead.

    Those that only rank (accuracy of classes, top k) are right for both.
    """
    if isinstance(makers, Mapping) and isinstance(metrics, Mapping):
        for key in makers.keys() & metrics.keys():
            _check_metrics(makers[key], metrics[key])
        return
    made = tf.nest.flatten(makers)
    if not made or not all(one in _UNBOUNDED for one in made):
        return
    for metric in tf.nest.flatten(metrics):
        advice = _for_logits(metric)
        if advice:
            _warn(
                f"metric {_given(metric)} takes probabilities, and the network returns what {made[0]} makes, without "
                f"softmax or sigmoid: its figures would mislead. For logits {advice}."
            )


def _for_logits(metric: Any) -> str:
    """What to write in place of a metric that takes probabilities; "" for others."""
    name = metric if isinstance(metric, str) else ""
    if name:
        try:
            metric = keras.metrics.get(name)
        except ValueError:
            return ""  # "accuracy", which chooses by the shapes; else Keras says it
    if isinstance(metric, keras.metrics.Metric):
        name, settings = type(metric).__name__, metric.get_config()
    elif callable(metric) and not isinstance(metric, type):
        name = getattr(metric, "__name__", "")
        settings = {key: option.default for key, option in _parameters(metric).items()}
    else:
        return ""
    if settings.get("from_logits") is False:
        return f"write keras.metrics.{name}(from_logits=True)"
    key = "threshold" if "threshold" in settings else "thresholds"
    ranks = settings.get("top_k") is not None or settings.get("threshold", "") is None  # F1 is of the largest class
    if key in settings and not ranks:
        between = [0 < one <= 1 for one in tf.nest.flatten(0.5 if settings[key] is None else settings[key])]
        return f"write keras.metrics.{name}({key}=0)" if all(between) else ""
    if name in _OF_PROBABILITIES:
        return "let the network return tf.nn.softmax or tf.nn.sigmoid of them"
    return ""


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _given(loss: Any) -> str:
    if isinstance(loss, functools.partial):
        loss = loss.func
    return repr(loss) if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def _warn(text: str) -> None:
    """Warns at the user's line."""
    depth, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("zoo.", "keras.", "tensorflow.")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)
