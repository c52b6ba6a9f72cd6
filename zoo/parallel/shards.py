"""How a strategy's devices get their parts of each global batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.parallel.strategies import is_multi_worker, worker_count


def distributed(strategy: Any, dataset: tf.data.Dataset) -> Any:
    """Spreads a data set of global batches over a strategy's devices; returns what `iter` takes.

    Several workers read the same batches, and each keeps its own rows: the first n % k of k replicas get n // k + 1 of
    n rows, the others n // k. So the numbers are those of one device, and no example is lost or seen twice. A chief
    with parameter servers keeps the data set, and sends whole batches to its workers.
    """
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return dataset
    if not is_multi_worker(strategy):
        return strategy.experimental_distribute_dataset(dataset)
    replicas = strategy.num_replicas_in_sync

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local
        if local == 1:
            return dataset.map(lambda *batch: rows_of(_joined(batch), replicas, first))

        def parts(*batch: Any) -> tf.data.Dataset:
            numbers = tf.data.Dataset.range(first, first + local)
            return numbers.map(lambda number: rows_of(_joined(batch), replicas, tf.cast(number, tf.int32)))

        return dataset.flat_map(parts)

    return strategy.distribute_datasets_from_function(of_worker)


def check_workers(strategy: Any, workers: int) -> None:
    """Raises ValueError for data laid out for workers behind parameter servers that are not there; 1 fits all."""
    if workers == 1:
        return
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ValueError(
            f"this data is laid out for {workers} workers behind parameter servers, and the strategy has none: make it "
            "with workers=1"
        )
    found = worker_count(strategy)
    if found != workers:
        raise ValueError(
            f"this data is laid out for {workers} workers and the cluster has {found}: make it with workers={found}"
        )


def own_batches(strategy: Any, dataset: tf.data.Dataset, workers: int) -> Any:
    """Gives each worker behind parameter servers the batches of its own: number n is worker ``n % workers``'s.

    The data set is sent to the workers, and each reads it at its own pace; one that is started again starts at its
    beginning. It should have no end. Returns an argument for `ClusterCoordinator.schedule`; there `own_batch` reads it.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return iter(coordinator.create_per_worker_dataset(dataset.batch(workers, drop_remainder=True)))


def own_batch(iterator: Any) -> Any:
    """Returns the next batch of the worker that runs this, from what `own_batches` made."""
    number = tf.distribute.coordinator.experimental_get_current_worker_index()
    return tf.nest.map_structure(lambda part: part[number], next(iterator))


def rows_of(batch: Any, count: int, index: Any) -> Any:
    """Returns the rows of a batch of replica `index` of `count`; none where there are fewer rows than that."""
    total = tf.shape(tf.nest.flatten(batch)[0])[0]
    start = index * (total // count) + tf.minimum(index, total % count)
    size = total // count + tf.cast(index < total % count, tf.int32)
    return tf.nest.map_structure(lambda part: part[start : start + size], batch)


def _joined(batch: tuple[Any, ...]) -> Any:
    return batch[0] if len(batch) == 1 else batch
