"""``report.html``: one page that says what was trained on, how good the model is, and where it is wrong."""

import base64
import html
import io
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data import pluralize
from zoo.data.images import ImageError, decode
from zoo.data.scan import Picture
from zoo.files import write_whole
from zoo.transfer.evaluation import ClassResult, Evaluation
from zoo.transfer.run import Run

MISTAKES = 24
SUSPECTS = 24
FEW = 10  # pictures of a class, below which its figures are rough
EXAMPLES = 5
MOST_CLASSES_SHOWN = 30
THUMBNAIL = 96


def write_report(run: Run) -> Path:
    """Writes the report of a run into its folder.

    Args:
        run: A run with everything but the report.

    Returns:
        The path of ``report.html``.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("zoo.transfer"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["pluralize"] = pluralize
    environment.filters["percent"] = lambda share: "–" if share is None else f"{share:.1%}"
    environment.filters["fixed"] = lambda value: "–" if value is None else f"{value:.2f}"
    environment.filters["cosine"] = lambda value: "–" if value is None else f"{value:.3f}"
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:,.3g}"
    page = environment.get_template("report.html").render(**page_values(run))
    path = run.place / "report.html"
    write_whole(path, page.encode())
    return path


def page_values(run: Run) -> dict[str, Any]:
    """Returns everything the template shows."""
    evaluation, split = run.evaluation, run.split
    judged = [p for p in run.scan.pictures if split.sets[p.sha256] == run.facts["judged"]]
    by_class = sorted(evaluation.classes, key=lambda c: (c.f1 is None, c.f1 if c.f1 is not None else 0, c.name))
    shown = [c for c in by_class if c.count]
    return {
        "run": run,
        "facts": run.facts,
        "settings": run.settings,
        "evaluation": evaluation,
        "judged": run.facts["judged"],
        "sentences": sentences(run),
        "place": shlex.quote(str(run.folder.absolute())),
        "saved_model": repr(str(run.folder.absolute() / "saved_model")),
        "counts": run.scan.counts,
        "sets": {label: split.labels.get(label, {}) for label in run.classes},
        "choices": _choice_rows(run),
        "choice_chart": _choice_chart(run),
        "calibration_chart": _calibration_chart(run),
        "history_chart": _history_chart(run.facts.get("finetune")),
        "confusion": _confusion(run.classes, evaluation.confusion) if len(run.classes) <= MOST_CLASSES_SHOWN else None,
        "confused": _most_confused(run.classes, evaluation.confusion),
        "classes_by_f1": shown[:MOST_CLASSES_SHOWN] if len(shown) > 2 * MOST_CLASSES_SHOWN else shown,
        "best_classes": shown[-MOST_CLASSES_SHOWN:] if len(shown) > 2 * MOST_CLASSES_SHOWN else [],
        "mistakes": _mistakes(run, judged),
        "suspects": _suspects(run),
        "near_pairs": _near_pairs(run),
        "held_out": _held_out(run),
        "examples": _examples(run),
    }


def sentences(run: Run) -> list[str]:
    """Returns what a reader should know first, in plain sentences."""
    e, judged = run.evaluation, run.facts["judged"]
    if e.accuracy is None:
        return ["There was no picture to judge the model by."]
    what = "test pictures, which it has never seen" if judged == "test" else "training pictures themselves"
    lines = [f"The model is right on {e.correct} of {e.count} {what}: {e.accuracy:.1%}."]
    if judged == "train":
        lines.append("There were too few pictures for a test part, so this says nothing about new pictures.")
        return lines
    lines.append(
        f"With so many pictures, the true share lies between {e.interval[0]:.1%} and {e.interval[1]:.1%} (95 %)."
    )
    better = "clearly better" if e.beats_majority else "not clearly better"
    lines.append(f"Always answering “{e.majority_class}” would be right on {e.majority:.1%}: the model is {better}.")
    lines += strengths(e)
    lines.append(e.calibration_in_words)
    few = [f"{c.name} ({c.count})" for c in e.classes if c.count < FEW]
    if few:
        more = f" and {len(few) - 10} more" if len(few) > 10 else ""
        lines.append(
            f"Fewer than ten {judged} pictures, so what is said of them is rough: {', '.join(few[:10])}{more}."
        )
    return lines


def strengths(e: Evaluation) -> list[str]:
    """Says which classes the model is good and bad at, by F1.

    Good is a class of three pictures or more whose precision and recall both reach the accuracy of the whole, and a
    half, and whose F1 reaches the mean; bad is any class with pictures whose F1 lies below the mean.
    """
    least, mean = max(e.accuracy or 0.0, 0.5), e.macro_f1 or 0.0
    known = sorted((c for c in e.classes if c.f1 is not None), key=lambda c: (-(c.f1 or 0.0), -c.count, c.name))
    good = [
        c for c in known if c.count >= 3 and (c.f1 or 0.0) >= mean and min(c.precision or 0.0, c.recall or 0.0) >= least
    ]
    bad = [c for c in reversed(known) if (c.f1 or 0.0) < mean]

    def named(some: Sequence[ClassResult]) -> str:
        return ", ".join(f"{c.name} (F1 {c.f1:.2f}, {pluralize(c.count, 'picture')})" for c in some)

    lines = [f"Good at: {named(good[:3])}."] if good else []
    if bad:
        lines.append(f"Bad at: {named(bad[:3])}." if mean < 0.9 else f"Weakest at: {named(bad[:3])}.")
    return lines


def thumbnail(path: str | Path, background: tuple[int, int, int], size: int = THUMBNAIL) -> str:
    """Returns a picture, made small, as a data address; an empty one when it cannot be read any more."""
    from PIL import Image

    try:
        picture = Image.fromarray(decode(Path(path).read_bytes(), background=background))
    except (ImageError, OSError):
        return "data:,"
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def _picture(run: Run, picture: Picture) -> dict[str, Any]:
    row = run.probabilities[picture.sha256]
    order = row.argsort()[::-1][:3]
    return {
        "image": thumbnail(picture.path, run.reader.background),
        "name": picture.name,
        "label": picture.label,
        "set": run.split.sets[picture.sha256],
        "guesses": [(run.classes[i], float(row[i])) for i in order],
    }


def _mistakes(run: Run, judged: Sequence[Picture]) -> list[dict[str, Any]]:
    """The most confident mistakes, of the part that is judged."""
    wrong = []
    for picture in judged:
        row = run.probabilities[picture.sha256]
        best = int(row.argmax())
        if run.classes[best] != picture.label:
            wrong.append((-float(row[best]), picture.name, picture))
    return [_picture(run, picture) for _, _, picture in sorted(wrong, key=lambda item: item[:2])[:MISTAKES]]


def _suspects(run: Run) -> list[dict[str, Any]]:
    """The first suspicious labels, each beside the picture of the suggested class that is surest to be of it."""
    surest: dict[str, Picture] = {}
    for number, label in enumerate(run.classes):
        some = [p for p in run.scan.pictures if p.label == label and p.sha256 in run.held_out]
        if some:
            surest[label] = max(some, key=lambda p: float(run.held_out[p.sha256][number]))
    rows = []
    for suspect in run.facts["suspicious"][:SUSPECTS]:
        other = surest.get(suspect["suggestion"])
        beside = "data:," if other is None else thumbnail(other.path, run.reader.background)
        path = next((p.path for p in run.scan.pictures if p.sha256 == suspect["sha256"]), None)
        image = "data:," if path is None else thumbnail(path, run.reader.background)
        rows.append({**suspect, "image": image, "beside": beside})
    return rows


def _held_out(run: Run) -> dict[str, Any] | None:
    """What the answers held out say: the accuracy, each class by name, and the pairs mixed up most."""
    if not run.facts["held_out"]:
        return None
    evaluation = Evaluation.from_dict(_through_json(run.facts["held_out"]))
    return {
        "in_words": evaluation.in_words,
        "classes": {result.name: result for result in evaluation.classes},
        "confused": _most_confused(run.classes, evaluation.confusion),
        "confusion": _confusion(run.classes, evaluation.confusion) if len(run.classes) <= MOST_CLASSES_SHOWN else None,
    }


def _through_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


def _near_pairs(run: Run) -> list[dict[str, Any]]:
    """Near-duplicates that have different labels."""
    of_key = {picture.sha256: picture for picture in run.scan.pictures}
    return [
        {"first": _picture(run, of_key[a]), "second": _picture(run, of_key[b]), "cosine": cosine}
        for a, b, cosine in run.facts["near_pairs"][:12]
    ]


def _examples(run: Run) -> list[dict[str, Any]]:
    """The first few pictures of every class, by content hash, so that they stay the same."""
    rows = []
    for label in run.classes[:MOST_CLASSES_SHOWN]:
        some = sorted((p for p in run.scan.pictures if p.label == label), key=lambda p: p.sha256)[:EXAMPLES]
        images = [thumbnail(p.path, run.reader.background, 64) for p in some]
        rows.append({"label": label, "images": images})
    return rows


def _confusion(classes: Sequence[str], table: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    rows = []
    for i, (label, counts) in enumerate(zip(classes, table, strict=True)):
        total = max(1, sum(counts))
        cells = [{"count": n, "share": round(n / total, 3), "right": i == j} for j, n in enumerate(counts)]
        rows.append({"label": label, "cells": cells, "total": sum(counts)})
    return rows


def _most_confused(classes: Sequence[str], confusion: Sequence[Sequence[int]]) -> list[tuple[str, str, int, int]]:
    """The pairs of classes mixed up most often: (label, called, times, pictures of the label)."""
    table = np.array(confusion)
    np.fill_diagonal(table, 0)
    order = np.argsort(-table, axis=None, kind="stable")[:10]
    pairs = [np.unravel_index(place, table.shape) for place in order]
    totals = np.array(confusion).sum(1)
    return [(classes[i], classes[j], int(table[i, j]), int(totals[i])) for i, j in pairs if table[i, j]]


def _choice_rows(run: Run) -> list[dict[str, Any]]:
    """The end points tried, the best first."""
    lines = sorted((c for c in run.choices if c.stage == "end points"), key=lambda c: c.loss)
    chosen = run.head.end_points
    return [
        {"name": " + ".join(c.end_points), "accuracy": c.accuracy, "loss": c.loss, "chosen": c.end_points == chosen}
        for c in lines
    ]


def _choice_chart(run: Run) -> str:
    lines = [c for c in run.choices if c.stage == "penalty"]
    if len(lines) < 2:
        return ""
    points = [(math.log10(c.penalty), c.accuracy) for c in lines]
    return line_chart([("cross-validated accuracy", points)], "C (power of ten)", "accuracy")


def _calibration_chart(run: Run) -> str:
    bins = run.evaluation.bins
    if not bins:
        return ""
    found = [(b.confidence, b.accuracy) for b in bins]
    return line_chart(
        [("perfect", [(0.0, 0.0), (1.0, 1.0)]), ("model", found)], "confidence", "share right", (0, 1, 0, 1)
    )


def _history_chart(finetune: dict[str, Any] | None) -> str:
    if not finetune or not finetune["history"]:
        return ""
    series = [
        (name, [(row["epoch"], row[key]) for row in finetune["history"] if row.get(key) is not None])
        for name, key in (("training", "accuracy"), ("validation", "validation_accuracy"))
    ]
    return line_chart([s for s in series if s[1]], "epoch", "accuracy")


def line_chart(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    x_title: str,
    y_title: str,
    limits: tuple[float, float, float, float] | None = None,
) -> str:
    """Draws lines as an SVG that takes its colours from the page.

    Returns:
        The SVG, all text escaped.
    """
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    left, right, low, high = limits or (min(xs), max(xs), min(ys), max(ys))
    if limits is None:
        pad = max((high - low) * 0.15, 0.01)
        low, high = low - pad, high + pad
    right, high = (right if right > left else left + 1), (high if high > low else low + 1)
    place = lambda x, y: (48 + 300 * (x - left) / (right - left), 170 - 150 * (y - low) / (high - low))  # noqa: E731
    out = [f'<svg viewBox="0 0 360 220" role="img" aria-label="{html.escape(f"{y_title} against {x_title}")}">']
    for i in range(5):
        value = low + (high - low) * i / 4
        y = place(left, value)[1]
        out.append(f'<line class="grid" x1="48" x2="348" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="44" y="{y + 3:.1f}" text-anchor="end">{value:.2f}</text>')
        across = left + (right - left) * i / 4
        out.append(
            f'<text class="tick" x="{place(across, low)[0]:.1f}" y="184" text-anchor="middle">{across:.2g}</text>'
        )
    for number, (name, points) in enumerate(series):
        dots = [place(*point) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        out.append(f'<polyline class="line line{number}" points="{path}"/>')
        out += [f'<circle class="dot line{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in dots]
        out.append(f'<text class="legend line{number}" x="{54 + 110 * number}" y="14">{html.escape(name)}</text>')
    out.append(f'<text class="tick" x="198" y="202" text-anchor="middle">{html.escape(x_title)}</text></svg>')
    return "".join(out)
