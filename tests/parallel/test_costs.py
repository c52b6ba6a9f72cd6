"""The cost model: its formula by hand, its fits, and the published scaling that it must foretell."""

from dataclasses import replace

import numpy as np
import pytest

from zoo.parallel.costs import Cost, Link, fit_link, fit_network

PARAMETERS = 23_851_784  # Inception-v3 without its auxiliary head


def test_the_formula_by_hand():
    cost = Cost(example=0.01, gradients=8e6, network=Link(1e9, 1e-3), inside=Link(4e9), per_machine=2)
    assert cost.step(1, 10) == pytest.approx(0.1)
    assert cost.step(2, 10) == pytest.approx(0.1 + 2 * 4e6 / 4e9)
    assert cost.step(8, 10) == pytest.approx(0.1 + 2 * 4e6 / 4e9 + 6 * (1e-3 + 2e6 / 1e9))
    assert cost.efficiency(8, 10) == pytest.approx(0.1 / 0.12)
    assert cost.speed(8, 10) == pytest.approx(80 / 0.12)
    hidden = Cost(0.01, 8e6, Link(1e9, 1e-3), Link(4e9), 2, hidden=0.1)
    assert hidden.step(8, 10) == pytest.approx(0.11)
    with pytest.raises(ValueError, match="count from 1"):
        cost.step(0, 10)


def test_a_link_is_found_again():
    link = Link(3e8, 2e-4)
    sizes, counts = [1e4, 1e6, 1e7, 1e8], [2, 3, 4, 2]
    found = fit_link(sizes, counts, [link.all_reduce(n, k) for n, k in zip(sizes, counts, strict=True)])
    assert (found.bandwidth, found.latency) == pytest.approx((3e8, 2e-4))
    assert fit_link([1e6, 1e7], [2, 2], [0.9e-3, 1e-2]).latency == 0
    with pytest.raises(ValueError, match="at least two"):
        fit_link([1e6], [2], [1.0])
    with pytest.raises(ValueError, match="do not take longer"):
        fit_link([1e6, 1e7], [2, 2], [1.0, 0.1])


def test_it_foretells_the_published_scaling():
    """Batches of 64 on K80s, 8 a machine, fitted on 8 and 32 GPUs; on P100s in one machine, fitted on 8 GPUs."""
    bare = Cost(1 / 29.7, 4.0 * PARAMETERS, Link(np.inf), Link(np.inf))
    cost = fit_network(fit_network(bare, 8, 64, 229), 32, 64, 902)
    for devices, published in ((16, 459), (64, 1783)):
        assert cost.speed(devices, 64) == pytest.approx(published, rel=0.015)
    fast = fit_network(replace(bare, example=1 / 142), 8, 64, 1079)
    for devices, published in ((2, 278), (4, 551)):
        assert fast.speed(devices, 64) == pytest.approx(published, rel=0.015)
    with pytest.raises(ValueError, match="cannot be faster"):
        fit_network(bare, 8, 64, 300)
