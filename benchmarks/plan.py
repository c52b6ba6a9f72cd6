"""What `zoo plan` says of a training step beside what TensorFlow's CPU allocator gave out for it.

    python benchmarks/plan.py        writes results/plan.csv, cell by cell; goes on where it was interrupted

A fresh process for each cell: the Trainer's own step, three steps to warm up, then the allocator's peak over five,
less what was given out before the step. Weights and slots are left out on both sides: a CPU keeps many of them in
NumPy's memory, which the allocator does not count.
"""

import argparse
import csv
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from zoo.bench.measures import write_csv

RESULTS = Path(__file__).parent / "results"
NETS: dict[str, tuple[int, dict[str, Any]]] = {  # name -> batch and options, large enough for the maps to count
    "densenet121": (16, {"input_shape": (96, 96, 3), "num_classes": 100}),
    "densenet_cifar": (64, {"depth": 40, "growth_rate": 12}),
    "lenet5": (512, {}),
    "cifarnet": (128, {}),
}
MIB = 2**20


def one_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """Plans a cell, then trains it and asks the allocator."""
    import numpy as np
    import tensorflow as tf

    from zoo.registry import get_net
    from zoo.training import Trainer
    from zoo.training.plan import plan_step

    batch, options = NETS[cell["net"]]
    network = get_net(cell["net"])
    planned = plan_step(network, options, cell["memory"], cell["precision"], cell["optimizer"])
    peak = planned.step.peak(batch)
    chosen = {**options, "memory": cell["memory"]} if cell["memory"] else options
    model = network(dtype=cell["precision"], **chosen)
    images = np.zeros((batch, *model.input_specs.shape[1:]), np.float32)
    labels = np.arange(batch) % model.output_specs.shape[-1]
    data = tf.data.Dataset.from_tensors((images, labels)).repeat()
    trainer = Trainer(model, optimizer=cell["optimizer"], metrics=())
    engine, iterator = trainer.build(data.element_spec), iter(data)
    for _ in range(3):
        engine.train(iterator, 1).losses.numpy()
    gc.collect()
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    tf.config.experimental.reset_memory_stats("CPU:0")
    for _ in range(5):
        engine.train(iterator, 1).losses.numpy()
    measured = tf.config.experimental.get_memory_info("CPU:0")["peak"] - before
    return {
        **cell,
        "batch": batch,
        "planned_tensors_mib": round(peak.tensors / MIB, 1),
        "planned_mib": round(peak.chunks / MIB, 1),
        "measured_mib": round(measured / MIB, 1),
        "planned_to_measured": round(peak.chunks / measured, 3),
    }


def cells() -> Iterator[dict[str, str]]:
    """The small networks first; of DenseNet-121 two settings a level, for time."""
    for net in reversed(NETS):
        levels = ("store", "recompute", "minimal") if net.startswith("densenet") else ("",)
        for memory, precision, optimizer in product(levels, ("float32", "mixed_bfloat16"), ("sgd", "adam")):
            if net == "densenet121" and (precision, optimizer) not in (("float32", "sgd"), ("mixed_bfloat16", "adam")):
                continue
            yield {"net": net, "memory": memory, "precision": precision, "optimizer": optimizer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", type=json.loads)
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(one_cell(given.cell)))
        return
    path = RESULTS / "plan.csv"
    rows: list[dict[str, Any]] = list(csv.DictReader(path.open())) if path.exists() else []
    for cell in cells():
        if any(all(row[key] == value for key, value in cell.items()) for row in rows):
            continue
        command = [sys.executable, __file__, "--cell", json.dumps(cell)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        write_csv(path, rows)
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
