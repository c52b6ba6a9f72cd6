"""Freezing scopes by glob, and finding things by full or relative name."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def root_of(names: Iterable[str]) -> str:
    """Returns the first part that all the names share, with its slash; empty if they share none."""
    firsts = {name.split("/", 1)[0] for name in names}
    return f"{firsts.pop()}/" if len(firsts) == 1 else ""


def find_name(name: str, names: Iterable[str], kind: str) -> str:
    """Returns the full name that `name` means: itself, or relative to the network's root scope.

    Args:
      name: Full name (`LeNet5/conv1/weights`) or relative name (`conv1/weights`).
      names: The full names there are.
      kind: What they name, for the message.

    Raises:
      ValueError: No such name, with the nearest ones; or it means two things.
    """
    known = list(names)
    found = [full for full in dict.fromkeys((name, root_of(known) + name)) if full in known]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{name!r} means more than one {kind}: {found}. Give the full name.")
    candidates = dict.fromkeys([*known, *(n.split("/", 1)[-1] for n in known)])
    nearest = difflib.get_close_matches(name, candidates, 5, 0.5)
    raise ValueError(f"There is no {kind} {name!r}. Nearest: {nearest or known[:8]}.")


class FreezingMixin:
    """`freeze` and `unfreeze` for a model of scopes."""

    def freeze(self, *patterns: str) -> list[str]:
        """Freezes the scopes that match, and all scopes inside them: not trained, batch norm on moving statistics.

        Works at any time, also after `compile`.

        Args:
          *patterns: Globs on full or relative scope names: `"conv*"`, `"Mixed_5?"`, `"*"`.

        Returns:
          Full names of the scopes that matched.

        Raises:
          ValueError: A pattern matches nothing.
        """
        return self._set_trainable(patterns, False)

    def unfreeze(self, *patterns: str) -> list[str]:
        """Undoes `freeze` for the scopes that match; arguments and result are `freeze`'s."""
        return self._set_trainable(patterns, True)

    def _set_trainable(self: Any, patterns: tuple[str, ...], trainable: bool) -> list[str]:
        names = self.scope_names
        root = root_of(self.variable_names)
        matched: dict[str, None] = {}
        for pattern in patterns:
            hits = [
                n
                for n in names
                if fnmatch.fnmatchcase(n, pattern) or fnmatch.fnmatchcase(n.removeprefix(root), pattern)
            ]
            if not hits:
                relative = [n.removeprefix(root) for n in names]
                nearest = difflib.get_close_matches(pattern, relative, 5, 0.3) or relative[:8]
                raise ValueError(
                    f"Each pattern must match a scope. {pattern!r} matches none of {len(names)}. Nearest: {nearest}."
                )
            matched.update(dict.fromkeys(hits))
        for name in matched:
            self.book.scopes[name].trainable = trainable
        self.retrace()  # a Keras layer of the network does not do so by itself
        return list(matched)

    def retrace(self: Any) -> None:
        """Drops compiled functions, so that `fit` and `predict` see which scopes are frozen now."""
        self.book.functions.clear()
        self.train_function = self.test_function = self.predict_function = None
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and optimizer.built:
            known = {id(v) for v in optimizer._trainable_variables}
            if any(id(v) not in known for v in self.trainable_variables):
                self.optimizer = _with_variables(optimizer, self.trainable_variables)


def _with_variables(optimizer: Any, variables: list[Any]) -> Any:
    """A copy of the optimizer for `variables`, with the state it had for those it knew."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    fresh = type(inner).from_config(inner.get_config())
    union = [
        *inner._trainable_variables,
        *(v for v in variables if all(v is not k for k in inner._trainable_variables)),
    ]
    with tf.init_scope():
        fresh.build(union)
    old = {v.path: v for v in inner.variables}
    for variable in fresh.variables:
        if variable.path in old and variable.shape == old[variable.path].shape:
            variable.assign(old[variable.path])
    if inner is optimizer:
        return fresh
    optimizer.inner_optimizer = fresh
    return optimizer
