"""``zoo train word_lm``: trains the word model on a folder of text, beside an n-gram baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

BASELINE_ORDER = 3


def train_words_settings(context: typer.Context) -> dict[str, Any]:
    """Picks the settings of ``zoo train`` that were given, because word_lm's defaults depend on its size.

    Args:
        context: Of the command.

    Returns:
        Those of epochs, batch and learning_rate that stand on the command line.

    Raises:
        ValueError: No ``--data`` was given.
    """
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if "data" not in given:
        raise ValueError("zoo train word_lm needs --data DIR: a folder with ptb.train.txt and so on, or any .txt files")
    return {name: context.params[name] for name in ("epochs", "batch", "learning_rate") if name in given}


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
    resume: bool = False,
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
        resume: Go on with the run in `out`.

    Returns:
        ``valid`` and ``test`` perplexity, and the baseline's on the test part as ``baseline``.

    Raises:
        ValueError: Text shorter than a batch, bad options.
        FileNotFoundError: No text.
    """
    import dataclasses

    import keras

    from zoo.data.ngram import NgramModel
    from zoo.data.text import load_corpus, text_stream
    from zoo.nets.word_lm import RECIPES, perplexity, summed_cross_entropy, word_lm
    from zoo.training import Trainer
    from zoo.weights.bundled import write_whole

    options = dict(options)
    word_lm.check_options(options)
    size = options.setdefault("size", "small")
    if size not in RECIPES:
        raise ValueError(f"--option size is one of {', '.join(RECIPES)}; got {size!r}")
    corpus = load_corpus(data, options.pop("vocab_size", 10_000))
    options["vocab_size"] = len(corpus.vocabulary)
    changes: dict[str, Any] = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "steps": steps}
    recipe = dataclasses.replace(RECIPES[size], **{name: value for name, value in changes.items() if value is not None})
    parts = {"train": recipe.batch, "valid": recipe.batch, "test": 1}  # rows of each
    for part, rows in parts.items():
        needed, found = rows * (recipe.steps + 1), len(getattr(corpus, part))
        if found < needed:
            raise ValueError(
                f"{data}: the {part} part has {found:,} words, but {rows} rows of {recipe.steps} words and their next "
                f"words need {needed:,}: give more text or a smaller --batch (a folder without ptb.train.txt, "
                "ptb.valid.txt and ptb.test.txt is one text, of which a twentieth is for validation)"
            )
    stream = text_stream(corpus.train, recipe.batch, recipe.steps, carry)
    tests = text_stream(corpus.valid, recipe.batch, recipe.steps, carry)
    keras.utils.set_random_seed(seed)
    model = word_lm(carry=recipe.batch, seed=seed, **options)
    parameters = sum(variable.numpy().size for variable in model.trainable_variables)
    typer.echo(
        f"word_lm {size}: {parameters:,} parameters; {len(corpus.train):,} words to train on, "
        f"{len(corpus.vocabulary):,} different"
    )
    trainer = Trainer(
        model,
        optimizer="sgd",
        learning_rate=recipe.schedule(stream.batches or 1),
        loss=summed_cross_entropy,
        metrics=(),
        clip_norm=recipe.clip_norm,
        seed=seed,
        config={"data": str(data), "carry": carry, "recipe": dataclasses.asdict(recipe)},
    )

    class Perplexities(keras.callbacks.Callback):
        """Prints both perplexities after every epoch."""

        def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            logs = logs or {}
            known = {part: math.exp(logs[key] / recipe.steps) for part, key in _LOSSES.items() if key in logs}
            typer.echo(f"epoch {epoch + 1}: perplexity {', '.join(f'{part} {v:.2f}' for part, v in known.items())}")

    trainer.fit(
        stream,
        epochs=recipe.epochs,
        validation=tests,
        folder=out,
        resume=True if resume else "auto",
        restore_best=False,
        callbacks=[Perplexities()],
        progress="none",
    )
    write_whole(out / "vocabulary.json", json.dumps(corpus.vocabulary.words, ensure_ascii=False).encode())
    ready = word_lm(seed=seed, **options)
    for name in ready.variable_names:
        ready.variable(name).assign(model.variable(name))
    ready.save(out / "model.keras")
    baseline = NgramModel(corpus.train, len(corpus.vocabulary), BASELINE_ORDER)
    results = {
        "valid": perplexity(ready, corpus.valid, recipe.batch, recipe.steps, carry=carry),
        "test": perplexity(ready, corpus.test, 1, recipe.steps, carry=carry),
        "baseline": baseline.perplexity(corpus.test),
    }
    write_whole(out / "perplexity.json", (json.dumps(results, indent=2) + "\n").encode())
    typer.echo(
        f"test perplexity {results['test']:.2f} (LSTM), {results['baseline']:.2f} ({BASELINE_ORDER}-gram with "
        f"back-off); the run is in {out}"
    )
    return results


_LOSSES = {"train": "loss", "valid": "val_loss"}
