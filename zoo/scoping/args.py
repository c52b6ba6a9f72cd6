"""Default arguments for layers: TF-Slim's ``arg_scope`` on a context variable.

A scope maps each decorated function to the arguments it takes when the caller gives none:

    with arg_scope([conv2d, fully_connected], weights_regularizer=l2_regularizer(4e-5)):
        net = conv2d(images, 32, [3, 3])

Source: behaviour of TF-Slim's ``ops/arg_scope.py``; the storage is a context variable, so threads and
coroutines do not see each other's scopes.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "current_arg_scope",
    "has_arg_scope",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Scope = dict[Any, dict[str, Any]]

_SCOPE: Final[contextvars.ContextVar[Scope]] = contextvars.ContextVar("zoo_arg_scope")
_NO_SCOPE: Final[Scope] = {}
_KEY: Final = "_key_op"
_NAMES: Final = "_arg_scope_names"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# What TensorFlow and Keras call an argument -> what it may be called here.
_ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    "input": ("inputs", "x"),
    "x": ("inputs",),
    "value": ("inputs",),
    "filters": ("num_outputs",),
    "units": ("num_outputs",),
    "ksize": ("kernel_size",),
    "pool_size": ("kernel_size",),
    "strides": ("stride",),
    "dilations": ("rate",),
    "dilation_rate": ("rate",),
    "activation": ("activation_fn",),
    "kernel_initializer": ("weights_initializer",),
    "kernel_regularizer": ("weights_regularizer",),
    "bias_initializer": ("biases_initializer",),
    "bias_regularizer": ("biases_regularizer",),
    "training": ("is_training",),
    "momentum": ("decay",),
    "keepdims": ("keep_dims",),
    "name": ("scope",),
}
# Arguments of theirs without a counterpart -> what to write.
_INSTEAD: Final = {
    "use_cudnn_on_gpu": "leave it out: TensorFlow chooses the kernel",
    "use_bias": "write biases_initializer=None for a layer without biases",
    "filter": "write num_outputs and kernel_size; the layer makes the kernel",
    "rate": "write keep_prob, which is 1 - rate",
}


class _Names:
    """The argument names of a decorated function, read once from its signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = inspect.signature(function).parameters.values()
        self.positional = tuple(p.name for p in parameters if p.kind in _POSITIONAL)
        self.optional = tuple(
            p.name
            for p in parameters
            if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty)
        )
        self.known = frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
        self.accepts_any = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def accepts(self, name: str) -> bool:
        return self.accepts_any or name in self.known

    def refusal(self, function: Callable[..., Any], name: str) -> str:
        """Words that the function has no argument of that name, and what to write."""
        called = next((mine for mine in _ELSEWHERE.get(name, ()) if mine in self.known), None)
        near = difflib.get_close_matches(name, self.known, n=3, cutoff=0.5) or sorted(self.known)
        advice = f"write {called}" if called else _INSTEAD.get(name, f"use one of {', '.join(near)}")
        return f"{getattr(function, '__qualname__', repr(function))} has no argument {name!r}: {advice}"


def add_arg_scope(function: Function, *, shares: Callable[..., Any] | None = None) -> Function:
    """Makes a function's arguments configurable by `arg_scope`.

    An argument given at the call wins over the scope's, by keyword and by position alike.

    Args:
      function: any function or callable with a readable signature.
      shares: a decorated function whose entry in the scope this one takes too (an alias, or the same layer of
        another library); names the entry has and `function` has not are left out. Default: an entry of its own.

    Returns:
      A function with the same signature and documentation.

    Raises:
      ValueError: `shares` is not decorated.
    """
    names = _Names(function)
    key = function if shares is None else arg_scope_func_key(shares)
    positional, accepts = names.positional, names.accepts
    current = _SCOPE.get

    @functools.wraps(function)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        defaults = current(_NO_SCOPE).get(key)
        if defaults:
            given = positional[: len(args)]
            for name, value in defaults.items():
                if name not in kwargs and name not in given and accepts(name):
                    kwargs[name] = value
        try:
            return function(*args, **kwargs)
        except TypeError:
            unknown = next((name for name in kwargs if not accepts(name)), None)
            if unknown is None:
                raise
            raise TypeError(names.refusal(function, unknown)) from None

    setattr(scoped, _KEY, key)
    setattr(scoped, _NAMES, names)
    return scoped  # type: ignore[return-value]


