"""Who shares a training step: replicas of `tf.distribute`, or towers of one graph, behind one small interface.

Layers with statistics of the batch, and state that is kept for the whole batch, ask `replicas()` and need not know
which of the two runs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import tensorflow as tf

from zoo._compat import learning_rate_of


class Replicas(Protocol):
    """The part of one replica in the whole batch.

    Args:
      count: how many replicas there are, at least 2.
      index: which one this is, from 0.
      leads: whether this one writes to variables that all share; under `tf.distribute` each has its own copy.
      synchronized: whether batch norm takes its statistics over all replicas.
      present: 1, or 0 for a replica that stands in for an empty share of the batch; a scalar, None for always 1.
    """

    count: int
    index: int
    leads: bool
    synchronized: bool
    present: tf.Tensor | None

    def sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sums over all replicas, without a gradient."""

    def statistics(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
        """Returns what moving statistics move towards, or None where another replica moves them."""

    def once(self, make: Callable[[], Any]) -> Any:
        """Returns what the first replica made, where replicas share their variables."""


class _Distributed:
    """A replica of `tf.distribute`; its variables agree by their own aggregation."""

    leads, present = True, None

    def __init__(self, context: tf.distribute.ReplicaContext, synchronized: bool) -> None:
        self._context = context
        self.count, self.index = context.num_replicas_in_sync, context.replica_id_in_sync_group
        self.synchronized = synchronized

    def sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.stop_gradient(v) for v in self._context.all_reduce(tf.distribute.ReduceOp.SUM, list(values))]

    def statistics(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
        return list(values)

    def once(self, make: Callable[[], Any]) -> Any:
        return make()


_TOWER: ContextVar[Replicas | None] = ContextVar("zoo_tower", default=None)
_SYNCHRONIZED: ContextVar[bool] = ContextVar("zoo_synchronized", default=False)


def replicas() -> Replicas | None:
    """Returns this replica's or tower's part in the batch; None where one device has the whole batch."""
    tower = _TOWER.get()
    if tower is not None:
        return tower
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync < 2:
        return None
    return _Distributed(context, _SYNCHRONIZED.get())


def sum_over_replicas(value: tf.Tensor, group: Replicas) -> tf.Tensor:
    """Returns the sum over all replicas, [shape of the value]; its gradient is the sum of their gradients.

    They meet for the gradient where it is taken, which for towers may be another run than the forward pass.
    """
    total = group.sum([value])[0]

    @tf.custom_gradient
    def joined(value: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        return tf.identity(total), lambda upstream: (sum_over_replicas(upstream, replicas() or group), None)

    return joined(value, total)


@contextlib.contextmanager
def as_tower(tower: Replicas) -> Iterator[None]:
    """Makes this the part that `replicas` returns in the current thread."""
    token = _TOWER.set(tower)
    try:
        yield
    finally:
        _TOWER.reset(token)


@contextlib.contextmanager
def synchronized_batch_norm(wanted: bool) -> Iterator[None]:
    """Lets batch norm in replicas of `tf.distribute` take its statistics over all of them."""
    token = _SYNCHRONIZED.set(wanted)
    try:
        yield
    finally:
        _SYNCHRONIZED.reset(token)


def optimizer_here(optimizer: Any) -> Any:
    """Returns a Keras optimizer for the current strategy: one made outside its scope and not yet used is made again."""
    made_here = tf.distribute.get_strategy().extended.variable_created_in_scope
    if optimizer.built or made_here(optimizer.iterations.value):
        return optimizer
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:  # loss scaling
        return type(optimizer)(optimizer_here(inner), initial_scale=optimizer.initial_scale)
    rate = learning_rate_of(optimizer)
    rate = rate if callable(rate) else float(optimizer.learning_rate)
    return type(optimizer).from_config({**optimizer.get_config(), "learning_rate": rate})
