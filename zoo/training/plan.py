"""What a network's training step will take at any batch, level and type: planned from its traced graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from zoo.training.memory import TRACED_BATCH, StepMemory, bytes_of, largest_batch
from zoo.training.trainer import Trainer

if TYPE_CHECKING:
    from zoo.registry import Net

# By how much what is measured may exceed what is planned; benchmarks/plan.py compares them.
STATED_ERROR = 0.20


@dataclass(frozen=True)
class StepPlan:
    """Bytes of one network's training step.

    Args:
        memory: The memory level; "" for a network that has none.
        precision: Keras' policy of types.
        weights: Bytes of the variables.
        slots: Of the optimizer's variables.
        step: The tensors of a step.
    """

    memory: str
    precision: str
    weights: int
    slots: int
    step: StepMemory

    def parts(self, batch: int) -> dict[str, int]:
        """Returns the bytes at the fullest moment of a step, by what takes them.

        Args:
            batch: Examples in the step.

        Returns:
            "weights", "slots", "gradients" of the weights, "kept" for the backward pass, "moment" (what the operation
            of that moment and those near it work with), "allocator" (what chunks are larger than what was asked for).
        """
        peak = self.step.peak(batch)
        named = {name: peak.parts.get(name, 0) for name in ("gradients", "kept", "moment")}
        return {"weights": self.weights, "slots": self.slots, **named, "allocator": peak.chunks - peak.tensors}

    def total(self, batch: int) -> int:
        """Returns the bytes that a step of so many examples takes."""
        return self.weights + self.slots + self.step.peak(batch).chunks

    def largest_batch(self, limit: int) -> int:
        """Returns the largest batch whose total, and the stated error on top, is within a limit in bytes."""
        return largest_batch(lambda batch: int(self.total(batch) * (1 + STATED_ERROR)), limit)


def plan_step(network: Net, options: Mapping[str, Any], memory: str, precision: str, optimizer: str) -> StepPlan:
    """Traces the training step of a network; no variable is trained and no batch is made.

    Args:
        network: A classifier of one input.
        options: Of the network.
        memory: Its memory level, or "" for the default.
        precision: Keras' policy, such as "mixed_bfloat16".
        optimizer: Its name.

    Returns:
        The plan, for any batch.

    Raises:
        ValueError: The network does not take the options, or is no classifier of one input of known size.
    """
    chosen = {**options, "memory": memory} if memory else dict(options)
    network.check_options(chosen)
    model = network(dtype=precision, **chosen)
    specs = model.input_specs
    if network.spec.num_classes is None or not isinstance(specs, tf.TensorSpec) or None in specs.shape[1:]:
        raise ValueError(
            f"{network.spec.name} cannot be planned: a plan is for a classifier of one input of known size, such as "
            "densenet121; 'zoo info' tells of its variables"
        )
    images = tf.TensorSpec((TRACED_BATCH, *specs.shape[1:]), specs.dtype)
    data = images, tf.TensorSpec((TRACED_BATCH,), tf.int64)
    engine = Trainer(model, optimizer=optimizer).build(data)
    step = StepMemory(engine.graph(data))
    return StepPlan(memory, precision, bytes_of(model.variables), bytes_of(engine.optimizer.variables), step)
