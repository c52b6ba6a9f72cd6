"""Labels that may be wrong, in a CSV that a person edits and the next run reads back."""

import csv
import dataclasses
import io
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.files import reading, write_whole

COLUMNS = ("decision", "path", "label", "suggestion", "confidence", "cosine", "reason", "sha256")
SURE = 0.8
KEEP, DROP = "keep", "drop"


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A picture whose label may be wrong.

    Args:
        path: Its name in the data set.
        label: Its label.
        suggestion: The label that the model, or the other copy, gives.
        confidence: Probability of the suggestion, where it is the model's.
        cosine: Of the features, where the suggestion is a near-duplicate's label.
        reason: Why it is here.
        sha256: Hash of the file.
    """

    path: str
    label: str
    suggestion: str
    confidence: float | None
    cosine: float | None
    reason: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a person decided: "keep", "drop", or the right label."""

    path: str
    sha256: str
    decision: str
    label: str


def find_suspicious(
    scan: Scan,
    split: Split,
    probabilities: Mapping[str, np.ndarray],
    classes: Sequence[str],
    near_pairs: Sequence[tuple[str, str, float]] = (),
) -> list[Suspect]:
    """Lists pictures that lie in two classes, near-duplicates with different labels, and confident disagreements.

    Args:
        scan: The pictures.
        split: Their sets.
        probabilities: Content hash -> [K].
        classes: The K labels.
        near_pairs: (content hash, content hash, cosine) of near-duplicates that have different labels.

    Returns:
        The suspects: conflicts first, then near-duplicates, then the most confident disagreements.
    """
    conflicts = []
    for group in scan.conflicts:
        for picture in group:
            others = sorted({p.label for p in group} - {picture.label})
            reason = f"the same picture is also in {', '.join(others)}"
            conflicts.append(Suspect(picture.name, picture.label, others[0], None, None, reason, picture.sha256))
    seen = {suspect.sha256 for suspect in conflicts}
    of_key = {picture.sha256: picture for picture in scan.pictures}
    near = []
    for first, second, cosine in near_pairs:
        for picture, other in ((of_key[first], of_key[second]), (of_key[second], of_key[first])):
            if picture.sha256 not in seen:
                reason = f"looks like {other.name} in {other.label}"
                near.append(Suspect(picture.name, picture.label, other.label, None, cosine, reason, picture.sha256))
                seen.add(picture.sha256)
    unsure = []
    for picture in scan.pictures:
        row = probabilities[picture.sha256]
        best = int(row.argmax())
        if classes[best] != picture.label and row[best] >= SURE and picture.sha256 not in seen:
            where = split.sets[picture.sha256]
            reason = f"the model disagrees ({where} picture)"
            sure = round(float(row[best]), 4)
            unsure.append(Suspect(picture.name, picture.label, classes[best], sure, None, reason, picture.sha256))
    return conflicts + near + sorted(unsure, key=lambda suspect: (-(suspect.confidence or 0.0), suspect.path))


def write_suspicious(path: str | Path, suspects: Sequence[Suspect], decisions: Sequence[Decision]) -> None:
    """Writes the CSV; decisions made before stay in it, also those whose picture is no longer suspicious."""
    made = {(decision.sha256, decision.path): decision for decision in decisions}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for suspect in suspects:
        decision = made.pop((suspect.sha256, suspect.path), None)
        writer.writerow([decision.decision if decision else "", *dataclasses.astuple(suspect)])
    for decision in made.values():
        kept = {**dataclasses.asdict(decision), "reason": "decided before"}
        writer.writerow([kept.get(column, "") for column in COLUMNS])
    write_whole(path, text.getvalue().encode())


def read_decisions(path: str | Path, classes: Sequence[str]) -> list[Decision]:
    """Reads what a person wrote into the first column; empty when there is no such file.

    Raises:
        ValueError: The columns were changed, or a decision is none; the message says in which row.
    """
    path = Path(path)
    if not path.is_file():
        return []
    with reading(path, "a CSV in UTF-8", also=(csv.Error,)):
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    if rows and not {"decision", "sha256", "path", "label"} <= set(rows[0]):
        raise ValueError(
            f"{path} must keep its columns {', '.join(COLUMNS)}, with commas between them. "
            f"Received: {', '.join(map(str, rows[0]))}"
        )
    decisions, wrong = [], []
    for number, row in enumerate(rows, 2):  # row 1 has the columns' names
        word = unicodedata.normalize("NFC", (row["decision"] or "").strip())
        if not word:
            continue
        if word not in classes:
            word = word.lower() if word.lower() in (KEEP, DROP) else word
        if word not in (KEEP, DROP, *classes):
            wrong.append(f"row {number} ({row['path']}) has {word!r}")
        decisions.append(Decision(row["path"] or "", row["sha256"] or "", word, row["label"] or ""))
    if wrong:
        raise ValueError(
            f"{path}, column decision: {'; '.join(wrong[:5])}{f'; and {len(wrong) - 5} more' if wrong[5:] else ''}. "
            f"Allowed: nothing, {KEEP}, {DROP}, or a class: {', '.join(classes)}"
        )
    return decisions


def apply_decisions(scan: Scan, decisions: Sequence[Decision]) -> Scan:
    """Returns the scan without the dropped pictures and with the labels set right; the files stay as they are."""
    made = {(decision.sha256, decision.path): decision.decision for decision in decisions}
    pictures = []
    for picture in scan.pictures:
        word = made.get((picture.sha256, picture.name), KEEP)
        if word == DROP:
            continue
        pictures.append(picture if word == KEEP else dataclasses.replace(picture, label=word))
    return dataclasses.replace(scan, pictures=pictures)
