"""State that goes on from one batch to the next: part of the model, so that every checkpoint has it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.rnn.checks import State, Tensor, dim


class _Local:
    """Zeros until something is assigned, in the memory of the worker that runs the step, and of no other.

    Args:
        variable: gives shape and dtype, and tells this value from others.
    """

    def __init__(self, variable: tf.Variable) -> None:
        self.shape, self.dtype = variable.shape, tf.as_dtype(variable.dtype)
        name = f"carried_state/{id(variable)}"
        self._handle = tf.raw_ops.VarHandleOp(dtype=self.dtype, shape=self.shape, shared_name=name)

    def read(self) -> tf.Tensor:
        value = tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=self._handle),
            lambda: tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self.dtype),
            lambda: tf.zeros(self.shape, self.dtype),
        )
        return tf.ensure_shape(value, self.shape)

    def assign(self, value: Tensor) -> tf.Operation:
        return tf.raw_ops.AssignVariableOp(resource=self._handle, value=value)


class CarriedState:
    """The state of a cell in variables ``carried_state/{train,eval}/part_N`` of shape [global batch, width].

    Each replica or tower reads and writes the rows of its own part of the batch; the variables hold all rows on every
    replica. With parameter servers a worker has whole batches of its own and keeps the state of training to itself: a
    worker that is started again begins with zeros, and the variables hold the state of evaluation only.
    Make it inside the scoped function, `read` before the loop and pass what depends on the loop through `written`.

    Args:
        size: the cell's `state_size`.
        rows: the global batch.
        is_training: Python bool: which of the two states to use.

    Raises:
        ValueError: `rows` does not divide by the replicas.
    """

    def __init__(self, size: Any, rows: int | None, is_training: bool) -> None:
        if rows is None or rows < 1:
            raise ValueError(f"a carried state needs the rows of the global batch, got {rows}")
        if tf.is_tensor(is_training):
            raise ValueError("a carried state needs is_training as a Python bool, got a tensor")
        strategy = tf.distribute.get_strategy()
        self.size, self.rows = size, rows
        self.group = scoping.replicas()
        self.replicas = 1 if self.group is None else self.group.count
        self.replica = 0 if self.group is None else self.group.index
        sharing = max(strategy.num_replicas_in_sync, self.replicas)
        if rows % sharing:
            raise ValueError(
                f"a carried state of {rows} rows does not divide by {sharing} replicas, of which each owns fixed rows: "
                f"take a batch that is a multiple of {sharing}"
            )
        widths = tf.nest.flatten(size)
        with scoping.variable_scope("carried_state"):
            parts = {
                which: [
                    scoping.get_variable(
                        f"{which}/part_{n}", [rows, width], initializer=tf.zeros_initializer(), trainable=False
                    )
                    for n, width in enumerate(widths)
                ]
                for which in ("train", "eval")
            }
        self.variables: list[tf.Variable | _Local] = parts["train" if is_training else "eval"]
        if is_training and isinstance(strategy, tf.distribute.ParameterServerStrategy):
            self.variables = [_Local(variable) for variable in self.variables]

    def read(self, first: Tensor) -> State:
        """Returns this replica's rows, with zeros where a text starts.

        Args:
            first: bool [rows of this replica].

        Returns:
            The state in the cell's structure.

        Raises:
            ValueError: the batch has other rows than the state, or `first` is not bool.
        """
        own = self.rows // self.replicas
        first = tf.convert_to_tensor(first)
        if first.dtype != tf.bool:
            raise ValueError(f"'first' says of each row whether a text starts, as bool [rows]; got {first.dtype.name}")
        if dim(first, 0) not in (None, own):
            raise ValueError(
                f"the carried state has {self.rows} rows ({own} a replica), but the batch of this replica has "
                f"{dim(first, 0)}: drop the last batch when it is not full"
            )
        whole = [v.read() if isinstance(v, _Local) else tf.convert_to_tensor(v) for v in self.variables]
        values = [value[self.replica * own : (self.replica + 1) * own] for value in whole]
        values = [tf.where(first[:, None], tf.zeros([], value.dtype), value) for value in values]
        return tf.nest.pack_sequence_as(self.size, values)

    def written(self, outputs: Tensor, state: State) -> Tensor:
        """Keeps the new state.

        Args:
            outputs: tensor that waits for the writing.
            state: the new state.

        Returns:
            `outputs`.
        """
        own = self.rows // self.replicas
        before, after = self.replica * own, (self.replicas - 1 - self.replica) * own
        parts = zip(tf.nest.flatten(state), self.variables, strict=True)
        values = [tf.cast(tf.stop_gradient(part), variable.dtype) for part, variable in parts]
        if self.group is not None:  # each replica contributes its rows; the sum holds all of them
            values = self.group.sum([tf.pad(value, [[before, after], [0, 0]]) for value in values])
            if not self.group.leads:
                return outputs
        updates = [v.assign(tf.ensure_shape(value, v.shape)) for v, value in zip(self.variables, values, strict=True)]
        if tf.executing_eagerly():
            return outputs
        with tf.control_dependencies(updates):
            return tf.identity(outputs)
