"""The folder of a finished ``zoo train``: what it leaves, and how ``predict``, ``evaluate`` and ``report`` read it."""

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.files import read_json, read_versioned, reading, replacing, write_whole

if TYPE_CHECKING:
    from zoo.data.stream import Stream
    from zoo.transfer.evaluation import Evaluation
    from zoo.transfer.run import Predictor

FORMAT = 1


def kind_of_run(folder: str | Path) -> str:
    """Says what run a folder holds.

    Returns:
        "retrain" or "train" for a finished run of that command, "words" for one of ``zoo train word_lm``, "before" for
        one of ``zoo train`` that an earlier zoo finished, "unfinished", or "" for no run.

    Raises:
        ValueError: Its ``run.json`` is damaged.
    """
    folder = Path(folder)
    if (folder / "run.json").is_file():
        facts = read_json(folder / "run.json")
        return str(facts.get("kind", "retrain")) if isinstance(facts, dict) else "retrain"
    if (folder / "vocabulary.json").is_file():
        return "words"
    if (folder / "weights.json").is_file() and (folder / "model.keras").is_file():
        card = read_json(folder / "weights.json")
        if not isinstance(card, dict) or "segments" not in card:  # else a process was killed before it wrote run.json
            return "before"
    return "unfinished" if folder.is_dir() and any(folder.glob("model.ckpt-*")) else ""


def is_left(folder: Path, step: int) -> bool:
    """Says whether a run's folder has all that `leave` writes for the model of its last step."""
    kind = kind_of_run(folder)
    return kind == "before" or (kind == "train" and load_train_facts(folder)["steps"] == step)


def refuse_other_runs(folder: Path, kind: str) -> None:
    """Raises ValueError, with what to do, for a run whose classes nobody knows."""
    if kind == "words":
        raise ValueError(f"{folder} is a run of zoo train word_lm, which writes text: zoo generate {folder}")
    if kind == "before":
        raise ValueError(
            f"{folder} is of an earlier zoo, which kept no class names: zoo predict NET PICTURE --weights "
            f"{folder / 'weights.safetensors'} reads it, --labels FILE names its classes"
        )
    if kind == "unfinished":
        steps = [path.name.rpartition("-")[2] for path in folder.glob("model.ckpt-*")]
        newest = folder / f"model.ckpt-{max((int(step) for step in steps if step.isdecimal()), default=0)}"
        raise ValueError(
            f"{folder} is a run that is not finished: give its command again, or take a checkpoint: "
            f"zoo predict NET PICTURE --weights {newest}"
        )


def load_train_facts(folder: str | Path) -> dict[str, Any]:
    """Reads a finished run's ``run.json``.

    Raises:
        ValueError: It is damaged, or a newer zoo wrote it.
    """
    path = Path(folder) / "run.json"
    facts = read_versioned(path, FORMAT, "the record of a training run")
    with reading(path, "the record of a training run"):
        if not all(isinstance(name, str) for name in facts["classes"]):
            raise ValueError("classes are names")
        return {
            name: facts[name] for name in ("net", "data", "classes", "reader", "judged", "evaluation", "steps")
        } | facts


def load_train_predictor(folder: str | Path) -> "Predictor":
    """Loads the model of a finished run, to predict pictures with.

    Raises:
        ValueError: The run is damaged, or its network does not take pictures.
        FileNotFoundError: Its ``model.keras`` is gone.
    """
    from zoo.scoping import load_model
    from zoo.transfer.reader import Reader
    from zoo.transfer.run import Predictor

    facts = load_train_facts(folder)
    path = Path(folder) / "model.keras"
    if facts["reader"] is None:
        raise ValueError(f"{folder}: {facts['net']} does not say how pictures become its inputs")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there; delete {Path(folder) / 'run.json'}, and zoo train writes both anew"
        )
    return Predictor(load_model(path), Reader.from_dict(facts["reader"]), tuple(facts["classes"]))


