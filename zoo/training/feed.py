"""Training data with a position: (epoch, batch) says which batch comes next, whatever process asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.data.stream import Stream, as_stream, permutation
from zoo.parallel.shards import check_workers, distributed, own_batches
from zoo.training.batch import unpack


class Feed:
    """An iterator of a strategy's batches that can be opened at any position; `data` and settings as for `Trainer`.

    Raises ValueError for no batches, a batch size or epoch that the data contradicts, or data for other workers.
    """

    def __init__(
        self,
        data: Any,
        strategy: tf.distribute.Strategy,
        *,
        global_batch: int | None = None,
        seed: int = 0,
        steps_per_epoch: int | None = None,
    ) -> None:
        self._arrays = data if isinstance(data, tuple | list | np.ndarray | tf.Tensor) else None
        self.endless = isinstance(data, tf.data.Dataset) and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
        self.stream = (
            _endless(data, steps_per_epoch) if self.endless else _finite(data, global_batch, seed, steps_per_epoch)
        )
        check_workers(strategy, self.stream.workers)
        self.endless |= self.stream.workers > 1  # each worker goes over its own batches again
        self.strategy, self.seed = strategy, seed
        self.batches = self.stream.batches
        if self.batches == 0:
            raise ValueError("the training data has no batches")
        self.element_spec = self.stream.element_spec
        self.global_batch = _global_batch(self.stream, self.element_spec, global_batch)
        self.epoch, self.batch = 0, 0
        self.iterator: Any = None  # the strategy's, at the position; made by `open`

    def go_to(self, epoch: int, batch: int) -> None:
        """Makes batch number `batch` of epoch `epoch` the next one."""
        self.epoch, self.batch, self.iterator = epoch, batch, None
        if self.batches is not None and batch >= self.batches:
            self.end_epoch()

    def open(self) -> None:
        """Makes the strategy's iterator at the position."""
        workers = self.stream.workers
        if workers > 1:
            dataset = self.stream(0).repeat().skip(self.batch - self.batch % workers)
            self.iterator = own_batches(self.strategy, dataset, workers)
        else:
            self.iterator = iter(distributed(self.strategy, self.stream(self.epoch, self.batch)))

    def advance(self, batches: int) -> None:
        """Notes that this many batches have been taken from the iterator."""
        self.batch += batches
        if self.batch == self.batches:
            self.end_epoch()

    def end_epoch(self) -> None:
        """Goes to the next epoch's start; raises ValueError where this one had no batch."""
        if self.batch == 0:
            raise ValueError(f"epoch {self.epoch} of the training data has no batches")
        self.epoch, self.batch = self.epoch + 1, 0
        if not self.endless:
            self.iterator = None

    def describe(self, epoch: int, batch: int, losses: np.ndarray) -> str:
        """Words which examples of a batch have a loss [global batch] that is not finite.

        As ``examples 3, 9 of 32 (numbers 812, 40 of the arrays; labels 1, 7; their inputs hold NaN or Inf)``.
        """
        bad = np.flatnonzero(~np.isfinite(losses))
        return self._word(epoch, batch, bad, len(losses)) if len(bad) else "no example stands out"

    def broken_inputs(self, epoch: int, batch: int) -> str:
        """Words which examples of a batch have NaN or Inf in their inputs; batch -1 is the last of the epoch before."""
        if batch < 0 and (epoch == 0 or self.batches is None):
            return "there is none"
        if batch < 0:
            epoch, batch = epoch - 1, (self.batches or 1) - 1
        inputs, _, _ = unpack(next(iter(self.stream(epoch, batch).take(1))))
        arrays = [tensor.numpy() for tensor in tf.nest.flatten(inputs) if tensor.dtype.is_floating]
        broken = [~np.isfinite(array.reshape(len(array), -1)).all(1) for array in arrays]
        bad = np.flatnonzero(np.any(broken, axis=0)) if broken else np.array([], int)
        return self._word(epoch, batch, bad, len(arrays[0])) if len(bad) else "its inputs are finite"

    def _word(self, epoch: int, batch: int, bad: np.ndarray, count: int) -> str:
        shown = bad[:8]
        which = f"all {count} examples" if len(bad) == count else f"examples {_listed(shown, bad)} of {count}"
        facts = []
        if self._arrays is not None and self.stream.batch_size and self.stream.examples:
            order = permutation(self.stream.examples, self.seed, epoch)
            facts.append(f"numbers {_listed(order[batch * self.stream.batch_size :][shown], bad)} of the arrays")
        inputs, labels, _ = unpack(next(iter(self.stream(epoch, batch).take(1))))
        for key, tensor in inputs.items() if isinstance(inputs, dict) else ():
            if tensor.dtype == tf.string:
                values = [value.decode(errors="replace") for value in tensor.numpy()[shown]]
                facts.append(f"{key} {_listed(values, bad)}")
        if tf.is_tensor(labels) and labels.shape.rank == 1:
            facts.append(f"labels {_listed(labels.numpy()[shown], bad)}")
        floats = [tensor.numpy()[bad] for tensor in tf.nest.flatten(inputs) if tensor.dtype.is_floating]
        broken = any(not np.isfinite(values).all() for values in floats)
        facts.append("their inputs hold NaN or Inf" if broken else "their inputs are finite")
        return f"{which} ({'; '.join(facts)})"


def _endless(data: tf.data.Dataset, steps_per_epoch: int | None) -> Stream:
    if steps_per_epoch is None:
        raise ValueError("the training data has no end; say how many batches are an epoch with steps_per_epoch")
    return Stream(lambda epoch, skip: data.skip(epoch * steps_per_epoch + skip), batches=steps_per_epoch)


def _finite(data: Any, global_batch: int | None, seed: int, steps_per_epoch: int | None) -> Stream:
    if isinstance(data, tuple | list | np.ndarray | tf.Tensor):
        if global_batch is None:
            raise ValueError("arrays are batched by the trainer: give it global_batch")
        stream = as_stream(data, batch_size=global_batch, seed=seed)
    else:
        stream = as_stream(data)
    if stream.batches is None and isinstance(data, tf.data.Dataset | Stream):
        known = int(stream(0).cardinality())
        stream.batches = known if known >= 0 else None
    if steps_per_epoch is None or steps_per_epoch == stream.batches:
        return stream
    if stream.batches is not None and steps_per_epoch > stream.batches:
        raise ValueError(f"steps_per_epoch is {steps_per_epoch}, but an epoch of the data has {stream.batches} batches")
    if steps_per_epoch % stream.workers:
        raise ValueError(f"steps_per_epoch is {steps_per_epoch}, no multiple of the data's {stream.workers} workers")
    return Stream(
        lambda epoch, skip: stream(epoch, skip).take(steps_per_epoch - skip),
        batches=steps_per_epoch,
        batch_size=stream.batch_size,
        examples=stream.examples,
        workers=stream.workers,
    )


def _global_batch(stream: Stream, spec: Any, wanted: int | None) -> int | None:
    sizes = {spec.shape[0] for spec in tf.nest.flatten(spec) if spec.shape.rank}
    known = stream.batch_size or (sizes.pop() if len(sizes) == 1 else None)
    if wanted is not None and known is not None and wanted != known:
        raise ValueError(
            f"global_batch is {wanted}, but the data has batches of {known}; a batch is that of all replicas"
        )
    return wanted or known


def _listed(values: Any, all_of_them: Any) -> str:
    return ", ".join(str(value) for value in values) + (", ..." if len(all_of_them) > len(values) else "")
