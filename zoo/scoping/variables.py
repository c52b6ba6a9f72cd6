"""Variables by name: TF1's `get_variable` and `variable_scope`, with TF1's rules, in a model, a graph and eager
mode.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from zoo._compat import set_reuse
from zoo.scoping import keras_names
from zoo.scoping.frames import (
    _FRAME,
    REGULARIZATION_LOSSES,
    Frame,
    ScopeError,
    VariableScope,
    _root_getter,
    caller,
    collections_of,
    get_variable_scope,
    in_frame,
)
from zoo.scoping.initial import guarded_initializer

AUTO_REUSE = tf.compat.v1.AUTO_REUSE
no_regularizer = tf.compat.v1.no_regularizer


def in_graph() -> bool:
    """Returns True in a plain TF1 graph, where update ops are collected; False in a model, eager mode and
    `tf.function`.
    """
    if _FRAME.get() is not None or tf.executing_eagerly():
        return False
    with tf.init_scope():
        return not tf.executing_eagerly()


def outside_error(what: str) -> RuntimeError:
    """The error for scoped code that stands nowhere."""
    return RuntimeError(
        f"{what} was called outside any model, variable_store and TF1 graph, where nothing would keep or share the "
        f"variable. "
        "Wrap the function: model = zoo.Model(network), call it inside `with zoo.variable_store():` to try things "
        "in eager "
        "mode, or inside `with tf.Graph().as_default():`."
    )


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: keras_names.Regularizer = None,
    trainable: bool | None = None,
    collections: list[str] | None = None,
    **kwargs: Any,
) -> Any:
    """Gets the variable `name` of the current variable scope, or makes it (TF1's `tf.get_variable`, with its rules).

    Args:
      name: Name inside the current scope; the full name is `scope/name`.
      shape: Shape of a new variable, or the shape to check of a shared one.
      dtype: Type; default: the scope's, float32 at the root.
      initializer: Callable `(shape, dtype=...)`, a class of those, a constant, a tensor, a callable without
        arguments, or with a shape Keras' name of one ("he_normal");
        default: the scope's, else Glorot uniform for floats and zeros for integers.
      regularizer: Function of the variable that gives its loss, counted once, or Keras' name of one ("l2");
        default: the scope's.
      trainable: Default True.
      collections: Names of collections; default global variables, and trainable ones if it is.
      **kwargs: TF1's other arguments (`caching_device`, `partitioner`, `constraint`, `custom_getter`,
        `synchronization`, ...).

    Returns:
      A `tf.Variable` (float32 also under mixed precision).

    Raises:
      ScopeError: Made twice without reuse, missing under `reuse=True`, or another shape or dtype than the shared one.
      RuntimeError: Called outside any model, `variable_store` and graph.

    Source: TensorFlow 1, "Sharing variables".
    """
    frame = _FRAME.get()
    if frame is None:
        if not in_graph():
            raise outside_error(f"get_variable({name!r})")
        initializer, regularizer = _by_keras_names(name, shape, initializer, regularizer)
        if initializer is None and callable(get_variable_scope().initializer):
            initializer = get_variable_scope().initializer
        try:
            initializer = guarded_initializer(initializer, shape)
            return tf.compat.v1.get_variable(
                name, shape, dtype, initializer, regularizer, trainable=trainable, collections=collections, **kwargs
            )
        except ValueError as error:
            scope = get_variable_scope().name
            raise ScopeError(
                f"{error} (asked for at {caller()} in scope {scope!r}; reuse=zoo.AUTO_REUSE shares or makes)"
            ) from error
    scope = get_variable_scope()
    if scope.custom_getter is _root_getter and not kwargs:  # the hot path: the variable is there
        found = frame.shared(f"{scope.name}/{name}" if scope.name else name, shape, dtype, scope.reuse)
        if found is not None:
            return found
    initializer, regularizer = _by_keras_names(name, shape, initializer, regularizer)
    if kwargs.get("custom_getter") is not None:
        kwargs["custom_getter"] = in_frame(kwargs["custom_getter"])
    before, frame.native = frame.native, True
    try:
        return tf.compat.v1.get_variable(
            name, shape, dtype, initializer, regularizer, trainable=trainable, collections=collections, **kwargs
        )
    finally:
        frame.native = before


def _by_keras_names(name: str, shape: Any, initializer: Any, regularizer: Any) -> tuple[Any, Any]:
    """Resolves Keras' names; without a shape a text is the variable's value."""
    if not isinstance(initializer, str) or shape is not None:
        initializer = keras_names.initializer(initializer, f"Variable {name}")
    return initializer, keras_names.regularizer(regularizer, f"Variable {name}")


def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    *,
    reuse: Any = None,
    auxiliary_name_scope: bool = True,
    **kwargs: Any,
) -> contextlib.AbstractContextManager[VariableScope]:
    """Opens a scope for variables (TF1's `tf.variable_scope`, with its rules, in eager mode too).

    Args:
      name_or_scope: A name, put after the current scope's; or a scope object, to jump back to it; or None with
        `default_name`.
      default_name: Name made unique by a counter (`conv`, `conv_1`, ...), used when `name_or_scope` is None.
      values: Tensors that the scope's ops take.
      reuse: True shares only what is there, AUTO_REUSE shares or makes, None inherits. False inherits too: it
        cannot undo True.
      auxiliary_name_scope: Whether to open a name scope for ops too.
      **kwargs: Inherited by what is inside: `initializer`, `regularizer` (both by Keras' names too),
        `caching_device`, `partitioner`, `custom_getter`, `dtype`, `use_resource`; and
        `constraint`, which is not inherited.

    Returns:
      A context manager that gives the `VariableScope`.

    Raises:
      ValueError: `reuse` is none of True, False, None and AUTO_REUSE, or True with a `default_name` only.
      RuntimeError: Entered outside any model, `variable_store` and graph.
    """
    frame = _FRAME.get()
    if frame is None and not in_graph():
        raise outside_error(f"variable_scope({name_or_scope!r})")
    if frame is not None and isinstance(name_or_scope, VariableScope) and name_or_scope.custom_getter is None:
        kwargs.setdefault("custom_getter", _root_getter)  # a scope object made outside the model
    for what in ("initializer", "regularizer"):
        if kwargs.get(what) is not None:
            kwargs[what] = getattr(keras_names, what)(kwargs[what], f"variable_scope({name_or_scope!r})")
    if frame is not None and tf.executing_eagerly():
        kwargs.pop("caching_device", None)  # where a graph keeps copies; TensorFlow refuses it in eager mode
    scope = tf.compat.v1.variable_scope(
        name_or_scope, default_name, values, reuse=reuse, auxiliary_name_scope=auxiliary_name_scope, **kwargs
    )
    if frame is None or not tf.executing_eagerly():
        return scope
    return _eager_scope(
        scope, name_or_scope if isinstance(name_or_scope, VariableScope) else get_variable_scope(), reuse
    )


@contextlib.contextmanager
def _eager_scope(scope: Any, base: VariableScope, reuse: Any) -> Iterator[VariableScope]:
    """Keeps the reuse flag that TensorFlow drops in eager mode."""
    flag = reuse or base.reuse
    with scope as entered:
        set_reuse(entered, flag)
        yield entered


class variable_store:  # noqa: N801 - used like a function
    """Keeps and shares variables in eager mode, with TF1's rules: `with zoo.variable_store() as store: ...`.

    The store may be entered again; what it holds stays. `store.variables` maps full names to variables.

    Args:
      seed: Seed of initializers and dropout; default: drawn from Python's `random`, so
        `keras.utils.set_random_seed` fixes it.
    """

    compute_dtype = "float32"

    def __init__(self, seed: int | None = None) -> None:
        self.seed = random.randint(1, 2**31 - 1) if seed is None else seed
        self.variables: dict[str, tf.Variable] = {}
        self.places: dict[str, str] = {}  # where each was made, as `file:line`
        self.collections: dict[str, list[str]] = {}  # names of variables
        self._regularizers: dict[str, Callable[[Any], Any]] = {}
        self._frame = Frame(self)
        self._generator = tf.random.Generator.from_seed(self.seed)
        self._entered: list[contextlib.AbstractContextManager[Frame]] = []

    def __enter__(self) -> variable_store:
        self._entered.append(self._frame.entered())
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    @property
    def raw(self) -> dict[str, tf.Variable]:
        """The variables by full name, as a model's store calls them."""
        return self.variables

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables made with `trainable=True`, in order of creation."""
        return [v for v in self.variables.values() if v.trainable]

    def create(
        self, name: str, shape: tuple[int, ...], dtype: tf.DType, initial: Callable[[], Any], **how: Any
    ) -> tf.Variable:
        """Makes a `tf.Variable` of that full name."""
        self.places[name] = how["where"]
        trainable = how["trainable"] is not False
        with tf.init_scope(), tf.compat.v1.name_scope(None):
            variable = tf.Variable(
                initial,
                trainable=trainable,
                name=name,
                dtype=dtype,
                constraint=how["constraint"],
                synchronization=tf.VariableSynchronization[getattr(how["synchronization"], "name", "AUTO")],
                aggregation=tf.VariableAggregation[getattr(how["aggregation"], "name", "NONE")],
            )
        self.variables[name] = variable
        for key in collections_of(how["collections"], trainable):
            self.collections.setdefault(key, []).append(name)
        if how["regularizer"] is not None:
            self.regularize(name, how["regularizer"])
        return variable

    def regularize(self, name: str, regularizer: Callable[[Any], Any]) -> None:
        """Adds the regularizer's loss of the variable of that full name, once."""
        if self._regularizers.setdefault(name, regularizer) is regularizer:
            self.collections.setdefault(REGULARIZATION_LOSSES, []).append(name)

    def regularization(self, name: str) -> Any:
        """The loss that the regularizer of the variable of that full name gives now; None if it gives none."""
        return self._regularizers[name](self.variables[name])

    def is_frozen(self, scope: str) -> bool:
        """A store freezes nothing."""
        return False

    def next_seed(self) -> tf.Tensor:
        """A new int32[2] seed."""
        return self._generator.uniform([2], maxval=2**31 - 1, dtype=tf.int32)


def add_to_collection(name: str, value: Any) -> None:
    """Adds `value` to the collection `name` of the current run of a model, of the store, or of the graph."""
    frame = _FRAME.get()
    if frame is not None:
        frame.collections.of(name).append(value)
    elif in_graph():
        tf.compat.v1.add_to_collection(name, value)
    else:
        raise outside_error(f"add_to_collection({name!r})")


def get_collection(name: str) -> list[Any]:
    """Returns what is in the collection `name` of the current run of a model, of the store, or of the graph."""
    frame = _FRAME.get()
    if frame is None:
        if not in_graph():
            raise outside_error(f"get_collection({name!r})")
        return tf.compat.v1.get_collection(name)
    return list(frame.collections.of(name))


def scope_is_frozen(inner: str = "") -> bool:
    """Whether the current variable scope, or a scope inside it, was frozen (`model.freeze`): its batch norm runs on
    moving statistics.
    """
    frame = _FRAME.get()
    return frame is not None and frame.store.is_frozen("/".join(filter(None, (get_variable_scope().name, inner))))


def is_building() -> bool:
    """Whether a model is making its variables just now: only the shapes of what is computed matter."""
    frame = _FRAME.get()
    return frame is not None and getattr(frame.store, "is_building", False)