def _undecorated(op: Any) -> str:
    name = getattr(op, "__qualname__", None) or repr(op)
    return f"arg_scope works on functions decorated with @add_arg_scope, and {name} is not: decorate it"


def _target(op: Any) -> Any:
    """The decorated function behind an alias made by functools.partial."""
    while isinstance(op, functools.partial):
        op = op.func
    return op


def has_arg_scope(op: Any) -> bool:
    """Says whether a function (or a partial of one) is decorated with `add_arg_scope`.

    Args:
      op: any object.

    Returns:
      True when `arg_scope` accepts it.
    """
    return hasattr(_target(op), _NAMES)


def arg_scope_func_key(op: Any) -> Any:
    """Returns the key under which a scope holds a function's arguments.

    Args:
      op: a decorated function, or a partial of one.

    Returns:
      A hashable key: the key of `op` in the dictionary that `arg_scope` yields.

    Raises:
      ValueError: `op` is not decorated.
    """
    if not has_arg_scope(op):
        raise ValueError(_undecorated(op))
    return getattr(_target(op), _KEY)


def arg_scoped_arguments(op: Any) -> tuple[str, ...]:
    """Returns the names of a function's optional arguments, which a scope can set.

    A scope also takes the name of a required argument; it then applies where the call leaves that argument out.

    Args:
      op: a decorated function, or a partial of one.

    Returns:
      Argument names in the order of the signature.

    Raises:
      ValueError: `op` is not decorated.
    """
    if not has_arg_scope(op):
        raise ValueError(_undecorated(op))
    return getattr(_target(op), _NAMES).optional


def current_arg_scope() -> Scope:
    """Returns the active scope.

    Returns:
      Dictionary of function key -> {argument name: value}; empty outside every `arg_scope`. Re-enter it with
      `arg_scope(scope)`.
    """
    return _SCOPE.get(_NO_SCOPE).copy()


def _check_names(op: Any, arguments: Mapping[str, Any]) -> None:
    names: _Names = getattr(_target(op), _NAMES)
    for name in arguments:
        if not names.accepts(name):
            raise TypeError(names.refusal(_target(op), name))


class arg_scope(contextlib.ContextDecorator):  # noqa: N801 (TF-Slim's name)
    """Context manager that sets default arguments of decorated functions.

    Inner scopes add to outer ones, argument by argument. A dictionary (what an earlier `arg_scope` yielded)
    replaces the active scope as a whole, and `arg_scope({})` clears it.

    Args:
      ops_or_scope: list or tuple of decorated functions or partials of them, or a scope dictionary.
      **arguments: the default values, accepted by every function of the list.

    Returns:
      A context manager (also a decorator) that yields the scope dictionary.

    Raises:
      TypeError: neither list, tuple nor dictionary; or a function has no argument of a given name.
      ValueError: a function is not decorated, or keywords were given along with a dictionary.
    """

    def __init__(self, ops_or_scope: list[Any] | tuple[Any, ...] | Mapping[Any, Any], /, **arguments: Any) -> None:
        self._tokens: list[contextvars.Token[Scope]] = []
        self._replaces = isinstance(ops_or_scope, Mapping)
        self._entries: Scope = {}
        if isinstance(ops_or_scope, Mapping):
            if arguments:
                raise ValueError(
                    f"a scope dictionary is re-entered as it is, so {', '.join(arguments)} cannot be given with it: "
                    "open a second arg_scope with a list of functions inside"
                )
            for key, values in ops_or_scope.items():
                if not isinstance(values, Mapping):
                    raise TypeError(
                        f"a scope dictionary holds one dictionary of arguments per function, got "
                        f"{type(values).__name__} for {key!r}: pass what an arg_scope yielded"
                    )
                self._entries[key] = dict(values)
        elif isinstance(ops_or_scope, list | tuple):
            for op in ops_or_scope:
                key = arg_scope_func_key(op)
                _check_names(op, arguments)
                self._entries.setdefault(key, {}).update(arguments)
        else:
            raise TypeError(
                f"arg_scope takes a list or tuple of functions, or a scope dictionary, got "
                f"{type(ops_or_scope).__name__}: put a single function in a list"
            )

    def __enter__(self) -> Scope:
        scope = {} if self._replaces else _SCOPE.get(_NO_SCOPE).copy()
        for key, values in self._entries.items():
            scope[key] = {**scope.get(key, {}), **values}
        self._tokens.append(_SCOPE.set(scope))
        return scope.copy()

    def __exit__(self, *exception: object) -> None:
        _SCOPE.reset(self._tokens.pop())
