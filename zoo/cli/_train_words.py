"""``zoo train`` of a word model: on a folder of text, beside an n-gram baseline."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from zoo.cli._options import flags
from zoo.cli._train_options import DECIDED, Job
from zoo.files import replacing, write_whole

if TYPE_CHECKING:
    from zoo.data.text import Corpus
    from zoo.nets.word_lm import Recipe

BASELINE_ORDER = 3
_TAKES = (
    *("epochs", "batch", "learning_rate", "precision", "steps_per_call", "deterministic", "accept_changes"),
    *("checkpoint_steps", "checkpoint_minutes", "keep", "keep_every_hours", "summaries", "progress"),
)


def check_options(job: Job) -> None:
    """Refuses what a word model takes no part of: the recipe of its size says how it learns."""
    name = job.network.spec.name
    if "data" not in job.chosen:
        raise ValueError(f"zoo train {name} needs --data DIR: a folder with ptb.train.txt and so on, or any .txt files")
    if refused := job.refused():
        raise ValueError(
            f"zoo train {name} takes no {flags(refused)}: the recipe of its size says how it learns. It takes "
            f"{flags(_TAKES)}; for more use the Trainer in Python"
        )


def train_words(job: Job) -> None:
    """Trains the job's word model and leaves model, vocabulary, checkpoints, metrics and perplexities in a run folder.

    Raises:
        ValueError: Text shorter than a batch, a batch that does not divide, bad options.
        FileNotFoundError: No text.
    """
    import keras
    import tensorflow as tf

    from zoo.data.text import load_corpus, text_stream
    from zoo.parallel.strategies import worker_count
    from zoo.training import Trainer

    job.refuse_other_files()
    data, learning, sharing, network = Path(job.data.data), job.learning, job.sharing, job.network
    options, recipe = _size(job)
    corpus = load_corpus(data, options.pop("vocab_size", 10_000))
    options["vocab_size"] = len(corpus.vocabulary)
    if learning.deterministic:
        tf.config.experimental.enable_op_determinism()
    place = sharing.make()
    _check_lengths(data, corpus, recipe, place)
    stream = text_stream(corpus.train, recipe.batch, recipe.steps, True, worker_count(place))
    tests = text_stream(corpus.valid, recipe.batch, recipe.steps, True)
    keras.utils.set_random_seed(learning.seed)
    with sharing.scope(place):
        model = network(carry=recipe.batch, seed=learning.seed, dtype=learning.precision, **options)
    sharing.show(model.weights)
    parameters = sum(variable.numpy().size for variable in model.trainable_variables)
    typer.echo(
        f"{network.spec.name} {options['size']}: {parameters:,} parameters; {len(corpus.train):,} words to train on, "
        f"{len(corpus.vocabulary):,} different"
    )
    settings = dataclasses.asdict(recipe)
    del settings["epochs"]  # more of them go on along the same schedule
    trainer = Trainer(
        model,
        optimizer="sgd",
        learning_rate=recipe.schedule(stream.batches or 1),
        loss=network.spec.loss,
        metrics=(),
        clip_norm=recipe.clip_norm,
        strategy=place,
        steps_per_call=learning.steps_per_call,
        seed=learning.seed,
        config={"data": str(data), "carry": True, "recipe": settings},
    )
    fit = job.fit_settings(job.context.params.keys() - job.given)
    if "progress" not in job.chosen:
        fit["progress"] = "none"
    told = [_perplexities(recipe)]
    history = trainer.fit(stream, epochs=recipe.epochs, validation=tests, restore_best=False, callbacks=told, **fit)
    sharing.done()
    if not sharing.writes:
        return
    if history.first_step == history.step and (job.folder / "perplexity.json").is_file():
        typer.echo(f"{history.stopped}: nothing was trained, and the run in {job.folder} stays as it is")
        return
    _leave(job, model, options, corpus, recipe)


def _size(job: Job) -> tuple[dict[str, Any], Recipe]:
    """The network's options, checked, and the recipe of its size with what was given instead."""
    from zoo.nets.word_lm import RECIPES
    from zoo.rnn.checks import check_units

    options = dict(job.options)
    size = options.setdefault("size", "small")
    if size not in RECIPES:
        raise ValueError(f"--option size is one of {', '.join(RECIPES)}; got {size!r}")
    if "carry" in options:
        name = job.network.spec.name
        raise ValueError(f"zoo train {name} carries the state of --batch rows by itself: leave --option carry out")
    for option in ("hidden", "num_layers", "vocab_size"):
        if options.get(option) is not None:
            check_units(options[option], f"--option {option}")
    known = {one.name for one in dataclasses.fields(RECIPES[size])} & job.chosen & set(DECIDED)
    return options, dataclasses.replace(RECIPES[size], **{name: getattr(job.learning, name) for name in known})


