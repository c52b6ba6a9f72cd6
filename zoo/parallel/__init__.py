"""Many devices: towers in one graph, TensorFlow's own strategies, and clusters of machines."""

from zoo.parallel.build import TowerStep, build_towers
from zoo.parallel.builders import multi_gpu
from zoo.parallel.gradients import scale_gradient, sum_gradients
from zoo.parallel.placement import MissingDeviceError, available_devices, check_devices, choose_devices, placement
from zoo.parallel.strategies import REDUCTIONS, STRATEGIES, make_strategy, mirrored
from zoo.parallel.towers import Share, Towers, split_batch

__all__ = [
    "REDUCTIONS",
    "STRATEGIES",
    "MissingDeviceError",
    "Share",
    "TowerStep",
    "Towers",
    "available_devices",
    "build_towers",
    "check_devices",
    "choose_devices",
    "make_strategy",
    "mirrored",
    "multi_gpu",
    "placement",
    "scale_gradient",
    "split_batch",
    "sum_gradients",
]
