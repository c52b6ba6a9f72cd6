"""What is found out before a run starts, while nothing has been written: options, trunk, and the folders it needs."""

import json
import os
from pathlib import Path
from typing import Any

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.files import write_whole
from zoo.transfer.run import load_facts
from zoo.transfer.select import combinations
from zoo.transfer.settings import Settings
from zoo.transfer.trunk import Trunk

MARK = "settings.json"  # says that a folder is a run's


def check_folders(images: Any, folder: Path, cache: Path) -> None:
    """Checks that there are pictures, and that run folder and cache can be written.

    Args:
        images: What ``retrain`` was given.
        folder: The run folder.
        cache: Folder of the bottleneck caches.

    Raises:
        FileNotFoundError: The pictures are not there.
        FileExistsError: Something else lies in the run folder.
        NotADirectoryError: A file is in the way.
        PermissionError: A folder cannot be written.
    """
    if isinstance(images, str | os.PathLike) and not Path(images).exists():
        raise FileNotFoundError(f"{os.fspath(images)!r}: there is no such folder or CSV file")
    for option, place in (("--out", folder), ("--cache", cache)):
        there = next(p for p in (place.absolute(), *place.absolute().parents) if p.exists())
        if not there.is_dir():
            raise NotADirectoryError(f"{there} is a file; give a folder as {option}.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(f"{there} cannot be written; give another {option}.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise FileExistsError(f"{folder} is not empty and holds no retraining run; give another --out.")


def check_end_points(settings: Settings, trunk: Trunk) -> list[tuple[str, ...]]:
    """Returns the combinations of end points that the head may read.

    Args:
        settings: The run's settings.
        trunk: The trained network.

    Raises:
        ValueError: ``bottleneck`` or ``finetune_from`` names no end point of the trunk; the message lists them.
    """
    if settings.finetune_from is not None:
        from zoo.transfer.finetune import trained_names

        trained_names(trunk.model.variable_names, trunk, settings.finetune_from, settings.train_batch_norm)
    if settings.bottleneck == "auto":
        return combinations(trunk.offered())
    names = tuple(trunk.bottleneck if name == "final" else name for name in settings.bottleneck.split("+"))
    if any(name not in trunk.end_points for name in names) or len(set(names)) < len(names):
        raise ValueError(
            f"--bottleneck is auto, final, or different end points joined by '+', of {', '.join(trunk.end_points)}. "
            f"Received: {settings.bottleneck!r}"
        )
    return [names]


def earlier_run(folder: Path) -> dict[str, Any] | None:
    """Returns settings, classes, evaluation and pictures of the finished run in a folder; None without one."""
    if not (folder / "run.json").is_file():
        return None
    facts = load_facts(folder)
    before = {"settings": facts["settings"], "classes": facts["classes"], "evaluation": facts["evaluation"]}
    if (folder / "scan.json").is_file():
        before["pictures"] = {p.sha256: p.label for p in Scan.load(folder / "scan.json").pictures}
    return before


def claim(folder: Path, settings: Settings) -> None:
    """Makes the run folder, and marks it as a run's."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / MARK, (json.dumps(settings.to_dict(), indent=1) + "\n").encode())


def previous_split(folder: Path, settings: Settings) -> Split | None:
    """Returns the split that is there when it was dealt with the same seed and shares.

    Raises:
        ValueError: It is damaged.
    """
    path = folder / "split.json"
    if not path.is_file():
        return None
    try:
        split = Split.load(path)
    except ValueError as error:
        raise ValueError(f"{error}. Delete it, and the pictures are dealt anew; or give another --out.") from None
    same = split.seed == settings.seed and split.shares == (settings.validation, settings.test)
    return split if same else None
