"""State that goes on from one batch to the next: part of the model, so that every checkpoint has it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo import scoping


class CarriedState:
    """The state of a cell in variables ``carried_state/{train,eval}/part_N`` of shape [global batch, width].

    Each replica or tower reads and writes the rows of its own part of the batch; the variables hold all rows on every
    replica.
    Make it inside the scoped function, `read` before the loop and pass what depends on the loop through `written`.

    Args:
        size: the cell's `state_size`.
        rows: the global batch.
        is_training: Python bool: which of the two states to use.

    Raises:
        ValueError: `rows` does not divide by the replicas, or the strategy keeps variables on a parameter server.
    """

    def __init__(self, size: Any, rows: int | None, is_training: Any) -> None:
        if rows is None or rows < 1:
            raise ValueError(f"a carried state needs the rows of the global batch, got {rows}")
        if tf.is_tensor(is_training):
            raise ValueError("a carried state needs is_training as a Python bool, got a tensor")
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            raise ValueError(
                "a carried state belongs to one worker, but variables of a ParameterServerStrategy are shared by all: "
                "pass the state in and out of the step, and keep it in the worker"
            )
        self.size, self.rows = size, rows
        self.group = scoping.replicas()
        self.replicas = 1 if self.group is None else self.group.count
        self.replica = 0 if self.group is None else self.group.index
        sharing = max(strategy.num_replicas_in_sync, self.replicas)
        if rows % sharing:
            raise ValueError(f"a carried state of {rows} rows does not divide by {sharing} replicas")
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
        self.variables = parts["train" if is_training else "eval"]

    def read(self, first: Any) -> Any:
        """Returns this replica's rows, with zeros where a text starts.

        Args:
            first: bool [rows of this replica].

        Returns:
            The state in the cell's structure.

        Raises:
            ValueError: the batch has other rows than the state.
        """
        own = self.rows // self.replicas
        first = tf.convert_to_tensor(first)
        if first.shape[0] not in (None, own):
            raise ValueError(
                f"the carried state has {self.rows} rows ({own} a replica), but the batch of this replica has "
                f"{first.shape[0]}: drop the last batch when it is not full"
            )
        values = [tf.convert_to_tensor(v)[self.replica * own : (self.replica + 1) * own] for v in self.variables]
        values = [tf.where(first[:, None], tf.zeros([], value.dtype), value) for value in values]
        return tf.nest.pack_sequence_as(self.size, values)

    def written(self, outputs: Any, state: Any) -> Any:
        """Keeps the new state.

        Args:
            outputs: tensor that waits for the writing.
            state: the new state.

        Returns:
            `outputs`.
        """
        own = self.rows // self.replicas
        before, after = self.replica * own, (self.replicas - 1 - self.replica) * own
        values = [tf.cast(tf.stop_gradient(part), tf.float32) for part in tf.nest.flatten(state)]
        if self.group is not None:  # each replica contributes its rows; the sum holds all of them
            values = self.group.sum([tf.pad(value, [[before, after], [0, 0]]) for value in values])
            if not self.group.leads:
                return outputs
        updates = [v.assign(tf.ensure_shape(value, v.shape)) for v, value in zip(self.variables, values, strict=True)]
        if tf.executing_eagerly():
            return outputs
        with tf.control_dependencies(updates):
            return tf.identity(outputs)
