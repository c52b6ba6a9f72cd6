"""Data that can be taken up again at any batch of any epoch: what a trainer needs to resume exactly.

The contract is one call. A stream is a callable

    ``stream(epoch, skip=0) -> tf.data.Dataset`` of that epoch's batches, without the first ``skip`` of them

for which three things hold:

1. ``stream(epoch)`` depends on nothing but ``epoch`` and the stream's own settings (its seed among them): not on what
   was read before, on ``tf.random.set_seed`` or on the number of threads. Every process gets the same batches.
2. ``stream(epoch, skip=b)`` is ``stream(epoch).skip(b)``, only cheaper: skipped pictures are not decoded.
3. An epoch is one pass and ends. ``stream.batches`` is its number of batches, None when that is not known.

A position in the data is therefore the pair (epoch, batch). ``as_stream`` makes a stream of whatever people have:
a stream, a function ``make_dataset(epoch)``, a plain ``tf.data.Dataset``, or arrays.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Augment = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Stream:
    """Batches of every epoch, in an order that (seed, epoch) alone decides.

    Args:
        make_dataset: ``make_dataset(epoch, skip)``: the data set of an epoch's batches without the first ``skip``.
        batches: Number of batches in an epoch; None when not known.
        batch_size: Examples in a full batch; None when not known.
        examples: Number of examples in an epoch; None when not known.
        workers: More than 1 under parameter servers, where batch n belongs to worker ``n % workers``, which keeps what
            goes on from one batch to the next; 1 leaves a batch to any worker.
    """

    def __init__(
        self,
        make_dataset: Callable[[int, int], tf.data.Dataset],
        *,
        batches: int | None = None,
        batch_size: int | None = None,
        examples: int | None = None,
        workers: int = 1,
    ) -> None:
        self._make_dataset = make_dataset
        self.workers = workers
        self.batches = batches
        self.batch_size = batch_size
        self.examples = examples

    def __call__(self, epoch: int, skip: int = 0) -> tf.data.Dataset:
        """Returns one epoch's batches.

        Args:
            epoch: Which epoch, from 0.
            skip: How many batches at its start to leave out.

        Returns:
            A finite data set, the same at every call with the same arguments.

        Raises:
            ValueError: ``epoch`` or ``skip`` is negative, or the epoch has fewer than ``skip`` batches.
        """
        if epoch < 0 or skip < 0:
            raise ValueError(f"a position counts from 0, got epoch={epoch}, skip={skip}")
        if self.batches is not None and skip > self.batches:
            raise ValueError(f"an epoch has {self.batches} batches, so {skip} cannot be skipped; did the data shrink?")
        return self._make_dataset(epoch, skip)

    @property
    def element_spec(self) -> Any:
        """The structure of a batch, as ``tf.data`` describes it."""
        return self(0).element_spec

    def repeat(self, epochs: int) -> tf.data.Dataset:
        """Returns exactly ``epochs`` epochs as one data set, for ``keras.Model.fit`` and the like.

        Args:
            epochs: How many, at least 1.

        Returns:
            The batches of epoch 0, then those of epoch 1, and so on; a batch never spans two epochs.

        Raises:
            ValueError: ``epochs`` is below 1.
        """
        if epochs < 1:
            raise ValueError(f"epochs counts from 1, got {epochs}")
        return self._joined(0, epochs)

    def _joined(self, first: int, end: int) -> tf.data.Dataset:
        if end - first == 1:
            return self(first)
        middle = (first + end) // 2  # halves, so that a batch passes through log2(epochs) layers and not epochs
        return self._joined(first, middle).concatenate(self._joined(middle, end))


def permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the order of ``count`` examples in an epoch: int64 [count], the same for the same (seed, epoch)."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def batch_seed(seed: int, epoch: int, index: tf.Tensor) -> tf.Tensor:
    """Returns the seed of stateless random operations for one batch (or example) of an epoch.

    Args:
        seed: The stream's seed.
        epoch: The epoch.
        index: Its number in the epoch, a scalar.

    Returns:
        int32 [2], a different pair for every (seed, epoch, index).
    """
    first = np.random.default_rng([seed, epoch]).integers(2**31)
    return tf.stack([tf.constant(first, tf.int32), tf.cast(index, tf.int32)])


def prepare_picture(
    prepare: Callable[..., tf.Tensor] | None, image: tf.Tensor, seed: int, epoch: int, index: tf.Tensor
) -> tf.Tensor:
    """Applies what a user gave to make a network's input of a decoded picture.

    Args:
        prepare: ``prepare(image)`` or, for random changes, ``prepare(image, seed)`` with ``seed`` int32 [2] for
            ``tf.random.stateless_*``; None leaves the picture.
        image: uint8 [height, width, 3].
        seed: The stream's seed.
        epoch: The epoch.
        index: The picture's number in the epoch.

    Returns:
        The prepared picture.
    """
    if prepare is None:
        return image
    required = [p for p in inspect.signature(prepare).parameters.values() if p.default is p.empty]
    return prepare(image, batch_seed(seed, epoch, index)) if len(required) > 1 else prepare(image)


def array_stream(
    *arrays: Any,
    batch_size: int,
    shuffle: bool = True,
    seed: int = 0,
    augment: Augment | None = None,
    drop_remainder: bool = False,
) -> Stream:
    """Streams arrays that fit in memory: shuffled anew each epoch, restarted anywhere at no cost.

    Args:
        *arrays: Arrays with the same first dimension, as (images, labels); numpy or tensors.
        batch_size: Examples a batch.
        shuffle: A new order each epoch; False keeps the order of the arrays.
        seed: Seed of the orders and of ``augment``.
        augment: ``augment(first, seed)``: changes a batch of the first array; ``seed`` is int32 [2], its own for each
            batch, for ``tf.random.stateless_*``. See ``zoo.data.augment``.
        drop_remainder: Leave out the last batch when it is not full.

    Returns:
        A stream of tuples of batches (of plain batches when one array is given).

    Raises:
        ValueError: no array, different lengths, no example, or a batch size below 1.
    """
    tensors = [tf.convert_to_tensor(array) for array in arrays]
    lengths = {int(tensor.shape[0]) for tensor in tensors}
    if len(lengths) != 1:
        raise ValueError(f"arrays must have one length, got {sorted(lengths) or 'no arrays'}")
    count = lengths.pop()
    batches = count_batches(count, batch_size, drop_remainder)

    def make_dataset(epoch: int, skip: int) -> tf.data.Dataset:
        order = permutation(count, seed, epoch) if shuffle else np.arange(count)
        indices = tf.data.Dataset.from_tensor_slices(order[skip * batch_size :])
        indices = indices.batch(batch_size, drop_remainder).enumerate(skip)

        def gather(index: tf.Tensor, chosen: tf.Tensor) -> Any:
            parts = [tf.gather(tensor, chosen) for tensor in tensors]
            if augment is not None:
                parts[0] = augment(parts[0], batch_seed(seed, epoch, index))
            return tuple(parts) if len(parts) > 1 else parts[0]

        return indices.map(gather, tf.data.AUTOTUNE, deterministic=True).prefetch(2)

    return Stream(make_dataset, batches=batches, batch_size=batch_size, examples=count)


def count_batches(examples: int, batch_size: int, drop_remainder: bool = False) -> int:
    """Returns how many batches ``examples`` make.

    Raises:
        ValueError: a batch size below 1, or not a single batch.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size counts from 1, got {batch_size}")
    batches = examples // batch_size if drop_remainder else math.ceil(examples / batch_size)
    if batches < 1:
        raise ValueError(
            f"{examples} examples make no batch of {batch_size}; use fewer a batch or keep the unfilled last batch"
        )
    return batches


