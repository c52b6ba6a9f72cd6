"""A model's variables by name, and the sublayers that hold them: its scopes, and what its network brings along.

A Keras layer, a Keras model or a `tf.Variable` that a network reaches through a closure would otherwise be used
but not be trained, listed or saved. The build notes what a trace uses, and traces once more to tell what is there in
every call from what is made anew in each.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from zoo._compat import (
    FuncGraph,
    identities,
    keras_global,
    keras_globals,
    layers_inside,
    own_variables,
    tf_variable,
    track_variable,
    usual_name,
    variables_of,
)
from zoo.scoping.args import current_arg_scope
from zoo.scoping.frames import REGULARIZATION_LOSSES, collections_of, get_variable_scope
from zoo.scoping.initial import ScopeError
from zoo.scoping.replicas import replicas

if TYPE_CHECKING:
    from zoo.scoping.model import Model


class NotBuiltError(ValueError, AttributeError):
    """A model was asked for what it has only once it is built; an AttributeError, as Keras looks with `hasattr`."""


class ModelStore:
    """The variables of a model by full name, which its frames ask for, and all that the model knows of itself.

    A plain object, so that Keras does not track twice what the model and its scopes have as attributes.
    """

    def __init__(self, model: Model) -> None:
        self._model = weakref.ref(model)
        self.defaults = current_arg_scope()  # the same in every run, whoever calls
        self.scopes: dict[str, Any] = {}  # each a `Scope`, or a Keras layer of the network's own
        self.weights: dict[str, keras.Variable] = {}
        self.raw: dict[str, tf.Variable] = {}
        self.places: dict[str, str] = {}  # where each was made, as `file:line`
        self.collections: dict[str, list[str]] = {}  # names of variables
        self.functions: dict[str, Callable[..., Any]] = {}  # compiled, by end point
        self.collects_losses = False  # its network puts losses into TF1's collections, in training
        self.is_building = False  # making its variables just now
        self.generator: keras.random.SeedGenerator | None = None
        self.input_specs: Any = None
        self.output_specs: Any = None
        self.end_point_specs: dict[str, Any] = {}
        self.makers: Any = None  # of the outputs: the types of the ops
        self.loss: Any = None  # compiled before the model was built
        self.card: dict[str, Any] = {}
        self.range_checked = False

    @property
    def model(self) -> Model:
        """The model, which is there as long as anybody can ask."""
        return self._model()  # type: ignore[return-value]

    @property
    def seed(self) -> int:
        """The model's seed."""
        return self.model.seed

    @property
    def compute_dtype(self) -> str:
        """The type that the model computes in."""
        return self.model.compute_dtype

    @property
    def supports_jit(self) -> bool:
        """What Keras reads for `jit_compile="auto"`."""
        return self.model.supports_jit

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        self.model.supports_jit = value

    def create(
        self, name: str, shape: tuple[int, ...], dtype: tf.DType, initial: Callable[[], Any], **how: Any
    ) -> tf.Variable:
        """Makes the weight of that full name in the sublayer of its scope."""
        if not self.is_building:
            raise ScopeError(
                f"Variable {name} is new: it was not made when the model {self.model.name!r} was built (with "
                f"is_training=True), and is "
                f"asked for at {how['where']}. Make the same variables in training and in inference."
            )
        self.places[name] = how["where"]
        scope, _, leaf = name.rpartition("/")
        trainable = how["trainable"] is not False
        owner = self.scope(scope)
        above = scope.rpartition("/")[0]  # Keras adds the last part
        with tf.init_scope(), tf.compat.v1.name_scope(f"{above}/" if above else None):
            weight = owner.add_weight(
                shape=shape,
                initializer=lambda *_, **__: initial(),
                dtype=dtype.name,
                trainable=trainable,
                autocast=False,
                constraint=how["constraint"] and Constraint(how["constraint"]),
                aggregation=aggregation(how["aggregation"], trainable, dtype),
                name=leaf,
            )
        raw = tf_variable(weight)
        self.weights[name] = weight
        self.raw[name] = raw
        attach(owner, leaf, weight)
        if how["regularizer"] is not None:
            self.regularize(name, how["regularizer"])
        for key in collections_of(how["collections"], trainable):
            self.collections.setdefault(key, []).append(name)
        return raw

    def regularize(self, name: str, regularizer: Callable[[Any], Any]) -> None:
        """Adds the regularizer's loss of the variable of that full name to `losses`, once; one of None adds nothing."""
        if self.is_building and regularizer(self.raw[name]) is not None:  # as slim's of scale 0
            self.weights[name].regularizer = RegularizationLoss(regularizer)
            self.collections.setdefault(REGULARIZATION_LOSSES, []).append(name)

    def regularization(self, name: str) -> Any:
        """The loss that the regularizer of the variable of that full name gives now."""
        return self.weights[name].regularizer(self.raw[name])

    def scope(self, path: str) -> Any:
        """The sublayer of a scope, made with its parents when new."""
        if not path:
            return self.model
        if path not in self.scopes:
            parent_path, _, leaf = path.rpartition("/")
            parent = self.scope(parent_path)
            scope = self.scopes[path] = Scope(leaf or "_", path, self.model)
            attach(parent, leaf, scope)
        return self.scopes[path]

    def is_frozen(self, scope: str) -> bool:
        """Whether the scope of that full name is frozen."""
        if not self.model.trainable:
            return True
        while scope and scope not in self.scopes:
            scope = scope.rpartition("/")[0]
        return bool(scope) and not self.scopes[scope].trainable

    def check_towers(self, training: Any) -> None:
        """Says that a call on towers would not train what the network puts into collections of losses."""
        if training is not False and self.collects_losses:
            raise ValueError(
                f"The network of {self.model.name!r} puts losses into TF1's collections, which towers cannot train in "
                "a plain call or in fit. Give them to variables as regularizers, or train with zoo.training.Trainer."
            )

    def next_seed(self) -> tf.Tensor:
        """A new int32[2] seed for one run; each replica under tf.distribute gets its own."""
        if self.is_building and self.generator is None:
            with tf.init_scope():
                self.generator = keras.random.SeedGenerator(self.seed & 0x7FFFFFFF, name="dropout_seed")
            self.model.seed_generator = self.generator
        if self.generator is None:
            raise ScopeError(
                f"Model {self.model.name!r} draws random numbers now and drew none when it was built with "
                "is_training=True. Draw them in training."
            )
        group, draw = replicas(), self.generator.next
        seed = tf.cast(draw() if group is None else group.once(draw), tf.int32)
        return seed if group is None else tf.random.experimental.stateless_fold_in(seed, group.index)

    def variables_in(self, collection: str) -> list[Any]:
        """The model's variables in that collection, or the losses of their regularizers."""
        value = self.regularization if collection == REGULARIZATION_LOSSES else self.raw.__getitem__
        return [value(name) for name in self.collections.get(collection, ())]


