"""Starting: ``import zoo`` and ``zoo --help`` leave TensorFlow alone, and the public names are all there."""

import subprocess
import sys

import pytest

import zoo

HEAVY = ("tensorflow", "keras", "sklearn", "matplotlib", "numpy")


@pytest.mark.parametrize(
    "start",
    [
        "import zoo",
        "import zoo; assert 'lenet5' in zoo.list_nets()",
        "from zoo.cli import main\ntry:\n  main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_start_without_tensorflow(start):
    check = f"{start}\nimport sys\nprint('LOADED', [m for m in {HEAVY} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert said.stdout.strip().endswith("LOADED []")


def test_the_list_of_networks_does_without_tensorflow():
    check = (
        "import sys\nfrom zoo.cli import main\ntry:\n  main(['list'])\nexcept SystemExit: pass\n"
        "print([m for m in ('tensorflow', 'keras') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.splitlines()
    assert any("61,706" in line for line in said)
    assert said[-1] == "[]"


def test_every_public_name_loads():
    for name in zoo.__all__:
        assert getattr(zoo, name) is not None
    assert set(zoo.__all__) <= set(dir(zoo))
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'lenet6'"):
        zoo.lenet6  # noqa: B018


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert zoo.__version__ == version("scoped-zoo")
