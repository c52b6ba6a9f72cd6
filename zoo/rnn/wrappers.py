"""Wrappers around a cell: dropout, residual connection, device. They add no variable scope, as in TF1."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo import scoping
from zoo.rnn import steps
from zoo.rnn.cells import RNNCell
from zoo.rnn.checks import DType, ScopeOrName, State, Tensor, check_cell
from zoo.rnn.lstm import LSTMStateTuple
from zoo.rnn.multi import prepare


class _Wrapper(RNNCell):
    """A cell around a cell.

    Args:
      cell: the wrapped cell.
      dtype: see `RNNCell`.
    """

    def __init__(self, cell: Any, *, dtype: DType | None = None) -> None:
        check_cell(cell, type(self).__name__)
        super().__init__(dtype=dtype)
        self.cell = cell

    @property
    def wrapped_cell(self) -> Any:
        """The cell inside."""
        return self.cell

    @property
    def state_size(self) -> Any:
        """That of the wrapped cell."""
        return self.cell.state_size

    @property
    def output_size(self) -> int:
        """That of the wrapped cell."""
        return self.cell.output_size

    @property
    def variables(self) -> list[tf.Variable]:
        """Those of the wrapped cell."""
        return list(getattr(self.cell, "variables", ()))

    def zero_state(self, batch_size: int | Tensor, dtype: DType | None = None) -> State:
        """See `RNNCell.zero_state`."""
        return self.cell.zero_state(batch_size, dtype or self.dtype or tf.float32)

    def prepare(self, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
        """See `RNNCell.prepare`."""
        prepare(self.cell, width, dtype, scope)

    def clone(self) -> RNNCell:
        """See `RNNCell.clone`."""
        other: Any = super().clone()
        other.cell = self.cell.clone()
        return other


class ResidualWrapper(_Wrapper):
    """Adds a cell's input to its output.

    Args:
      cell: the wrapped cell.
      residual_fn: function of (inputs, outputs); default their sum.

    Source: Wu et al., arXiv:1609.08144, section 3.1; TF1's ``ResidualWrapper``.
    """

    def __init__(self, cell: Any, residual_fn: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__(cell)
        self._residual_fn = residual_fn

    def _add(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        if self._residual_fn is not None:
            return self._residual_fn(inputs, outputs)
        if not inputs.shape.is_compatible_with(outputs.shape):
            raise ValueError(
                f"ResidualWrapper adds inputs of shape {inputs.shape} to outputs of shape {outputs.shape}: "
                "give the cell the width of its inputs, or a residual_fn"
            )
        return inputs + outputs

    def __call__(self, inputs: Tensor, state: State, scope: ScopeOrName | None = None) -> tuple[Tensor, State]:
        """See `RNNCell.__call__`."""
        outputs, state = self.cell(inputs, state, scope)
        return self._add(tf.convert_to_tensor(inputs), outputs), state

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `RNNCell.sequence`."""
        if self._residual_fn is not None or not isinstance(self.cell, RNNCell):
            return super().sequence(inputs, state, mask)
        outputs, state = self.cell.sequence(inputs, state, mask)
        outputs = self._add(inputs, outputs)
        return outputs if mask is None else steps.masked(mask, outputs, 0), state


