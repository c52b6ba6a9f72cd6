"""The trainer: what is trained and how; `zoo.training.loop` runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import keras
import tensorflow as tf

from zoo._compat import layers_inside, learning_rate_of
from zoo.data.stream import as_stream
from zoo.data.tfrecord.files import damage_named
from zoo.parallel.shards import distributed
from zoo.parallel.strategies import Strategy, check_batch, worker_count
from zoo.parallel.towers import Towers
from zoo.scoping import Model
from zoo.scoping.replicas import optimizer_here
from zoo.training.averages import ExponentialMovingAverage
from zoo.training.batch import check_arrays, check_carried_state, output_shape, unpack
from zoo.training.checkpoints import to_numpy
from zoo.training.feed import Feed
from zoo.training.loop import History, Loop
from zoo.training.losses import SOFTMAX, TaskLoss
from zoo.training.optimizers import make_optimizer
from zoo.training.settings import RunOptions, check_accumulate, check_finite
from zoo.training.state import plain
from zoo.training.step import Engine, StepSettings, TowerEngine
from zoo.weights.names import name_matches, named_variables, select_names


class Trainer:
    """Trains a `zoo.Model` or any Keras model, exactly, resumably and watchably.

    The loss is ``total_loss = task loss + regularization``: the task loss is the mean over the examples of the global
    batch, regularization is the sum of the model's ``losses``, counted once. A step is one update with one global
    batch.

    Args:
        model: the model; made under `strategy`'s scope if there is one.
        optimizer: sgd, momentum, nesterov, rmsprop (TF-Slim's), adam, adamw, lion, or a Keras optimizer.
        learning_rate: a rate, a Keras schedule (see `zoo.training.schedules`), or any function of the int64 step; None
            takes the rate or schedule of an optimizer object.
        loss: ``softmax_cross_entropy`` on logits, a Keras name or object, a function (labels, outputs), or a dict of
            them by output name.
        metrics: ``accuracy``, ``top5``, Keras names or objects; default accuracy, where the loss or the labels are of
            classes.
        label_smoothing: for softmax_cross_entropy.
        class_weights: class number to weight; every class must be named.
        aux_losses: end point or output name to weight, such as ``{"AuxLogits": 0.4}``.
        clip_norm: largest global norm of the averaged gradient.
        multipliers: pattern to factor of the gradients of the variables it means; each must match something.
        train_only: patterns of what is trained; the rest is frozen, batch norm included. Each must match something.
        accumulate: parts into which each batch is split, one after the other, to save memory; the step stays one global
            batch.
        averages: decay of moving averages of the weights, or an `ExponentialMovingAverage`; validation then uses them.
        global_batch: examples in a step over all replicas; needed for arrays, checked for other data.
        steps_per_call: steps run in one call of the compiled function; more than 1 helps small networks.
        jit_compile: compile each replica's step with XLA.
        strategy: `zoo.parallel.Towers` or a `tf.distribute.Strategy`; the default is the model's own (see
            `zoo.multi_gpu`), else the current one. A batch is always the global one.
        sync_batch_norm: under `tf.distribute`, batch norm takes its statistics over all replicas.
        seed: seed of the order of arrays.
        config: more settings to store with the run and to compare at a resume.

    Attributes:
        engine: the compiled steps, once `fit` or `evaluate` has seen data; ``engine.step`` is the step's own variable.
        position: (epoch, batch) of the next training batch.

    Raises:
        ValueError: a setting out of range, or a name that is not known.
    """

    def __init__(  # noqa: PLR0913 - a user's options
        self,
        model: keras.Model,
        *,
        optimizer: str | keras.optimizers.Optimizer = "sgd",
        learning_rate: float | Callable[[Any], Any] | None = None,
        loss: Any = SOFTMAX,
        metrics: Iterable[str | keras.metrics.Metric] | None = None,
        label_smoothing: float = 0.0,
        class_weights: Mapping[int, float] | None = None,
        aux_losses: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        multipliers: Mapping[str, float] | None = None,
        train_only: str | Sequence[str] | None = None,
        accumulate: int = 1,
        averages: float | ExponentialMovingAverage | None = None,
        global_batch: int | None = None,
        steps_per_call: int = 1,
        jit_compile: bool = False,
        strategy: Strategy | None = None,
        sync_batch_norm: bool = False,
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        _check_counts(accumulate=accumulate, steps_per_call=steps_per_call, global_batch=global_batch)
        numbers = {"learning_rate": learning_rate, "clip_norm": clip_norm, "averages": averages}
        check_finite({**numbers, "label_smoothing": label_smoothing})
        check_finite({"class_weights": class_weights, "aux_losses": aux_losses, "multipliers": multipliers})
        if clip_norm is not None and clip_norm <= 0:
            raise ValueError(f"clip_norm must be positive, received {clip_norm}")
        self.model = model
        place = strategy or getattr(model, "towers", None) or model.distribute_strategy
        self.towers = place if isinstance(place, Towers) else None
        self.strategy = tf.distribute.get_strategy() if isinstance(place, Towers) else place
        self.place: Strategy = place
        check_accumulate(accumulate, global_batch, self.strategy.num_replicas_in_sync)
        self.sync_batch_norm = sync_batch_norm
        if sync_batch_norm and (jit_compile or self.towers):
            raise ValueError("sync_batch_norm goes neither with XLA nor with towers, whose own option is batch_norm")
        self.task = TaskLoss(loss, label_smoothing=label_smoothing, class_weights=class_weights, aux_losses=aux_losses)
        self.metrics = None if metrics is None else list(metrics)
        if isinstance(model, Model):
            model.check_loss(loss, self.metrics)
        self.clip_norm, self.multipliers, self.accumulate = clip_norm, dict(multipliers or {}), accumulate
        self.train_only = [train_only] if isinstance(train_only, str) else train_only
        self.averages = ExponentialMovingAverage(averages) if isinstance(averages, int | float) else averages
        self.global_batch, self.steps_per_call = global_batch, steps_per_call
        self.jit_compile, self.seed = jit_compile, seed
        if isinstance(place, tf.distribute.ParameterServerStrategy):  # enough under way for every worker
            self.steps_per_call = max(steps_per_call, 2 * worker_count(place))
        self.config = dict(config or {})
        self.engine: Engine | None = None
        self.position = (0, 0)
        with self.place.scope():
            self.optimizer, self.schedule = self._optimizer(optimizer, learning_rate)

    @damage_named()
    def fit(
        self,
        data: Any,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        validation: Any = None,
        **options: Any,
    ) -> History:
        """Trains until the run has so many epochs or steps; with a folder that holds a run, goes on with it.

        Args:
            data: a zoo stream, a function of the epoch, a `tf.data.Dataset` of batches (inputs, labels[, weights]), or
                arrays.
            epochs: length of the whole run in epochs.
            steps: length of the whole run in steps.
            validation: data of the same kinds, in order; measured every `validate_every` steps, or after every epoch.
            **options: the fields of `zoo.training.RunOptions`: folder, resume, checkpoints, summaries, callbacks, ...

        Returns:
            What was measured, line by line, also before a resume.

        Raises:
            ValueError: neither or both lengths, data that contradicts the settings, or arrays with NaN, Inf or labels
                that are no class numbers.
            NonFiniteLossError: the loss or its gradient became NaN or Inf.
            ConfigChangedError: the folder's run has another configuration.
            DamagedRecordError: a record file is damaged.
            InterruptedRunError: SIGTERM or Ctrl-C; the state is saved. A `SystemExit`.
        """
        try:
            run = RunOptions(epochs=epochs, steps=steps, **options)
        except TypeError as error:
            raise TypeError(f"unknown option of fit ({error}); known are {', '.join(RunOptions.names())}") from error
        batch, seed = self.global_batch, self.seed
        feed = Feed(data, self.strategy, global_batch=batch, seed=seed, steps_per_epoch=run.steps_per_epoch)
        check_summaries(self.place, run.summaries)
        check_batch(self.place, feed.global_batch, feed.stream.examples)
        check_accumulate(self.accumulate, feed.global_batch, self.strategy.num_replicas_in_sync)
        self.build(feed.element_spec)
        check_carried_state(self.model, self.place, feed.global_batch, feed.stream.workers, self.accumulate)
        outputs = output_shape(self.model)
        self.task.check_classes(outputs[-1] if outputs is not None and outputs.rank else None)
        logits = outputs if self.task.takes_class_numbers else None
        check_arrays(data, "training data", logits)
        check_arrays(validation, "validation data", logits)
        tests = None if validation is None else self._tests(validation, feed.global_batch)
        return Loop(self, feed, tests, run).run()

    @damage_named()
    def evaluate(self, data: Any, *, averages: bool | None = None) -> dict[str, float]:
        """Measures loss and metrics without training; auxiliary losses and class weights are left out.

        Args:
            data: as for `fit`.
            averages: with the moving averages in place of the weights; the default is when there are any.

        Returns:
            ``loss``, ``regularization_loss`` and every metric by name.

        Raises:
            ValueError: no data, or averages that are not kept.
        """
        dataset = self._tests(data, self.global_batch)
        self.build(dataset.element_spec)
        return self.measure(dataset, averages)

    def measure(
        self, dataset: tf.data.Dataset, averages: bool | None = None, going_on: Callable[[], bool] = lambda: True
    ) -> dict[str, float]:
        """`evaluate` on a ready data set; stops early and returns nothing when `going_on` says no."""
        engine = self.build(dataset.element_spec)
        use_averages = self.averages is not None if averages is None else averages
        if use_averages and self.averages is None:
            raise ValueError("no moving averages are kept; give the trainer averages=0.9999 or another decay")
        for metric in engine.validation_metrics:
            metric.reset_state()
        totals: list[tuple[tf.Tensor, tf.Tensor]] = []
        with self.averages.in_weights() if use_averages and self.averages else nullcontext():
            iterator = iter(distributed(self.strategy, dataset))
            left = int(dataset.cardinality())
            while left:  # negative when not known: until the data ends
                try:
                    totals.append(engine.evaluate(iterator))
                except tf.errors.OutOfRangeError:
                    break
                if not going_on():
                    return {}
                left -= 1
            known = [loss for loss in self.model.losses if not tf.is_symbolic_tensor(loss)]  # not those of a batch
            regularization = float(sum(float(to_numpy(loss)) for loss in known))
        count = sum(float(size) for _, size in totals)
        if not count:
            raise ValueError("the validation data has no examples")
        results = {"loss": sum(float(total) for total, _ in totals) / count, "regularization_loss": regularization}
        return results | {metric.name: float(metric.result()) for metric in engine.validation_metrics}

    def build(self, element_spec: Any) -> Engine:
        """Builds model, metrics, optimizer and compiled steps for batches of that structure; once.

        Args:
            element_spec: structure of (inputs, labels[, weights]).

        Returns:
            The compiled steps.
        """
        if self.engine is not None:
            return self.engine
        inputs, labels, _ = unpack(element_spec)
        if self.metrics is None:
            self.metrics = ["accuracy"] if self.task.classifies(labels) else []
        with self.place.scope():
            self._build_model(inputs)
            if self.train_only is not None:
                freeze_all_but(self.model, self.train_only)
            trainable = {id(variable) for variable in self.model.trainable_variables}
            variables = {name: v for name, v in named_variables(self.model).items() if id(v) in trainable}
            if not variables:
                raise ValueError("the model has no trainable variables; unfreeze some")
            kind, options = make_engine(self.place, self.jit_compile)
            self.engine = kind(
                self.model,
                self.optimizer,
                self.task,
                variables,
                StepSettings(
                    strategy=self.strategy,
                    schedule=self.schedule,
                    metrics=self._make_metrics(labels),
                    validation_metrics=self._make_metrics(labels),
                    clip_norm=self.clip_norm,
                    multipliers=by_name(self.multipliers, list(variables)),
                    accumulate=self.accumulate,
                    averages=self.averages,
                    jit_compile=self.jit_compile,
                    steps_per_call=self.steps_per_call,
                    sync_batch_norm=self.sync_batch_norm,
                    **options,
                ),
            )
        return self.engine

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide a run's numbers, as JSON values; compared at a resume."""
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        settings = {
            name: value for name, value in optimizer.get_config().items() if name not in ("name", "learning_rate")
        }
        schedule: Any = self.schedule
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            schedule = {"class": type(schedule).__name__, **schedule.get_config()}
        shapes = [(name, list(variable.shape)) for name, variable in named_variables(self.model).items()]
        own_names = hasattr(self.model, "variable_names")
        digest = hashlib.sha256(str(shapes if own_names else [shape for _, shape in shapes]).encode()).hexdigest()[:12]
        network = getattr(self.model, "network", type(self.model))
        model = {
            "network": network,
            "options": getattr(self.model, "options", {}),
            "variables": f"{len(shapes)}, {digest}",
        }
        rate = float(f"{self._first_rate:.7g}") if self._first_rate is not None else None
        averages = self.averages and {"decay": self.averages.decay, "num_updates": self.averages.num_updates}
        return plain(
            {
                "model": model,
                "dtype": self.model.dtype_policy.name,
                "optimizer": {"class": type(optimizer).__name__, **settings},
                "learning_rate": schedule or rate,
                **self.task.describe(),
                "clip_norm": self.clip_norm,
                "multipliers": self.multipliers,
                "train_only": self.train_only,
                "accumulate": self.accumulate,
                "averages": averages,
                "metrics": [metric if isinstance(metric, str) else metric.name for metric in self.metrics or ()],
                "seed": self.seed,
                **({"more": self.config} if self.config else {}),
            }
        )

    def _optimizer(self, optimizer: Any, rate: Any) -> tuple[keras.optimizers.Optimizer, Callable[[Any], Any] | None]:
        """The optimizer with a plain rate variable, and the schedule that sets it from the trainer's own step."""
        scaling = self.model.dtype_policy.compute_dtype == "float16"
        if isinstance(optimizer, str):
            first = 0.01 if rate is None else rate
            made = make_optimizer(optimizer, 0.0 if callable(first) else float(first), loss_scaling=scaling)
        else:
            if isinstance(optimizer, keras.optimizers.Optimizer):
                optimizer = optimizer_here(optimizer)
                inner = getattr(optimizer, "inner_optimizer", optimizer)
                given = learning_rate_of(inner)
                first = given if rate is None else rate
                if isinstance(given, keras.optimizers.schedules.LearningRateSchedule):
                    # The optimizer counts its own updates; the schedule must read the trainer's step instead.
                    inner = type(inner).from_config({**inner.get_config(), "learning_rate": 0.0})
                    optimizer = inner
            made = make_optimizer(optimizer, 0.0, loss_scaling=scaling)
        schedule = first if isinstance(first, keras.optimizers.schedules.LearningRateSchedule) else None
        if schedule is None and callable(rate):
            schedule = rate
        if schedule is None and not isinstance(optimizer, str) and rate is not None:
            made.learning_rate = float(rate)
        self._first_rate = None if schedule is not None else float(to_numpy(made.learning_rate))
        return made, schedule

    def _make_metrics(self, labels: Any) -> list[keras.metrics.Metric]:
        outputs = output_shape(self.model)
        one = outputs is not None and outputs.rank and outputs[-1] == 1
        threshold = (0.0 if self.task.from_logits else 0.5) if one else None
        return [make_metric(metric, labels, threshold) for metric in self.metrics or ()]

    def _build_model(self, inputs: Any) -> None:
        if self.model.built and self.model.weights:
            return
        sample = tf.nest.map_structure(lambda s: tf.zeros([1, *(size or 1 for size in s.shape[1:])], s.dtype), inputs)
        self.model(sample, training=False)

    def _tests(self, data: Any, batch: int | None) -> tf.data.Dataset:
        if isinstance(data, tf.data.Dataset):
            if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
                raise ValueError("the validation data has no end; use take()")
            return data
        if isinstance(data, tuple | list):
            if batch is None:
                raise ValueError("validation arrays are batched by the trainer: give it global_batch")
            return as_stream(data, batch_size=batch, shuffle=False)(0)
        return as_stream(data)(0)


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, received {value}")


