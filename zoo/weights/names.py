"""Names of variables: which ones a model has, which ones a pattern means, and the one place that assigns by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from zoo.scoping import Model

Variable: TypeAlias = "keras.Variable | tf.Variable"
Variables: TypeAlias = "Mapping[str, Variable]"
HasVariables: TypeAlias = "Model | keras.Model | keras.layers.Layer | Variables"


class CheckpointNamesError(ValueError):
    """Names in a checkpoint and in a model do not fit; lists missing, unexpected and mismatched ones together.

    Args:
        where: what holds the values: ``"checkpoint model.ckpt-1000"``.
        missing: names of the model that the checkpoint lacks.
        unexpected: names of the checkpoint that the model lacks.
        mismatched: one text a name with both shapes or types.
        remedy: what to do.
    """

    def __init__(
        self, where: str, missing: Sequence[str], unexpected: Sequence[str], mismatched: Sequence[str], remedy: str
    ) -> None:
        self.missing, self.unexpected, self.mismatched = list(missing), list(unexpected), list(mismatched)
        lines = [f"names in {where} do not fit the model"]
        lines += _listed("missing in the checkpoint", missing)
        lines += _listed("in the checkpoint only", unexpected)
        lines += _listed("different shape or type", mismatched)
        super().__init__("\n".join([*lines, f"  {remedy}"]))


def named_variables(model: HasVariables) -> dict[str, Variable]:
    """Maps the canonical name of every variable of a model to the variable, in the order of creation.

    A `zoo.Model` has TF1 names (``LeNet5/conv1/weights``), any other built Keras model or layer its variables' paths,
    without its metrics; a mapping of name to variable comes back as a dict. Raises ValueError when the model has no
    variables yet, or two of one name.
    """
    if isinstance(model, Mapping):
        return dict(model)
    if hasattr(model, "variable_names") and hasattr(model, "variable"):
        return {name: model.variable(name) for name in model.variable_names}
    variables = list(model.weights)
    if not variables:
        raise ValueError(
            f"model '{model.name}' has no variables; call it once or give it an input shape, so that it is built"
        )
    found: dict[str, Variable] = {}
    for variable in variables:
        if variable.path in found:
            raise ValueError(
                f"two variables of model '{model.name}' are named '{variable.path}'; name its layers apart"
            )
        found[variable.path] = variable
    return found


def mismatch(name: str, variable: Variable, shape: Sequence[int], dtype: np.dtype[Any], ours: str = "the model") -> str:
    """Words a difference of shape or kind of type between a variable and a stored array; empty when they fit."""
    want, kind = tuple(variable.shape), _dtype(variable)
    if tuple(shape) != want:
        return f"{name}: {ours} has {list(want)}, the checkpoint {list(shape)}"
    if _is_number(dtype) != _is_number(kind):
        return f"{name}: {ours} has {kind}, the checkpoint {dtype}"
    return ""


def assign(
    model: HasVariables, values: Mapping[str, np.ndarray], where: str, *, remedy: str, ours: str = "the model"
) -> None:
    """Gives every variable its value by name, in its own type; nothing is changed unless all fit.

    Args:
        model: what `named_variables` takes; to set some variables only, a mapping of these.
        values: array by name; all are read before the first is assigned.
        where: what holds them, for the message.
        remedy: what to do when they do not fit.
        ours: what has the variables, for the message.

    Raises:
        CheckpointNamesError: names, shapes or kinds of type differ.
    """
    variables = named_variables(model)
    missing, unexpected = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
    arrays = {name: np.asarray(values[name]) for name in variables if name in values}
    texts = [mismatch(name, variables[name], array.shape, array.dtype, ours) for name, array in arrays.items()]
    mismatched = [text for text in texts if text]
    if missing or unexpected or mismatched:
        raise CheckpointNamesError(where, missing, unexpected, mismatched, remedy)
    for name, array in arrays.items():
        variables[name].assign(array.astype(_dtype(variables[name]), copy=False))


def name_matches(pattern: str, name: str) -> bool:
    """Says whether a pattern means a variable: a shell pattern (``*`` also crosses ``/``), or the name of a scope.

    It is tried on the full name and on the name without its root scope: ``conv1``, ``conv*`` and ``LeNet5/conv1`` all
    mean ``LeNet5/conv1/weights``.
    """
    inside = pattern.rstrip("/") + "/*"
    return any(
        fnmatchcase(text, pattern) or fnmatchcase(text, inside) for text in (name, name.partition("/")[2]) if text
    )


def select_names(names: Iterable[str], patterns: str | Iterable[str]) -> list[str]:
    """Picks the names that at least one pattern means (see `name_matches`), in their own order.

    Raises ValueError when a pattern matches nothing; the message has the closest names.
    """
    names = list(names)
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in patterns:
        if not any(name_matches(pattern, name) for name in names):
            raise ValueError(f"pattern '{pattern}' matches none of the {len(names)} names{closest(pattern, names)}")
    return [name for name in names if any(name_matches(pattern, name) for pattern in patterns)]


def closest(name: str, names: Iterable[str]) -> str:
    """Words the names nearest to a wrong one for an error message; empty when nothing is near."""
    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _dtype(variable: Variable) -> np.dtype[Any]:
    """A variable's type as NumPy has it."""
    return np.dtype(getattr(variable.dtype, "as_numpy_dtype", variable.dtype))


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Also of the types that NumPy does not count as its own, such as bfloat16."""
    return np.issubdtype(dtype, np.number) or dtype.kind == "V"


def _listed(title: str, names: Sequence[str], most: int = 20) -> list[str]:
    if not names:
        return []
    more = [f"    and {len(names) - most} more"] if len(names) > most else []
    return [f"  {title} ({len(names)}):", *(f"    {name}" for name in names[:most]), *more]
