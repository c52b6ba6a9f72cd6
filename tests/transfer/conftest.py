"""One finished run that the tests of reports and pipelines share."""

import pytest
from transfer.retrain_support import TINY, write_folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def finished(pictures, tmp_path_factory):
    """A finished run on the tiny pictures, and the folder of its cache."""
    from zoo.transfer import retrain

    root = tmp_path_factory.mktemp("runs")
    said = []
    run = retrain(pictures, root / "run", cache=root / "cache", say=said.append, **TINY)
    return run, root / "cache", said
