"""`build_towers`: a whole training step on many devices, in a TF1 graph or in `tf.function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from zoo.parallel.gradients import merge_rows, sum_gradients
from zoo.parallel.places import Where, placement, raw
from zoo.parallel.towers import Share, Towers
from zoo.scoping import in_graph

_KEYS = tf.compat.v1.GraphKeys


@dataclass(frozen=True)
class TowerStep:
    """What `build_towers` built.

    Args:
        loss: Mean loss over the examples of the whole batch, with regularization.
        gradients: (gradient, variable) pairs as applied; for asynchronous towers those of tower 0.
        train_op: Runs the step in a TF1 graph; in `tf.function` the step has been made part of the function, and this
            is what the optimizer returned.
        tower_ops: For asynchronous towers in a graph, each tower's own step, to be run by a thread of its own.
        results: What `tower_fn` returned, tower by tower.
        variables: All variables that are trained.
    """

    loss: tf.Tensor
    gradients: list[tuple[Any, Any]]
    train_op: Any
    tower_ops: list[Any]
    results: list[Any]
    variables: list[Any]

    def placement(self) -> str:
        """Words where each variable lives."""
        return placement(self.variables)


def build_towers(  # noqa: PLR0913 - a user's options
    tower_fn: Callable[[Any], Any],
    batch: Any,
    devices: Sequence[str],
    optimizer: Any,
    *,
    variables: Where = "cpu",
    train: Sequence[Any] | None = None,
    batch_norm: str = "mean",
    synchronous: bool = True,
    regularization: Callable[[], Sequence[Any]] | None = None,
    clip_norm: float | None = None,
    global_step: Any = None,
    averages: Any = None,
    log_placement: bool = False,
) -> TowerStep:
    """Builds one training step over several devices: each tower its part of the batch, one update.

    The result is that of one device with the whole batch (with batch norm: under "sync"): gradients are averaged over
    the towers by their numbers of examples, regularization counts once, clipping sees the average. Optimizer slots and
    averages are made outside the towers' reuse of variables.

    Args:
        tower_fn: Takes a part of the batch and returns its mean loss, or a tuple that starts with it, without
            regularization. It makes its variables by `get_variable` or calls a model; it is called once a tower.
        batch: Structure of tensors [n, ...].
        devices: One tower each: ``["GPU:0", "GPU:1"]``.
        optimizer: `tf.compat.v1.train.Optimizer` in a graph, a Keras optimizer in `tf.function`.
        variables: Where variables live, see `Towers`. In `tf.function` they exist already.
        train: Variables to train; default all trainable ones of the graph. In `tf.function`: the model's
            `trainable_variables`, required.
        batch_norm: ``first``, ``mean`` (default) or ``sync``, see `Towers`. In a graph, update ops of foreign layers
            follow ``first``.
        synchronous: False lets each tower apply its own gradients.
        regularization: Function that returns the regularization losses; default in a graph: what `tower_fn` adds to
            the collection, elsewhere none. For a model: ``lambda: model.losses``.
        clip_norm: Largest global norm of the averaged gradient.
        global_step: Variable that counts steps, in a graph.
        averages: `tf.train.ExponentialMovingAverage`, applied after the update, in a graph.
        log_placement: Print where every variable lives.

    Returns:
        The step.

    Raises:
        ValueError: Unknown devices, fewer examples than devices, no `train` outside a graph, a loss that depends on no
            variable.

    Source: in-graph replication as in TensorFlow 1's CIFAR-10 tutorial and TF-Slim's `model_deploy`.
    """
    towers = Towers(devices, variables=variables, batch_norm=batch_norm, synchronous=synchronous)
    graph = in_graph()
    if not graph and train is None:
        raise ValueError("outside a TF1 graph, say what is trained: train=model.trainable_variables")
    before = {key: len(tf.compat.v1.get_collection(key)) for key in _COLLECTIONS} if graph else {}

    def added(key: str) -> list[Any]:
        return tf.compat.v1.get_collection(key)[before[key] :]

    def penalties() -> Sequence[Any]:
        if regularization is not None:
            return regularization()
        return added(_KEYS.REGULARIZATION_LOSSES) if graph else ()

    def tower(share: Share) -> tuple[Any, tf.Tensor, list[Any], list[Any]]:
        def forward() -> tuple[Any, tf.Tensor, tf.Tensor]:
            result = tower_fn(share.batch)
            mean = _mean_loss(result)
            part = mean * tf.cast(share.weight, mean.dtype)
            once = share.index == 0 or not synchronous
            return result, part, _with_penalties(part if synchronous else mean, penalties() if once else ())

        return _differentiate(forward, train, graph)

    built = towers.run(tower, batch)
    results, parts, by_tower, (trained, *_) = (list(column) for column in zip(*built, strict=True))
    with towers.on_variables():
        loss = _with_penalties(tf.add_n(parts), penalties())
        sets = [sum_gradients(by_tower)] if synchronous else by_tower
        if all(gradient is None for gradients in sets for gradient in gradients):
            raise ValueError("the loss depends on none of the trained variables; look at tower_fn and train")
        if clip_norm is not None:
            sets = [tf.clip_by_global_norm(gradients, clip_norm)[0] for gradients in sets]
        pairs = [[(g, v) for g, v in zip(gradients, trained, strict=True) if g is not None] for gradients in sets]
        if graph:
            updates = _updates_of_tower_0(added(_KEYS.UPDATE_OPS), towers.count)
            # the loss first: a penalty that is fetched with the step must not read what the step has written
            with tf.control_dependencies([loss, *updates]):
                first = optimizer.apply_gradients(pairs[0], global_step=global_step)
                ops = [first, *(optimizer.apply_gradients(chosen) for chosen in pairs[1:])]
            if averages is not None:
                with tf.control_dependencies(ops):
                    ops.append(averages.apply(trained))
            train_op = tf.group(*ops)
        else:
            pairs = [[(merge_rows(g), v) for g, v in chosen] for chosen in pairs]
            ops = [optimizer.apply_gradients(chosen) for chosen in pairs]
            train_op = ops[-1]
    step = TowerStep(loss, pairs[0], train_op, [] if synchronous else ops[: len(pairs)], results, trained)
    if log_placement:
        print(step.placement())
    return step


def _differentiate(
    forward: Callable[[], tuple[Any, tf.Tensor, tf.Tensor]], train: Sequence[Any] | None, graph: bool
) -> tuple[Any, tf.Tensor, list[Any], list[Any]]:
    """What a tower returned, its part of the loss, the gradients of its total, and the variables they belong to."""
    if graph:
        result, part, total = forward()
        trained = list(tf.compat.v1.trainable_variables() if train is None else train)
        sources = [raw(variable) for variable in trained]
        return result, part, tf.compat.v1.gradients(total, sources, colocate_gradients_with_ops=True), trained
    trained = list(train or ())
    sources = [raw(variable) for variable in trained]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        result, part, total = forward()
    return result, part, tape.gradient(total, sources), trained


def _with_penalties(loss: tf.Tensor, penalties: Sequence[tf.Tensor]) -> tf.Tensor:
    extra = [tf.cast(penalty, loss.dtype) for penalty in penalties]
    return tf.add_n([loss, *extra]) if extra else loss


def _mean_loss(result: Any) -> tf.Tensor:
    found = result[0] if isinstance(result, tuple) and result else result
    if not tf.is_tensor(found) or not found.dtype.is_floating or found.shape.rank not in (0, None):
        kind = f"a {found.dtype.name} tensor of shape {found.shape}" if tf.is_tensor(found) else repr(found)
        raise ValueError(f"tower_fn returns the mean loss, a float scalar, or a tuple that starts with it; got {kind}")
    return found


_COLLECTIONS = (_KEYS.REGULARIZATION_LOSSES, _KEYS.UPDATE_OPS)


def _updates_of_tower_0(added: Sequence[Any], count: int) -> list[Any]:
    """Leaves the update ops of the other towers out, of the graph's collection too: their variables are the same."""
    others = [f"tower_{index}/" for index in range(1, count)]
    dropped = [op for op in added if any(part in f"{op.name}" for part in others)]
    collection = tf.compat.v1.get_collection_ref(_KEYS.UPDATE_OPS)
    collection[:] = [op for op in collection if not any(op is other for other in dropped)]
    return [op for op in added if not any(op is other for other in dropped)]
