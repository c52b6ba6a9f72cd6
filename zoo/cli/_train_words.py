"""``zoo train word_lm``: trains the word model on a folder of text, beside an n-gram baseline."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from zoo.cli._options import flags, given_options
from zoo.cli._sharing import Sharing
from zoo.files import read_json, replacing, write_whole

BASELINE_ORDER = 3


# What `Trainer.fit` takes, what `train_words` takes itself, and what the recipe of a size decides.
_FIT = (
    "accept_changes",
    "checkpoint_steps",
    "checkpoint_minutes",
    "keep",
    "keep_every_hours",
    "summaries",
    "progress",
)
_OWN = ("epochs", "batch", "learning_rate", "precision", "steps_per_call", "deterministic")
_FIXED = (
    "data_dir", "download", "split", "on_damage", "validation", "augment", "optimizer", "schedule", "warmup_steps",
    "label_smoothing", "clip_norm", "averages", "train_only", "accumulate", "jit_compile", "validate_every",
    "patience", "find_lr", "licence",
)  # fmt: skip


def train_words_settings(context: typer.Context) -> dict[str, Any]:
    """Picks the settings of ``zoo train`` that were given, because word_lm's defaults depend on its size.

    Args:
        context: Of the command.

    Returns:
        What `train_words` takes.

    Raises:
        ValueError: No ``--data`` was given, or a setting that word_lm does not take.
    """
    given = given_options(context)
    if "data" not in given:
        raise ValueError("zoo train word_lm needs --data DIR: a folder with ptb.train.txt and so on, or any .txt files")
    fixed = [name for name in _FIXED if name in given]
    if fixed:
        raise ValueError(
            f"zoo train word_lm takes no {flags(fixed)}: the recipe of its size says how it learns. It takes "
            f"{flags((*_OWN, *_FIT))}; for more use the Trainer in Python"
        )
    return {name: context.params[name] for name in (*_OWN, *_FIT) if name in given}


def train_words(
    data: Path,
    options: Mapping[str, Any],
    out: Path,
    *,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    steps: int | None = None,
    carry: bool = True,
    seed: int = 0,
    resume: bool | str = "auto",
    precision: str = "float32",
    steps_per_call: int = 1,
    deterministic: bool = False,
    sharing: Sharing | None = None,
    **fit: Any,
) -> dict[str, float]:
    """Trains `word_lm` and leaves model, vocabulary, checkpoints and metrics in a run folder.

    Args:
        data: Folder of text, see `zoo.data.text.load_corpus`.
        options: Options of the network; ``vocab_size`` bounds the vocabulary.
        out: Run folder.
        epochs: Default that of the size.
        batch: Rows; default 20.
        learning_rate: Default 1.0.
        steps: Words a row and batch; default that of the size.
        carry: Whether the state goes on from batch to batch.
        seed: The same seed gives the same weights.
        resume: Go on with the run in `out`; False refuses one, "auto" goes on where there is one.
        precision: Keras' dtype policy.
        steps_per_call: Steps run in one call.
        deterministic: Only ops that repeat bit for bit.
        sharing: How devices share each batch; None for one device.
        **fit: More settings of `Trainer.fit`.

    Returns:
        ``valid`` and ``test`` perplexity, and the baseline's on the test part as ``baseline``; nothing in a process
        that does not write.

    Raises:
        ValueError: Text shorter than a batch, a batch that does not divide, bad options.
        FileNotFoundError: No text.
    """
    import dataclasses

    import keras
    import tensorflow as tf

    from zoo.data.ngram import NgramModel
    from zoo.data.text import load_corpus, text_stream
    from zoo.nets.word_lm import RECIPES, perplexity, summed_cross_entropy, word_lm
    from zoo.parallel.strategies import replica_count, worker_count
    from zoo.rnn.checks import check_units
    from zoo.training import Trainer

    options = dict(options)
    word_lm.check_options(options)
    size = options.setdefault("size", "small")
    if size not in RECIPES:
        raise ValueError(f"--option size is one of {', '.join(RECIPES)}; got {size!r}")
    if "carry" in options:
        raise ValueError("zoo train word_lm carries the state of --batch rows by itself: leave --option carry out")
    for name in ("hidden", "num_layers", "vocab_size"):
        if options.get(name) is not None:
            check_units(options[name], f"--option {name}")
    corpus = load_corpus(data, options.pop("vocab_size", 10_000))
    options["vocab_size"] = len(corpus.vocabulary)
    changes: dict[str, Any] = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "steps": steps}
    recipe = dataclasses.replace(RECIPES[size], **{name: value for name, value in changes.items() if value is not None})
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    place = sharing.make() if sharing is not None else None
    replicas, workers = 1 if place is None else replica_count(place), worker_count(place)
    if recipe.batch % replicas:
        raise ValueError(
            f"a batch of {recipe.batch} rows does not divide by the {replicas} devices that share it, of which each "
            f"owns fixed rows of the carried state: give a --batch that is a multiple of {replicas}"
        )
    parts = {"train": workers * recipe.batch, "valid": recipe.batch, "test": 1}  # rows of each
    for part, rows in parts.items():
        needed, found = rows * (recipe.steps + 1), len(getattr(corpus, part))
        if found < needed:
            raise ValueError(
                f"{data}: the {part} part has {found:,} words, but {rows} rows of {recipe.steps} words and their next "
                f"words need {needed:,}: give more text or a smaller --batch (a folder without ptb.train.txt, "
                "ptb.valid.txt and ptb.test.txt is one text, of which a twentieth is for validation)"
            )
    stream = text_stream(corpus.train, recipe.batch, recipe.steps, carry, workers)
    tests = text_stream(corpus.valid, recipe.batch, recipe.steps, carry)
    keras.utils.set_random_seed(seed)
    with contextlib.nullcontext() if place is None else place.scope():
        model = word_lm(carry=recipe.batch, seed=seed, dtype=precision, **options)
    if sharing is not None:
        sharing.show(model.weights)
    parameters = sum(variable.numpy().size for variable in model.trainable_variables)
    typer.echo(
        f"word_lm {size}: {parameters:,} parameters; {len(corpus.train):,} words to train on, "
        f"{len(corpus.vocabulary):,} different"
    )
    settings = dataclasses.asdict(recipe)
    del settings["epochs"]  # more of them go on along the same schedule
    trainer = Trainer(
        model,
        optimizer="sgd",
        learning_rate=recipe.schedule(stream.batches or 1),
        loss=summed_cross_entropy,
        metrics=(),
        clip_norm=recipe.clip_norm,
        strategy=place,
        steps_per_call=steps_per_call,
        seed=seed,
        config={"data": str(data), "carry": carry, "recipe": settings},
    )

    class Perplexities(keras.callbacks.Callback):
        """Prints both perplexities after every epoch."""

        def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            logs = logs or {}
            losses = {part: logs[key] / recipe.steps for part, key in _LOSSES.items() if key in logs}
            known = {part: math.exp(loss) if loss < 700 else math.inf for part, loss in losses.items()}
            typer.echo(f"epoch {epoch + 1}: perplexity {', '.join(f'{part} {v:.2f}' for part, v in known.items())}")

    history = trainer.fit(
        stream,
        epochs=recipe.epochs,
        validation=tests,
        folder=out,
        resume=resume,
        restore_best=False,
        callbacks=[Perplexities()],
        **{"progress": "none", **fit},
    )
    if sharing is not None:
        sharing.done()
        if not sharing.writes:
            return {}
    if history.first_step == history.step and (out / "perplexity.json").is_file():
        typer.echo(f"{history.stopped}: nothing was trained, and the run in {out} stays as it is")
        return dict(read_json(out / "perplexity.json"))
    write_whole(out / "vocabulary.json", json.dumps(corpus.vocabulary.words, ensure_ascii=False))
    ready = word_lm(seed=seed, **options)
    for name in ready.variable_names:
        ready.variable(name).assign(model.variable(name))
    with replacing(out / "model.keras", ".keras") as temporary:
        ready.save(temporary)
    baseline = NgramModel(corpus.train, len(corpus.vocabulary), BASELINE_ORDER)
    results = {
        "valid": perplexity(ready, corpus.valid, recipe.batch, recipe.steps, carry=carry),
        "test": perplexity(ready, corpus.test, 1, recipe.steps, carry=carry),
        "baseline": baseline.perplexity(corpus.test),
    }
    write_whole(out / "perplexity.json", json.dumps(results, indent=2) + "\n")
    typer.echo(
        f"test perplexity {results['test']:.2f} (LSTM), {results['baseline']:.2f} ({BASELINE_ORDER}-gram with "
        f"back-off); the run is in {out}"
    )
    return results


_LOSSES = {"train": "loss", "valid": "val_loss"}
