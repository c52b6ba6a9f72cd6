"""What is planned of a step: the same numbers at any batch as from a step traced at that batch."""

import pytest
import tensorflow as tf

import zoo
from zoo.registry import get_net
from zoo.training import Trainer
from zoo.training.memory import StepMemory, _Arena, largest_batch
from zoo.training.plan import plan_step

TINY = {"depth": 16, "growth_rate": 4, "input_shape": (16, 16, 3)}


@pytest.fixture(scope="module")
def plans():
    levels = ("store", "recompute", "minimal")
    return {level: plan_step(get_net("densenet_cifar"), TINY, level, "float32", "adam") for level in levels}


@pytest.fixture(scope="module")
def lenet():
    return plan_step(get_net("lenet5"), {}, "", "float32", "adam")


def test_one_trace_tells_of_every_batch(lenet):
    data = tf.TensorSpec((48, *zoo.lenet5().input_specs.shape[1:])), tf.TensorSpec((48,), tf.int64)
    traced = StepMemory(Trainer(zoo.lenet5(), optimizer="adam").build(data).graph(data)).peak()
    assert lenet.step.peak(48).tensors == pytest.approx(traced.tensors, rel=0.02)
    assert lenet.step.peak(96).tensors > 1.8 * traced.tensors


@pytest.mark.slow
def test_levels_keep_less_and_slots_count(plans):
    kept = [plan.parts(256)["kept"] for plan in plans.values()]
    totals = [plan.total(256) for plan in plans.values()]
    assert kept == sorted(kept, reverse=True) and totals == sorted(totals, reverse=True)
    assert totals[0] > 1.5 * totals[2]
    plan = plans["store"]
    assert 2.1 * 4 * zoo.densenet_cifar(**TINY).count_params() >= plan.slots > plan.weights
    parts = plan.parts(256)
    assert sum(parts.values()) == plan.total(256)
    assert parts["allocator"] > 0


def test_the_largest_batch_takes_what_there_is(lenet):
    plan = lenet
    batch = plan.largest_batch(200 << 20)
    assert 1.2 * plan.total(batch) <= 200 << 20 < 1.2 * plan.total(batch + max(2, batch // 64))
    assert plan.largest_batch(1 << 10) == 0
    assert [largest_batch(lambda n: 100 * n, limit) for limit in (99, 100, 1_050)] == [0, 1, 10]


def test_half_the_width_takes_less(lenet):
    half = plan_step(get_net("lenet5"), {}, "", "mixed_bfloat16", "adam")
    assert 0.45 < half.step.peak(1024).tensors / lenet.step.peak(1024).tensors < 0.8
    assert half.weights == lenet.weights


def test_sequences_are_not_planned():
    with pytest.raises(ValueError, match="word_lm cannot be planned: a plan is for a classifier of one input"):
        plan_step(get_net("word_lm"), {}, "", "float32", "sgd")


def test_a_chain_goes_on_before_the_next_one_begins():
    """As an executor does it: the five tensors are never there together, though the graph makes them first."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1])
        made = [tf.tile(x + number, [100_000]) for number in range(5)]  # 400,000 bytes each
        total = [tf.reduce_sum(one) for one in made]
    assert 400_000 <= StepMemory(graph).peak().tensors < 500_000
    assert total


def test_the_arena_splits_and_joins_as_tensorflow_does():
    arena = _Arena()
    first = arena.give(1)
    assert arena.most == 256
    second = arena.give(1000)  # in steps of 256
    assert arena.now == 256 + 1024
    arena.take_back(first)
    arena.take_back(second)
    assert arena.now == 0 and arena._free == [(2**20, 0)]  # one chunk again
    arena.give(600 * 1024)  # more than half: the chunk is not split
    assert arena.now == 2**20
    arena.give(2**20)  # of the next region, twice as large
    assert arena.now == 2**21 and arena._free == [(2**20, 2**20 + 256 + 2**20)]
