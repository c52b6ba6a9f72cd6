"""Shared set-up: four logical CPU devices, one seed a test, the folder of real test data, and the command ``zoo``."""

import os
import random
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")

import keras
import numpy as np
import pytest
import tensorflow as tf

LOGICAL_CPUS = 4

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * LOGICAL_CPUS
)


@pytest.fixture(autouse=True)
def seeded():
    """Gives every test the same random numbers, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - Keras and scikit-learn read the global generator
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real weights and pictures that ZOO_TEST_DATA names; skips the test without it."""
    folder = os.environ.get("ZOO_TEST_DATA")
    if not folder:
        pytest.skip("ZOO_TEST_DATA is not set: no real weights and pictures to test on")
    if not Path(folder).is_dir():
        pytest.fail(f"ZOO_TEST_DATA names {folder!r}, which is not a folder")
    return Path(folder)


class Said(NamedTuple):
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def zoo_command(capsys, monkeypatch):
    """A function that runs ``zoo WORDS...`` inside the test process."""
    monkeypatch.delenv("ZOO_TRACEBACK", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        from zoo.cli import main

        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        return Said(stop.value.code or 0, *capsys.readouterr())

    return run
