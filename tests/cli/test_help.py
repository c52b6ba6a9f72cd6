"""Help, examples, choices and completion of every command, and what is said of mistyped words."""

import os
import shlex
import subprocess
import sys

import pytest
import typer

from zoo.cli import _options, app


def leaves(command, path=()):
    """Every command that does something: its words and the command."""
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = command.make_context("zoo", [], resilient_parsing=True)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*path, name))


LEAVES = dict(leaves(typer.main.get_command(app)))
CHOICES = [
    (path, parameter)
    for path, leaf in LEAVES.items()
    for parameter in leaf.params
    if (parameter.metavar or "").startswith("[")
]


def test_there_are_all_commands():
    assert len(LEAVES) > 15
    assert {("train",), ("weights", "convert"), ("bench", "scaling")} <= LEAVES.keys()
    assert len(CHOICES) > 15


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_at_80_columns(path, zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = zoo_command(*path, "--help")
    assert said.code == 0
    text, _, examples = said.out.rpartition("\n  Example")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    words = set(text.replace(",", " ").replace("/", " ").split())
    for parameter in LEAVES[path].params:
        assert {*parameter.opts, *parameter.secondary_opts} <= words or not parameter.opts[0].startswith("-")
        assert parameter.help, f"{parameter.name} has no help"
    assert "install-completion" not in text
    assert f"zoo {' '.join(path)}" in examples


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_examples_are_taken_by_their_command(path):
    lines = [line.strip() for line in LEAVES[path].epilog.splitlines() if line.strip().startswith("zoo ")]
    assert lines
    for line in lines:
        words = shlex.split(line)[1:]
        assert tuple(words[: len(path)]) == path
        LEAVES[path].make_context("zoo", words[len(path) :])  # raises for what it does not take


def test_rarely_used_options_stand_apart_and_last(zoo_command):
    for path in (("retrain",), ("tfrecord", "build")):
        titles = [
            line for line in zoo_command(*path, "--help").out.splitlines() if line.endswith(":") and line[0] != " "
        ]
        assert titles[:2] == ["Arguments:", "Options:"]
        assert titles[-1] == "Rarely needed:"


def test_the_list_of_commands_is_not_cut(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for group in ((), ("weights",), ("tfrecord",), ("bench",)):
        assert "..." not in zoo_command(*group, "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize(("path", "parameter"), CHOICES, ids=lambda v: v.name if hasattr(v, "opts") else " ".join(v))
def test_a_mistyped_choice_is_found_at_once(path, parameter, zoo_command):
    words = parameter.metavar.strip("[],.").split("|")
    wrong = words[0] + "x"
    said = zoo_command(*path, *["x"] * sum(p.opts[0][:1] != "-" for p in LEAVES[path].params), parameter.opts[0], wrong)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert f"'{wrong}' is none of {', '.join(words)}; did you mean {words[0]!r}?" in said.err


def test_choices_are_the_librarys_words():
    from zoo.data.folders import LAYOUTS
    from zoo.parallel import REDUCTIONS, STRATEGIES
    from zoo.training.optimizers import OPTIMIZERS
    from zoo.training.progress import SHOWN
    from zoo.training.schedules import SCHEDULES
    from zoo.training.summaries import LEVELS
    from zoo.transfer.settings import FITS, HEADS
    from zoo.transfer.suspicious import CONFLICTS

    pairs = {
        "LAYOUTS": LAYOUTS, "REDUCTIONS": REDUCTIONS, "STRATEGIES": STRATEGIES, "OPTIMIZERS": OPTIMIZERS,
        "SUMMARIES": LEVELS, "PROGRESS": SHOWN, "FITS": FITS, "HEADS": HEADS, "CONFLICTS": CONFLICTS,
    }  # fmt: skip
    for name, known in pairs.items():
        assert sorted(getattr(_options, name)) == sorted(known), name
    assert set(_options.SCHEDULES) == set(SCHEDULES) - {"piecewise"}  # which needs a list of steps


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["trian"], 2, "No such command 'trian'"),
        (["info"], 2, "Missing argument"),
        (["info", "lenet5", "--batch", "x"], 2, "--batch"),
        (["info", "lenet5", "--nothing"], 2, "No such option"),
        (["scan", "/no/such/folder"], 2, "'/no/such/folder': there is no such folder"),
    ],
)
def test_a_mistake_is_one_line(words, code, says, zoo_command):
    said = zoo_command(*words)
    assert said.code == code
    lines = [line for line in said.err.splitlines() if not line.startswith("Scanning")]
    assert len(lines) == 1
    assert lines[0].startswith("zoo: ")
    assert says in lines[0]


def test_no_command_prints_the_help(zoo_command):
    said = zoo_command()
    assert said.code == 2
    assert "Commands:" in said.out + said.err


@pytest.fixture
def shell(tmp_path):
    """Runs bash with a home of its own and ``zoo`` on its path."""
    program = tmp_path / "bin" / "zoo"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from zoo.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    here = {"PYTHONPATH": os.pathsep.join(p for p in (os.getcwd(), os.environ.get("PYTHONPATH")) if p)}

    def run(script, **more):
        made = subprocess.run(
            ["bash", "-c", script],
            env={**os.environ, **paths, **here, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        return made.stdout.split()

    return run


def test_completion_in_bash(shell):
    shell("zoo --install-completion; true")  # bash stays, for the shell is known by the parent process
    line = 'source ~/.bashrc; COMP_WORDS=({words}); COMP_CWORD={n}; _zoo_completion zoo; echo "${{COMPREPLY[@]}}"'
    assert shell(line.format(words="zoo tr", n=1)) == ["train"]
    assert shell(line.format(words="zoo train lenet5 --schedule co", n=4)) == ["cosine", "constant"]
    assert shell(line.format(words="zoo info le", n=2)) == ["lenet5"]
    assert shell(line.format(words="zoo bench densenet --memory store,re", n=4)) == ["store,recompute"]


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_completion_in_other_shells(shell, name):
    more = {"_TYPER_COMPLETE_ARGS": "zoo train lenet5 --schedule co", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    said = " ".join(shell("zoo", _ZOO_COMPLETE=f"complete_{name}", **more))
    assert "cosine" in said
    assert "constant" in said
    assert "per_epoch" not in said
