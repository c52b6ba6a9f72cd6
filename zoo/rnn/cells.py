"""The contract of a recurrent cell: structure of state, variables by name, one step, a whole sequence.

A cell is called as ``output, new_state = cell(inputs, state)``. It captures its variable scope at the first call, so
every later call of the same object shares the weights.
"""

from __future__ import annotations

import contextlib
import copy
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.rnn import steps
from zoo.rnn.checks import DType, Reuse, ScopeOrName, State, Tensor, check_state, check_zero_state, dim
from zoo.scoping import keras_names
from zoo.scoping.keras_names import Activation, Initializer


def activation_function(activation: Activation, cell: str) -> Callable[[Tensor], Tensor]:
    """Resolves the activation argument of a cell: a function, Keras' name of one, or None for tanh."""
    return keras_names.activation(activation, cell) or tf.tanh


class RNNCell:
    """One step of a recurrent network; subclasses give `state_size`, `output_size` and `call`.

    A subclass makes its variables in `build` with `self.add_variable`, or anywhere in `call` with
    `zoo.get_variable`.

    Args:
      name: variable scope of the cell; default the class name in snake case, made unique in the enclosing scope.
      dtype: dtype of the state `zero_state` makes when none is given there.
      reuse: True or `zoo.AUTO_REUSE` to share variables that another cell made under the same name.
      trainable: whether the variables are trained.
    """

    def __init__(
        self, *, name: str | None = None, dtype: DType | None = None, reuse: Reuse = None, trainable: bool = True
    ) -> None:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(self).__name__).lower()
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name is the cell's variable scope, a string; got {name!r}")
        self.name = name or snake
        self.dtype = None if dtype is None else tf.as_dtype(dtype)
        if self.dtype is not None:
            check_zero_state(0, self.dtype)
        self.trainable = trainable
        self._reuse = reuse
        self._context: Callable[[], Any] = lambda: None  # weak: where `_scope` and `_weights` are valid
        self._scope: ScopeOrName | None = None
        self._weights: dict[str, tf.Variable] = {}

    @property
    def state_size(self) -> Any:
        """Width of the state: an int or a (nested) tuple of ints."""
        raise NotImplementedError(f"{type(self).__name__} must define state_size")

    @property
    def output_size(self) -> int:
        """Width of the output."""
        raise NotImplementedError(f"{type(self).__name__} must define output_size")

    def build(self, width: int) -> None:
        """Makes the variables; runs inside the cell's scope, before the first step.

        Args:
          width: width of the inputs.
        """

    def call(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Computes one step; runs inside the cell's scope.

        Args:
          inputs: [batch, width].
          state: tensors of `state_size`.

        Returns:
          Output [batch, output_size] and the new state.
        """
        raise NotImplementedError(f"{type(self).__name__} must define call")

    def add_variable(self, name: str, shape: list[int], initializer: Initializer = None) -> None:
        """Makes one variable of the cell; `call` reads it with `self.weight(name, dtype)`.

        Args:
          name: name under the cell's scope.
          shape: static shape.
          initializer: default that of the scope, else Glorot uniform.
        """
        trainable = None if self.trainable else False
        self._weights[name] = scoping.get_variable(name, shape, initializer=initializer, trainable=trainable)

    def weight(self, name: str, dtype: DType) -> Tensor:
        """Reads a variable in the dtype of the computation.

        Args:
          name: as given to `add_variable`.
          dtype: dtype of the inputs.

        Returns:
          The value.
        """
        return tf.cast(tf.convert_to_tensor(self._weights[name]), dtype)

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables made in the current graph or model call, in creation order."""
        return list(self._weights.values())

    @contextlib.contextmanager
    def _enter(self, scope: ScopeOrName | None = None) -> Iterator[bool]:
        """Opens the cell's variable scope; yields True when it is the first time in this graph or model call."""
        context = steps.current_context()
        if self._scope is not None and self._context() is context:
            with scoping.variable_scope(self._scope, reuse=True):
                yield False
            return
        name, default = scope, None if scope is not None else self.name
        if self._reuse and scope is None:
            name, default = self.name, None
        self._weights = {}
        with scoping.variable_scope(name, default_name=default, reuse=self._reuse) as opened:
            yield True
        self._scope, self._context = opened, weakref.ref(context)

    def _first(self, width: int | None) -> None:
        if width is None:
            raise ValueError(
                "Expected inputs.shape[-1] to be known: the width decides the shape of the weights, "
                "so give the inputs a static last dimension"
            )
        self.build(width)

    def prepare(self, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
        """Makes the variables, so that a loop body only reads them.

        Args:
          width: width of the inputs.
          dtype: dtype of the inputs.
          scope: as in `__call__`.
        """
        if type(self).build is RNNCell.build:  # variables are made in `call`: take one step and drop it
            self(tf.zeros([1, width], dtype), self.zero_state(1, dtype), scope)
            return
        with self._enter(scope) as first:
            if first:
                self._first(width)
            self.check_width(width)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, inputs: Tensor, state: State, scope: ScopeOrName | None = None) -> tuple[Tensor, State]:
        """Runs one step.

        Args:
          inputs: [batch, width], floating point.
          state: tensors [batch, size] in the structure of `state_size`.
          scope: variable scope name to use instead of the cell's own; read at the first call only.

        Returns:
          Output [batch, output_size] and the new state, in the structure of `state_size`.

        Raises:
          ValueError: integer inputs, unknown width, wrong structure or width of the state, batch mismatch.
        """
        inputs = scoping.dense_tensor(inputs, type(self).__name__)
        state = check_state(self, state, inputs)
        with self._enter(scope) as first:
            if first:
                self._first(dim(inputs, -1))
            self.check_width(dim(inputs, -1))
            return self.call(inputs, state)

    def check_width(self, width: int | None) -> None:
        """Refuses inputs whose width does not fit the kernel made by an earlier call.

        Args:
          width: width of the inputs.

        Raises:
          ValueError: another width.
        """

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """Runs the cell over a sequence; cells with a faster way override it.

        Args:
          inputs: [time, batch, width]; zero past each sequence's end.
          state: initial state.
          mask: bool [time, batch, 1], True inside the sequence; None when every step counts.

        Returns:
          Outputs [time, batch, output_size], zero past the end, and the state at each sequence's end.
        """
        return steps.run(self, inputs, state, mask)

    def zero_state(self, batch_size: int | Tensor, dtype: DType | None = None) -> State:
        """Makes the state of zeros.

        Args:
          batch_size: int or scalar tensor.
          dtype: default the cell's dtype, else float32.

        Returns:
          Tensors [batch_size, size] in the structure of `state_size`.

        Raises:
          ValueError: a negative size, or a dtype that is not floating point.
        """
        dtype = dtype or self.dtype or tf.float32
        check_zero_state(batch_size, dtype)
        with tf.name_scope(type(self).__name__ + "ZeroState"):
            return tf.nest.map_structure(lambda size: tf.zeros([batch_size, size], dtype), self.state_size)

    def get_initial_state(
        self, inputs: Tensor | None = None, batch_size: int | Tensor | None = None, dtype: DType | None = None
    ) -> State:
        """Makes the state of zeros for given inputs (what TensorFlow's own loops ask for).

        Args:
          inputs: tensor whose first dimension is the batch; gives batch size and dtype.
          batch_size: used without `inputs`.
          dtype: used without `inputs`.

        Returns:
          As `zero_state`.

        Raises:
          ValueError: neither `inputs` nor both of the others are given, or they disagree.
        """
        if inputs is not None:
            inputs = tf.convert_to_tensor(inputs)
            rows = dim(inputs, 0)
            if isinstance(batch_size, int) and rows is not None and rows != batch_size:
                raise ValueError(f"batch_size is {batch_size} but the inputs have {rows} rows: give one of the two")
            if dtype is not None and tf.as_dtype(dtype) != inputs.dtype:
                raise ValueError(
                    f"dtype is {tf.as_dtype(dtype).name} but the inputs are {inputs.dtype.name}: give one of the two"
                )
            batch_size, dtype = (tf.shape(inputs)[0] if rows is None else rows), inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                f"batch_size and dtype are needed without inputs, got batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)

    def clone(self) -> RNNCell:
        """Copies the configuration, not the weights.

        Returns:
          A cell of the same kind that makes variables of its own.
        """
        other = copy.copy(self)
        other._scope, other._weights = None, {}
        return other
