"""Bad input: every command ends with 2 and one line of zoo's own, before it has written anything."""

import inspect

import pytest
from cli.test_help import LEAVES

import zoo
from zoo.registry import get_net

NOTHING = "/no/such/place"
WRONG = {"int": ["'x'", "1.5", "[1]", "True"], "float": ["'x'", "[1]"], "bool": ["'x'", "2"], "str": ["3"]}
NAMES = [path for path, leaf in LEAVES.items() if any(p.param_type_name == "argument" for p in leaf.params)]
OPTIONS = [
    (net, parameter.name, value)
    for net in zoo.list_nets()
    for parameter in inspect.signature(get_net(net).network).parameters.values()
    if (kind := getattr(parameter.annotation, "__name__", str(parameter.annotation)).partition(" | ")[0]) in WRONG
    and parameter.name != "is_training"
    for value in WRONG[kind]
]


def said_in_one_line(said):
    """That a command was refused in one line of zoo's."""
    lines = [line for line in said.err.splitlines() if line.strip() and not line.startswith(("Scanning", "Working"))]
    assert said.code == 2, said
    assert len(lines) == 1, said.err
    assert lines[0].startswith("zoo: ")
    for foreign in ("Traceback", "Errno", "NoneType", "not supported between", "object at 0x", "KeyError"):
        assert foreign not in lines[0]
    return lines[0]


def needed(path):
    """The options without which a command says only that."""
    return [
        word
        for p in LEAVES[path].params
        if p.param_type_name == "option" and p.required
        for word in (p.opts[0], "2GiB")
    ]


@pytest.mark.parametrize("path", NAMES, ids=" ".join)
def test_what_is_not_there_is_named(path, zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    arguments = [p for p in LEAVES[path].params if p.param_type_name == "argument"]
    line = said_in_one_line(zoo_command(*path, *[NOTHING] * len(arguments), *needed(path)))
    assert NOTHING in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "option"),
    [(path, p.opts[0]) for path, leaf in LEAVES.items() for p in leaf.params if type(p.default) in (int, float)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_word_is_no_number(path, option, zoo_command):
    arguments = [p for p in LEAVES[path].params if p.param_type_name == "argument" and p.required]
    assert option in said_in_one_line(zoo_command(*path, *["x"] * len(arguments), *needed(path), option, "many"))


def test_there_are_options_of_every_type():
    assert len(OPTIONS) > 100


@pytest.mark.parametrize(("net", "option", "value"), OPTIONS, ids=lambda value: str(value))
def test_an_option_of_another_type_is_refused(net, option, value, zoo_command):
    line = said_in_one_line(zoo_command("info", net, "--option", f"{option}={value}"))
    assert f"{net} takes {option} as" in line


def test_what_fits_is_taken(zoo_command):
    assert zoo_command("info", "lenet5", "-o", "num_classes=None", "-o", "dropout_keep_prob=1").code == 0
    get_net("densenet").check_options({"block_config": [2, 2], "bottleneck": None, "compression": 1})
    with pytest.raises(ValueError, match="takes block_config as whole numbers"):
        get_net("densenet").check_options({"block_config": "6, 12"})
