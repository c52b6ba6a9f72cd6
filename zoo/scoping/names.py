"""What names mean: the functions that a saved model may name, and variables and scopes by full or relative name."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


@overload
def register_function(name: FunctionT) -> FunctionT: ...
@overload
def register_function(name: str | None = None) -> Callable[[FunctionT], FunctionT]: ...
def register_function(name: Any = None) -> Any:
    """Lets saved models name this function, as `@zoo.register_function` or `@zoo.register_function("name")`.

    Needed for a network, and for a function given as an option, of a model that is saved to a `.keras` file.

    Args:
      name: The name in files; default: the function's own.

    Returns:
      The decorator, or the function itself.

    Raises:
      ValueError: The name is taken by another function.
    """
    if callable(name):
        return register_function(None)(name)

    def register(function: FunctionT) -> FunctionT:
        key = name or function.__name__
        taken = _FUNCTIONS.setdefault(key, function)
        if taken is not function and (taken.__module__, taken.__qualname__) != (
            function.__module__,
            function.__qualname__,
        ):
            raise ValueError(
                f"A registered name belongs to one function: {key!r} is {taken.__module__}.{taken.__qualname__}. "
                f"Received: "
                f"{function.__module__}.{function.__qualname__}. Give another name: @zoo.register_function('...')."
            )
        _FUNCTIONS[key] = function
        return function

    return register


def function_name(function: Callable[..., Any]) -> str:
    """Returns the name under which `function` was registered; ValueError tells how if it was not."""
    for name, known in _FUNCTIONS.items():
        if known is function:
            return name
    name = getattr(function, "__qualname__", repr(function))
    raise ValueError(
        f"Only registered functions can be saved in a model file. Received: {name}. Put @zoo.register_function "
        f"above its "
        "definition, and import that module before you load the file."
    )


def find_function(name: str, module: str = "") -> Callable[..., Any]:
    """Returns the registered function of that name; of zoo's own modules, `module` is imported first."""
    if name not in _FUNCTIONS and module.startswith("zoo.nets."):
        importlib.import_module(module)
    if name not in _FUNCTIONS:
        raise ValueError(
            f"A model file may name registered functions only. Received: {name!r}. Put "
            f"@zoo.register_function({name!r}) above "
            f"its definition and import that module before loading. Registered now: {sorted(_FUNCTIONS)}."
        )
    return _FUNCTIONS[name]


def check_options(function: Callable[..., Any], options: Iterable[str]) -> None:
    """Raises TypeError, naming the nearest, for an option that a network does not take."""
    parameters = list(inspect.signature(function).parameters.values())
    known = [
        p.name
        for p in parameters[1:]
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "is_training"
    ]
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        return
    for option in options:
        if option not in known:
            nearest = difflib.get_close_matches(option, known, 3, 0.4) or known
            raise TypeError(f"{getattr(function, '__name__', function)} has no option {option!r}. Nearest: {nearest}.")


def root_of(names: Iterable[str]) -> str:
    """Returns the first part that all the names share, with its slash; empty if they share none."""
    firsts = {name.split("/", 1)[0] for name in names}
    return f"{firsts.pop()}/" if len(firsts) == 1 else ""


def find_name(name: str, names: Iterable[str], kind: str) -> str:
    """Returns the full name (`LeNet5/conv1/weights`) that a full or relative one (`conv1/weights`) means among all.

    Raises ValueError, with the nearest, for a name that is none of the `kind`, or means two.
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


def legacy_format_error(received: str) -> ValueError:
    """Why a model is not saved in Keras' legacy format, and what to write."""
    return ValueError(
        "A zoo.Model is saved as a .keras file: nothing could read it from Keras' legacy .h5 format. "
        f"Received: {received}. Write model.save('NAME.keras'), model.save_weights('NAME.weights.h5') "
        "for the variables alone, or zoo.weights.save(model, 'NAME.h5') for keras.applications' own layout."
    )
