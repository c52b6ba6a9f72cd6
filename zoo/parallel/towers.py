"""Towers: one network on many devices of one graph, each with its part of the batch, all with the same variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from zoo.parallel.lockstep import POLICIES, Lockstep
from zoo.parallel.places import (
    Where,
    check_devices,
    full_name,
    next_device,
    tower_device,
    variable_device,
    variables_on,
)


@dataclass(frozen=True)
class Share:
    """One tower's part of a batch.

    Args:
        index: Which tower, from 0.
        batch: Its examples, in the structure of the batch.
        size: How many: a number, or an int32 scalar.
        weight: size / examples of the whole batch, a float64 scalar.
    """

    index: int
    batch: Any
    size: Any
    weight: Any


def split_batch(batch: Any, count: int) -> list[Share]:
    """Splits a batch of n examples: the first n % count towers get n // count + 1 of them, the others n // count.

    A tower for which nothing is left (a last batch smaller than the towers are many) gets a copy of one example with
    weight 0.

    Args:
        batch: Structure of tensors [n, ...].
        count: Number of towers.

    Raises:
        ValueError: No tensors, different first dimensions, or fewer examples than towers, as far as known beforehand.
    """
    flat = [tf.convert_to_tensor(part) if not tf.is_tensor(part) else part for part in tf.nest.flatten(batch)]
    if not flat:
        raise ValueError("a batch has at least one tensor, got none")
    shapes = [part.shape.as_list() if part.shape.rank is not None else [None] for part in flat]  # numbers in TF1, too
    sizes = {shape[0] for shape in shapes if shape and shape[0] is not None}
    if len(sizes) > 1 or [] in shapes:
        raise ValueError(f"all parts of a batch have one first dimension, got {[tuple(shape) for shape in shapes]}")
    known = sizes.pop() if sizes else None
    if known is not None and known < count:
        raise ValueError(f"a batch of {known} cannot be split over {count} towers: give each at least one example")
    total = known if known is not None else tf.shape(flat[0])[0]
    shares = []
    for index in range(count):
        if known is not None:
            size = known // count + (index < known % count)
            start = index * (known // count) + min(index, known % count)
            end, weight = start + size, tf.constant(size / known, tf.float64)
        else:
            quotient, rest = total // count, total % count
            size = quotient + tf.cast(index < rest, tf.int32)
            start = tf.minimum(index * quotient + tf.minimum(index, rest), total - 1)
            end, weight = start + tf.maximum(size, 1), size / total
        parts = [part[start:end] for part in flat] if count > 1 else flat
        shares.append(Share(index, tf.nest.pack_sequence_as(batch, parts), size, weight))
    return shares


class Towers:
    """Devices that share the work on each batch, and the rules by which they do.

    In TensorFlow 1's words: in-graph replication. Tower i computes on device i, in the name scope ``tower_i/``, and
    all share one copy of the variables.

    Args:
        devices: Names such as ``GPU:0``, one a tower.
        variables: Where variables live: ``cpu`` (default), ``first`` (on the first tower's device), a device, several
            devices (parameter servers, in turn), or a device function such as `replica_device_setter` returns.
        batch_norm: How batch norm sees the parts of a batch. Each tower normalises by its own part, and moving
            statistics move by that of the "first" tower, or by the "mean" of all (default); "sync" takes the statistics
            of the whole batch, as one device would.
        synchronous: Add up the gradients of all towers and apply them once. False is for study: each tower applies its
            own, computed with weights that others have changed since.

    Raises:
        ValueError: Unknown devices or policy.
    """

    def __init__(
        self, devices: Sequence[str], *, variables: Where = "cpu", batch_norm: str = "mean", synchronous: bool = True
    ) -> None:
        if isinstance(devices, str):
            raise ValueError(f"devices is a list of names such as ['GPU:0', 'GPU:1'], got {devices!r}")
        if batch_norm not in POLICIES:
            raise ValueError(f"batch_norm is one of {', '.join(POLICIES)}; got {batch_norm!r}")
        if batch_norm == "sync" and not synchronous:
            raise ValueError("batch_norm='sync' makes the towers wait for each other: it needs synchronous=True")
        self.devices = check_devices(devices)
        self.batch_norm, self.synchronous = batch_norm, synchronous
        self._place = variable_device(variables, self.devices)

    def __repr__(self) -> str:
        return f"Towers({self.devices}, batch_norm={self.batch_norm!r}, synchronous={self.synchronous})"

    @property
    def count(self) -> int:
        """Number of towers."""
        return len(self.devices)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Makes models and optimizers inside put their variables where the towers want them."""
        with variables_on(self._place):
            yield

    def on_variables(self) -> Any:
        """Context in which gradients are added up and applied: beside the variables, or at the first of them."""
        graph = not tf.executing_eagerly() and not tf.inside_function()
        return nullcontext() if graph else tf.device(next_device(self._place))

    def run(self, function: Callable[[Share], Any], batch: Any) -> list[Any]:
        """Runs `function` once a tower, each with its part of the batch on its device.

        Args:
            function: Takes a `Share`; the same work for each, or statistics over all towers cannot be exchanged.
            batch: Structure of tensors [n, ...].

        Returns:
            What the towers returned, in order.

        Raises:
            ValueError: See `split_batch`.
        """
        shares = split_batch(batch, self.count)
        in_graph = not tf.executing_eagerly() and not tf.inside_function()

        def on_device(share: Share) -> Callable[[], Any]:
            device = self.devices[share.index]
            where = tower_device(device, self._place) if in_graph else full_name(device)

            def work() -> Any:
                with tf.compat.v1.device(where):
                    return function(share)

            return work

        if self.count == 1:
            scope = nullcontext() if in_graph else tf.name_scope("tower_0")
            with scope:
                return [on_device(shares[0])()]
        dynamic = tf.is_tensor(shares[0].size)
        present = [tf.minimum(share.size, 1) for share in shares] if dynamic else None
        lockstep = Lockstep(self.count, self.batch_norm, [share.weight for share in shares], present)
        return lockstep.run([on_device(share) for share in shares])
