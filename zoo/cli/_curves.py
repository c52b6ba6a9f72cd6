"""What is drawn and noted of a finished run."""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from zoo.files import replacing


def draw_curves(lines: Sequence[Mapping[str, Any]], path: Path, validation: str) -> Path:
    """Draws loss and accuracy by epoch, in training and in validation.

    Args:
        lines: Those of metrics.jsonl.
        path: The picture.
        validation: What to call the validation part.

    Returns:
        The path.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for kind, key, label in (("train", metric, "training"), ("validation", f"val_{metric}", validation)):
            chosen = [line for line in lines if line["kind"] == kind and line.get(key) is not None]
            axes.plot([line["step"] for line in chosen], [line[key] for line in chosen], label=label, marker=".")
        axes.set(xlabel="step", ylabel=metric)
        axes.grid(alpha=0.3)
        axes.legend()
    with replacing(path, path.suffix) as temporary:
        figure.savefig(temporary, dpi=120)
    return path


def versions() -> dict[str, str]:
    """Returns the versions of what decides the result of a training run."""
    return {name: metadata.version(name) for name in ("scoped-zoo", "tensorflow", "keras", "numpy", "scikit-learn")}
