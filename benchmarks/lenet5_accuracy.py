"""What `zoo train lenet5` reaches over seeds, beside plain keras.Sequential trained on the same batches.

    python benchmarks/lenet5_accuracy.py random | writers | mnist-sample

Writes results/lenet5_accuracy_CASE.csv: a row for each seed, the mean, and the first seed once more. Goals: a random
fifth of the digits >= 0.99 (3 seeds), other writers >= 0.965 (5 seeds), MNIST sample >= 0.975 (1 seed), digits under
60 s on 2 cores; the same seed gives the same weights.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keras
from lenet5 import sequential
from paired import write

from zoo.data import digits, mnist
from zoo.data.augment import shift_turn_zoom
from zoo.data.stream import array_stream

# Case -> words of the command, seeds, goal.
CASES = {
    "random": (["--data", "digits", "--split", "random"], 3, 0.99),
    "writers": (["--data", "digits", "--split", "writers"], 5, 0.965),
    "mnist-sample": (["--data", "mnist-sample"], 1, 0.975),
}


def with_zoo(words: list[str], seed: int, folder: Path) -> tuple[dict, float]:
    """Returns the card of the weights that the command leaves, and the seconds it took from start to end."""
    zoo = [sys.executable, "-c", "from zoo.cli import main; main()"]
    command = [*zoo, "train", "lenet5", *words, "--validation", "0"]  # all of the training part, as with Keras
    started = time.perf_counter()
    subprocess.run([*command, "--seed", str(seed), "--out", str(folder)], check=True, capture_output=True)
    return json.loads((folder / "weights.json").read_text()), time.perf_counter() - started


def with_keras(case: str, seed: int, epochs: int = 30, batch: int = 32) -> float:
    """Returns the test accuracy of the same recipe in plain Keras."""
    keras.utils.set_random_seed(seed)
    split = mnist.sample() if case == "mnist-sample" else digits.load(case)
    stream = array_stream(*split.train, batch_size=batch, seed=seed, augment=shift_turn_zoom)
    model = sequential()
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, stream.batches * epochs)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    for epoch in range(epochs):
        model.fit(stream(epoch), shuffle=False, verbose=0)
    return model.evaluate(*split.test, verbose=0)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=list(CASES))
    case = parser.parse_args().case
    words, seeds, goal = CASES[case]
    rows = []
    for seed in (*range(seeds), 0):
        with tempfile.TemporaryDirectory() as folder:
            card, seconds = with_zoo(words, seed, Path(folder))
        again = len(rows) == seeds
        rows.append(
            {
                "data": case,
                "seed": f"{seed} again" if again else seed,
                "accuracy": card["accuracy"],
                "keras_accuracy": rows[0]["keras_accuracy"] if again else with_keras(case, seed),
                "command_seconds": seconds,
                "goal": goal,
                "weights_sha256": card["sha256"][:16],
            }
        )
    means = {
        key: sum(row[key] for row in rows[:seeds]) / seeds for key in ("accuracy", "keras_accuracy", "command_seconds")
    }
    rows.append({"data": case, "seed": "mean", **means, "goal": goal, "weights_sha256": ""})
    write(f"lenet5_accuracy_{case}", rows, ["tensorflow", "keras", "scikit-learn", "mlxtend"])
    print("the same seed gives the same weights:", rows[0]["weights_sha256"] == rows[seeds]["weights_sha256"])


if __name__ == "__main__":
    main()