class DeviceWrapper(_Wrapper):
    """Runs a cell on a device.

    Args:
      cell: the wrapped cell.
      device: string or function for `tf.device`.

    Source: TF1's ``DeviceWrapper``.
    """

    def __init__(self, cell: Any, device: str | Callable[[tf.Operation], str]) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: int | Tensor, dtype: DType | None = None) -> State:
        """See `RNNCell.zero_state`."""
        with tf.compat.v1.device(self._device):
            return super().zero_state(batch_size, dtype)

    def prepare(self, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
        """See `RNNCell.prepare`."""
        with tf.compat.v1.device(self._device):
            super().prepare(width, dtype, scope)

    def __call__(self, inputs: Tensor, state: State, scope: ScopeOrName | None = None) -> tuple[Tensor, State]:
        """See `RNNCell.__call__`."""
        with tf.compat.v1.device(self._device):
            return self.cell(inputs, state, scope)

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `RNNCell.sequence`."""
        if not isinstance(self.cell, RNNCell):
            return super().sequence(inputs, state, mask)
        with tf.compat.v1.device(self._device):
            return self.cell.sequence(inputs, state, mask)


def _is_constant(probability: float | Tensor) -> bool:
    return isinstance(probability, numbers.Real)


def _droppable(state: Any) -> Any:
    """TF1's rule: everything but the `c` of an LSTM's state."""
    return LSTMStateTuple(c=False, h=True) if isinstance(state, LSTMStateTuple) else True


class DropoutWrapper(_Wrapper):
    """Dropout on a cell's inputs, outputs and outgoing state.

    A new mask for every step, unless `variational_recurrent`. Dropout of the state acts on the state handed on; the
    output is not touched by it. The `c` of an LSTM is never dropped.

    Args:
      cell: the wrapped cell.
      input_keep_prob: float or scalar tensor in [0, 1].
      output_keep_prob: likewise.
      state_keep_prob: likewise.
      variational_recurrent: one mask [1, width] for all rows and steps of a call: of the model; in a `variable_store`
        of a loop (`dynamic_rnn`, ...), or of a `with store:` when the cell is called by hand; of a session's run.
      input_size: width of the inputs; needed with `variational_recurrent` and input dropout.
      dtype: needed with `variational_recurrent`.
      seed: base of the seeds; each mask's own is derived from it as in TF1.
      dropout_state_filter_visitor: function of a part of the state that gives True (drop), False, or one such value for
        each part inside; default everything but `c`.
      is_training: False switches all dropout off; a bool or a scalar bool tensor.

    Raises:
      TypeError: `cell` is no cell, or the visitor cannot be called.
      ValueError: a probability outside [0, 1], or a missing `dtype` or `input_size`.

    Source: Srivastava et al. (2014); Zaremba et al., arXiv:1409.2329; Gal and Ghahramani, arXiv:1512.05287; TF1's
    ``DropoutWrapper``.
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: float | Tensor = 1.0,
        output_keep_prob: float | Tensor = 1.0,
        state_keep_prob: float | Tensor = 1.0,
        variational_recurrent: bool = False,
        input_size: int | tf.TensorShape | None = None,
        dtype: DType | None = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        is_training: bool | Tensor = True,
    ) -> None:
        super().__init__(cell, dtype=dtype)
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError(f"dropout_state_filter_visitor must be callable, got {dropout_state_filter_visitor!r}")
        self._filter = dropout_state_filter_visitor or _droppable
        self._keep: dict[str, float | Tensor] = {}
        for name, value in (("input", input_keep_prob), ("state", state_keep_prob), ("output", output_keep_prob)):
            static = tf.get_static_value(value) if tf.is_tensor(value) else value
            if static is not None and not isinstance(static, numbers.Real | np.ndarray):
                raise ValueError(f"Parameter {name}_keep_prob must be a number between 0 and 1, got {value!r}")
            if static is not None and not 0 <= float(static) <= 1:
                raise ValueError(f"Parameter {name}_keep_prob must be between 0 and 1, got {float(static)}")
            self._keep[name] = value if static is None else float(static)
            if tf.is_tensor(is_training):
                self._keep[name] = tf.where(is_training, tf.cast(self._keep[name], tf.float32), 1.0)
            elif not is_training:
                self._keep[name] = 1.0
        self._variational = variational_recurrent
        self._seed = seed
        self._input_width = None if input_size is None else tf.TensorShape(input_size)[-1]
        self._noise: dict[str, Tensor] = {}  # variational masks
        self._noise_call: Any = None  # the call that they were drawn in
        if variational_recurrent:
            if dtype is None:
                raise ValueError("When variational_recurrent=True, dtype must be provided: name the inputs' dtype")
            if self._drops("input") and input_size is None:
                raise ValueError("When variational_recurrent=True and inputs are dropped, input_size must be provided")
            if scoping.current_frame() is not None or scoping.in_graph():
                self._variational_noise(self._input_width, self.dtype)

    def clone(self) -> RNNCell:
        """See `RNNCell.clone`; the copy draws masks of its own."""
        other: Any = super().clone()
        other._noise, other._noise_call = {}, None
        return other

    def _drops(self, slot: str) -> bool:
        return not _is_constant(self._keep[slot]) or self._keep[slot] < 1

    def _derived_seed(self, slot: str, index: int) -> int | None:
        """TF1's seed of one mask: the first eight hexadecimal digits of an MD5 of seed, slot and index."""
        if self._seed is None:
            return None
        return int(hashlib.md5(f"{self._seed}{slot}_{index}".encode()).hexdigest()[:8], 16) & 0x7FFFFFFF

    def _state_leaves(self) -> list[tuple[int, int]]:
        """Index and width of each part of the state that is dropped."""
        size = self.state_size
        chosen: list[bool] = []

        def visit(part: Any) -> None:
            answer = self._filter(part)
            if isinstance(answer, bool):
                if answer and isinstance(part, tuple):
                    for inner in part:
                        visit(inner)
                else:
                    chosen.extend([answer] * len(tf.nest.flatten(part)))
            else:
                chosen.extend(bool(a) for a in tf.nest.flatten(answer))

        visit(size)
        return [(n, w) for n, (w, drop) in enumerate(zip(tf.nest.flatten(size), chosen, strict=True)) if drop]

    def _slots(self, width: int | None) -> list[tuple[str, int, int | None]]:
        """Every mask: slot, index in the structure, width."""
        slots: list[tuple[str, int, int | None]] = [("input", 0, width)] if self._drops("input") else []
        if self._drops("state"):
            slots += [("state", index, size) for index, size in self._state_leaves()]
        return [*slots, ("output", 0, self.output_size)] if self._drops("output") else slots

    def _mask(self, slot: str, index: int, shape: list[Any] | Tensor, dtype: tf.DType) -> Tensor:
        """Draws 0 or 1 / keep."""
        noise = tf.random.stateless_uniform(shape, scoping.random_seed(self._derived_seed(slot, index)))
        keep = tf.cast(self._keep[slot], noise.dtype)
        return tf.cast(tf.math.divide_no_nan(tf.floor(keep + noise), keep), dtype)

    def _variational_noise(self, width: int | None, dtype: Any) -> dict[str, Any]:
        call = steps.current_call()
        if self._noise_call != call:
            with scoping.drawn_once():
                self._noise = {f"{s}{i}": self._mask(s, i, [1, w], dtype) for s, i, w in self._slots(width)}
            self._noise_call = call
        return self._noise

    def prepare(self, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
        """See `RNNCell.prepare`; draws the masks of the whole sequence too."""
        super().prepare(width, dtype, scope)
        sequence = steps.current_sequence()
        if sequence is None:
            return
        if self._variational:
            self._variational_noise(width, dtype)
            return
        for slot, index, size in self._slots(width):
            shape = [sequence.time, sequence.batch, size]
            sequence.noise[self, slot, index] = self._mask(slot, index, shape, dtype)

    def _drop(self, value: Tensor, slot: str, index: int) -> Tensor:
        if self._variational:
            return value * tf.cast(
                self._variational_noise(self._input_width, value.dtype)[f"{slot}{index}"], value.dtype
            )
        sequence = steps.current_sequence()
        mask = None if sequence is None else sequence.noise.get((self, slot, index))
        if sequence is not None and mask is not None:  # the whole sequence at once, or one step of it
            return value * tf.stop_gradient(mask if value.shape.rank == 3 else mask[sequence.step])
        seed = self._derived_seed(slot, index)
        if scoping.in_graph() or _in_loop():  # a new mask each time the op runs: TF1's own numbers for a given seed
            return tf.nn.dropout(value, rate=1 - self._keep[slot], seed=seed)
        return value * self._mask(slot, index, tf.shape(value), value.dtype)

    def __call__(self, inputs: Tensor, state: State, scope: ScopeOrName | None = None) -> tuple[Tensor, State]:
        """See `RNNCell.__call__`."""
        inputs = tf.convert_to_tensor(inputs)
        if self._drops("input"):
            inputs = self._drop(inputs, "input", 0)
        outputs, state = self.cell(inputs, state, scope)
        if self._drops("state"):
            leaves = tf.nest.flatten(state)
            for index, _ in self._state_leaves():
                leaves[index] = self._drop(leaves[index], "state", index)
            state = tf.nest.pack_sequence_as(state, leaves)
        if self._drops("output"):
            outputs = self._drop(outputs, "output", 0)
        return outputs, state

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `RNNCell.sequence`; dropout of inputs and outputs acts on the whole sequence."""
        if self._drops("state") or not isinstance(self.cell, RNNCell):
            return super().sequence(inputs, state, mask)
        if self._drops("input"):
            inputs = self._drop(inputs, "input", 0)
        outputs, state = self.cell.sequence(inputs, state, mask)
        return self._drop(outputs, "output", 0) if self._drops("output") else outputs, state


def _in_loop() -> bool:
    """Whether ops made now land in the body of someone else's while loop."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):
        if "while" in graph.name:
            return True
        graph = graph.outer_graph
    return False
