"""What a network uses beside `get_variable`: its Keras layers and variables become the model's, or are refused.

A Keras layer, a Keras model or a `tf.Variable` that a network reaches through a closure would otherwise be used
but not be trained, listed or saved. The build notes what a trace uses, and traces once more to tell what is there in
every call from what is made anew in each.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from zoo.scoping.frames import get_variable_scope
from zoo.scoping.initial import ScopeError
from zoo.scoping.layer import Scope, attach

if TYPE_CHECKING:
    from zoo.scoping.model import Model


class Used:
    """What one trace of a model's network used beside `get_variable`.

    Args:
      model: The model.
      graph: The graph of the trace.
    """

    def __init__(self, model: Model, graph: Any) -> None:
        self.model, self.graph = model, graph
        self.layers: list[tuple[keras.layers.Layer, str]] = []  # called by the network itself, and in which scope
        self.made: list[Any] = []  # variables made during the trace, the model's included

    def owned(self) -> list[tuple[keras.layers.Layer, str]]:
        """The layers that have variables."""
        return [(layer, scope) for layer, scope in self.layers if layer.variables]

    def loose(self) -> list[Any]:
        """The variables that were read or made, and belong neither to the model nor to one of the layers."""
        known = self._known()
        found = {id(v): v for v in map(_whole, [*self.graph._watched_variables, *self.made]) if id(v) not in known}
        return sorted(found.values(), key=lambda v: v.name)

    def _known(self) -> set[int]:
        """Identities of the variables of the model and of the layers, and of their parts on devices."""
        variables = [*self.model.variables, *(v for layer, _ in self.layers for v in layer.variables)]
        return {id(part) for v in variables for part in (_whole(v._value), *_parts(v._value))}


class _Calls(list):
    """Keras' stack of open name scopes, which notes the layers that open one directly in the network."""

    def __init__(self, stack: list[Any], used: Used) -> None:
        super().__init__(stack)
        self._depth, self._used = len(stack), used

    def append(self, entry: Any) -> None:
        """Opens a name scope."""
        layer, used = entry.caller, self._used
        foreign = isinstance(layer, keras.layers.Layer) and layer is not used.model and not isinstance(layer, Scope)
        if foreign and len(self) == self._depth and all(layer is not known for known, _ in used.layers):
            used.layers.append((layer, get_variable_scope().name))
        super().append(entry)


@contextlib.contextmanager
def noted(model: Model, name: str) -> Iterator[Used]:
    """Opens a graph for one trace of the model's network, and notes what the network uses."""
    graph = tf.__internal__.FuncGraph(name)
    used = Used(model, graph)

    def note(make: Any, **kwargs: Any) -> Any:
        try:
            used.made.append(make(**kwargs))
        except ValueError as error:  # TensorFlow's advice would make one more variable in each call
            if "could not be lifted" in str(error):
                raise _made_anew(model, [kwargs.get("name") or "Variable"]) from error
            raise
        return used.made[-1]

    stack = global_state.get_global_attribute("name_scope_stack", default=[], set_to_default=True)
    global_state.set_global_attribute("name_scope_stack", _Calls(stack, used))
    try:
        with graph.as_default(), tf.variable_creator_scope(note):
            yield used
    finally:
        global_state.set_global_attribute("name_scope_stack", stack)


def own(model: Model, used: Used, again: list[Used]) -> None:
    """Makes what a network uses the model's: layers become sublayers of their scope, variables get listed by name.

    Args:
      model: The model, just built.
      used: What the build used.
      again: What further traces used, in training and in inference.

    Raises:
      ScopeError: Something is made anew in each call.
    """
    layers, loose = used.owned(), used.loose()
    for later in again:
        new = [layer for layer, _ in later.owned() if all(layer is not old for old, _ in layers)]
        anew = [v.path for layer in new for v in layer.variables]
        anew += [v.name for v in later.loose() if all(v is not old for old in loose)]
        if anew:
            raise _made_anew(model, anew)
    with tf.init_scope():
        for layer, scope in layers:
            _own_layer(model, layer, scope)
        for variable in loose:
            _own_variable(model, variable)


def _made_anew(model: Model, names: list[str]) -> ScopeError:
    return ScopeError(
        f"The network of {model.name!r} makes variables of its own in each call, which would never be trained or "
        f"saved: {', '.join(names)}. Make it before the network is called and reach it through a closure, which makes "
        "it the model's; or make the variable with zoo.get_variable, or take zoo's layer of that kind."
    )


def _own_layer(model: Model, layer: Any, scope: str) -> None:
    base = _plain_name(layer)
    path = _free(f"{scope}/{base}" if scope else base, [*model.book.scopes, *model.book.weights])
    attach(model._scope(scope), path.rpartition("/")[2], layer)
    model.book.scopes[path] = layer
    numbered = [inner.name for inner in layer._flatten_layers() if _plain_name(inner) != inner.name]
    for variable in layer.variables:
        parts = variable.path.split("/")
        inside = parts[parts.index(layer.name) + 1 :] if layer.name in parts[:-1] else parts
        counted = [part in numbered or part.startswith("seed_generator_") for part in inside]
        plain = [re.sub(r"_\d+$", "", part) if by else part for part, by in zip(inside, counted, strict=True)]
        name = _free("/".join([path, *plain]), model.book.weights)
        model.book.weights[name], model.book.raw[name] = variable, variable._value


def _own_variable(model: Model, variable: Any) -> None:
    name = _free(variable.name.rpartition(":")[0] or variable.name, [*model.book.scopes, *model.book.weights])
    scope, _, leaf = name.rpartition("/")
    owner = model._scope(scope)
    weight = keras.Variable(
        variable, variable.shape, variable.dtype.name, trainable=variable.trainable, autocast=False, name=leaf
    )
    owner._track_variable(weight)
    attach(owner, leaf, weight)
    model.book.weights[name], model.book.raw[name] = weight, variable


def _plain_name(layer: Any) -> str:
    """A layer's name without the number that Keras gives by order of creation, which is another in another program."""
    kind = keras.src.utils.naming.to_snake_case(type(layer).__name__)
    return kind if re.fullmatch(rf"{kind}_\d+", layer.name) else layer.name


def _free(name: str, taken: Any) -> str:
    """The name, with a number at the last scope of it where it is taken."""
    scope, _, leaf = name.rpartition("/")
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{scope}_{number}/{leaf}" if scope else f"{leaf}_{number}"
    return free


def _whole(variable: Any) -> Any:
    """The variable that all devices share, of which this may be one device's part."""
    whole = getattr(variable, "_distributed_container", None)
    return variable if whole is None or whole() is None else whole()


def _parts(variable: Any) -> list[Any]:
    """A variable's parts on devices: itself, on one device."""
    return list(getattr(_whole(variable), "values", None) or [variable])
