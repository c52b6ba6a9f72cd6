"""Many devices: towers in one graph, TensorFlow's own strategies, and clusters of machines.

The names load when first used, so that the launcher of a cluster does not import TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.parallel.build import TowerStep as TowerStep
    from zoo.parallel.build import build_towers as build_towers
    from zoo.parallel.builders import multi_gpu as multi_gpu
    from zoo.parallel.gradients import merge_rows as merge_rows
    from zoo.parallel.gradients import scale_gradient as scale_gradient
    from zoo.parallel.gradients import sum_gradients as sum_gradients
    from zoo.parallel.places import MissingDeviceError as MissingDeviceError
    from zoo.parallel.places import available_devices as available_devices
    from zoo.parallel.places import check_devices as check_devices
    from zoo.parallel.places import choose_devices as choose_devices
    from zoo.parallel.places import placement as placement
    from zoo.parallel.strategies import REDUCTIONS as REDUCTIONS
    from zoo.parallel.strategies import STRATEGIES as STRATEGIES
    from zoo.parallel.strategies import make_strategy as make_strategy
    from zoo.parallel.strategies import mirrored as mirrored
    from zoo.parallel.towers import Share as Share
    from zoo.parallel.towers import Towers as Towers
    from zoo.parallel.towers import split_batch as split_batch

_NAMES = {
    "build": ("TowerStep", "build_towers"),
    "builders": ("multi_gpu",),
    "gradients": ("merge_rows", "scale_gradient", "sum_gradients"),
    "places": ("MissingDeviceError", "available_devices", "check_devices", "choose_devices", "placement"),
    "strategies": ("REDUCTIONS", "STRATEGIES", "make_strategy", "mirrored"),
    "towers": ("Share", "Towers", "split_batch"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'zoo.parallel' has no attribute '{name}'; dir(zoo.parallel) lists the names")
    value = getattr(import_module(f"zoo.parallel.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
