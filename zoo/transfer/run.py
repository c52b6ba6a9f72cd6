"""A run folder: who may write there, what a retraining run leaves in it, and how it is read again."""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.files import locked, put, read_versioned, remove, validated, write_whole
from zoo.transfer.evaluation import Evaluation
from zoo.transfer.features import Backbone
from zoo.transfer.head import Head, assemble
from zoo.transfer.reader import Reader
from zoo.transfer.scan import Scanned
from zoo.transfer.select import Choice
from zoo.transfer.settings import Job, Settings
from zoo.transfer.trunk import Trunk

if TYPE_CHECKING:
    from zoo.scoping import Model

FORMAT = 1
MARK = "settings.json"  # says that a folder is a run's
LOCK = ".lock"  # held by the process that writes to a run folder
NEXT = ".next"  # in a run folder: where a new run is made that is to replace the finished one
# What a run writes; run.json last, as it says that the run is finished.
WRITTEN = (
    *(MARK, "scan.json", "bad_files.csv", "split.json", "head.safetensors", "suspicious.csv"),
    *("predictions.csv", "model.keras", "saved_model", "report.html", "run.json"),
)


@dataclasses.dataclass
class Run:
    """A finished run, or one that is being made.

    Args:
        folder: The run folder.
        settings: What it is made with.
        reader: How pictures are read.
        scan: The pictures.
        split: Which set each picture is in.
        head: The head on the trunk as it came.
        choices: What the head's cross-validation tried.
        model: Trunk and head as one model, fine-tuned if asked for.
        evaluation: Figures of the test part; of the training part when there is no test picture.
        probabilities: Content hash -> [K], for every picture; empty for a run that was found finished and left alone.
        held_out: The same by heads that did not see the picture, where there are such.
        facts: Everything else that the report says, plain values.
        made_in: Where its files are written until it is finished; None for the run folder itself.
    """

    folder: Path
    settings: Settings
    reader: Reader
    scan: Scan
    split: Split
    head: Head
    choices: list[Choice]
    model: "Model"
    evaluation: Evaluation
    probabilities: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    facts: dict[str, Any]
    made_in: Path | None = None

    @property
    def place(self) -> Path:
        """The folder to write into."""
        return self.made_in or self.folder

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, in the order of the model's outputs."""
        return self.head.classes


@dataclasses.dataclass
class _Trunk:
    """Where the features come from."""

    net: str
    source: str


@dataclasses.dataclass
class _Facts:
    """What the reports read of a run's facts."""

    judged: str
    trunk: _Trunk


@dataclasses.dataclass
class _Saved:
    """What ``run.json`` holds."""

    settings: dict[str, Any]
    classes: tuple[str, ...]
    reader: Reader
    evaluation: Evaluation
    facts: _Facts

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or [one.name for one in self.evaluation.classes] != list(self.classes):
            raise ValueError(f"the evaluation is of other classes than {', '.join(self.classes)}")


def load_facts(folder: str | Path) -> dict[str, Any]:
    """Reads a finished run's ``run.json``.

    Raises:
        FileNotFoundError: It is no run folder, or the run did not finish.
        ValueError: A newer zoo wrote it, or it is damaged.
    """
    finish_replacing(Path(folder))
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no finished run (no run.json); make one with `zoo retrain`.")
    try:
        plain = read_versioned(path, FORMAT, "a finished run")
        if (kind := plain.get("kind", "retrain")) == "retrain":
            validated(_Saved, plain, path)
    except ValueError as error:
        raise ValueError(f"{error}. Delete it, and `zoo retrain` makes it anew.") from error
    if kind != "retrain":
        raise ValueError(f"{path}: it is of a run of zoo {kind}, not of a retraining")
    return {"format": FORMAT, **plain}


def finish_replacing(folder: Path) -> None:
    """Lets a new run that is whole take the place of the old one in its folder; a process killed in this is no harm.

    Whoever opens the run next calls this again, and it goes on where it was. It waits for a process that is about it.
    """
    if (folder / NEXT / "run.json").is_file():
        with locked(folder / LOCK):
            replace_run(folder)


