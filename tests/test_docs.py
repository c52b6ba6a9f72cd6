"""README and docs: all Python of a page runs, in order; what it prints is compared, and commands are parsed."""

import contextlib
import io
import math
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer

import zoo
from zoo.cli import app
from zoo.data.images import encode_png

ROOT = Path(__file__).parents[1]
PAGES = {str(page.relative_to(ROOT)): page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")

# Blocks of Python that take longer, by their place on the page: the quick tests leave them out.
SLOW = {"README.md": {3, 4}, "docs/training.md": {0}, "docs/densenet.md": {0}, "docs/weights.md": {0}}
SLOW["docs/parallel.md"] = {0, 1}


def blocks(page, language):
    """Blocks of a page in order: the text, and what is shown in a block without language right behind."""
    found = BLOCK.finditer(PAGES[page].read_text(encoding="utf-8"))
    return [(block[2], block[3]) for block in found if block[1] == language]


def pictures(tmp_path, monkeypatch, request):
    """A folder of pictures, and their records."""
    from zoo.data import tfrecord
    from zoo.data.scan import scan_images

    for number in range(24):
        path = tmp_path / "pictures" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(np.full((24, 24, 3), 10 * number, np.uint8)))
    tfrecord.build(scan_images(tmp_path / "pictures"), tmp_path / "records")


def inception(tmp_path, monkeypatch, request):
    """A slim checkpoint of Inception-v3 under the name that the page gives it, also in place of published ones."""
    zoo.weights.save_tf1(zoo.inception_v3(seed=0), tmp_path / "inception_v3.ckpt")
    monkeypatch.setattr("zoo.weights.published.fetch", lambda *_, **__: str(tmp_path / "inception_v3.ckpt"))


def foreign_inception(tmp_path, monkeypatch, request):
    """That, and the real weights of TensorFlow.js."""
    inception(tmp_path, monkeypatch, request)
    (tmp_path / "inception_v3_tfjs").symlink_to(request.getfixturevalue("test_data") / "inception_v3_tfjs")


def old_checkpoint(tmp_path, monkeypatch, request):
    """A checkpoint whose variables have the names of TensorFlow 0.x."""
    chance = np.random.default_rng(0)
    old = {}
    for number, rows in enumerate((3 + 8, 8 + 8)):
        cell = f"RNN/MultiRNNCell/Cell{number}/BasicLSTMCell/Linear"
        old[f"{cell}/Matrix"] = chance.normal(size=(rows, 32)).astype(np.float32)
        old[f"{cell}/Bias"] = chance.normal(size=32).astype(np.float32)
    zoo.weights.save_tf1(old, tmp_path / "old" / "model.ckpt", step=1000)


def own_registry(tmp_path, monkeypatch, request):
    """The page registers a network, which is to be gone afterwards."""
    monkeypatch.setattr("zoo.registry._NETS", dict(zoo.registry._NETS))
    monkeypatch.setattr("zoo.scoping.names._FUNCTIONS", dict(zoo.scoping.names._FUNCTIONS))


# What the reader has beside the page: files under the names that it uses.
FILES = {"docs/data.md": pictures, "docs/weights.md": inception, "docs/rnn.md": old_checkpoint}
FILES["docs/adding_a_network.md"] = own_registry
SLOW_FILES = {"README.md": foreign_inception}


def run_page(page, chosen, tmp_path, monkeypatch):
    """Runs the chosen blocks of a page in one namespace and compares what they print."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, (text, shown) in enumerate(blocks(page, "python")):
        if number not in chosen:
            continue
        if re.search(r"^import torch$", text, re.MULTILINE):
            pytest.importorskip("torch")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, f"{page}, block {number}", "exec"), names)
        if shown is not None:
            assert_alike(said.getvalue(), shown)
        for line in text.splitlines():  # what a comment promises of a printed number
            if (about := re.search(r"print\(.*# about (\S+)$", line)) is not None:
                assert float(said.getvalue().split()[0]) <= 10 * float(about[1])


def assert_alike(said, shown):
    """Compares printed texts; numbers with a point may differ by a part in two hundred, "..." stands for any lines."""
    pattern = NUMBER.sub("#", shown.strip())
    parts = [re.escape(part.strip()) for part in pattern.split("...")]
    assert re.fullmatch(r"[\s\S]*".join(parts), NUMBER.sub("#", said.strip())), f"{said}\nis not\n{shown}"
    if "..." not in shown:
        for found, wanted in zip(NUMBER.findall(said), NUMBER.findall(shown), strict=True):
            assert math.isclose(float(found), float(wanted), rel_tol=5e-3)


def python_pages(slow):
    """Pages with the blocks to run."""
    for page in PAGES:
        every = set(range(len(blocks(page, "python"))))
        chosen = every if slow else every - SLOW.get(page, set())
        if chosen and (not slow or page in SLOW):
            yield pytest.param(page, chosen, id=page)


@pytest.mark.parametrize(("page", "chosen"), list(python_pages(slow=False)))
def test_python_of_a_page_runs(page, chosen, tmp_path, monkeypatch, request):
    if page in FILES:
        FILES[page](tmp_path, monkeypatch, request)
    run_page(page, chosen, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "chosen"), list(python_pages(slow=True)))
def test_all_python_of_a_page_runs(page, chosen, tmp_path, monkeypatch, request):
    if (prepare := SLOW_FILES.get(page, FILES.get(page))) is not None:
        prepare(tmp_path, monkeypatch, request)
    run_page(page, chosen, tmp_path, monkeypatch)


def commands():
    """Every command line of the pages that calls zoo, joined and without comments: page, line."""
    for page, path in PAGES.items():
        text = path.read_text(encoding="utf-8")
        lines = [line for block in BLOCK.finditer(text) if not block[1] for line in block[2].splitlines()]
        lines += re.findall(r"`(zoo [a-z][^`\n]*)`", text)
        for line in lines:
            line = line.removeprefix("$ ").partition(" # ")[0].strip()
            if re.match(r"zoo [a-z]+ ", line) and " | " not in line and "..." not in line:
                yield page, line


COMMANDS = sorted(set(commands()))


def test_there_are_pages_and_commands():
    assert sum(len(blocks(page, "python")) for page in PAGES) > 18
    assert len(COMMANDS) > 20


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_a_command_is_one_that_zoo_takes(page, line):
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    context = command.make_context("zoo", [], resilient_parsing=True)
    while hasattr(command, "list_commands"):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"{page}: there is no command {name}"
    needed = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    words = [word for word in words if word != "--help"]
    given = [word for word in words if not word.startswith("-")]
    if len(given) < sum(parameter.required for parameter in needed):
        words += ["x"] * len(needed)  # the text names a command with an option and leaves the rest to the reader
    command.make_context(line, words)


def test_the_table_of_info_is_the_commands(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = next(text for text, _ in blocks("README.md", "") if text.startswith("lenet5: LeCun"))
    said = zoo_command("info", "lenet5").out
    assert [line.rstrip() for line in said.strip().splitlines()] == [
        line.rstrip() for line in shown.strip().splitlines()
    ]
