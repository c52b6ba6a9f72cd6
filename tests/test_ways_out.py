"""What leaves a model comes back: every registered network by every way, outputs and gradients, in a fresh process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ways_out import CASES, COPIES, READERS, write

import zoo

PRESETS = {f"densenet{depth}" for depth in (121, 161, 169, 201, 264)}  # densenet in the paper's sizes
QUICK = [case for case in CASES if not case.slow]
SLOW = [case for case in CASES if case.slow]
WAYS = [*COPIES, *READERS]


def table(cases, folder):
    """What is wrong in each cell, by network and way; one process reads them all."""
    written = {case.name: write(case, folder / case.name) for case in cases}
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])}
    child = [sys.executable, str(here / "ways_out.py"), str(folder)]
    subprocess.run(child, check=True, env=environment, timeout=600)
    was_read = json.loads((folder / "read.json").read_text())
    return {name: {**written[name], **{way: was_read[name][way] for way in READERS}} for name in written}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return table(QUICK, tmp_path_factory.mktemp("ways"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    return table(SLOW, tmp_path_factory.mktemp("ways"))


def test_every_network_is_in_the_table():
    assert set(zoo.list_nets()) == {case.net for case in CASES} | PRESETS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_it_comes_back_the_same(case, way, quick):
    assert quick[case.name][way] == ""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
def test_it_comes_back_the_same_slow(case, way, slow):
    assert slow[case.name][way] == ""
