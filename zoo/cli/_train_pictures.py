"""``zoo train`` of a network for pictures: data, trainer, run folder, and what is said at the end."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from zoo.cli._options import flags
from zoo.cli._train_data import DATA_LICENCES, DataOptions, TrainData, load
from zoo.cli._train_options import Job
from zoo.cli._train_run import is_left, leave

if TYPE_CHECKING:
    import numpy as np

    from zoo.training import History, Trainer

# What a search for the learning rate makes no use of.
_NOT_FOR_FIND_LR = {
    *("epochs", "learning_rate", "schedule", "warmup_steps", "averages", "validate_every", "patience"),
    *("resume", "accept_changes", "checkpoint_steps", "checkpoint_minutes", "keep", "keep_every_hours", "summaries"),
    *("profile", "progress", "licence"),
}


def train_pictures(job: Job) -> None:
    """Trains the job's network and leaves everything in its run folder."""
    about = DataOptions(**vars(job.data), batch=job.learning.batch, seed=job.learning.seed, given=job.given)
    found = _load(job, about)
    model, place = _make_model(job, found)
    reader = _describe_classes(model, found)
    typer.echo(f"{job.network.spec.name}: {model.count_params():,} parameters; {about.data}: {found}")
    trainer = _make_trainer(job, about, found, model, place)
    job.refuse_other_files()
    if job.watching.find_lr:
        if ignored := sorted(job.given & _NOT_FOR_FIND_LR):
            typer.echo(f"zoo: --find-lr trains nothing, so {flags(ignored)} has no part in it", err=True)
        _find_lr(trainer, found.train, job.folder, job.sharing.writes)
        return
    started = time.perf_counter()
    history = trainer.fit(
        found.train,
        epochs=job.learning.epochs,
        validation=found.validation,
        validate_every=job.watching.validate_every,
        patience=job.watching.patience,
        restore_best=found.validation is not None,
        **job.fit_settings(about.unused),
    )
    job.sharing.done()
    if not job.sharing.writes:
        return
    if history.first_step == history.step and is_left(job.folder, history.step):
        typer.echo(f"{history.stopped}: nothing was trained, and the run in {job.folder} stays as it is")
        return
    if trainer.averages is not None:
        trainer.averages.to_weights()
    said = _leave(job, about, found, model, history, reader)
    typer.echo(f"{said}; this took {time.perf_counter() - started:.0f} s; the run is in {job.folder}")


def _load(job: Job, about: DataOptions) -> TrainData:
    """Loads the data, and refuses lengths and choices that do not fit it."""
    spec, options = job.network.spec, job.options
    found = load(about, spec.input_shape(options), spec.preprocessing, options.get("num_classes"))
    learning, images, batches = job.learning, found.train.examples, found.train.batches
    if images is not None and learning.batch > images:
        raise ValueError(
            f"--batch {learning.batch} is more than the {images:,} images to train on: give at most {images}"
        )
    if batches is not None and 0 < learning.epochs * batches <= learning.warmup_steps:
        raise ValueError(
            f"--warmup-steps {learning.warmup_steps} is no less than the run's {learning.epochs * batches:,} steps "
            f"({learning.epochs} epochs of {batches:,}), whose rate would only rise: give fewer, or more --epochs"
        )
    if found.validation is None and about.validation:
        more = ": zoo tfrecord build --validation 0.1 writes one" if about.kind == "records" else ""
        typer.echo(f"zoo: {about.data} has no validation part{more}; the last model is kept", err=True)
    if job.watching.patience is not None and found.validation is None:
        raise ValueError("--patience chooses a model by a validation part, and there is none; give --validation 0.1")
    if options.get("num_classes", spec.num_classes) != len(found.class_names):
        options["num_classes"] = len(found.class_names)
    return found


def _make_model(job: Job, found: TrainData) -> tuple[Any, Any]:
    """Builds the model where the devices are that share the work; returns both."""
    import keras
    import tensorflow as tf

    learning = job.learning
    if learning.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(learning.seed)
    place = job.sharing.make()
    with job.sharing.scope(place):
        model = job.network(seed=learning.seed, dtype=learning.precision, **job.options)
    job.sharing.show(model.weights)
    return model, place