def judge_stream(
    model: Any, stream: "Stream", classes: Sequence[str], numbers: Sequence[int] | None = None
) -> "Evaluation":
    """Measures a model on one pass over a stream of (inputs, labels).

    Args:
        model: Gives logits [N, K].
        stream: The data.
        classes: The K classes.
        numbers: Class of the model for each label of the data; None where they are the same.
    """
    import numpy as np
    import tensorflow as tf

    from zoo.transfer.evaluation import evaluate

    tables, labels = [], []
    for inputs, batch_labels in stream(0):
        logits = tf.cast(model.predict_on_batch(inputs), tf.float32)
        tables.append(tf.nn.softmax(logits).numpy().astype("float64"))
        labels.append(batch_labels.numpy())
    found = np.concatenate(labels)
    return evaluate(np.concatenate(tables), found if numbers is None else np.asarray(numbers)[found], classes)


def leave(
    model: Any, folder: Path, history: Any, about: Mapping[str, Any], found: Any, reader: Any, card: Mapping[str, Any]
) -> "Evaluation | None":
    """Writes what a finished run leaves: model, weights with their card, curves, and last of all ``run.json``.

    The test part is measured here, once, with the model as it was written; the validation part where there is none.

    Args:
        model: Trained.
        folder: Of the run.
        history: What `Trainer.fit` returned.
        about: What ``run.json`` says of the run besides.
        found: The data (`zoo.cli._train_data.TrainData`).
        reader: How picture files become inputs; None where that is not known.
        card: What the weights' card says besides.

    Returns:
        The evaluation; None without a part to measure on.
    """
    from zoo.scoping import load_model
    from zoo.weights import bundled

    with replacing(folder / "model.keras", ".keras") as temporary:
        model.save(temporary)
    measured, judged = (found.test, "test") if found.test else (found.validation, "validation")
    evaluation = None
    if measured is not None:
        evaluation = judge_stream(load_model(folder / "model.keras"), measured, found.class_names)
    made = {"segments": history.segments, "versions": _versions()}
    if len(history.segments) == 1:
        made = {"recipe": history.segments[0]["recipe"], **made}
    accuracy = evaluation.accuracy if evaluation is not None else None
    more = {"accuracy": None if accuracy is None else round(accuracy, 4), "class_names": list(found.class_names)}
    if reader is not None:
        more["preprocessing"] = reader.preprocessing.to_dict()
    bundled.save(model, folder / "weights.safetensors", {**card, **made, **more})
    if found.split is not None:
        found.split.save(folder / "split.json")
    _draw_curves(history.lines, folder / "curves.png")
    facts = {
        "format": FORMAT,
        "kind": "train",
        **about,
        "classes": list(found.class_names),
        "reader": None if reader is None else reader.to_dict(),
        "judged": judged if evaluation is not None else None,
        "evaluation": None if evaluation is None else evaluation.to_dict(),
        "steps": history.step,
        "best_step": history.best_step if found.validation else None,
        "segments": history.segments,
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / "run.json", text)
    return evaluation


def _draw_curves(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws loss and accuracy by epoch, in training and in validation, from the lines of metrics.jsonl."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for kind, key, label in (("train", metric, "training"), ("validation", f"val_{metric}", "validation")):
            chosen = [line for line in lines if line["kind"] == kind and line.get(key) is not None]
            axes.plot([line["step"] for line in chosen], [line[key] for line in chosen], label=label, marker=".")
        axes.set(xlabel="step", ylabel=metric)
        axes.grid(alpha=0.3)
        axes.legend()
    with replacing(path, path.suffix) as temporary:
        figure.savefig(temporary, dpi=120)


def _versions() -> dict[str, str]:
    """The versions of what decides the result of a training run."""
    return {name: metadata.version(name) for name in ("scoped-zoo", "tensorflow", "keras", "numpy", "scikit-learn")}
