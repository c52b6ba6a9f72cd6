"""A variable scope as a Keras sublayer, and how its variables are saved by name."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from zoo.scoping.model import Model


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
    for weight in [*layer._trainable_variables, *layer._non_trainable_variables]:
        store[weight.name] = weight


def load_named(layer: Any, store: Any, scope: str) -> None:
    """Reads the variables that `layer` owns from `store`, by name.

    Raises:
      ValueError: Names or shapes in the file are not the layer's.
    """
    own = {w.name: w for w in [*layer._trainable_variables, *layer._non_trainable_variables]}
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
