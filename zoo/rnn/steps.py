"""The plain loop: one cell call per step, for every cell; and the noise that wrappers draw for a whole sequence."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.rnn.checks import State, Tensor, dim


def current_context() -> Any:
    """Returns what variables belong to now: the running model or store, else the TF1 graph."""
    frame = scoping.current_frame()
    if frame is not None:
        return frame
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):
        graph = graph.outer_graph
    return graph


def current_call() -> Any:
    """Returns what tells one call from the next, so that what is drawn for all steps of a call ends with it.

    That is the call of a model; in a store, which outlives its calls, a loop or else the entry; a TF1 graph as a whole.
    """
    frame = scoping.current_frame()
    if frame is None:
        return weakref.ref(current_context())
    loop = current_sequence() if isinstance(frame.store, scoping.variable_store) else None
    return weakref.ref(frame), frame.run(), None if loop is None else weakref.ref(loop)


class Sequence:
    """One pass over a sequence: its size, the step it is at, and the noise of its dropout wrappers.

    The noise is drawn before the loop, for all steps, so that the plain loop and the fast path see the same masks.
    """

    def __init__(
        self,
        time: int | Tensor | None,
        batch: int | Tensor | None,
        dtype: tf.DType,
        parallel_iterations: int = 32,
        swap_memory: bool = False,
    ) -> None:
        self.time, self.batch, self.dtype = time, batch, dtype
        self.loop = {"parallel_iterations": parallel_iterations, "swap_memory": swap_memory}
        self.noise: dict[Any, Tensor] = {}
        self.step: int | Tensor | None = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[Sequence]:
        """Makes this the sequence that wrappers look at."""
        token = _SEQUENCE.set(self)
        try:
            yield self
        finally:
            _SEQUENCE.reset(token)


_SEQUENCE: ContextVar[Sequence | None] = ContextVar("zoo_rnn_sequence", default=None)


def current_sequence() -> Sequence | None:
    """Returns the sequence being run, or None in a step outside the loops of this package."""
    return _SEQUENCE.get()


def masked(mask: Tensor, new: State, old: State | int) -> State:
    """Takes `new` inside the sequences and `old` (the same structure, or a number for all) past their ends.

    `mask` is bool [batch, 1] or [time, batch, 1].
    """
    if isinstance(old, int):
        return tf.nest.map_structure(lambda n: tf.where(mask, n, tf.cast(old, n.dtype)), new)
    return tf.nest.map_structure(lambda n, o: tf.where(mask, n, tf.cast(o, n.dtype)), new, old)


def _shapes(state: State) -> Any:
    return tf.nest.map_structure(lambda part: str(getattr(part, "shape", part)), state)


def run(
    cell: Callable[[Tensor, State], tuple[Tensor, State]], inputs: Tensor, state: State, mask: Tensor | None
) -> tuple[Tensor, State]:
    """Calls a cell step by step over inputs [time, batch, width]; its variables exist already.

    Returns outputs [time, batch, output_size], zero past the end, and the last state, as `RNNCell.sequence` does.
    Raises TypeError when the cell returns no pair, and ValueError for a state of another structure.
    """
    sequence = current_sequence() or Sequence(None, None, inputs.dtype)
    before = sequence.step

    def step(t: int | Tensor, x: Tensor, old: State, inside: Tensor | None) -> tuple[Tensor, State]:
        sequence.step = t
        made = cell(x, old)
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise TypeError(f"{type(cell).__name__} must return (output, new state), got {type(made).__name__}")
        output, new = made
        try:
            new = tf.nest.map_structure(lambda n, o: tf.cast(n, o.dtype), new, old)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{type(cell).__name__} must return a state of the structure it was given, "
                f"{_shapes(old)}; got {_shapes(new)}"
            ) from error
        return (output, new) if inside is None else (masked(inside, output, 0), masked(inside, new, old))

    try:
        if tf.executing_eagerly():
            outputs = []
            for t in range(dim(inputs, 0)):
                output, state = step(t, inputs[t], state, None if mask is None else mask[t])
                outputs.append(output)
            return tf.stack(outputs), state
        return _while(step, inputs, state, mask, sequence.loop)
    finally:
        sequence.step = before


def _while(
    step: Callable[..., tuple[Tensor, State]],
    inputs: Tensor,
    state: State,
    mask: Tensor | None,
    loop: Mapping[str, Any],
) -> tuple[Tensor, State]:
    total = tf.shape(inputs)[0]
    xs = tf.TensorArray(inputs.dtype, total, element_shape=inputs.shape[1:]).unstack(inputs)
    shape: list[int | None] = []

    def body(t: Tensor, old: State, outputs: tf.TensorArray) -> tuple[Tensor, State, tf.TensorArray]:
        output, new = step(t, xs.read(t), old, None if mask is None else mask[t])
        shape[:] = output.shape.as_list()
        new = tf.nest.map_structure(lambda n, o: tf.ensure_shape(n, o.shape), new, old)
        return t + 1, new, outputs.write(t, output)

    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    outputs = tf.TensorArray(inputs.dtype, total, infer_shape=False)
    limit = dim(inputs, 0)
    _, state, outputs = tf.while_loop(
        lambda t, *_: t < total, body, (0, state, outputs), maximum_iterations=limit, **loop
    )
    stacked = outputs.stack()
    stacked.set_shape([limit, *shape])
    return stacked, state