def replace_run(folder: Path) -> None:
    """Does the same for the process that holds the folder's lock."""
    new = folder / NEXT
    if not (new / "run.json").is_file():
        return
    exported = "export" in read_versioned(new / "run.json", FORMAT, "a finished run").get("facts", {})
    for name in WRITTEN:
        if not exported and name in ("model.keras", "saved_model"):
            remove(folder / name)  # the old run's, which know other classes and weights
        elif (new / name).exists():
            if (new / name).is_dir():
                remove(folder / name)
            put(new / name, folder / name)
    remove(new)


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A finished run, ready to predict.

    Args:
        model: Trunk and head.
        reader: How pictures are read.
        classes: The labels, in the order of the outputs.
    """

    model: "Model"
    reader: Reader
    classes: tuple[str, ...]

    def __call__(self, files: Sequence[bytes]) -> np.ndarray:
        """Returns the probabilities [N, K] of encoded pictures.

        Raises:
            ImageError: One of them is no picture that can be read.
        """
        return self.classify([self.reader.read(data) for data in files])

    def classify(self, prepared: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the probabilities [N, K] of pictures that ``reader`` has read."""
        import tensorflow as tf

        if not prepared:
            return np.zeros((0, len(self.classes)))
        return tf.nn.softmax(self.model.predict_on_batch(np.stack(prepared))).numpy()


