"""Labels that may be wrong, in a CSV that a person edits and the next run reads back."""

import csv
import dataclasses
import io
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from zoo.data import pluralize
from zoo.data.scan import Picture, Scan
from zoo.files import reading, write_whole

COLUMNS = ("decision", "path", "label", "suggestion", "confidence", "cosine", "reason", "sha256")
KEEP, DROP = "keep", "drop"
CONFLICTS = (DROP, "first", "refuse")


def as_word(label: str) -> str:
    """What the column ``decision`` takes for a class: its name, after a "=" where the name alone means something else.

    That are names such as "drop" and "keep", and those that begin with a "=".
    """
    return f"={label}" if label.lower() in (KEEP, DROP) or label.startswith("=") else label


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
    """What a person decided of a picture of this label: "keep", "drop", or the right label as ``as_word`` writes it."""

    path: str
    sha256: str
    decision: str
    label: str

    @property
    def right_label(self) -> str:
        """The label that it has from now on."""
        return self.label if self.decision in (KEEP, DROP) else self.decision.removeprefix("=")


def write_suspicious(path: str | Path, suspects: Sequence[Suspect], decisions: Sequence[Decision]) -> None:
    """Writes the CSV; decisions made before stay in it, also those whose picture is no longer suspicious."""
    left = list(decisions)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for suspect in suspects:
        row = dataclasses.replace(suspect, suggestion=as_word(suspect.suggestion))
        about = [d for d in left if (d.sha256, d.path, d.right_label) == (suspect.sha256, suspect.path, suspect.label)]
        for decision in about[:1]:
            left.remove(decision)
            row = dataclasses.replace(row, label=decision.label)
        writer.writerow([about[0].decision if about else "", *dataclasses.astuple(row)])
    for decision in left:
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
        if word.startswith("=") and word[1:] in classes:
            word = as_word(word[1:])
        elif word in classes and word not in (KEEP, DROP):
            word = as_word(word)
        elif word.lower() in (KEEP, DROP):
            word = word.lower()
        else:
            wrong.append(f"row {number} ({row['path']}) has {word!r}")
        decisions.append(Decision(row["path"] or "", row["sha256"] or "", word, row["label"] or ""))
    if wrong:
        raise ValueError(
            f"{path}, column decision: {'; '.join(wrong[:5])}{f'; and {len(wrong) - 5} more' if wrong[5:] else ''}. "
            f"Allowed: nothing, {KEEP}, {DROP}, or a class: {', '.join(map(as_word, classes))}"
        )
    return decisions


def apply_decisions(scan: Scan, decisions: Sequence[Decision]) -> Scan:
    """Returns the scan without the dropped pictures and with the labels set right; the files stay as they are."""
    made: dict[tuple[str, str], list[Decision]] = {}
    for decision in decisions:
        made.setdefault((decision.sha256, decision.path), []).append(decision)
    copies = Counter((picture.sha256, picture.name) for picture in scan.pictures)  # a CSV may give a file two labels
    pictures = []
    for picture in scan.pictures:
        key = (picture.sha256, picture.name)
        about = [d for d in made.get(key, []) if copies[key] == 1 or d.label == picture.label]
        if not about or about[-1].decision == KEEP:
            pictures.append(picture)
        elif about[-1].decision != DROP:
            pictures.append(dataclasses.replace(picture, label=about[-1].right_label))
    return dataclasses.replace(scan, pictures=pictures)


def settle_conflicts(scan: Scan, decisions: Sequence[Decision], how: str) -> Scan:
    """Returns the scan without pictures that lie in two classes, as one of the labels is wrong.

    Args:
        scan: The pictures, with the decisions applied.
        decisions: A copy that a person has decided about settles it: the others go.
        how: "drop" leaves all copies out, "first" those of other labels than the first in the order of names, "refuse"
            raises.

    Raises:
        ValueError: For "refuse", naming them; or a class has no other pictures.
    """
    decided = {(d.sha256, d.path, d.right_label) for d in decisions if d.decision != DROP}
    out: set[Picture] = set()
    open_ones = []
    for group in scan.conflicts:
        labels = {p.label for p in group if (p.sha256, p.name, p.label) in decided}
        if len(labels) != 1:
            open_ones.append(group)
            labels = {group[0].label} if how == "first" else set()
        out |= {picture for picture in group if picture.label not in labels}
    shown = "; ".join(" = ".join(f"{p.name} ({p.label})" for p in group[:4]) for group in open_ones[:5])
    named = f"{shown}{f'; and {len(open_ones) - 5} more' if open_ones[5:] else ''}"
    if open_ones and how == "refuse":
        raise ValueError(f"{pluralize(len(open_ones), 'picture')} in two classes: {named}. Leave each in one of them")
    used = [picture for picture in scan.pictures if picture not in out]
    if lost := sorted(set(scan.labels) - {picture.label for picture in used}):
        raise ValueError(
            f"every picture of {', '.join(lost)} lies in another class too, so none is left to train on: {named}. "
            "Leave each in one class"
        )
    return dataclasses.replace(scan, pictures=used)
