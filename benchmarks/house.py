"""The house in figures: files, lines, the longest functions, and how many files a job touches.

``python benchmarks/house.py count`` reads the source. ``python benchmarks/house.py jobs`` runs four jobs under a
profile hook and counts the files of zoo/ that ran and the calls from one of them into another (a call through
TensorFlow or Keras counts from the last file of zoo/ on the stack). ``--csv FILE`` appends the figures.
``python benchmarks/house.py picture`` draws the rooms and their imports into docs/architecture.svg.
"""

import argparse
import ast
import csv
import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ZOO = Path(__file__).resolve().parents[1] / "zoo"
NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Crossings:
    """A profile hook: which files of zoo/ ran, and the calls between two of them."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Counts a call."""
        if event != "call":
            return
        here = frame.f_code.co_filename
        if not here.startswith(str(ZOO)):
            return
        self.files.add(here)
        back = frame.f_back
        while back is not None and not back.f_code.co_filename.startswith(str(ZOO)):
            back = back.f_back
        if back is not None and back.f_code.co_filename != here:
            self.count += 1

    def __enter__(self) -> "Crossings":
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def one_convolution() -> Callable[[], Any]:
    """Building a model of one convolution."""
    import zoo

    def network(images, *, is_training=False):
        return zoo.layers.conv2d(images, 4, 3)

    zoo.Model(network, input_shape=(8, 8, 3))  # imports are not the job
    return lambda: zoo.Model(network, input_shape=(8, 8, 3))


def ten_steps() -> Callable[[], Any]:
    """Ten training steps of LeNet-5 with the Trainer, from its making on."""
    import numpy as np

    import zoo
    from zoo import training

    images = np.random.default_rng(0).random((64, 32, 32, 1), np.float32)
    labels = np.arange(64) % 10

    def run() -> None:
        training.Trainer(zoo.lenet5(), global_batch=32).fit((images, labels), steps=10, progress="none")

    run()
    return run


def dense_block() -> Callable[[], Any]:
    """A forward pass of a dense block of three layers, eagerly."""
    import tensorflow as tf

    import zoo
    from zoo.layers.dense_block import dense_block as block

    def network(images, *, is_training=False):
        return tf.concat(block(images, 3, 4, is_training=is_training, scope="block").pieces, -1)

    model = zoo.Model(network, input_shape=(8, 8, 4))
    images = tf.zeros([2, 8, 8, 4])
    model(images)
    return lambda: model(images)


def train_command() -> Callable[[], Any]:
    """``zoo train lenet5 --epochs 1``, imports included."""
    from zoo.cli import main

    folder = tempfile.mkdtemp()

    def run() -> None:
        try:
            main(["train", "lenet5", "--data", "digits", "--epochs", "1", "--out", f"{folder}/run"])
        except SystemExit:
            return

    return run


JOBS = {f.__name__: f for f in (one_convolution, ten_steps, dense_block, train_command)}


def room_of(path: Path) -> str:
    """The room of a file: its folder in zoo/, or itself."""
    return path.relative_to(ZOO).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    return ".".join(("zoo", *path.relative_to(ZOO).with_suffix("").parts)).removesuffix(".__init__")


FILES = sorted(ZOO.rglob("*.py"))
MODULES = {module_of(path): path for path in FILES}


