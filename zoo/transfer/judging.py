"""The stage of judging: figures of the test part, or of other labelled pictures."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from zoo.data import pluralize
from zoo.data.scan import parse_limit, scan_images
from zoo.data.split import Split
from zoo.transfer.evaluation import Evaluation, evaluate
from zoo.transfer.head import Fitted
from zoo.transfer.run import Predictor, load_facts, load_predictor
from zoo.transfer.scan import Scanned
from zoo.transfer.split import Dealt


@dataclasses.dataclass(frozen=True)
class Judged:
    """How good the model is.

    Args:
        evaluation: Figures of the pictures it was judged by.
        part: Their set: "test", or "train" when there is no test picture.
        accuracies: Set -> accuracy, None for a set without pictures.
        held_out: Figures of all pictures, each answered by a head (on the trunk as it came) that did not see it; None
            where no picture can be judged so.
    """

    evaluation: Evaluation
    part: str
    accuracies: dict[str, float | None]
    held_out: Evaluation | None


def judge_model(scanned: Scanned, dealt: Dealt, fitted: Fitted) -> Judged:
    """Judges the model by the test part; by the training part when that is all there is."""
    classes, counts = scanned.classes, dealt.split.labels
    majority = max(classes, key=lambda label: (counts.get(label, {}).get("train", 0), label))
    part = "test" if dealt.sets["test"] else "train"
    table = np.stack([fitted.probabilities[key] for key in dealt.sets[part]])
    evaluation = evaluate(table, scanned.labels_of(dealt.sets[part]), classes, majority_class=majority)
    accuracies = {name: _accuracy(fitted.probabilities, keys, scanned) for name, keys in dealt.sets.items()}
    keys = list(fitted.held_out) if len(fitted.held_out) > len(dealt.sets["test"]) else []
    held_out = None
    if keys:
        table = np.stack([fitted.held_out[key] for key in keys])
        held_out = evaluate(table, scanned.labels_of(keys), classes, majority_class=majority)
    return Judged(evaluation, part, accuracies, held_out)


def _accuracy(probabilities: Mapping[str, np.ndarray], keys: Sequence[str], scanned: Scanned) -> float | None:
    if not keys:
        return None
    return sum(int(probabilities[key].argmax()) == scanned.label_of[key] for key in keys) / len(keys)


def judge(
    run: str | Path, images: str | os.PathLike[str], *, batch_size: int = 16, max_bad: float | str = "1%"
) -> tuple[Evaluation, dict[str, int]]:
    """Evaluates the model of a finished run.

    Args:
        run: The run folder.
        images: A folder with a folder a class, or a CSV of path,label.
        batch_size: Pictures at a time.
        max_bad: How many bad files are acceptable.

    Returns:
        The evaluation, and how many of the pictures were in the run's parts "train" (which fitted the model) and
        "validation" (which calibrated it, and judged fine-tuning).

    Raises:
        ValueError: A class that the model does not know, or too many bad files.
        FileNotFoundError: The run or the pictures are not there.
    """
    majority = load_facts(run)["evaluation"]["majority_class"]
    return judge_pictures(
        load_predictor(run), images, Path(run), batch_size=batch_size, max_bad=max_bad, majority_class=majority
    )


def judge_pictures(
    predictor: Predictor,
    images: str | os.PathLike[str],
    run: Path,
    *,
    batch_size: int = 16,
    max_bad: float | str = "1%",
    majority_class: str | None = None,
) -> tuple[Evaluation, dict[str, int]]:
    """Does the same with the model of any run; the run's ``split.json`` says which pictures it knows."""
    scan = scan_images(images, background=predictor.reader.background, orient=predictor.reader.orient)
    class_numbers(scan.labels, predictor.classes)
    if len(scan.bad) > parse_limit(max_bad, len(scan.bad) + len(scan.pictures)):
        first = scan.bad[0]
        raise ValueError(
            f"{pluralize(len(scan.bad), 'bad file', 'bad files')}, more than --max-bad {max_bad} allows; the first is "
            f"{first.name}: {first.reason}: {first.detail}"
        )
    labels = np.array([predictor.classes.index(p.label) for p in scan.pictures], np.int64)
    parts = []
    for start in range(0, len(scan.pictures), batch_size):
        parts.append(predictor([Path(p.path).read_bytes() for p in scan.pictures[start : start + batch_size]]))
    path = run / "split.json"
    sets = Split.load(path).sets if path.is_file() else {}
    known = {part: sum(sets.get(p.sha256) == part for p in scan.pictures) for part in ("train", "validation")}
    return evaluate(np.concatenate(parts), labels, predictor.classes, majority_class=majority_class), known


def class_numbers(labels: Sequence[str], classes: Sequence[str]) -> list[int]:
    """Returns the model's number of each label.

    Raises:
        ValueError: A label that the model does not know.
    """
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise ValueError(
            f"The model does not know the class {', '.join(unknown)}; its classes are {', '.join(classes)}."
        )
    return [list(classes).index(label) for label in labels]
