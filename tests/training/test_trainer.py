"""Which steps go with which strategy, and what does not go together."""

import pytest
import tensorflow as tf

from zoo.parallel import Towers
from zoo.parallel.strategies import mirrored
from zoo.training.ps_engine import ParameterServerEngine
from zoo.training.step import Engine, TowerEngine
from zoo.training.trainer import check_summaries, make_engine


class Servers(tf.distribute.ParameterServerStrategy):
    """Without a cluster."""

    def __init__(self):
        """Joins nothing."""


def test_steps_by_strategy():
    towers = Towers(["CPU:0", "CPU:1"])
    assert make_engine(towers) == (TowerEngine, {"towers": towers})
    assert make_engine(Servers()) == (ParameterServerEngine, {})
    for place in (tf.distribute.get_strategy(), mirrored(["CPU:0"])):
        assert make_engine(place, jit_compile=True) == (Engine, {})


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="XLA does not reach variables on parameter servers"):
        make_engine(Servers(), jit_compile=True)
    with pytest.raises(ValueError, match="XLA knows one CPU only"):
        make_engine(mirrored(["CPU:0", "CPU:1"]), jit_compile=True)
    with pytest.raises(ValueError, match="cannot be looked into: take summaries='scalars'"):
        check_summaries(Servers(), "all")
    check_summaries(Servers(), "scalars")
    check_summaries(tf.distribute.get_strategy(), "all")
