"""How much memory a training step takes at any batch size, from its traced graph, before anything runs.

One model of memory for `zoo info`, `zoo plan` and the benchmarks: the graph's operations are run in the order in which
TensorFlow's executor takes them, each tensor lives from its maker to its last reader, and a best-fit allocator as
TensorFlow's gives out the chunks.
"""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from zoo.training.step import Engine

# Ops whose output is their input's buffer; the first line is taken out by TensorFlow's optimizer.
_PASSED = {"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"}
_SAME_BUFFER = {*_PASSED, "Reshape", "Squeeze", "ExpandDims"}
# Ops that write over an input nobody else needs.
_IN_PLACE = {
    *("Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "BiasAdd", "Cast", "Neg", "Square", "Sqrt", "Rsqrt", "Exp", "Log"),
    *("Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "ReluGrad", "TanhGrad", "SigmoidGrad"),
    *("Softmax", "LogSoftmax", "SelectV2"),
}
# Ops whose outputs are no tensors of the step: a variable's buffer, what the caller holds, a constant of the graph.
_ELSEWHERE = {"ReadVariableOp", "Placeholder", "Const"}
# Ops that the executor runs at once, on the thread that made them ready; so it does others that touch few bytes.
_AT_ONCE = {*_SAME_BUFFER, *_ELSEWHERE, "Shape", "ShapeN", "Rank", "Size", "NoOp"}
_FEW_BYTES = 16_384
_WEIGHT_GRADIENTS = ("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", "MatMul", "AddN", "ConcatV2")
# Examples of the batch that is traced. A tensor whose number of values is a multiple of this prime grows with the
# batch; no layer has so many channels, and tracing makes no tensor.
TRACED_BATCH = 10_007


@dataclass(frozen=True)
class Peak:
    """Bytes of a step at its fullest moment, variables left out.

    Args:
        tensors: What was asked for.
        chunks: What a best-fit allocator gives out for it, at its own fullest moment.
        parts: What `tensors` consists of: "gradients" of weights, "kept" from the forward pass, the "moment".
    """

    tensors: int
    chunks: int
    parts: dict[str, int] = field(default_factory=dict)


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
        The estimate. Buffers are taken to be freed at their last use; ops run as soon as they can, the next one of a
        chain before others.

    Raises:
        ValueError: the spec has no batch size.
    """
    for spec in tf.nest.flatten(element_spec):
        if not spec.shape.rank or spec.shape[0] is None:
            raise ValueError(f"the batch size must be in the spec to estimate memory, received {spec}")
    averages = engine.averages.shadows.values() if engine.averages is not None else ()
    return MemoryEstimate(
        weights=bytes_of(engine.model.variables),
        optimizer=bytes_of(engine.optimizer.variables),
        averages=bytes_of(averages),
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
    """Returns the most bytes of tensors, variables left out, alive at one moment when a graph's ops run.

    Unknown sizes count as 1.
    """
    return StepMemory(graph).peak().tensors


def largest_batch(bytes_at: Callable[[int], int], limit: int) -> int:
    """Returns the largest batch that takes at most `limit` bytes, 0 if not even one example fits.

    Args:
        bytes_at: From a batch size to bytes, rising.
        limit: In bytes; a batch of more than 2 ** 20 examples is not looked for.
    """
    if bytes_at(1) > limit:
        return 0
    low, high = 1, 2
    while high <= 2**20 and bytes_at(high) <= limit:
        low, high = high, 2 * high
    while high - low > max(1, low // 256):
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_at(middle) <= limit else (low, middle)
    return low


class _Node:
    """An operation that runs: which tensors it reads and makes, and what waits for it."""

    def __init__(self, number: int, operation: Any, inputs: list[Any]) -> None:
        self.number, self.kind, self.inputs, self.outputs = number, operation.type, inputs, list(operation.outputs)
        self.after: list[_Node] = []
        self.waits_for = 0
        touched = sum(_tensor_bytes(tensor) for tensor in (*inputs, *self.outputs))
        self.at_once = self.kind in _AT_ONCE or touched <= _FEW_BYTES


class StepMemory:
    """The tensors of a traced step and their lives.

    Args:
        graph: of a function. A graph that is no function's is taken whole.
    """

    def __init__(self, graph: Any) -> None:
        operations = graph.get_operations()
        starts = (n for n, operation in enumerate(operations) if operation.name.startswith("gradient_tape/"))
        self._backward = next(starts, len(operations))  # number of the backward pass' first op
        self._order = _in_order(_needed(graph, operations))
        self._root: dict[int, int] = {}
        self._uses: Counter[int] = Counter()
        for node in self._order:
            if node.kind in _SAME_BUFFER:
                for source, output in zip(node.inputs, node.outputs, strict=False):  # a new shape has no output
                    self._root[id(output)] = self._root.get(id(source), id(source))
            self._uses.update(self._root.get(id(tensor), id(tensor)) for tensor in node.inputs)

    def peak(self, batch: int | None = None) -> Peak:
        """Returns the fullest moment of a step.

        Args:
            batch: Examples, where the graph was traced with `TRACED_BATCH`; as it was traced by default.
        """
        arena, left = _Arena(), self._uses.copy()
        alive: dict[int, tuple[int, int, str]] = {}  # tensor: bytes, address, part
        now, most, moment = 0, 0, Counter[str]()
        by_part: Counter[str] = Counter()
        for node in self._order:
            read = [self._root.get(id(tensor), id(tensor)) for tensor in node.inputs]
            dying = []
            for output in () if node.kind in _SAME_BUFFER | _ELSEWHERE else node.outputs:
                size, key = _scaled(_tensor_bytes(output), output.dtype.size, batch), id(output)
                if not size:
                    continue
                if not self._uses[key]:
                    dying.append(key)
                part = self._part(node)
                taken = next((k for k in read if left[k] == 1 and k in alive and alive[k][0] == size), None)
                if node.kind in _IN_PLACE and taken is not None:
                    _, address, earlier = alive.pop(taken)
                    by_part[earlier] -= size
                else:
                    address, now = arena.give(size), now + size
                alive[key] = size, address, part
                by_part[part] += size
            if now > most:
                most, moment = now, by_part.copy()
            left.subtract(read)
            for key in {*dying, *(key for key in read if not left[key])} & alive.keys():
                size, address, part = alive.pop(key)
                arena.take_back(address)
                now, by_part[part] = now - size, by_part[part] - size
        return Peak(most, arena.most, dict(moment))

    def _part(self, node: _Node) -> str:
        if node.number < self._backward:
            return "kept"
        small = all(_tensor_bytes(o) == _scaled(_tensor_bytes(o), o.dtype.size, 1) for o in node.outputs)
        return "gradients" if small and node.kind in _WEIGHT_GRADIENTS else "moment"


def _needed(graph: Any, operations: list[Any]) -> list[_Node]:
    """The operations that run, as TensorFlow's optimizer leaves them, in the order of the graph."""

    def source(tensor: Any) -> Any:
        while tensor.op.type in _PASSED and not tensor.op.control_inputs:
            tensor = tensor.op.inputs[tensor.value_index]
        return tensor

    def makers(operation: Any) -> list[Any]:
        if operation.type in _PASSED and not operation.control_inputs:
            return [source(tensor).op for tensor in operation.inputs]
        return [operation]

    ends = [*(source(t).op for t in graph.outputs), *graph.control_outputs] if hasattr(graph, "outputs") else operations
    stack = [maker for end in ends for maker in makers(end)]
    reads: dict[Any, tuple[list[Any], set[Any]]] = {}
    while stack:
        operation = stack.pop()
        if operation in reads:
            continue
        inputs = [source(tensor) for tensor in operation.inputs]
        before = {t.op for t in inputs} | {maker for one in operation.control_inputs for maker in makers(one)}
        reads[operation] = inputs, before
        stack += before
    numbered = [(number, operation) for number, operation in enumerate(operations) if operation in reads]
    nodes = {operation: _Node(number, operation, reads[operation][0]) for number, operation in numbered}
    for operation, node in nodes.items():
        node.waits_for = len(reads[operation][1])
        for before_it in reads[operation][1]:
            nodes[before_it].after.append(node)
    for node in nodes.values():
        node.after.sort(key=lambda later: later.number)
    return [*nodes.values()]


def _in_order(nodes: list[_Node]) -> list[_Node]:
    """The nodes as an executor takes them: what is ready and quick first, then chain by chain."""
    waits_for = {node: node.waits_for for node in nodes}
    order, work, quick = [], deque[_Node](), deque(node for node in nodes if not node.waits_for)
    while quick:
        node = quick.popleft()
        if not node.at_once:
            work.append(node)
            continue
        order.append(node)
        quick.extend(_ready(node, waits_for))
    work = deque(sorted(work, key=lambda node: node.number))
    while work:
        local = deque([work.popleft()])
        while local:
            node = local.popleft()
            order.append(node)
            ready = _ready(node, waits_for)
            local.extend(one for one in ready if one.at_once)
            dear = [one for one in ready if not one.at_once]
            if dear and not local:  # the last one goes on on this thread, the others wait for one
                local.append(dear.pop())
            work.extendleft(dear)
    return order


def _ready(node: _Node, waits_for: dict[_Node, int]) -> list[_Node]:
    """What can run now that a node has run."""
    for later in node.after:
        waits_for[later] -= 1
    return [later for later in node.after if not waits_for[later]]


class _Arena:
    """A best-fit allocator with coalescing, as TensorFlow's: a chunk is split where it is twice what is asked for."""

    _UNIT, _LOOSE = 256, 128 * 2**20

    def __init__(self) -> None:
        self.now = self.most = 0
        self._free: list[tuple[int, int]] = []  # (size, address), sorted
        self._starts: dict[int, int] = {}  # of free chunks: address -> size
        self._ends: dict[int, int] = {}  # end -> address
        self._given: dict[int, int] = {}
        self._region, self._top = 2**20, 0

    def give(self, size: int) -> int:
        """Returns the address of a chunk."""
        size = -(-size // self._UNIT) * self._UNIT
        place = bisect.bisect_left(self._free, (size, -1))
        if place == len(self._free):
            self._grow(size)
            place = bisect.bisect_left(self._free, (size, -1))
        chunk, address = self._free[place]
        self._remove(chunk, address)
        if chunk >= 2 * size or chunk - size >= self._LOOSE:
            self._add(chunk - size, address + size)
            chunk = size
        self._given[address] = chunk
        self.now += chunk
        self.most = max(self.most, self.now)
        return address

    def take_back(self, address: int) -> None:
        """Joins a chunk with the free ones beside it."""
        size = self._given.pop(address)
        self.now -= size
        after = self._starts.get(address + size)
        if after is not None:
            self._remove(after, address + size)
            size += after
        before = self._ends.get(address)
        if before is not None:
            self._remove(address - before, before)
            size, address = size + address - before, before
        self._add(size, address)

    def _grow(self, size: int) -> None:
        """Takes a region; each is twice the one before, and one that had to be larger sets the size of the next."""
        doubled = False
        while self._region < size:
            self._region, doubled = 2 * self._region, True
        self._add(self._region, self._top)
        self._top += self._region + self._UNIT  # regions are never joined
        if not doubled:
            self._region *= 2

    def _add(self, size: int, address: int) -> None:
        bisect.insort(self._free, (size, address))
        self._starts[address] = size
        self._ends[address + size] = address

    def _remove(self, size: int, address: int) -> None:
        del self._free[bisect.bisect_left(self._free, (size, address))]
        del self._starts[address], self._ends[address + size]


def _scaled(size: int, width: int, batch: int | None) -> int:
    """A tensor's bytes at another batch than the traced one."""
    grows = batch is not None and (size // max(1, width)) % TRACED_BATCH == 0
    return size // TRACED_BATCH * (batch or 1) if grows else size


def _tensor_bytes(tensor: tf.Tensor) -> int:
    if tensor.dtype in (tf.resource, tf.variant, tf.string) or tensor.shape.rank is None:
        return 0
    count = 1
    for size in tensor.shape:
        count *= size or 1
    return count * tensor.dtype.size


def bytes_of(variables: Iterable[Any]) -> int:
    """Returns the bytes of variables."""
    total = 0
    for variable in variables:
        count = 1
        for size in variable.shape:
            count *= size
        total += count * tf.as_dtype(variable.dtype).size
    return total
