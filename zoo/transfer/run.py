"""A run folder: what a retraining run leaves, and how it is read again."""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.files import put, read_versioned, remove, validated, write_whole
from zoo.transfer.evaluation import Evaluation
from zoo.transfer.head import Head
from zoo.transfer.pictures import Reader
from zoo.transfer.select import Choice
from zoo.transfer.settings import Settings

if TYPE_CHECKING:
    from zoo.scoping import Model

FORMAT = 1


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


# What a run writes; run.json last, as it says that the run is finished.
WRITTEN = (
    *("settings.json", "scan.json", "bad_files.csv", "split.json", "head.safetensors", "suspicious.csv"),
    *("predictions.csv", "model.keras", "saved_model", "report.html", "run.json"),
)
NEXT = ".next"  # in a run folder: where a new run is made that is to replace the finished one


def finish_replacing(folder: Path) -> None:
    """Lets a new run that is whole take the place of the old one in its folder; a process killed in this is no harm.

    Whoever opens the run next calls this again, and it goes on where it was.
    """
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


def write_predictions(run: Run) -> None:
    """Writes ``predictions.csv``: every picture with its label, set, predicted class and its probability."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["path", "label", "set", "predicted", "probability"])
    for picture in run.scan.pictures:
        row = run.probabilities[picture.sha256]
        best = int(row.argmax())
        found = [run.classes[best], f"{row[best]:.6f}"]
        writer.writerow([picture.name, picture.label, run.split.sets[picture.sha256], *found])
    write_whole(run.place / "predictions.csv", text.getvalue().encode())


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
    return Predictor(model, Reader.from_dict(facts["reader"]), tuple(facts["classes"]))
