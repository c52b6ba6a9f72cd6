"""Loops over sequences with TF1's names, arguments and scopes; they take the fast path where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.rnn import steps
from zoo.rnn.cells import RNNCell
from zoo.rnn.checks import (
    DType,
    Lengths,
    ScopeOrName,
    State,
    Tensor,
    check_cell,
    check_floating,
    check_state,
    dim,
)
from zoo.rnn.multi import independent, prepare


@tf.autograph.experimental.do_not_convert
def dynamic_rnn(
    cell: Any,
    inputs: Tensor,
    sequence_length: Lengths = None,
    initial_state: State | None = None,
    dtype: DType | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: ScopeOrName | None = None,
    *,
    fast_path: bool = True,
) -> tuple[Tensor, State]:
    """Runs a cell over sequences.

    Past a sequence's end the outputs are zero and the state is copied through, so the last state is the one at the last
    valid step.

    Args:
      cell: a cell of this package, or any callable with `state_size`, `output_size` and `zero_state`.
      inputs: [batch, time, width], or [time, batch, width] with `time_major`; floating point.
      sequence_length: integers [batch] in 0..time; default every step counts.
      initial_state: in the structure of `cell.state_size`; default zeros. The last state keeps its types.
      dtype: of the state of zeros; default the inputs'.
      parallel_iterations: of the plain loop; default 32.
      swap_memory: of the plain loop.
      time_major: order of the first two dimensions of inputs and outputs.
      scope: variable scope; default "rnn".
      fast_path: False runs one cell call per step whatever the cell offers.

    Returns:
      Outputs in the layout of `inputs`, and the last state.

    Raises:
      TypeError: `cell` is no cell.
      ValueError: what does not fit, see `docs/rnn.md`.
      InvalidArgumentError: lengths outside 0..time that are only known at run time.

    Source: TF1's ``dynamic_rnn``.
    """
    check_cell(cell, "dynamic_rnn")
    inputs = scoping.dense_tensor(inputs, "dynamic_rnn")
    check_floating(inputs)
    if inputs.shape.rank != 3:
        order = "[time, batch, width]" if time_major else "[batch, time, width]"
        raise ValueError(f"inputs must have shape {order}, got {inputs.shape}")
    x = inputs if time_major else tf.transpose(inputs, [1, 0, 2])
    if dim(x, 0) == 0:
        raise ValueError(f"inputs of shape {inputs.shape} have no time steps: give at least one")
    with scoping.variable_scope(scope or "rnn"):
        lengths = check_lengths(sequence_length, x)
        rows = tf.shape(x)[1] if dim(x, 1) is None else dim(x, 1)
        if initial_state is None:
            initial_state = cell.zero_state(rows, dtype or x.dtype)
        state = check_state(cell, initial_state, x[0]) if isinstance(cell, RNNCell) else initial_state
        mask = None
        if lengths is not None:
            mask = tf.range(tf.shape(x)[0])[:, None, None] < tf.cast(lengths, tf.int32)[None, :, None]
            x = tf.where(mask, x, tf.zeros([], x.dtype))  # what stands past the end, NaN included, has no effect
        time = tf.shape(x)[0] if dim(x, 0) is None else dim(x, 0)
        with steps.Sequence(time, rows, x.dtype, parallel_iterations or 32, swap_memory).entered():
            prepare(cell, dim(x, -1), x.dtype)
            if fast_path and isinstance(cell, RNNCell):
                outputs, last = cell.sequence(x, state, mask)
                state = tf.nest.map_structure(lambda new, old: tf.cast(new, old.dtype), last, state)
            else:
                outputs, state = steps.run(cell, x, state, mask)
    return (outputs if time_major else tf.transpose(outputs, [1, 0, 2])), state


def check_lengths(sequence_length: Lengths, inputs: Tensor) -> Tensor | None:
    """Returns lengths [batch] for inputs [time, batch, width] as an int32 tensor, checked when it runs if not before.

    Raises ValueError for a wrong rank, type, batch or range.
    """
    if sequence_length is None:
        return None
    lengths = tf.convert_to_tensor(sequence_length)
    if not lengths.dtype.is_integer:
        raise ValueError(f"sequence_length must be integers, got {lengths.dtype.name}: cast it")
    if lengths.shape.rank not in (1, None):
        raise ValueError(f"sequence_length must be a vector of length batch, got shape {lengths.shape}")
    time, rows = dim(inputs, 0), dim(inputs, 1)
    if rows is not None and lengths.shape.rank == 1 and dim(lengths, 0) not in (None, rows):
        raise ValueError(f"sequence_length has {dim(lengths, 0)} entries but the inputs have a batch of {rows}")
    values = tf.get_static_value(lengths)
    if values is not None and time is not None:
        wrong = [int(v) for v in values if not 0 <= v <= time]
        if wrong:
            raise ValueError(
                f"sequence_length must lie in 0..{time} (the time dimension of the inputs), got {wrong[:5]}"
            )
        return tf.cast(lengths, tf.int32)
    lengths = tf.cast(lengths, tf.int32)
    with tf.control_dependencies(
        [
            tf.debugging.assert_equal(
                tf.shape(lengths), tf.shape(inputs)[1:2], "sequence_length must be of shape [batch]"
            ),
            tf.debugging.assert_non_negative(lengths, "sequence_length must not be negative"),
            tf.debugging.assert_less_equal(
                lengths, tf.shape(inputs)[0], "sequence_length must not exceed the time steps"
            ),
        ]
    ):
        return tf.identity(lengths)


def static_rnn(
    cell: Any,
    inputs: Sequence[Tensor],
    initial_state: State | None = None,
    dtype: DType | None = None,
    sequence_length: Lengths = None,
    scope: ScopeOrName | None = None,
) -> tuple[list[Tensor], State]:
    """Runs a cell over a list of steps.

    Args:
      cell: see `dynamic_rnn`.
      inputs: list of tensors [batch, width], one a step.
      initial_state: see `dynamic_rnn`.
      dtype: see `dynamic_rnn`.
      sequence_length: see `dynamic_rnn`.
      scope: see `dynamic_rnn`.

    Returns:
      List of outputs [batch, output_size], and the last state.

    Raises:
      TypeError: `inputs` is no list, or `cell` no cell.
      ValueError: an empty list, steps of different shapes or types, and what `dynamic_rnn` refuses.

    Source: TF1's ``static_rnn``.
    """
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"inputs must be a list of tensors, one a step, got {type(inputs).__name__}: use dynamic_rnn")
    if not inputs:
        raise ValueError("inputs must not be empty: give at least one step")
    if any(step is None for step in inputs):
        raise ValueError(f"inputs[{[step is None for step in inputs].index(True)}] is None: give [batch, width] a step")
    inputs = [scoping.dense_tensor(step, "static_rnn") for step in inputs]
    for number, step in enumerate(inputs):
        same = step.shape.is_compatible_with(inputs[0].shape) and step.dtype == inputs[0].dtype
        if not same or step.shape.rank not in (2, None):
            raise ValueError(
                f"every step of inputs must be [batch, width], all alike: inputs[{number}] is {step.dtype.name} "
                f"{step.shape}, inputs[0] is {inputs[0].dtype.name} {inputs[0].shape}; pad what is shorter, and use "
                "dynamic_rnn for one tensor"
            )
    outputs, state = dynamic_rnn(
        cell, tf.stack(inputs), sequence_length, initial_state, dtype, time_major=True, scope=scope
    )
    return tf.unstack(outputs, num=len(inputs)), state


def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Tensor,
    sequence_length: Lengths = None,
    initial_state_fw: State | None = None,
    initial_state_bw: State | None = None,
    dtype: DType | None = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: ScopeOrName | None = None,
    *,
    fast_path: bool = True,
) -> tuple[tuple[Tensor, Tensor], tuple[State, State]]:
    """Runs one cell forward and another backward over sequences; padding stays at the right.

    Args:
      cell_fw: forward cell.
      cell_bw: backward cell; the same object as `cell_fw` is copied, with a warning.
      inputs: see `dynamic_rnn`.
      sequence_length: see `dynamic_rnn`; each sequence is reversed within its own length.
      initial_state_fw: default zeros.
      initial_state_bw: default zeros.
      dtype: see `dynamic_rnn`.
      parallel_iterations: see `dynamic_rnn`.
      swap_memory: see `dynamic_rnn`.
      time_major: see `dynamic_rnn`.
      scope: default "bidirectional_rnn"; inside it "fw" and "bw".
      fast_path: see `dynamic_rnn`.

    Returns:
      ``(outputs_fw, outputs_bw)``, not concatenated, and ``(state_fw, state_bw)``. The backward state is the one after
      reading position 0.

    Raises:
      TypeError: no cells.
      ValueError: what `dynamic_rnn` refuses.

    Source: Schuster and Paliwal (1997); TF1's ``bidirectional_dynamic_rnn``.
    """
    check_cell(cell_fw, "bidirectional_dynamic_rnn: cell_fw")
    check_cell(cell_bw, "bidirectional_dynamic_rnn: cell_bw")
    cell_fw, cell_bw = independent([cell_fw, cell_bw], "bidirectional_dynamic_rnn")
    inputs = scoping.dense_tensor(inputs, "bidirectional_dynamic_rnn")
    options = {
        "dtype": dtype,
        "parallel_iterations": parallel_iterations,
        "swap_memory": swap_memory,
        "time_major": time_major,
        "fast_path": fast_path,
    }
    with scoping.variable_scope(scope or "bidirectional_rnn"):
        forward, state_fw = dynamic_rnn(cell_fw, inputs, sequence_length, initial_state_fw, scope="fw", **options)
        turned = _reverse(inputs, sequence_length, time_major)
        backward, state_bw = dynamic_rnn(cell_bw, turned, sequence_length, initial_state_bw, scope="bw", **options)
        backward = _reverse(backward, sequence_length, time_major)
    return (forward, backward), (state_fw, state_bw)


def _reverse(values: Tensor, lengths: Lengths, time_major: bool) -> Tensor:
    time, batch = (0, 1) if time_major else (1, 0)
    if lengths is None:
        return tf.reverse(values, [time])
    lengths = tf.convert_to_tensor(lengths)
    return tf.reverse_sequence(values, tf.cast(lengths, tf.int32), seq_axis=time, batch_axis=batch)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Tensor,
    initial_states_fw: Sequence[State] | None = None,
    initial_states_bw: Sequence[State] | None = None,
    dtype: DType | None = None,
    sequence_length: Lengths = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: ScopeOrName | None = None,
    swap_memory: bool = False,
) -> tuple[Tensor, tuple[State, ...], tuple[State, ...]]:
    """Stacks bidirectional layers: each reads both directions of the one below, side by side.

    Args:
      cells_fw: forward cells, the lowest first.
      cells_bw: as many backward cells.
      inputs: see `dynamic_rnn`.
      initial_states_fw: one a layer; default zeros.
      initial_states_bw: one a layer; default zeros.
      dtype: see `dynamic_rnn`.
      sequence_length: see `dynamic_rnn`.
      parallel_iterations: see `dynamic_rnn`.
      time_major: see `dynamic_rnn`.
      scope: default "stack_bidirectional_rnn"; inside it "cell_0/bidirectional_rnn/fw" and so on.
      swap_memory: see `dynamic_rnn`.

    Returns:
      Outputs of the last layer, both directions concatenated; forward states and backward states, one a layer.

    Raises:
      TypeError: no lists of cells.
      ValueError: no cells, or lists of different lengths.

    Source: TF1's ``contrib.rnn.stack_bidirectional_dynamic_rnn``.
    """
    for name, given in (("cells_fw", cells_fw), ("cells_bw", cells_bw)):
        if not isinstance(given, list | tuple):
            raise TypeError(f"{name} must be a list of cells, one a layer, got {given!r}: write [cell]")
        for number, cell in enumerate(given):
            check_cell(cell, f"stack_bidirectional_dynamic_rnn: {name}[{number}]")
    if not cells_fw or len(cells_fw) != len(cells_bw):
        raise ValueError(f"give as many forward as backward cells, got {len(cells_fw)} and {len(cells_bw)}")
    layers = len(cells_fw)
    cells = independent([*cells_fw, *cells_bw], "stack_bidirectional_dynamic_rnn")
    starts_fw, starts_bw = initial_states_fw or [None] * layers, initial_states_bw or [None] * layers
    if len(starts_fw) != layers or len(starts_bw) != layers:
        raise ValueError(f"give one initial state a layer ({layers}), got {len(starts_fw)} and {len(starts_bw)}")
    states_fw, states_bw = [], []
    with scoping.variable_scope(scope or "stack_bidirectional_rnn"):
        for n in range(layers):
            with scoping.variable_scope(f"cell_{n}"):
                outputs, (state_fw, state_bw) = bidirectional_dynamic_rnn(
                    cells[n], cells[layers + n], inputs, sequence_length, starts_fw[n], starts_bw[n], dtype,
                    parallel_iterations, swap_memory, time_major,
                )  # fmt: skip
            inputs = tf.concat(outputs, 2)
            states_fw.append(state_fw)
            states_bw.append(state_bw)
    return inputs, tuple(states_fw), tuple(states_bw)