def imported(path: Path) -> set[str]:
    """Modules of zoo that a file imports, at its top or inside functions; imports for type checkers alone are none."""
    found, tree = set(), ast.parse(path.read_text())
    for_types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    skipped = {id(inner) for n in for_types for child in n.body for inner in ast.walk(child)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return {name for name in found if name.split(".")[0] == "zoo" and name != module_of(path)}


def functions(node: ast.AST, owner: str = "") -> Iterator[tuple[int, int, str]]:
    """(lines of code without the docstring, arguments, qualified name) of each function, at any depth."""
    for inner in ast.iter_child_nodes(node):
        name = f"{owner}{inner.name}" if isinstance(inner, NAMED) else ""
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            head, last = inner.body[0], inner.end_lineno or 0
            text = (head.end_lineno or 0) - head.lineno + 1 if ast.get_docstring(inner) is not None else 0
            given = (*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs)
            yield last - inner.lineno + 1 - text, sum(a.arg not in ("self", "cls") for a in given), name
        yield from functions(inner, f"{name}." if name else owner)


def count() -> dict[str, object]:
    """Figures of the source."""
    texts = {path: path.read_text() for path in FILES}
    rows = [row for text in texts.values() for row in functions(ast.parse(text))]
    longest, most = max(rows), max(rows, key=lambda r: r[1])
    lines = [len(t.splitlines()) for t in texts.values()]
    return {
        "files": len(texts),
        "files below 70 lines": sum(n < 70 for n in lines),
        "lines": sum(lines),
        "functions": len(rows),
        "longest function": f"{longest[2]} ({longest[0]})",
        "functions above 60 lines": sum(r[0] > 60 for r in rows),
        "most arguments": f"{most[2]} ({most[1]})",
        "functions above 8 arguments": sum(r[1] > 8 for r in rows),
        "': Any'": sum(t.count(": Any") for t in texts.values()),
        "'self: Any'": sum(t.count("self: Any") for t in texts.values()),
        "'strict=False'": sum(t.count("strict=False") for t in texts.values()),
    }


# How far an arrow may bow, to either side, to pass rooms that it does not join.
BENDS = [n / 15 for n in range(-10, 11)]
# What a room is, in two or three words, for the picture.
WORDS = {
    "files": "atomic writes, limits, locks",
    "hdf5": "foreign HDF5, in a child process",
    "_compat": "private APIs, each with why",
    "devices": "settings before TensorFlow",
    "inputs": "like those trained on?",
    "scoping": "scoped function \u2192 Keras model",
    "layers": "layers, dense block, gradients",
    "rnn": "cells, wrappers, loops",
    "slim": "tf_slim, repaired",
    "data": "pictures, records, text",
    "weights": "formats and names in and out",
    "registry": "name \u2192 network",
    "nets": "a network a file",
    "parallel": "towers, strategies, clusters",
    "training": "trainer, loop, run folder",
    "inference": "export",
    "transfer": "folder of pictures \u2192 model",
    "bench": "cells, peers, plots",
    "cli": "zoo COMMAND",
}


def room_imports() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {room: set() for room in WORDS}
    for path in FILES:
        room = room_of(path)
        if room in found:
            found[room] |= {name.split(".")[1] for name in imported(path) if "." in name} & found.keys() - {room}
    return found


def arrows() -> dict[str, list[str]]:
    """For each room the rooms that it imports, but for those that a longer way implies."""
    imports = room_imports()
    below: dict[str, set[str]] = {}
    for room in WORDS:  # in the house's order, so that what a room imports is known already
        below[room] = set(imports[room]).union(*(below[other] for other in imports[room]))
    return {
        room: sorted(o for o in imports[room] if not any(o in below[x] for x in imports[room] - {o})) for room in WORDS
    }


def picture(path: Path) -> None:
    """Draws the rooms, importers above what they import; of the imports those that no longer way implies."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "zoo", "font.family": "DejaVu Sans"})
    from matplotlib import pyplot

    direct = arrows()
    level: dict[str, int] = {}
    for room in WORDS:
        level[room] = 1 + max((level[other] for other in direct[room]), default=-1)
    rows = [[room for room in WORDS if level[room] == n] for n in range(max(level.values()) + 1)]
    place: dict[str, tuple[float, float]] = {}
    for height, row in enumerate(rows):  # each near the middle of what it imports
        row.sort(key=lambda room: sum(place[o][0] for o in direct[room]) / max(len(direct[room]), 1))
        for number, room in enumerate(row):
            place[room] = (number - (len(row) - 1) / 2, height)
    figure, axes = pyplot.subplots(figsize=(11, 1.15 * len(rows)))
    widest = max(map(len, rows)) / 2
    axes.set(xlim=(-widest - 0.6, widest + 0.6), ylim=(-0.45, len(rows) - 0.55))
    axes.axis("off")
    for room, (x, y) in place.items():
        for other in direct[room]:
            boxes = [box for name, box in place.items() if name not in (room, other)]
            (u, v), ways = place[other], []
            for from_x, to_x, bend in itertools.product((0, -0.2, 0.2, -0.4, 0.4), (0, -0.3, 0.3), BENDS):
                start, end = (x + from_x, y - 0.27), (u + to_x, v + 0.27)
                passed = _hits(axes, start, end, bend, boxes)
                ways.append((passed, abs(bend) + abs(from_x) / 9 + abs(to_x) / 9, bend, start, end))
            *_, bend, start, end = min(ways)
            arrow = {"arrowstyle": "-|>", "color": "#7a8699", "lw": 1.1, "shrinkA": 0, "shrinkB": 0}
            arrow |= {"connectionstyle": f"arc3,rad={bend}"}
            drawn = axes.annotate("", xy=end, xytext=start, arrowprops=arrow, zorder=1)
            drawn.arrow_patch.set_gid(f"{room}-to-{other}")
        fill = "#eaf1fb" if (ZOO / room).is_dir() else "#f6f3ea"
        axes.add_patch(pyplot.Rectangle((x - 0.44, y - 0.27), 0.88, 0.54, fc=fill, ec="#33415c", lw=1, zorder=2))
        axes.text(x, y + 0.07, room, ha="center", va="center", fontsize=11, weight="bold", color="#1b2638", zorder=3)
        axes.text(x, y - 0.12, WORDS[room], ha="center", va="center", fontsize=7, color="#33415c", zorder=3)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def _hits(axes: Any, start: Any, end: Any, rad: float, boxes: list[tuple[float, float]]) -> int:
    """How many points of matplotlib's arc3 between two places lie in rooms that it does not join, or outside."""
    (x, y), (u, v) = axes.transData.transform([start, end])
    bow = ((x + u) / 2 + rad * (v - y), (y + v) / 2 - rad * (u - x))
    times = [n / 50 for n in range(51)]
    curve = [
        [(1 - t) ** 2 * a + 2 * t * (1 - t) * b + t * t * c for a, b, c in ((x, bow[0], u), (y, bow[1], v))]
        for t in times
    ]
    points = axes.transData.inverted().transform(curve)
    left, right = axes.get_xlim()
    return sum(
        not left < px < right or any(abs(px - bx) < 0.47 and abs(py - by) < 0.31 for bx, by in boxes)
        for px, py in points
    )


def job(name: str) -> None:
    """Runs one job under the hook and prints files and crossings."""
    run = JOBS[name]()
    with Crossings() as seen:
        run()
    print(f"\n{len(seen.files)} {seen.count}")


def main() -> None:
    """Parses, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["count", "jobs", "picture", *JOBS])
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    if asked.what in JOBS:
        job(asked.what)
        return
    if asked.what == "picture":
        picture(ZOO.parent / "docs" / "architecture.svg")
        return
    figures = count() if asked.what == "count" else {}
    if asked.what == "jobs":
        for name in JOBS:
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
            files, crossings = done.stdout.split()[-2:]
            figures[f"{name}: files"], figures[f"{name}: crossings"] = files, crossings
    for name, value in figures.items():
        print(f"{name:40} {value}")
    if asked.csv:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        fresh = not asked.csv.exists()
        with asked.csv.open("a", newline="") as out:
            writer = csv.writer(out)
            if fresh:
                writer.writerow(["commit", "figure", "value"])
            writer.writerows([commit.stdout.strip(), name, value] for name, value in figures.items())


if __name__ == "__main__":
    main()
