"""Which compiled steps go with which strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.parallel.strategies import Strategy
from zoo.parallel.towers import Towers
from zoo.training.step import Engine


def make_engine(place: Strategy, jit_compile: bool = False) -> tuple[type[Engine], dict[str, Any]]:
    """Returns the class of the steps, and the options that it takes besides `Engine`'s.

    Args:
        place: Towers or a strategy of `tf.distribute`.
        jit_compile: Compile with XLA.

    Raises:
        ValueError: XLA on several logical CPUs, of which it knows the first only, or with parameter servers.
    """
    if jit_compile and isinstance(place, tf.distribute.MirroredStrategy):
        devices = place.extended.worker_devices
        if len(devices) > 1 and any("CPU" in device.upper() for device in devices):
            raise ValueError("XLA knows one CPU only: jit_compile goes with mirrored GPUs, not with logical CPUs")
    if jit_compile and isinstance(place, tf.distribute.ParameterServerStrategy):
        raise ValueError("XLA does not reach variables on parameter servers: leave jit_compile out")
    if isinstance(place, Towers):
        from zoo.training.tower_engine import TowerEngine

        return TowerEngine, {"towers": place}
    if isinstance(place, tf.distribute.ParameterServerStrategy):
        from zoo.training.ps_engine import ParameterServerEngine

        return ParameterServerEngine, {}
    return Engine, {}


def check_summaries(place: Strategy, summaries: str) -> None:
    """Raises ValueError for summaries of what goes on inside a step that this process does not see."""
    if summaries == "all" and isinstance(place, tf.distribute.ParameterServerStrategy):
        raise ValueError("with parameter servers a step cannot be looked into: take summaries='scalars'")
