"""What is found out before a run starts, while nothing has been written: options, trunk, and the folders it needs."""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.files import remove, write_whole
from zoo.transfer.assembly import assemble
from zoo.transfer.evaluation import Evaluation
from zoo.transfer.head import Head
from zoo.transfer.pictures import Reader
from zoo.transfer.run import NEXT, WRITTEN, Run, load_facts, load_predictor
from zoo.transfer.select import Choice, combinations
from zoo.transfer.settings import Settings
from zoo.transfer.suspicious import Decision
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
    before = {name: facts[name] for name in ("settings", "classes", "evaluation", "facts")}
    if (folder / "scan.json").is_file():
        scan = Scan.load(folder / "scan.json")
        before["pictures"] = {p.sha256: p.label for p in scan.pictures}
        before["scanned"] = (scan.fingerprint, [(bad.name, bad.reason) for bad in scan.bad])
    return before


def check_settings(folder: Path, before: dict[str, Any] | None, settings: Settings, accept_changes: bool) -> None:
    """Refuses other settings than those of the finished run in the folder, unless the change is accepted.

    What ``max_bad`` allows decides no number, so it may be another.

    Raises:
        ConfigChangedError: It lists the differences.
    """
    if before is None or accept_changes:
        return
    from zoo.training import ConfigChangedError
    from zoo.training.state import config_difference

    new, old = json.loads(json.dumps(settings.to_dict())), before["settings"]
    shared = (new.keys() & old.keys()) - {"max_bad"}
    changes = config_difference({name: old[name] for name in shared}, {name: new[name] for name in shared})
    if changes:
        raise ConfigChangedError(folder, changes)


def is_as_before(
    folder: Path,
    before: dict[str, Any] | None,
    settings: Settings,
    scan: Scan,
    decisions: Sequence[Decision],
    trunk: Trunk,
    export: bool,
) -> bool:
    """Says whether the finished run in the folder is what this one would be: nothing is to do then."""
    if before is None:
        return False
    old, made = before["settings"], before["facts"]
    now = json.loads(json.dumps({**settings.to_dict(), "max_bad": old.get("max_bad")}))
    kept = export or not made.get("finetune", {}).get("kept")  # a fine-tuned model is in its files only
    needed = set(WRITTEN) - (set() if export or not kept else {"model.keras", "saved_model"})
    return (
        kept
        and now == old
        and before.get("scanned") == (scan.fingerprint, [(bad.name, bad.reason) for bad in scan.bad])
        and made["decisions"] == json.loads(json.dumps([dataclasses.asdict(one) for one in decisions]))
        and made["trunk"] == json.loads(json.dumps(trunk.describe()))
        and all((folder / name).exists() for name in needed)
    )


def found_run(
    folder: Path, settings: Settings, reader: Reader, scan: Scan, trunk: Trunk, train_batch_norm: bool
) -> Run:
    """Reads a finished run that is left as it is."""
    facts, head = load_facts(folder), Head.load(folder / "head.safetensors")
    if (folder / "model.keras").is_file():
        model = load_predictor(folder).model
    else:
        model = assemble(trunk, head, dropout_keep_prob=1.0, train_batch_norm=train_batch_norm)
    choices = [Choice(**{**one, "end_points": tuple(one["end_points"])}) for one in facts["choices"]]
    evaluation = Evaluation.from_dict(facts["evaluation"])
    split = Split.load(folder / "split.json")
    return Run(folder, settings, reader, scan, split, head, choices, model, evaluation, {}, facts["facts"])


@contextmanager
def leaving_nothing(folder: Path) -> Iterator[None]:
    """Takes back what a refused run (ValueError, TypeError) has written, and the folders that it made.

    Checkpoints of fine-tuning stay: they go on when the reason is mended.
    """
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except (ValueError, TypeError):
        for name in ({*WRITTEN, "pictures"} - there) | {NEXT}:
            remove(folder / name)
        for place in new:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
        raise


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