def _make_trainer(job: Job, about: DataOptions, found: TrainData, model: Any, place: Any) -> "Trainer":
    from zoo.training import Trainer

    learning, spec = job.learning, job.network.spec
    aux = {name: weight for name, weight in spec.aux_weights.items() if name in model.end_point_specs}
    return Trainer(
        model,
        optimizer=learning.optimizer,
        learning_rate=_schedule(job, found.train.batches or 1),
        label_smoothing=learning.label_smoothing,
        aux_losses=aux or None,
        clip_norm=learning.clip_norm,
        averages=learning.averages,
        train_only=learning.train_only,
        accumulate=learning.accumulate,
        steps_per_call=learning.steps_per_call,
        jit_compile=learning.jit_compile,
        global_batch=learning.batch,
        strategy=place,
        sync_batch_norm=job.sharing.sync_batch_norm,
        seed=learning.seed,
        config={
            "net": spec.name,
            "data": about.data,
            "split": about.split,
            "validation": 0.0 if "validation" in about.unused else about.validation,
            "augment": about.augment,
        },
    )


def _leave(job: Job, about: DataOptions, found: TrainData, model: Any, history: "History", reader: Any) -> str:
    """Writes what a finished run leaves; returns what there is to say of it."""
    from zoo.weights.bundled import pictures_of

    set_of = {"data": about.data, "split": None if "split" in about.unused else about.split}
    run: Mapping[str, Any] = {"net": job.network.spec.name, "options": job.options, "data": set_of}
    licence = f"weights: {job.run.licence}; {DATA_LICENCES.get(about.data, 'data: not stated')}"
    card = {**run, "seed": job.learning.seed, "licence": licence}
    if "input_range" in model.card:
        pictures = pictures_of(_some_pictures(found), f"the pictures of {Path(about.data).name}")
        card, model.card = {**card, "pictures": pictures}, {**model.card, "pictures": pictures}
    evaluation = leave(model, job.folder, history, run, found, reader, card)
    part = "test" if found.test else "validation"
    accuracy = None if evaluation is None else evaluation.accuracy
    chosen = f"the best of {history.step} steps is {history.best_step}, " if found.validation else ""
    measured = f"{part} accuracy {accuracy:.4f}" if accuracy is not None else "no part to measure accuracy on,"
    return f"{history.stopped}: {chosen}{measured} after {history.step} steps"


def _some_pictures(found: TrainData, count: int = 512) -> "Iterator[np.ndarray]":
    """As prepared for the network, unchanged where a part besides the training part has them."""
    for inputs, _ in (found.validation or found.test or found.train)(0):
        yield inputs.numpy().astype("float32")
        count -= len(inputs)
        if count <= 0:
            return


def _describe_classes(model: Any, found: TrainData) -> Any:
    """Writes into the model's card what its classes are called and how pictures become inputs; returns the reader."""
    from zoo.data.preprocessing import Preprocessing
    from zoo.transfer.reader import Reader

    reader, own = found.reader, model.card.get("preprocessing")
    if reader is None and own is not None:
        reader = Reader(Preprocessing.from_dict(own), fit="stretch")
    known: dict[str, Any] = {"class_names": list(found.class_names)}
    if reader is not None:
        ready = reader.preprocessing
        known |= {"preprocessing": ready.to_dict(), "input_range": list(ready.value_range)}
    model.card = {**model.card, **known}
    return reader


def _schedule(job: Job, batches: int) -> Any:
    """The learning rate as a function of the step, over the whole run."""
    from zoo.training import make_schedule

    learning = job.learning
    steps = max(1, learning.epochs * batches - learning.warmup_steps)
    more: dict[str, dict[str, Any]] = {
        "constant": {},
        "cosine": {"decay_steps": steps},
        "polynomial": {"decay_steps": steps, "end_learning_rate": 0.0},
        "exponential": {"decay_steps": 2 * batches},
        "per_epoch": {"steps_per_epoch": batches},
    }
    rate, warmup = learning.learning_rate, learning.warmup_steps
    return make_schedule(learning.schedule, learning_rate=rate, warmup_steps=warmup, **more[learning.schedule])


def _find_lr(trainer: "Trainer", stream: Any, folder: Path, writes: bool) -> None:
    from zoo.training import find_learning_rate

    found = find_learning_rate(trainer, stream)  # all workers have their part in it
    if not writes:
        return
    folder.mkdir(parents=True, exist_ok=True)
    found.write(folder / "lr_finder.csv")
    picture = found.plot(folder / "lr_finder.png")
    typer.echo(
        f"the loss falls fastest at a learning rate of {found.suggestion:.2g} (tried {found.rates[0]:.1g} to "
        f"{found.rates[-1]:.2g}); see {picture}"
    )