class Scope(keras.layers.Layer):
    """One variable scope of a model: it owns the scope's variables and holds the scopes inside it.

    `trainable = False` freezes it, at any time: also after `compile`.
    """

    misfit = ""  # what the last file loaded into it did not have; see `load_named`

    def __init__(self, name: str, path: str, model: Model) -> None:
        super().__init__(name=name, autocast=False, dtype=model.dtype_policy)
        self.path_name = path
        self._parent_path = "/".join(
            [model.name, *path.split("/")[:-1]]
        )  # so that Keras' own paths are whole, and unique
        self._model = weakref.ref(model)
        self.built = True

    def call(self, inputs: Any) -> Any:
        """A scope computes nothing by itself."""
        raise NotImplementedError(
            f"Scope {self.path_name!r} holds variables and computes nothing. Call the model instead."
        )

    @property
    def trainable(self) -> bool:
        """Whether the variables of this scope are trained, and its batch norm uses batch statistics."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        model = self._model() if hasattr(self, "_model") else None
        if model is not None:
            model.retrace()

    def save_own_variables(self, store: Any) -> None:
        """Writes this scope's variables by name."""
        save_named(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Reads this scope's variables by name."""
        load_named(self, store, self.path_name)


def attach(parent: Any, name: str, child: Any) -> None:
    """Makes `child` an attribute of `parent`, as Keras and TensorFlow track things; a taken name gets an underscore."""
    while not name or hasattr(type(parent), name) or name in vars(parent):
        name += "_"
    setattr(parent, name, child)


def save_named(layer: Any, store: Any) -> None:
    """Writes the variables that `layer` owns into `store` under their own names."""
    for weight in own_variables(layer):
        store[weight.name] = weight


def load_named(layer: Any, store: Any, scope: str) -> None:
    """Reads the variables that `layer` owns from `store`, by name.

    Raises:
      ValueError: Names or shapes in the file are not the layer's.
    """
    own = {w.name: w for w in own_variables(layer)}
    # Keras comes again to a layer that failed, by a path that the file does not have, and reports what it hears last
    again = layer.misfit and not store.keys()
    misfit = layer.misfit if again else _misfit(own, store, scope)
    layer.misfit = "" if again else misfit
    if misfit:
        raise ValueError(misfit)
    for name, weight in own.items():
        weight.assign(store[name])


def _misfit(own: dict[str, Any], store: Any, scope: str) -> str:
    """Words what keeps a file's variables from being a scope's; empty when they fit."""
    missing, unexpected = sorted(set(own) - set(store.keys())), sorted(set(store.keys()) - set(own))
    if missing or unexpected:
        return (
            f"The file must hold the variables of scope {scope!r}. Missing: {missing}, unexpected: {unexpected}. "
            "Build the model with the options it was saved with."
        )
    shapes = {name: (tuple(weight.shape), tuple(store[name].shape)) for name, weight in own.items()}
    other = [
        f"{scope}/{name} is {mine} in the model and {theirs} in the file"
        for name, (mine, theirs) in shapes.items()
        if mine != theirs
    ]
    if not other:
        return ""
    return (
        f"Variables have other shapes than the file's: {'; '.join(other)}. Build the model with the options it was "
        "saved with, or pass skip_mismatch=True, which leaves them as they are."
    )


def aggregation(asked: Any, trainable: bool, dtype: tf.DType) -> str:
    """How replicas agree on an assigned value: the mean of statistics, the first replica's counters."""
    name = getattr(asked, "name", asked or "none").lower()  # TF1 and TF2 have an enum each
    if name != "none":
        return name
    if trainable:
        return "none"
    return "mean" if dtype.is_floating else "only_first_replica"


class RegularizationLoss(keras.regularizers.Regularizer):
    """A TF1 regularizer as Keras calls it (its older releases take no plain function)."""

    def __init__(self, regularizer: Callable[[Any], Any]) -> None:
        self.regularizer = regularizer

    def __call__(self, variable: Any) -> tf.Tensor:
        """The loss of that variable."""
        return self.regularizer(tf.convert_to_tensor(variable))


class Constraint(keras.constraints.Constraint):
    """A function of a variable's value as a Keras constraint (its older releases take no plain function)."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, value: Any) -> tf.Tensor:
        """The value that the variable gets after an update."""
        return self.function(value)


# ---- what a network uses beside `get_variable` -----------------------------------------------------------------------


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
        known = identities([*self.model.variables, *(v for layer, _ in self.layers for v in layer.variables)])
        found = {id(v): v for v in variables_of(self.graph, self.made) if id(v) not in known}
        return sorted(found.values(), key=lambda v: v.name)


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
    graph = FuncGraph(name)
    used = Used(model, graph)

    def note(make: Any, **kwargs: Any) -> Any:
        try:
            used.made.append(make(**kwargs))
        except ValueError as error:  # TensorFlow's advice would make one more variable in each call
            if "could not be lifted" in str(error):
                raise _made_anew(model, [kwargs.get("name") or "Variable"]) from error
            raise
        return used.made[-1]

    calls = _Calls(keras_global("name_scope_stack") or [], used)
    # out of Keras' stateless scope, in which `fit` and functional models first call a model and variables stay empty
    globals_of_keras = keras_globals(stateless_scope=None, name_scope_stack=calls)
    with globals_of_keras, graph.as_default(), tf.variable_creator_scope(note):
        yield used


def own(model: Model, used: Used, again: list[Used]) -> None:
    """Makes what a network uses the model's: layers become sublayers of their scope, variables get listed by name.

    `again` is what further traces used, in training and in inference: ScopeError for what is made anew in each call.
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
    path = _free(f"{scope}/{base}" if scope else base, [*model._store.scopes, *model._store.weights])
    attach(model._store.scope(scope), path.rpartition("/")[2], layer)
    model._store.scopes[path] = layer
    numbered = [inner.name for inner in layers_inside(layer) if _plain_name(inner) != inner.name]
    for variable in layer.variables:
        parts = variable.path.split("/")
        inside = parts[parts.index(layer.name) + 1 :] if layer.name in parts[:-1] else parts
        counted = [part in numbered or part.startswith("seed_generator_") for part in inside]
        plain = [re.sub(r"_\d+$", "", part) if by else part for part, by in zip(inside, counted, strict=True)]
        name = _free("/".join([path, *plain]), model._store.weights)
        model._store.weights[name], model._store.raw[name] = variable, tf_variable(variable)


def _own_variable(model: Model, variable: Any) -> None:
    name = _free(variable.name.rpartition(":")[0] or variable.name, [*model._store.scopes, *model._store.weights])
    scope, _, leaf = name.rpartition("/")
    owner = model._store.scope(scope)
    weight = keras.Variable(
        variable, variable.shape, variable.dtype.name, trainable=variable.trainable, autocast=False, name=leaf
    )
    track_variable(owner, weight)
    attach(owner, leaf, weight)
    model._store.weights[name], model._store.raw[name] = weight, variable


def _plain_name(layer: Any) -> str:
    """A layer's name without the number that Keras gives by order of creation, which is another in another program."""
    kind = usual_name(layer)
    return kind if re.fullmatch(rf"{kind}_\d+", layer.name) else layer.name


def _free(name: str, taken: Any) -> str:
    """The name, with a number at the last scope of it where it is taken."""
    scope, _, leaf = name.rpartition("/")
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{scope}_{number}/{leaf}" if scope else f"{leaf}_{number}"
    return free
