"""How much memory a batch size will take, from the traced step, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from zoo.training.step import Engine

# Ops whose output is their input's buffer.
_SAME_BUFFER = {
    "Identity",
    "IdentityN",
    "Reshape",
    "Squeeze",
    "ExpandDims",
    "StopGradient",
    "PreventGradient",
    "Snapshot",
}
# Ops that write over an input nobody else needs.
_IN_PLACE = {
    *("Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "BiasAdd", "Cast", "Neg", "Square", "Sqrt", "Rsqrt", "Exp", "Log"),
    *("Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "ReluGrad", "TanhGrad", "SigmoidGrad"),
    *("Softmax", "LogSoftmax", "SelectV2"),
}


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one training step on one replica.

    Args:
        weights: the model's variables.
        optimizer: the optimizer's variables.
        averages: the moving averages.
        step: most that activations, gradients and the batch itself take at one moment.
    """

    weights: int
    optimizer: int
    averages: int
    step: int

    @property
    def total(self) -> int:
        """All of it; what TensorFlow itself needs (some 300 to 500 MB of code and arenas) comes on top."""
        return self.weights + self.optimizer + self.averages + self.step


def estimate_memory(engine: Engine, element_spec: Any) -> MemoryEstimate:
    """Estimates the memory of a training step by walking through its graph with the life of every tensor.

    Args:
        engine: the compiled steps (`Trainer.build`).
        element_spec: structure of a batch with its batch size, (inputs, labels[, weights]).

    Returns:
        The estimate. Buffers are taken to be freed at their last use and ops to run in the order of the graph.

    Raises:
        ValueError: the spec has no batch size.
    """
    for spec in tf.nest.flatten(element_spec):
        if not spec.shape.rank or spec.shape[0] is None:
            raise ValueError(f"the batch size must be in the spec to estimate memory, received {spec}")
    averages = engine.averages.shadows.values() if engine.averages is not None else ()
    return MemoryEstimate(
        weights=_bytes_of(engine.model.variables),
        optimizer=_bytes_of(engine.optimizer.variables),
        averages=_bytes_of(averages),
        step=peak_bytes(engine.graph(element_spec)),
    )


def estimate_inference(model: keras.Model, inputs: Any) -> int:
    """Estimates the bytes that activations take when a model is called.

    Args:
        model: a built model.
        inputs: structure of `tf.TensorSpec` with a batch size.

    Returns:
        The most that activations and the batch take at one moment; the weights come on top.
    """
    return peak_bytes(tf.function(lambda x: model(x, training=False)).get_concrete_function(inputs).graph)


def peak_bytes(graph: Any) -> int:
    """Returns the most bytes of tensors, variables left out, alive at one moment when a graph's ops run in order.

    Unknown sizes count as 1.
    """
    operations = graph.get_operations()
    last_use: dict[int, int] = {}
    root: dict[int, int] = {}
    for number, operation in enumerate(operations):
        for slot, tensor in enumerate(operation.inputs):
            if operation.type == "IdentityN" and not operation.outputs[slot].consumers():
                continue  # of a hand-written gradient; TensorFlow's optimizer takes it out
            last_use[root.get(id(tensor), id(tensor))] = number
        if operation.type in _SAME_BUFFER:
            for source, output in zip(operation.inputs, operation.outputs, strict=False):  # a new shape has no output
                root[id(output)] = root.get(id(source), id(source))
    alive: dict[int, int] = {}
    dying: dict[int, list[int]] = {}
    now = peak = 0
    for number, operation in enumerate(operations):
        reusable = [id(t) for t in operation.inputs if root.get(id(t), id(t)) == id(t) and last_use[id(t)] == number]
        for output in operation.outputs:
            if id(output) in root or operation.type in ("ReadVariableOp", "Placeholder", "Const"):
                continue
            size = _tensor_bytes(output)
            if operation.type in _IN_PLACE:
                taken = next((key for key in reusable if alive.get(key) == size), None)
                if taken is not None:
                    reusable.remove(taken)
                    now -= alive.pop(taken)
            alive[id(output)] = size
            now += size
            dying.setdefault(max(last_use.get(id(output), number), number), []).append(id(output))
        peak = max(peak, now)
        for key in dying.pop(number, []):
            now -= alive.pop(key, 0)
    return peak


def _tensor_bytes(tensor: tf.Tensor) -> int:
    if tensor.dtype in (tf.resource, tf.variant, tf.string) or tensor.shape.rank is None:
        return 0
    count = 1
    for size in tensor.shape:
        count *= size or 1
    return count * tensor.dtype.size


def _bytes_of(variables: Iterable[Any]) -> int:
    total = 0
    for variable in variables:
        count = 1
        for size in variable.shape:
            count *= size
        total += count * tf.as_dtype(variable.dtype).size
    return total
