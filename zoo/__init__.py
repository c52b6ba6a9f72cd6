"""Networks as plain scoped functions for TensorFlow 2 and Keras 3.

The public names load when first used (PEP 562), so that ``import zoo`` does not import TensorFlow. They stand in the
stub beside this file, which type checkers read too.
"""

import sys
from importlib import import_module

import lazy_loader

__version__ = "0.1.0"

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Imports a public name or room at its first use."""
    if name in __all__:
        return _load(name)
    raise AttributeError(f"module 'zoo' has no attribute '{name}'; dir(zoo) lists the public names")


def __dir__() -> list[str]:
    """Returns the public names, loaded or not."""
    return sorted({*globals(), *__all__})


if "keras" in sys.modules:  # then Keras can load zoo's models at once; else at the first use of anything of zoo's
    import_module("zoo.scoping")
