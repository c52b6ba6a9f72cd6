"""The last stage: everything that a finished run leaves, ``run.json`` last, as it says that the run is finished."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data import pluralize
from zoo.data.scan import Scan
from zoo.files import remove, replacing, write_whole
from zoo.transfer.evaluation import Evaluation
from zoo.transfer.report import write_report
from zoo.transfer.review import Review, find_suspicious
from zoo.transfer.run import FORMAT, Earlier, Run, replace_run
from zoo.transfer.scan import Scanned
from zoo.transfer.settings import Job, Settings
from zoo.transfer.suspicious import write_suspicious

EXPORT_CHECKED = 16  # pictures on which the exported model is compared with the training path


def finish(job: Job, run: Run, before: Earlier | None, scanned: Scanned, reviewed: Review) -> Run:
    """Writes everything a finished run has, and puts it in the place of the one before."""
    run.facts["changes"] = what_changed(before, run.scan, run.settings, run.evaluation)
    for name in ("model.keras", "saved_model"):
        remove(run.place / name)  # of a run that was killed: it knows other classes and weights
    decisions = scanned.decisions
    suspects = find_suspicious(scanned.found, run.split, reviewed, run.classes, run.facts["near_pairs"])
    write_suspicious(run.place / "suspicious.csv", suspects, decisions)
    decided = {(decision.sha256, decision.path) for decision in decisions}
    run.facts["suspicious"] = [dataclasses.asdict(s) for s in suspects if (s.sha256, s.path) not in decided]
    run.facts["label_errors"] = reviewed.errors
    run.facts["conflicts"] = len(scanned.found.conflicts)
    run.facts["decisions"] = [dataclasses.asdict(decision) for decision in decisions]
    write_predictions(run)
    if job.export:
        run.facts["export"] = _export(run)
        job.tell(f"export: largest difference from the training path {run.facts['export']['largest_difference']:.1e}")
    write_report(run)
    save_run(run)
    replace_run(run.folder)
    run.made_in = None
    for line in run.facts["changes"]:
        job.tell(f"since the last run: {line}")
    job.tell(_result_line(run.evaluation, run.facts["judged"]))
    return run


def save_run(run: Run) -> None:
    """Writes ``run.json``, which ``load_facts`` reads."""
    plain = {
        "format": FORMAT,
        "settings": run.settings.to_dict(),
        "classes": list(run.classes),
        "reader": run.reader.to_dict(),
        "fingerprint": run.scan.fingerprint,
        "evaluation": run.evaluation.to_dict(),
        "choices": [dataclasses.asdict(choice) for choice in run.choices],
        "facts": run.facts,
    }
    write_whole(run.place / "run.json", (json.dumps(plain, indent=1, ensure_ascii=False) + "\n").encode())


def write_predictions(run: Run) -> None:
    """Writes ``predictions.csv``: every picture with its label, set, predicted class and its probability.

    The last two columns have what a head answered that did not see the picture.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["path", "label", "set", "predicted", "probability", "held_out", "held_out_probability"])
    for picture in run.scan.pictures:
        found: list[str] = []
        for row in (run.probabilities[picture.sha256], run.held_out.get(picture.sha256)):
            found += ["", ""] if row is None else [run.classes[row.argmax()], f"{row.max():.6f}"]
        writer.writerow([picture.name, picture.label, run.split.sets[picture.sha256], *found])
    write_whole(run.place / "predictions.csv", text.getvalue().encode())


def _export(run: Run) -> dict[str, Any]:
    """Writes ``model.keras`` and ``saved_model``; compares the latter with the training path on some pictures."""
    from zoo.inference.export import compare_export, export_pictures

    with replacing(run.place / "model.keras", ".keras") as temporary:
        run.model.save(temporary)
    export_pictures(
        run.model,
        run.place / "saved_model",
        classes=run.classes,
        read=run.reader.read_in_graph,
        prepare=run.reader.prepare,
    )
    places = np.unique(np.linspace(0, len(run.scan.pictures) - 1, EXPORT_CHECKED).round().astype(int))
    pictures = [run.scan.pictures[i] for i in places]
    return compare_export(
        run.place / "saved_model",
        [Path(picture.path).read_bytes() for picture in pictures],
        np.stack([run.probabilities[picture.sha256] for picture in pictures]),
        background=run.reader.background,
        orient=run.reader.orient,
    )


def _result_line(evaluation: Evaluation, judged: str) -> str:
    if evaluation.accuracy is None:
        return "no pictures to judge by"
    text = f"{judged} {evaluation.in_words}"
    text += f"; always saying {evaluation.majority_class!r} would give {evaluation.majority:.1%}"
    if judged == "train":
        text += "; too few pictures for a test part: this says nothing about new pictures"
    elif not evaluation.beats_majority:
        text += "; the model is not clearly better than that"
    return text


def what_changed(before: Earlier | None, scan: Scan, settings: Settings, evaluation: Evaluation) -> list[str]:
    """Says in sentences what is new since the run that was in the folder; nothing for a first run."""
    if before is None:
        return []
    old, new = before.pictures, {p.sha256: p.label for p in scan.pictures}
    lines = []
    for text, names in (
        ("class", sorted(set(new.values()) - set(before.classes))),
        ("class no longer there", sorted(set(before.classes) - set(new.values()))),
    ):
        lines += [f"{'new ' if text == 'class' else ''}{text}: {name}" for name in names]
    added, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
    moved = sum(old[key] != label for key, label in new.items() if key in old)
    lines += [
        pluralize(number, text)
        for number, text in ((added, "picture added"), (gone, "picture gone"), (moved, "label changed"))
        if number
    ]
    old_settings = before.settings
    lines += [
        f"{name} was {old_settings[name]}, is {value}"
        for name, value in settings.to_dict().items()
        if name in old_settings and old_settings[name] != value
    ]
    was, now = before.accuracy, evaluation.accuracy
    if lines and was is not None and now is not None:
        lines.append(f"test accuracy {was:.1%} before, {now:.1%} now")
    return lines or ["nothing changed since the last run in this folder"]
