"""The learning-rate range test."""

import numpy as np
import pytest
from training.small import make_data, make_model, make_trainer, weights

from zoo.training import find_learning_rate


def test_range_test_finds_a_rate_and_puts_everything_back(tmp_path):
    trainer = make_trainer(make_model(dropout=0.1), optimizer="momentum", averages=0.9, global_batch=50)
    data = make_data(200)
    trainer.fit(data, epochs=1, progress="none")
    before, step = weights(trainer.model), int(trainer.engine.step)
    seeds = [np.array(v) for v in trainer.model.variables]
    found = find_learning_rate(trainer, data, lowest=1e-4, highest=100.0, steps=60)
    assert found.rates[0] == pytest.approx(1e-4)
    assert 1e-3 < found.suggestion < 10
    for one, other in zip(
        before + seeds, weights(trainer.model) + [np.array(v) for v in trainer.model.variables], strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert int(trainer.engine.step) == step
    assert found.plot(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(found.write(tmp_path / "a.csv").read_text().splitlines()) == len(found.rates) + 1
    with pytest.raises(ValueError, match="must rise"):
        find_learning_rate(trainer, data, lowest=1.0, highest=0.1)