def _check_lengths(data: Path, corpus: Corpus, recipe: Recipe, place: Any) -> None:
    """Refuses rows that the devices cannot share, and text that is shorter than a batch."""
    from zoo.parallel.strategies import replica_count, worker_count

    replicas = 1 if place is None else replica_count(place)
    if recipe.batch % replicas:
        raise ValueError(
            f"a batch of {recipe.batch} rows does not divide by the {replicas} devices that share it, of which each "
            f"owns fixed rows of the carried state: give a --batch that is a multiple of {replicas}"
        )
    for part, rows in {"train": worker_count(place) * recipe.batch, "valid": recipe.batch, "test": 1}.items():
        needed, found = rows * (recipe.steps + 1), len(getattr(corpus, part))
        if found < needed:
            raise ValueError(
                f"{data}: the {part} part has {found:,} words, but {rows} rows of {recipe.steps} words and their next "
                f"words need {needed:,}: give more text or a smaller --batch (a folder without ptb.train.txt, "
                "ptb.valid.txt and ptb.test.txt is one text, of which a twentieth is for validation)"
            )


def _perplexities(recipe: Recipe) -> Any:
    """A callback that prints both perplexities after every epoch."""
    import keras

    class Perplexities(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            logs = logs or {}
            losses = {part: logs[key] / recipe.steps for part, key in _LOSSES.items() if key in logs}
            known = {part: math.exp(loss) if loss < 700 else math.inf for part, loss in losses.items()}
            typer.echo(f"epoch {epoch + 1}: perplexity {', '.join(f'{part} {v:.2f}' for part, v in known.items())}")

    return Perplexities()


_LOSSES = {"train": "loss", "valid": "val_loss"}


def _leave(job: Job, model: Any, options: Mapping[str, Any], corpus: Corpus, recipe: Recipe) -> None:
    """Writes vocabulary, model (without rows of state) and the perplexities of all parts beside the baseline's."""
    from zoo.data.ngram import NgramModel
    from zoo.nets.word_lm import perplexity

    out = job.folder
    write_whole(out / "vocabulary.json", json.dumps(corpus.vocabulary.words, ensure_ascii=False))
    ready = job.network(seed=job.learning.seed, **options)
    for name in ready.variable_names:
        ready.variable(name).assign(model.variable(name))
    with replacing(out / "model.keras", ".keras") as temporary:
        ready.save(temporary)
    baseline = NgramModel(corpus.train, len(corpus.vocabulary), BASELINE_ORDER)
    results = {
        "valid": perplexity(ready, corpus.valid, recipe.batch, recipe.steps, carry=True),
        "test": perplexity(ready, corpus.test, 1, recipe.steps, carry=True),
        "baseline": baseline.perplexity(corpus.test),
    }
    write_whole(out / "perplexity.json", json.dumps(results, indent=2) + "\n")
    typer.echo(
        f"test perplexity {results['test']:.2f} (LSTM), {results['baseline']:.2f} ({BASELINE_ORDER}-gram with "
        f"back-off); the run is in {out}"
    )
