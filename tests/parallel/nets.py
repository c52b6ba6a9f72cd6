"""Tiny instances of every registered network, with data for it and what the trainer needs to know."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

import zoo
from zoo.nets.word_lm import summed_cross_entropy
from zoo.training import Trainer

CPUS = [f"CPU:{i}" for i in range(4)]


@dataclass(frozen=True)
class Case:
    """A registered network, small; `norm` says that it has batch norm."""

    net: str
    options: dict[str, Any] = field(default_factory=dict)
    inputs: Any = (32, 32, 1)
    norm: bool = False
    trainer: dict[str, Any] = field(default_factory=dict)
    words: bool = False

    def build(self, dtype="float64", make=zoo.create):
        shape = {} if self.words else {"input_shape": self.inputs}
        return make(self.net, seed=1, dtype=dtype, **self.options, **shape)

    def data(self, batches=5, batch=7):
        """A data set of batches; the last one is not full."""
        count, numbers = batches * batch - 2, np.random.default_rng(0)
        labels = numbers.integers(0, 4, count)
        if self.words:
            inputs: Any = numbers.integers(0, 12, (count, 5)).astype("int32")
            labels = numbers.integers(0, 12, (count, 5))
            if self.net == "sequence_tagger":
                inputs = {"sequence": numbers.normal(size=(count, 5, 3)), "length": numbers.integers(1, 6, count)}
                labels = numbers.integers(0, 4, (count, 5))
        else:
            inputs = numbers.uniform(-1, 1, (count, *self.inputs))
        return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(batch).cache()


SMALL_DENSE = {"num_classes": 4, "block_config": (2, 1), "growth_rate": 4}
CASES = [
    Case("lenet5"),
    Case("cifarnet", {"num_classes": 4}, (24, 24, 3)),
    Case(
        "inception_v3",
        {"num_classes": 4, "depth_multiplier": 0.07, "dropout_keep_prob": 1.0},
        (107, 107, 3),
        True,
        {"aux_losses": {"AuxLogits": 0.4}},
    ),
    *(
        Case("densenet", {**SMALL_DENSE, "memory": level}, (16, 16, 3), True)
        for level in ("store", "recompute", "minimal")
    ),
    Case(
        "word_lm",
        {"vocab_size": 12, "hidden": 6, "keep_prob": 1.0},
        None,
        trainer={"loss": summed_cross_entropy, "metrics": (), "clip_norm": 5.0},
        words=True,
    ),
    Case("sequence_tagger", {"num_classes": 4, "width": 3, "hidden": 5}, None, words=True),
    Case("row_classifier", {"num_classes": 4, "hidden": 6}, (8, 8, 1)),
]
# With batch norm, and quicker than those above: for what has nothing to do with the network.
NORM = Case("densenet", {**SMALL_DENSE, "block_config": (2,), "memory": "recompute"}, (16, 16, 3), True)
IDS = [f"{case.net}-{case.options['memory']}" if "memory" in case.options else case.net for case in CASES]


def train(case, strategy=None, dataset=None, steps=5, model=None, **options):
    """Trains a tiny instance; returns its variables by name, as float64."""
    place = strategy if strategy is not None else tf.distribute.get_strategy()
    with place.scope():
        model = model or case.build()
        settings = {"optimizer": "nesterov", "learning_rate": 0.05, **case.trainer, **options}
        trainer = Trainer(model, strategy=strategy, **settings)
    history = trainer.fit(dataset, steps=steps, progress="none", log_every=1)
    values = {name: np.array(model.variable(name), np.float64) for name in model.variable_names}
    return values, [line["loss"] for line in history.lines if line["kind"] == "train"], trainer
