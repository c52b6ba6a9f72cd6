"""The arithmetic of `zoo bench densenet`, and which cells it measures."""

import pytest

from zoo.bench.cells import Cell, Result
from zoo.bench.densenet import Grid
from zoo.bench.measures import largest_batch, ratio, slope
from zoo.bench.plots import fit_line, growth
from zoo.bench.search import find_batch, planned_batch


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


def test_a_batch_is_found_within_the_margin_and_the_limit():
    def run(cell):
        return result(cell.batch, 100 * cell.batch) if cell.batch <= limit else Result(cell, outcome="hung", said="x")

    for limit, margin in ((0, 0.0), (1, 0.0), (37, 0.0), (700, 0.0), (700, 0.05)):
        found = find_batch(Cell("zoo", "densenet121"), run, margin, None)
        assert found.largest <= limit < found.failed <= max(found.largest + 1, found.largest * (1 + margin))
        assert found.why == "hung: x"
    limit = 700
    assert find_batch(Cell("zoo", "densenet121"), run, 0.0, 5_050).largest == 50  # the device has more, the limit not
    assert find_batch(Cell("zoo", "densenet121"), run, 0.0, 5_050).why.startswith("over the limit")
    limit = 2**30
    assert find_batch(Cell("zoo", "densenet121"), run, 0.0, None).failed is None


@pytest.mark.slow
def test_the_plan_stands_beside_what_is_found():
    cell = Cell("zoo", "densenet_cifar", size=32, classes=10, options={"depth": 10, "growth_rate": 4})
    batches = [planned_batch(cell, limit << 20) for limit in (50, 100)]
    assert 0 < batches[0] < 0.6 * batches[1]
    assert planned_batch(Cell("keras", "densenet121"), 1 << 30) is None