def load_predictor(folder: str | Path) -> Predictor:
    """Loads the model of a finished run.

    Raises:
        FileNotFoundError: There is no finished run, or its ``model.keras`` is gone.
        ValueError: A newer zoo wrote it, or it is damaged.
    """
    from zoo.nets.retrained import retrained  # noqa: F401  (a model file may name registered functions only)
    from zoo.scoping import load_model

    facts = load_facts(folder)
    path = Path(folder) / "model.keras"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: the run was made with --no-export. Run `zoo retrain` again without it."
        )
    try:
        model = load_model(path)
    except ValueError as error:
        raise ValueError(f"{error}. Run `zoo retrain` again with the same --out: it writes it anew.") from error
    known = model.options.get("classes", facts["classes"])
    if list(known) != list(facts["classes"]):
        raise ValueError(
            f"{path} knows the classes {', '.join(map(str, known))}, and run.json beside it knows "
            f"{', '.join(facts['classes'])}: they are of two runs. Delete both, and `zoo retrain` with the same --out "
            "makes them anew."
        )
    return Predictor(model, Reader.from_dict(facts["reader"]), tuple(facts["classes"]))


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The finished run that is in a folder, with which a new one is compared.

    Args:
        settings: What it was made with.
        classes: Its classes.
        accuracy: Of its evaluation.
        facts: Everything else that its report says.
        pictures: Content hash -> label.
        scanned: Fingerprint of its pictures, and name and reason of each bad file; None where they are not known.
    """

    settings: dict[str, Any]
    classes: list[str]
    accuracy: float | None
    facts: dict[str, Any]
    pictures: dict[str, str]
    scanned: tuple[str, list[tuple[str, str]]] | None


def check_folders(images: Any, folder: Path, cache: Path) -> None:
    """Checks that there are pictures, and that run folder and cache can be written.

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
    if folder.is_dir() and not (folder / MARK).is_file() and any(p.name != LOCK for p in folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and holds no retraining run; give another --out.")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lets this process alone write to a run folder, and takes back what a refused run has written and made.

    A run is refused by a ValueError or TypeError. Checkpoints of fine-tuning stay: with them it goes on once the reason
    is mended.

    Raises:
        BlockingIOError: Another process retrains there.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        busy = f"another process is retraining in {folder}; wait for it or give another --out"
        with locked(folder / LOCK, busy):
            there = {path.name for path in folder.iterdir()}
            try:
                yield
            except (ValueError, TypeError):
                for name in ({*WRITTEN, "pictures"} - there) | {NEXT}:
                    remove(folder / name)
                raise
    finally:
        for place in new:
            with suppress(OSError):  # somebody needs it
                place.rmdir()


def claim(job: Job) -> None:
    """Makes the folder that a run is made in, and marks it as a run's."""
    job.place.mkdir(parents=True, exist_ok=True)
    write_whole(job.place / MARK, (json.dumps(job.settings.to_dict(), indent=1) + "\n").encode())


def begin(job: Job, before: Earlier | None) -> Job:
    """Makes the place of a new run: the run folder, or one beside the finished run that it will replace."""
    if before is not None:
        job = dataclasses.replace(job, made_in=job.folder / NEXT)
        remove(job.place)  # what is left of a new run that was killed
    claim(job)
    return job


def earlier_run(job: Job) -> Earlier | None:
    """Returns the finished run in the run folder; None without one.

    Raises:
        ConfigChangedError: It has other settings, and that was not accepted; ``max_bad`` may be another, as it decides
            no number. The message lists the differences.
    """
    folder = job.folder
    if not (folder / "run.json").is_file():
        return None
    facts, pictures, scanned = load_facts(folder), {}, None
    if (folder / "scan.json").is_file():
        scan = Scan.load(folder / "scan.json")
        pictures = {p.sha256: p.label for p in scan.pictures}
        scanned = _scanned(scan)
    accuracy = facts["evaluation"]["accuracy"]
    before = Earlier(facts["settings"], facts["classes"], accuracy, facts["facts"], pictures, scanned)
    if not job.accept_changes:
        from zoo.training import ConfigChangedError
        from zoo.training.state import config_difference

        new, old = _plain(job.settings.to_dict()), before.settings
        shared = (new.keys() & old.keys()) - {"max_bad"}
        if new["near"] is None and old["near"] == 0.95:  # the default of older versions
            shared.remove("near")
        if changes := config_difference({name: old[name] for name in shared}, {name: new[name] for name in shared}):
            raise ConfigChangedError(folder, changes)
    return before


def _scanned(scan: Scan) -> tuple[str, list[tuple[str, str]]]:
    return scan.fingerprint, [(bad.name, bad.reason) for bad in scan.bad]


def _plain(values: Any) -> Any:
    """Returns what a journey through JSON makes of values."""
    return json.loads(json.dumps(values))


def is_as_before(job: Job, before: Earlier | None, scanned: Scanned, trunk: Trunk) -> bool:
    """Says whether the finished run in the folder is what this one would be: nothing is to do then."""
    if before is None:
        return False
    kept = job.export or not before.facts.get("finetune", {}).get("kept")  # a fine-tuned model is in its files only
    needed = set(WRITTEN) - (set() if job.export or not kept else {"model.keras", "saved_model"})
    return (
        kept
        and _plain({**job.settings.to_dict(), "max_bad": before.settings.get("max_bad")}) == before.settings
        and before.scanned == _scanned(scanned.scan)
        and before.facts["decisions"] == _plain([dataclasses.asdict(one) for one in scanned.decisions])
        and before.facts["trunk"] == _plain(trunk.describe())
        and all((job.folder / name).exists() for name in needed)
    )


def found_run(job: Job, backbone: Backbone, scan: Scan) -> Run:
    """Reads a finished run that is left as it is."""
    folder = job.folder
    facts, head = load_facts(folder), Head.load(folder / "head.safetensors")
    if (folder / "model.keras").is_file():
        model = load_predictor(folder).model
    else:
        model = assemble(backbone.trunk, head, train_batch_norm=job.settings.train_batch_norm)
    return Run(
        folder,
        job.settings,
        backbone.reader,
        scan,
        Split.load(folder / "split.json"),
        head,
        [Choice(**{**one, "end_points": tuple(one["end_points"])}) for one in facts["choices"]],
        model,
        Evaluation.from_dict(facts["evaluation"]),
        {},
        {},
        facts["facts"],
    )
