"""Which compiled steps go with which strategy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.parallel.strategies import Strategy
from zoo.parallel.towers import Towers
from zoo.training.step import Engine


def make_engine(place: Strategy) -> tuple[type[Engine], dict[str, Any]]:
    """Returns the class of the steps, and the options that it takes besides `Engine`'s.

    Args:
        place: Towers or a strategy of `tf.distribute`.
    """
    if isinstance(place, Towers):
        from zoo.training.tower_engine import TowerEngine

        return TowerEngine, {"towers": place}
    if isinstance(place, tf.distribute.ParameterServerStrategy):
        from zoo.training.ps_engine import ParameterServerEngine

        return ParameterServerEngine, {}
    return Engine, {}