def make_engine(place: Strategy, jit_compile: bool = False) -> tuple[type[Engine], dict[str, Any]]:
    """Returns the class of the steps, and the settings that are its own; ValueError where XLA cannot."""
    if jit_compile and isinstance(place, tf.distribute.MirroredStrategy):
        devices = place.extended.worker_devices
        if len(devices) > 1 and any("CPU" in device.upper() for device in devices):
            raise ValueError("XLA knows one CPU only: jit_compile goes with mirrored GPUs, not with logical CPUs")
    if jit_compile and isinstance(place, tf.distribute.ParameterServerStrategy):
        raise ValueError("XLA does not reach variables on parameter servers: leave jit_compile out")
    if isinstance(place, Towers):
        return TowerEngine, {"towers": place}
    if isinstance(place, tf.distribute.ParameterServerStrategy):
        from zoo.training.ps_engine import ParameterServerEngine

        return ParameterServerEngine, {}
    return Engine, {}


def check_summaries(place: Strategy, summaries: str) -> None:
    """Raises ValueError for summaries of what goes on inside a step that this process does not see."""
    if summaries == "all" and isinstance(place, tf.distribute.ParameterServerStrategy):
        raise ValueError("with parameter servers a step cannot be looked into: take summaries='scalars'")


def freeze_all_but(model: keras.Model, patterns: Sequence[str]) -> list[str]:
    """Freezes every layer or scope in which no variable matches; batch norm there uses its moving statistics.

    Returns the names of the variables that match. Raises ValueError for a pattern that matches nothing.
    """
    names = named_variables(model)
    chosen = select_names(names, patterns)
    kept = {id(names[name]) for name in chosen}
    layers = [layer for layer in layers_inside(model, include_self=False) if layer.weights]
    for layer in layers:
        if not any(id(variable) in kept for variable in layer.weights):
            layer.trainable = False
    left = {id(variable) for variable in model.trainable_variables} - kept
    for variable in names.values():
        if id(variable) in left:
            variable.trainable = False
    if not any(id(variable) in kept for variable in model.trainable_variables):
        raise ValueError(
            f"train_only={list(patterns)} matches only variables that are not trainable or frozen: {chosen[:5]}"
        )
    return chosen


