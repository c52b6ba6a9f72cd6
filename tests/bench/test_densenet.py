"""The arithmetic of `zoo bench densenet`, and which cells it measures."""

import pytest

from zoo.bench.cells import Cell, Result
from zoo.bench.densenet import Grid
from zoo.bench.measures import largest_batch, ratio, slope
from zoo.bench.plots import fit_line, growth


def result(batch, allocator, resident=10**9, seconds=(1.0,)):
    return Result(Cell("zoo", "densenet121", batch=batch), seconds, resident, allocator, {})


def test_slope_and_largest_batch_cancel_what_is_constant():
    results = [result(24, 1_000 + 24 * 50), result(8, 1_000 + 8 * 50)]
    assert slope(results, "allocator_peak") == 50
    assert largest_batch(results, "allocator_peak", 1_000 + 100 * 50 + 49) == 100
    assert slope(results[:1], "allocator_peak") is None
    assert slope([result(8, None), result(24, None)], "allocator_peak") is None


def test_ratio_has_the_median_s_interval():
    assert ratio([2.0], [1.0]) == (2.0, 2.0, 2.0)
    ours = [float(i) for i in range(1, 11)]
    assert ratio(ours, [1.0] * 10) == (5.5, 2.0, 9.0)  # the second and the ninth of ten: 97.9 %


def test_fit_line_gives_the_residual():
    assert fit_line([1, 2, 3], [2, 4, 6])[2] < 1e-12
    assert fit_line([1, 2, 3], [1, 4, 9])[2] > 0.03
    assert growth([1, 2, 3], [5, 20, 45]) == pytest.approx(2.0)


def test_peers_get_the_networks_they_have():
    peers = ["keras", "torchvision"]
    grid = Grid(["densenet161", "40x12"], ["store"], ["float32"], [False], peers, Cell("zoo", ""), "")
    assert [(cell.peer, cell.net) for cell in grid.cells()] == [
        ("zoo", "densenet161"),
        ("torchvision", "densenet161"),
        ("zoo", "densenet_cifar"),
    ]
    assert "keras has no densenet161: left out" in grid.left_out()
