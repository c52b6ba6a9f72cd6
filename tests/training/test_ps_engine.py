"""What is lost with a dead worker: its answers, never the job. (Whole jobs: tests/parallel/test_processes.)"""

import numpy as np
import pytest
import tensorflow as tf

from zoo.training.ps_engine import ParameterServerEngine, _Remote

WORKER = "remote target /job:worker/replica:0/task:1 while calling RunComponentFunction"
SERVER = "worker /job:worker/replica:0/task:1 met remote target /job:ps/replica:0/task:0"


class Answer:
    """A remote value whose fetching raises, or gives a row of losses and the examples it is of."""

    def __init__(self, found):
        self.found = found

    def fetch(self):
        if isinstance(self.found, Exception):
            raise self.found
        return np.full((1, 4), self.found), np.array([self.found])


def gone(words=WORKER):
    return tf.errors.UnavailableError(None, None, words)


def test_the_losses_that_died_with_a_worker_are_left_out():
    values = [Answer(1.0), Answer(gone()), Answer(3.0)]
    np.testing.assert_array_equal(_Remote(values, 0).numpy()[:, 0], [1.0, 3.0])
    np.testing.assert_array_equal(_Remote(values, 1).numpy(), [3.0])
    assert _Remote([Answer(gone())], 0).numpy().shape == (0, 4)
    moved = tf.errors.InvalidArgumentError(None, None, f"Unable to find the relevant tensor remote_handle: {WORKER}")
    assert _Remote([Answer(moved)], 0).numpy().shape == (0, 4)


@pytest.mark.parametrize(
    "error",
    [gone(SERVER), gone("no address"), tf.errors.InvalidArgumentError(None, None, f"indices out of range: {WORKER}")],
    ids=["server", "unknown", "bug"],
)
def test_what_is_no_dead_worker_ends_the_job(error):
    with pytest.raises(type(error)):
        _Remote([Answer(error)], 0).numpy()


def test_a_batch_is_tested_again_by_another_worker():
    answers = [gone(), gone(), 5.0]

    class Coordinator:
        def schedule(self, function, args):
            assert args == ("batch",)
            return Answer(answers.pop(0))

    engine = object.__new__(ParameterServerEngine)
    engine.coordinator, engine._tested_batch = Coordinator(), None
    total, _ = engine.evaluate(iter(["batch"]))
    assert total[0, 0] == 5.0
    answers += [gone()] * 10
    with pytest.raises(RuntimeError, match="10 workers died"):
        engine.evaluate(iter(["batch"]))
    answers[:] = [gone(SERVER)]
    with pytest.raises(tf.errors.UnavailableError):
        engine.evaluate(iter(["batch"]))
