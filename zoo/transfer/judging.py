"""Evaluation of a finished run on other labelled pictures."""

import os
from pathlib import Path

import numpy as np

from zoo.data.scan import parse_limit, scan_images
from zoo.data.split import Split
from zoo.data.words import pluralize
from zoo.transfer.evaluation import Evaluation, evaluate
from zoo.transfer.run import load_facts, load_predictor


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
    predictor, facts = load_predictor(run), load_facts(run)
    scan = scan_images(images, background=predictor.reader.background, orient=predictor.reader.orient)
    unknown = sorted(set(scan.labels) - set(predictor.classes))
    if unknown:
        raise ValueError(
            f"The model does not know the class {', '.join(unknown)}; its classes are {', '.join(predictor.classes)}."
        )
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
    path = Path(run) / "split.json"
    sets = Split.load(path).sets if path.is_file() else {}
    known = {part: sum(sets.get(p.sha256) == part for p in scan.pictures) for part in ("train", "validation")}
    majority = facts["evaluation"]["majority_class"]
    return evaluate(np.concatenate(parts), labels, predictor.classes, majority_class=majority), known