def as_stream(data: Any, *, batch_size: int | None = None, seed: int = 0, shuffle: bool = True) -> Stream:
    """Makes a stream of what people have.

    Args:
        data: One of: a ``Stream`` (returned as it is); a function ``make_dataset(epoch)`` or
            ``make_dataset(epoch, skip)`` that returns an epoch's batches; a ``tf.data.Dataset`` of batches, iterated
            once an epoch; an array or a tuple of arrays, which are shuffled and batched.
        batch_size: Examples a batch; for arrays only, where it is required.
        seed: Seed of the orders, for arrays only.
        shuffle: A new order each epoch, for arrays only.

    Returns:
        The stream. One made of a plain ``tf.data.Dataset`` resumes exactly only when that data set gives the same
        batches each time it is iterated (``shuffle(..., reshuffle_each_iteration=False)`` or none at all).

    Raises:
        TypeError: ``data`` is something else.
        ValueError: arrays without ``batch_size``, or ``batch_size`` for data that is batched already.
    """
    arrays = isinstance(data, tuple | list | np.ndarray | tf.Tensor)
    if arrays != (batch_size is not None):
        raise ValueError(
            "arrays need batch_size="
            if arrays
            else f"batch_size={batch_size} is for arrays; {type(data).__name__} data is batched already: leave it out"
        )
    if arrays:
        parts = data if isinstance(data, tuple | list) else (data,)
        return array_stream(*parts, batch_size=batch_size or 0, shuffle=shuffle, seed=seed)
    if isinstance(data, Stream):
        return data
    if isinstance(data, tf.data.Dataset):
        size = int(data.cardinality())
        return Stream(lambda epoch, skip: data.skip(skip), batches=size if size >= 0 else None)
    if callable(data):
        if len(inspect.signature(data).parameters) > 1:
            return Stream(data)
        return Stream(lambda epoch, skip: data(epoch).skip(skip))
    raise TypeError(
        f"data must be a zoo stream, a function of the epoch, a tf.data.Dataset or arrays, got {type(data).__name__}"
    )
