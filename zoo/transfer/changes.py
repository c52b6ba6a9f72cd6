"""What a run changed against the finished run that was in its folder."""

from collections.abc import Mapping
from typing import Any

from zoo.data.scan import Scan
from zoo.data.words import pluralize
from zoo.transfer.evaluation import Evaluation
from zoo.transfer.settings import Settings


def what_changed(before: Mapping[str, Any] | None, scan: Scan, settings: Settings, evaluation: Evaluation) -> list[str]:
    """Says in sentences what is new since the run that was in the folder.

    Args:
        before: "settings", "classes", "evaluation" and "pictures" (content hash -> label) of that run; None for none.
        scan: The pictures now.
        settings: The settings now.
        evaluation: The figures now.

    Returns:
        Sentences; none for a first run.
    """
    if before is None:
        return []
    old, new = before.get("pictures", {}), {p.sha256: p.label for p in scan.pictures}
    lines = []
    for text, names in (
        ("class", sorted(set(new.values()) - set(before["classes"]))),
        ("class no longer there", sorted(set(before["classes"]) - set(new.values()))),
    ):
        lines += [f"{'new ' if text == 'class' else ''}{text}: {name}" for name in names]
    added, gone = len(new.keys() - old.keys()), len(old.keys() - new.keys())
    moved = sum(old[key] != label for key, label in new.items() if key in old)
    lines += [
        pluralize(number, text)
        for number, text in ((added, "picture added"), (gone, "picture gone"), (moved, "label changed"))
        if number
    ]
    old_settings = before["settings"]
    lines += [
        f"{name} was {old_settings[name]}, is {value}"
        for name, value in settings.to_dict().items()
        if name in old_settings and old_settings[name] != value
    ]
    was, now = before["evaluation"]["accuracy"], evaluation.accuracy
    if lines and was is not None and now is not None:
        lines.append(f"test accuracy {was:.1%} before, {now:.1%} now")
    return lines or ["nothing changed since the last run in this folder"]
