"""The compiled steps: forward, backward, update, on every replica of a strategy; and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from zoo.parallel.gradients import merge_rows, scale_gradient, sum_gradients
from zoo.parallel.towers import Share, Towers
from zoo.scoping import synchronized_batch_norm
from zoo.training.averages import ExponentialMovingAverage
from zoo.training.batch import batch_size, first_examples, named, unpack
from zoo.training.losses import TaskLoss
from zoo.training.optimizers import already_summed, apply_clipped, gradient_sum, take_summed_gradients

TASK, REGULARIZATION, GRADIENT, RATE = 0, 1, 2, 3  # columns of StepResult.losses


@dataclass
class StepResult:
    """What a call of the compiled step gives back, as tensors that may still be under way."""

    # float32 [steps, 4]: task loss, regularization loss, sum of all gradients or norm to be clipped (finite when they
    # are; 0 under loss scaling), learning rate. Fewer rows than asked for: the last is not finite.
    losses: tf.Tensor
    examples: tf.Tensor  # float32 [global batch]: the loss of every example of the last step


@dataclass
class Observation:
    """One step seen from inside, for summaries: name to tensor, of the first replica."""

    inputs: dict[str, tf.Tensor]
    activations: dict[str, tf.Tensor]  # outputs and end points
    gradients: dict[str, tf.Tensor]  # by variable, as applied (before clipping)


@dataclass(frozen=True)
class StepSettings:
    """How a step is taken; what `zoo.training.Trainer` takes too is said there."""

    strategy: tf.distribute.Strategy  # where the model's variables were made
    schedule: Callable[[tf.Tensor], tf.Tensor] | None = None  # None leaves the optimizer's rate alone
    metrics: Sequence[keras.metrics.Metric] = ()
    validation_metrics: Sequence[keras.metrics.Metric] = ()  # their copies for evaluation
    clip_norm: float | None = None  # of the gradients after averaging over replicas, and after multipliers
    multipliers: Mapping[str, float] = field(default_factory=dict)  # by a variable's name
    accumulate: int = 1
    averages: ExponentialMovingAverage | None = None
    jit_compile: bool = False
    steps_per_call: int = 1  # most steps that `train` is asked for
    sync_batch_norm: bool = False
    towers: Towers | None = None  # for a `TowerEngine`

    def __post_init__(self) -> None:
        if self.towers is not None and self.jit_compile:
            raise ValueError("XLA compiles for one device at a time: jit_compile goes with mirrored, not with towers")
        if self.towers is not None and self.accumulate > 1 and not self.towers.synchronous:
            raise ValueError("asynchronous towers apply what they have: they go with accumulate=1 only")


class Engine:
    """Compiled training and evaluation steps of a built model; the step number is its own int64 variable.

    `optimizer` is not yet built; `variables` are what is trained, by name.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        task: TaskLoss,
        variables: Mapping[str, keras.Variable],
        settings: StepSettings,
    ) -> None:
        self.model, self.optimizer, self.task = model, optimizer, task
        self.scaling = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self.names, self.variables = list(variables), list(variables.values())
        self.strategy, self.schedule, self.averages = settings.strategy, settings.schedule, settings.averages
        self.metrics, self.validation_metrics = list(settings.metrics), list(settings.validation_metrics)
        self.clip_norm, self.multipliers = settings.clip_norm, settings.multipliers
        self.accumulate, self.steps_per_call = settings.accumulate, settings.steps_per_call
        self.sync_batch_norm, self.towers = settings.sync_batch_norm, settings.towers
        with self.strategy.scope():
            self.step = tf.Variable(
                0, dtype=tf.int64, trainable=False, name="step", aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
            optimizer.build(self.variables)
            take_summed_gradients(optimizer)  # `_apply` sums over the replicas
            if self.averages is not None:
                self.averages.build(variables)
        replica_step = self._replica_step
        self._replica = (
            tf.function(replica_step, autograph=False, jit_compile=True) if settings.jit_compile else replica_step
        )
        # Without autograph, as Keras' own fit: converting the source takes longer than tracing it.
        self._given = tf.function(self._row, autograph=False, reduce_retracing=True)
        self._single = tf.function(lambda iterator: self._row(iterator.get_next()), autograph=False)
        self._several = tf.function(self._many, autograph=False)
        self._observed = tf.function(self._observe, autograph=False)
        self._tested = tf.function(self._test, autograph=False)

    # Calls from the loop.

    def train(self, iterator: Any, steps: int) -> StepResult:
        """Runs up to `steps_per_call` steps in one call, on the iterator's next (inputs, labels[, weights]) batches.

        The iterator is one that the strategy distributes. The steps end at the first that is not finite.
        """
        if self.steps_per_call == 1:
            return StepResult(*self._single(iterator))
        # One compiled function whatever the count: a run cut differently by resumes keeps its bits.
        return StepResult(*self._several(iterator, tf.constant(steps)))

    def train_on(self, batch: Any) -> StepResult:
        """Runs one training step on a batch, for data of unknown length."""
        return StepResult(*self._given(batch))

    def observe(self, iterator: Any) -> tuple[StepResult, Observation]:
        """Runs one training step and also returns what it looked like inside."""
        losses, examples, seen = self._observed(iterator)
        return StepResult(losses[tf.newaxis], examples), Observation(*seen)

    def evaluate(self, iterator: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Updates the validation metrics with the next batch; its summed task loss and examples, float32 scalars."""
        return self._tested(iterator)

    def plain_step(self) -> Callable[[Any], tuple[tf.Tensor, tf.Tensor]]:
        """Returns a compiled step that leaves the learning rate alone: iterator to (losses [4], example losses)."""

        def step(iterator: Any) -> tuple[tf.Tensor, tf.Tensor]:
            rate = tf.cast(self.optimizer.learning_rate, tf.float32)
            parts, examples, _ = self._everywhere(iterator.get_next())
            return self._finish(rate, parts, examples)

        return tf.function(step, autograph=False)

    def graph(self, element_spec: Any) -> Any:
        """Returns the training step's graph, for TensorBoard."""
        spec = tf.data.IteratorSpec(element_spec)
        return self._single.get_concrete_function(spec).graph

    # Cross-replica context.

    def _one(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        rate = self._set_rate()
        parts, examples, _ = self._everywhere(batch)
        return self._finish(rate, parts, examples)

    def _row(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        losses, examples = self._one(batch)
        return losses[tf.newaxis], examples  # here and not outside, where it would be a call of its own

    def _many(self, iterator: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def body(number: tf.Tensor, _: tf.Tensor, rows: tf.TensorArray, examples: tf.Tensor) -> tuple[Any, ...]:
            losses, examples = self._one(iterator.get_next())
            return number + 1, tf.reduce_all(tf.math.is_finite(losses)), rows.write(number, losses), examples

        def going_on(number: tf.Tensor, finite: tf.Tensor, rows: tf.TensorArray, examples: tf.Tensor) -> tf.Tensor:
            return tf.logical_and(number < steps, finite)

        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[4])
        start = (tf.constant(0), tf.constant(True), rows, tf.zeros([0]))
        shapes = (tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape(None), tf.TensorShape([None]))
        _, _, rows, examples = tf.while_loop(going_on, body, start, shape_invariants=shapes, parallel_iterations=1)
        return rows.stack(), examples

    def _observe(self, iterator: Any) -> tuple[tf.Tensor, tf.Tensor, tuple[Any, ...]]:
        batch = iterator.get_next()
        rate = self._set_rate()
        parts, examples, seen = self._everywhere(batch, True)
        first = tf.nest.map_structure(lambda t: self.strategy.experimental_local_results(t)[0], seen)
        return *self._finish(rate, parts, examples), first

    def _everywhere(self, batch: Any, observe: bool = False) -> tuple[Any, ...]:
        """The step on all devices that share it: the losses' first columns, example losses, what was seen."""
        if observe:
            return self.strategy.run(lambda b: self._replica_step(b, True), args=(batch,))
        return self.strategy.run(self._replica, args=(batch,))

    def _set_rate(self) -> tf.Tensor:
        if self.schedule is None:
            return tf.cast(self.optimizer.learning_rate, tf.float32)
        rate = tf.cast(self.schedule(self.step), tf.float32)
        self.optimizer.learning_rate.assign(rate)
        return rate

    def _finish(self, rate: Any, parts: Any, examples: Any) -> tuple[tf.Tensor, tf.Tensor]:
        done = self.step.assign_add(1)
        if self.averages is not None:
            self.averages.update(done)
        total = [self.strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in parts]
        losses = tf.stack([tf.cast(part, tf.float32) for part in (*total, rate)])
        return losses, tf.concat(self.strategy.experimental_local_results(examples), 0)

    def _test(self, iterator: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return self._test_parts(iterator.get_next())

    def _test_parts(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        parts = self.strategy.run(self._test_replica, args=(batch,))
        total, count = (self.strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in parts)
        return total, count

    # Replica context.

    def _test_replica(self, batch: Any, size: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        inputs, labels, weights = unpack(batch)
        outputs, _ = self._forward(inputs, training=False, extra=False)
        examples = self.task(labels, outputs, weights)
        examples, labels, outputs, weights = first_examples(size, (examples, labels, outputs, weights))
        self._update(self.validation_metrics, labels, outputs, weights)
        return tf.cast(tf.reduce_sum(examples), tf.float32), tf.cast(tf.size(examples), tf.float32)

    def _replica_step(self, batch: Any, observe: bool = False) -> tuple[Any, ...]:
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync if context is not None else 1
        size = batch_size(batch)
        divisor = tf.cast(size, tf.float32)
        if replicas > 1:
            divisor = context.all_reduce(tf.distribute.ReduceOp.SUM, divisor)
        if self.accumulate > 1:
            examples, regularization, gradients, inside = self._accumulated(batch, size, divisor, replicas)
        else:
            examples, regularization, gradients, inside = self._gradients(batch, divisor, replicas, observe)
        seen = (*inside, self._seen_gradients(gradients)) if observe else ()
        total = self._apply(gradients, replicas)
        return (tf.reduce_sum(examples) / tf.cast(divisor, examples.dtype), regularization, total), examples, seen

    def _gradients(
        self, batch: Any, divisor: tf.Tensor, shares: Any, observe: bool = False, size: Any = None
    ) -> tuple[Any, ...]:
        """Loss of every example, regularization's share, and the gradients of this batch's part of the total loss."""
        # shares: None leaves regularization out; size: how many of the examples count
        inputs, labels, weights = unpack(batch)
        synchronized = synchronized_batch_norm(self.sync_batch_norm)
        with tf.GradientTape(watch_accessed_variables=False) as tape, synchronized:
            tape.watch([variable.value for variable in self.variables])
            outputs, extra = self._forward(inputs, training=True, extra=observe or bool(self.task.aux_losses))
            examples = first_examples(size, (self.task(labels, outputs, weights, extra),))[0]
            task = tf.reduce_sum(examples) / tf.cast(divisor, examples.dtype)
            added = [] if shares is None else [tf.cast(loss, task.dtype) for loss in self.model.losses]
            regularization = tf.add_n(added) / tf.cast(shares, task.dtype) if added else tf.zeros([], task.dtype)
            total = task + regularization
            scaled = self.optimizer.scale_loss(total) if self.scaling else total
        with synchronized_batch_norm(self.sync_batch_norm):  # statistics have a gradient too
            gradients = tape.gradient(scaled, [variable.value for variable in self.variables])
        self._update(self.metrics, *first_examples(size, (labels, outputs, weights)))
        inside = (named(inputs), {**named(outputs), **extra}) if observe else ()
        return examples, regularization, gradients, inside

    def _accumulated(self, batch: Any, size: tf.Tensor, divisor: tf.Tensor, replicas: int) -> tuple[Any, ...]:
        """The same as `_gradients`, part after part, so that only one part's activations live at a time."""
        part = tf.maximum(-(-size // self.accumulate), 1)
        parts = tf.maximum(-(-size // part), 1)  # fewer than asked for where the last ones would be empty
        shares = replicas * parts

        def body(
            number: tf.Tensor, regularization: tf.Tensor, sums: list[tf.Tensor], seen: tf.TensorArray
        ) -> tuple[Any, ...]:
            start, end = number * part, tf.minimum((number + 1) * part, size)
            piece = tf.nest.map_structure(lambda tensor: tensor[start:end], batch)
            examples, added, gradients, _ = self._gradients(piece, divisor, shares)
            sums = [
                total if gradient is None else total + tf.convert_to_tensor(gradient)
                for total, gradient in zip(sums, gradients, strict=True)
            ]
            return number + 1, regularization + added, sums, seen.write(number, tf.cast(examples, tf.float32))

        zeros = [tf.zeros_like(variable.value) for variable in self.variables]
        seen = tf.TensorArray(tf.float32, size=parts, infer_shape=False, element_shape=[None])
        wide = tf.float64 if zeros[0].dtype == tf.float64 else tf.float32
        start = (tf.constant(0), tf.zeros([], wide), zeros, seen)
        _, regularization, gradients, seen = tf.while_loop(
            lambda number, *_: number < parts, body, start, parallel_iterations=1
        )
        return seen.concat(), regularization, gradients, (named(unpack(batch)[0]), {})

    def _apply(self, gradients: Sequence[Any], replicas: int) -> tf.Tensor:
        """Updates the weights; returns the sum or the norm of the gradients."""
        pairs = [
            (scale_gradient(gradient, self.multipliers[name]) if name in self.multipliers else gradient, variable)
            for name, gradient, variable in zip(self.names, gradients, self.variables, strict=True)
            if gradient is not None
        ]
        if not pairs:
            raise ValueError("the loss depends on none of the trained variables; look at train_only and the loss")
        found, variables = [list(part) for part in zip(*pairs, strict=True)]
        if replicas > 1:
            found = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, found)
        with already_summed():
            norm = self._update_weights(found, variables)
        # Loss scaling meets Inf on purpose, and leaves such updates out.
        return tf.zeros([]) if self.scaling else gradient_sum(found) if norm is None else norm

    def _update_weights(self, found: list[Any], variables: list[Any]) -> Any:
        if self.clip_norm is not None:
            limit = tf.constant(self.clip_norm, found[0].dtype)
            if self.scaling:
                limit *= tf.cast(self.optimizer.dynamic_scale, limit.dtype)
            return apply_clipped(self.optimizer, found, variables, limit)
        self.optimizer.apply([merge_rows(gradient) for gradient in found], variables)
        return None

    def _forward(self, inputs: Any, *, training: bool, extra: bool) -> tuple[Any, dict[str, Any]]:
        """Outputs, and by name what auxiliary losses and summaries may ask for."""
        if extra and hasattr(self.model, "end_points"):
            return self.model.outputs_and_end_points(inputs, training)
        outputs = self.model(inputs, training=training)
        if isinstance(outputs, Mapping):
            return outputs, dict(outputs)
        if isinstance(outputs, list | tuple):
            names = getattr(self.model, "output_names", ())  # a subclass of Keras' Model has none
            return outputs, dict(zip(names, outputs, strict=True)) if names else {}
        return outputs, {}

    def _update(self, metrics: Sequence[keras.metrics.Metric], labels: Any, outputs: Any, weights: Any) -> None:
        main = self.task.main_output(outputs)
        for metric in metrics:
            metric.update_state(labels, main, sample_weight=weights)

    def _seen_gradients(self, gradients: Sequence[Any]) -> dict[str, tf.Tensor]:
        scale: Any = 1.0
        if self.scaling:
            scale = 1.0 / tf.convert_to_tensor(self.optimizer.dynamic_scale)
        pairs = zip(self.names, gradients, strict=True)
        return {name: tf.convert_to_tensor(gradient) * scale for name, gradient in pairs if gradient is not None}


class TowerEngine(Engine):
    """Steps in which each of the settings' towers takes its part of the batch."""

    towers: Towers

    def _everywhere(self, batch: Any, observe: bool = False) -> tuple[Any, ...]:
        size = batch_size(batch)
        divisor = tf.cast(size, tf.float32)
        if self.accumulate > 1:
            examples, regularization, sets, inside = self._accumulated(batch, size, divisor, 1)
            sets = [sets]
        else:
            examples, regularization, sets, inside = self._by_tower(batch, divisor, 1, observe)
        with self.towers.on_variables():
            total = tf.add_n([self._apply(gradients, 1) for gradients in sets])
        seen = (*inside, self._seen_gradients(sets[0])) if observe else ()
        return (tf.reduce_sum(examples) / tf.cast(divisor, examples.dtype), regularization, total), examples, seen

    def _gradients(
        self, batch: Any, divisor: tf.Tensor, shares: Any, observe: bool = False, size: Any = None
    ) -> tuple[Any, ...]:
        """A part of an accumulated batch, over all towers."""
        examples, regularization, sets, inside = self._by_tower(batch, divisor, shares, observe)
        return examples, regularization, sets[0], inside

    def _by_tower(self, batch: Any, divisor: tf.Tensor, shares: Any, observe: bool) -> tuple[Any, ...]:
        """The batch's examples, regularization, gradients (one set, or of each tower), and tower 0 seen from inside."""
        one = super()._gradients
        scaled = not self.towers.synchronous

        def tower(share: Share) -> tuple[Any, ...]:
            # regularization's gradient once: with tower 0, or with each tower that updates alone
            part = shares if share.index == 0 or scaled else None
            examples, regularization, gradients, inside = one(
                share.batch, divisor, part, observe and share.index == 0, share.size
            )
            if scaled:  # the mean of the tower's own examples, and not its part of the batch's
                gradients = [scale_gradient(g, 1 / tf.maximum(share.weight, 1e-9)) for g in gradients]
            return examples, regularization, gradients, inside

        examples, regularization, sets, inside = zip(*self.towers.run(tower, batch), strict=True)
        with self.towers.on_variables():
            joined = [sum_gradients(sets)] if self.towers.synchronous else list(sets)
            return tf.concat(examples, 0), regularization[0], joined, inside[0]

    def _test_parts(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        found = self.towers.run(lambda share: self._test_replica(share.batch, share.size), batch)
        totals, counts = zip(*found, strict=True)
        return tf.add_n(list(totals)), tf.add_n(list(counts))