def by_name(multipliers: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Gives each variable its factor; a pattern without a variable and a variable with two patterns are errors."""
    found: dict[str, float] = {}
    for pattern, factor in multipliers.items():
        for name in select_names(names, pattern):
            if name in found:
                both = [other for other in multipliers if name_matches(other, name)]
                raise ValueError(f"multipliers {both} both mean '{name}'; make the patterns exclude each other")
            found[name] = float(factor)
    return found


def make_metric(
    metric: str | keras.metrics.Metric, labels: Any, threshold: float | None = None
) -> keras.metrics.Metric:
    """A fresh Keras metric for labels of that kind; `threshold` is that of two classes told apart by one output."""
    if isinstance(metric, keras.metrics.Metric):
        return type(metric).from_config(metric.get_config())
    if metric not in ("accuracy", "top5"):
        try:
            found = keras.metrics.get(metric)
        except ValueError as error:
            raise ValueError(
                f"unknown metric '{metric}'; known are accuracy, top5, and Keras' names and objects"
            ) from error
        return found if isinstance(found, keras.metrics.Metric) else keras.metrics.MeanMetricWrapper(found, name=metric)
    sparse = not tf.is_tensor(labels) and getattr(labels, "dtype", tf.int64).is_integer
    if metric == "top5":
        kind = keras.metrics.SparseTopKCategoricalAccuracy if sparse else keras.metrics.TopKCategoricalAccuracy
        return kind(5, name="top5")
    if threshold is not None:
        return keras.metrics.BinaryAccuracy(threshold=threshold, name="accuracy")
    return (keras.metrics.SparseCategoricalAccuracy if sparse else keras.metrics.CategoricalAccuracy)(name="accuracy")
