"""The folder of one training run: its settings, metrics, TensorBoard events and curves."""

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from zoo.weights.bundled import write_whole

# Settings that may differ between a run and its resumption.
_MAY_CHANGE = {"versions"}


class RunFolder:
    """A folder that takes everything a run produces.

    Args:
        path: Where it is, or is to be.
        config: The run's settings, for JSON.
        resume: Go on with the run that is there; otherwise the folder must be new or empty.

    Raises:
        FileExistsError: The folder is not empty and ``resume`` is False.
        FileNotFoundError: There is no run to resume.
        ValueError: The run to resume was started with other settings.
        OSError: The folder cannot be made or written.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any], *, resume: bool = False) -> None:
        self.path = Path(path)
        if resume:
            self._check_same(config)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise FileExistsError(
                f"{self.path} is not empty; give another --out, or go on with the run that is there by --resume"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json("config.json", config)
        except OSError as error:
            raise type(error)(f"--out {self.path} cannot be written: {error.strerror or error}") from error

    def _check_same(self, config: Mapping[str, Any]) -> None:
        file = self.path / "config.json"
        if not file.is_file():
            raise FileNotFoundError(f"{self.path} holds no run to resume (no config.json); leave --resume out")
        before = json.loads(file.read_text())
        now = json.loads(json.dumps(config))
        for key in sorted(before.keys() | now.keys()):
            if key not in _MAY_CHANGE and before.get(key) != now.get(key):
                raise ValueError(
                    f"--resume takes the settings the run was started with: {key} was {before.get(key)!r} "
                    f"and is now {now.get(key)!r}"
                )

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file into the folder, whole or not at all."""
        write_whole(self.path / name, (json.dumps(value, indent=2) + "\n").encode())

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``; empty before the first epoch."""
        file = self.path / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replaces ``metrics.jsonl`` by these rows."""
        write_whole(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())

    def draw_curves(self) -> Path:
        """Draws loss and accuracy by epoch, in training and on the test part, into ``curves.png``."""
        from matplotlib.figure import Figure

        rows = self.metrics
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        for axes, metric in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
            for key, label in ((metric, "training"), (f"test_{metric}", "test")):
                axes.plot([row["epoch"] for row in rows], [row[key] for row in rows], label=label, marker=".")
            axes.set(xlabel="epoch", ylabel=metric)
            axes.grid(alpha=0.3)
            axes.legend()
        path = self.path / "curves.png"
        figure.savefig(path, dpi=120)
        return path


def versions() -> dict[str, str]:
    """Returns the versions of what decides the result of a training run."""
    return {name: metadata.version(name) for name in ("scoped-zoo", "tensorflow", "keras", "numpy", "scikit-learn")}
