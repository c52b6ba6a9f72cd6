"""Runs ``zoo`` inside the test process."""

from typing import NamedTuple

import pytest

from zoo.cli import main


class Said(NamedTuple):
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def zoo_command(capsys, monkeypatch):
    """A function that runs ``zoo WORDS...``."""
    monkeypatch.delenv("ZOO_TRACEBACK", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        return Said(stop.value.code or 0, *capsys.readouterr())

    return run
