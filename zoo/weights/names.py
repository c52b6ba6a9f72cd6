"""Names of variables: which ones a model has, and which ones a pattern means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any


def named_variables(model: Any) -> dict[str, Any]:
    """Maps the canonical name of every variable of a model to the variable.

    Args:
        model: a built `zoo.Model` (TF1 names such as ``LeNet5/conv1/weights``), any other built Keras model or layer
            (its variables' paths), or a mapping of name to variable, which comes back as a dict.

    Returns:
        Name to variable, in the order of creation; metrics are left out.

    Raises:
        ValueError: the model has no variables yet, or two variables have the same name.
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
    found: dict[str, Any] = {}
    for variable in variables:
        if variable.path in found:
            raise ValueError(
                f"two variables of model '{model.name}' are named '{variable.path}'; name its layers apart"
            )
        found[variable.path] = variable
    return found


def name_matches(pattern: str, name: str) -> bool:
    """Says whether a pattern means a variable.

    A pattern is a shell pattern (``*`` also crosses ``/``) or the name of a scope, and is tried on the full name and on
    the name without its root scope: ``conv1``, ``conv*`` and ``LeNet5/conv1`` all mean ``LeNet5/conv1/weights``.

    Args:
        pattern: shell pattern or scope name.
        name: full name of a variable.

    Returns:
        True when the pattern means the variable or a scope around it.
    """
    inside = pattern.rstrip("/") + "/*"
    return any(
        fnmatchcase(text, pattern) or fnmatchcase(text, inside) for text in (name, name.partition("/")[2]) if text
    )


def select_names(names: Iterable[str], patterns: str | Iterable[str]) -> list[str]:
    """Picks the names that at least one pattern means.

    Args:
        names: full names, in order.
        patterns: one pattern or several, as in `name_matches`.

    Returns:
        The matching names in their own order.

    Raises:
        ValueError: a pattern matches nothing; the message has the closest names.
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
