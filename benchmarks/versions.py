"""Two checkouts of zoo side by side: is anything slower than before?

``python benchmarks/versions.py BEFORE [--only NAME ...] [--rounds 40]`` times this checkout against the one in the
folder BEFORE (``git worktree add BEFORE COMMIT``). Each has a process of its own for a job; the two run in turn, one
while the other waits, first and second by turns, so that the ratio of a pair cancels what the machine was doing.
"""

import argparse
import gc
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def convolution() -> Callable[[], Any]:
    """A training step of convolution, batch norm (recomputed) and ReLU in a graph."""
    return _trained(*_convolution(), graph=True)


def convolution_eager() -> Callable[[], Any]:
    """The same, eagerly."""
    return _trained(*_convolution(), graph=False)


def dense_block() -> Callable[[], Any]:
    """A training step of a dense block of six layers, at the default memory, in a graph."""
    return _trained(*_dense_block(), graph=True)


def dense_block_eager() -> Callable[[], Any]:
    """The same, eagerly."""
    return _trained(*_dense_block(), graph=False)


def densenet() -> Callable[[], Any]:
    """A training step of a DenseNet of three blocks in a graph."""
    import zoo

    options = {"block_config": (3, 3, 3), "growth_rate": 12, "input_shape": (32, 32, 3), "num_classes": 10, "seed": 1}
    return _trained(zoo.create("densenet", **options), (8, 32, 32, 3), graph=True)


def inception() -> Callable[[], Any]:
    """A forward pass of Inception-v3 in a graph."""
    import tensorflow as tf

    import zoo

    model = zoo.inception_v3(input_shape=(139, 139, 3), seed=1)
    images = tf.random.stateless_uniform([4, 139, 139, 3], [1, 2], -1.0)

    @tf.function
    def run() -> Any:
        return model(images)

    return run


def lenet5_build() -> Callable[[], Any]:
    """Building LeNet-5."""
    import zoo

    return lambda: zoo.lenet5(seed=1)


def lenet5_eager() -> Callable[[], Any]:
    """An eager call of LeNet-5 on one picture."""
    import tensorflow as tf

    import zoo

    model, images = zoo.lenet5(seed=1), tf.zeros([1, 28, 28, 1])
    return lambda: model(images)


def lenet5() -> Callable[[], Any]:
    """A training step of LeNet-5 in a graph."""
    import zoo

    return _trained(zoo.lenet5(seed=1), (64, 28, 28, 1), graph=True)


def lstm() -> Callable[[], Any]:
    """A training step of the two LSTM layers of a word model in a graph."""
    import tensorflow as tf

    import zoo

    model = zoo.create("word_lm", vocab_size=1000, hidden=200, seed=1)
    words = tf.random.stateless_uniform([20, 20], [1, 2], 0, 1000, tf.int32)
    variables = model.trainable_variables

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = tf.nest.flatten(model(words, training=True))[0]
            loss = tf.reduce_mean(logits**2)
        return [loss, *tape.gradient(loss, variables)]

    return lambda: step()[0]


JOBS = {
    job.__name__: job
    for job in (
        convolution,
        convolution_eager,
        dense_block,
        dense_block_eager,
        densenet,
        inception,
        lenet5,
        lenet5_build,
        lenet5_eager,
        lstm,
    )
}


def _convolution() -> tuple[Any, tuple[int, ...]]:
    import zoo

    def network(images: Any, *, is_training: bool = False) -> Any:
        norm = {"is_training": is_training, "recompute": True, "scale": True}
        for number in range(3):
            with zoo.variable_scope(f"unit_{number}"):
                images = zoo.layers.conv2d(images, 32, 3, normalizer_fn=zoo.layers.batch_norm, normalizer_params=norm)
        return images

    return zoo.Model(network, input_shape=(32, 32, 16), seed=1), (8, 32, 32, 16)


def _dense_block() -> tuple[Any, tuple[int, ...]]:
    import tensorflow as tf

    import zoo
    from zoo.layers.dense_block import dense_block

    def network(images: Any, *, is_training: bool = False) -> Any:
        return tf.concat(dense_block(images, 6, 12, is_training=is_training).pieces, -1)

    return zoo.Model(network, input_shape=(32, 32, 24), seed=1), (8, 32, 32, 24)


def _trained(model: Any, shape: tuple[int, ...], *, graph: bool) -> Callable[[], Any]:
    import tensorflow as tf

    images = tf.random.stateless_uniform(shape, [1, 2], -1.0)
    variables = model.trainable_variables

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(images, training=True) ** 2)
        return [loss, *tape.gradient(loss, variables)]

    run = tf.function(step) if graph else step
    return lambda: run()[0]


def child(name: str) -> None:
    """Answers each line of the standard input with the seconds of one run, the mean of those of a fifth of a second."""
    job = JOBS[name]()

    def run() -> None:
        result = job()
        getattr(result, "numpy", bool)()  # waits for the operations

    for _ in range(3):
        started = time.perf_counter()
        run()
    calls = math.ceil(0.2 / (time.perf_counter() - started))
    print("ready", flush=True)
    for _ in sys.stdin:
        gc.collect()
        started = time.perf_counter()
        for _ in range(calls):
            run()
        print((time.perf_counter() - started) / calls, flush=True)


class Contender:
    """A process that runs one job of one checkout."""

    def __init__(self, checkout: Path, name: str) -> None:
        words = [sys.executable, "-c", _CHILD, str(checkout), str(Path(__file__).resolve()), name]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer("ready")

    def _answer(self, expected: str = "") -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line or (expected and line.strip() != expected):
            raise RuntimeError(f"the job ended with status {self.process.wait()}; run it by hand to see why")
        return line

    def __call__(self) -> float:
        """Returns the seconds of one run."""
        if self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


# the checkout comes first on the path, before an installed zoo; then the jobs of this file run
_CHILD = """
import runpy, sys
checkout, script, name = sys.argv[1:]
sys.path.insert(0, checkout)
import zoo
assert zoo.__file__.startswith(checkout), zoo.__file__
runpy.run_path(script)["child"](name)
"""


def main() -> None:
    """Runs the jobs and writes results/versions.csv."""
    from paired import Paired, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder of the checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", default="versions", help="name of the table in results/")
    given = parser.parse_args()
    before = given.before.resolve()
    if not (before / "zoo").is_dir():
        parser.error(f"{given.before} holds no checkout of zoo")
    commits = [
        subprocess.run(
            ["git", "-C", str(at), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for at in (HERE, before)
    ]
    rows = []
    for name in given.only:
        contenders = [Contender(HERE, name), Contender(before, name)]
        seconds: list[list[float]] = [[], []]
        for turn in range(given.rounds):
            for which in (0, 1) if turn % 2 else (1, 0):
                seconds[which].append(contenders[which]())
        for contender in contenders:
            contender.close()
        rows.append({"job": name, "now": commits[0], "before": commits[1], **Paired(*seconds).row()})
        print(
            f"{name}: {rows[-1]['ratio']:.3f} ({rows[-1]['ratio_low']:.3f} to {rows[-1]['ratio_high']:.3f})", flush=True
        )
    write(given.out, rows)


if __name__ == "__main__":
    main()
