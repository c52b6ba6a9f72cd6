"""What a network costs, by variable scope: parameters, multiply-accumulate operations and the size of the output.

The network is traced once as a TF1 graph with one example, and the operations of the graph are counted. So foreign
slim code is counted as well; what runs inside a loop (``tf.while_loop``) is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from rich.console import Console
from rich.table import Table

from zoo.scoping.specs import as_specs

if TYPE_CHECKING:
    from zoo.scoping.model import Model

_VARIABLE_OPS = {"VarHandleOp", "VariableV2"}


@dataclass(frozen=True)
class VariableInfo:
    """Name, shape and trainability of one variable."""

    name: str
    shape: tuple[int, ...]
    trainable: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass
class ScopeCost:
    """One scope or end point: its variables, multiply-accumulates for one example, and output without batch."""

    scope: str
    variables: list[VariableInfo] = field(default_factory=list)
    macs: int = 0
    output: tuple[int | None, ...] | None = None

    @property
    def params(self) -> int:
        """Number of elements in all variables."""
        return sum(variable.size for variable in self.variables)


def scope_costs(network: Callable[..., Any], inputs: Any, **options: Any) -> list[ScopeCost]:
    """Counts a network's parameters and multiply-accumulates by scope.

    Args:
        network: A scoped function ``(inputs, *, is_training, **options)``.
        inputs: Shape of one example without batch (float32), or a structure of ``tf.TensorSpec`` with batch.
        **options: The network's options.

    Returns:
        A row for each scope that owns variables and each end point, in the order they are computed. A convolution costs
        (elements of its kernel) x (output height x width), a dense layer rows x inputs x outputs.

    Raises:
        ValueError: An axis besides the batch is unknown: give the size to count at.
    """
    graph = tf.Graph()
    with graph.as_default():
        placeholders = tf.nest.map_structure(_placeholder, as_specs(inputs, "float32", batch=True))
        result = network(placeholders, is_training=False, **options)
        trainable = {variable.name for variable in tf.compat.v1.trainable_variables()}
        variables = [_info(v, v.name in trainable) for v in tf.compat.v1.global_variables()]
    end_points = result[1] if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping) else {}

    rows: dict[str, ScopeCost] = {}
    owners = {variable.name.rpartition("/")[0] for variable in variables}
    points = {value.op.name.rpartition("/")[0]: value for value in end_points.values() if tf.is_tensor(value)}
    for op in graph.get_operations():
        scope = _longest(op.name, owners | points.keys())
        if scope is None:
            continue
        row = rows.setdefault(scope, ScopeCost(scope))
        if op.outputs and op.type not in _VARIABLE_OPS and not _is_variable_plumbing(op):
            row.output = _without_batch(op.outputs[0].shape)
    for variable in variables:
        rows[variable.name.rpartition("/")[0]].variables.append(variable)
    for op in graph.get_operations():
        macs = _macs(op)
        if macs:
            owner = _variable_scope_of(op, owners)
            rows.setdefault(owner, ScopeCost(owner)).macs += macs
    for scope, value in points.items():
        rows[scope].output = _without_batch(value.shape)
    around = {above for owner in owners for above in _above(owner)}
    return [row for row in rows.values() if row.variables or row.macs or row.scope in points.keys() - around]


def one_step(inputs: Any) -> tuple[Any, bool]:
    """Gives sequences of open length, [N, ?] or [N, ?, width], the length 1: `scope_costs` then counts one step."""
    specs = as_specs(inputs, "float32", batch=True)

    def is_open(spec: tf.TensorSpec) -> bool:
        return spec.shape.rank in (2, 3) and spec.shape[1] is None

    def closed(spec: tf.TensorSpec) -> tf.TensorSpec:
        return tf.TensorSpec([spec.shape[0], 1, *spec.shape[2:]], spec.dtype) if is_open(spec) else spec

    return tf.nest.map_structure(closed, specs), any(map(is_open, tf.nest.flatten(specs)))


def _macs(op: tf.Operation) -> int:
    """Multiply-accumulates of one operation; 0 for all but convolutions and matrix products."""
    if op.type in {"Conv2D", "DepthwiseConv2dNative", "Conv3D"}:
        nchw = op.get_attr("data_format").decode().startswith("NC")
        sizes = _sizes(op, op.outputs[0])
        return math.prod(_sizes(op, op.inputs[1])) * math.prod(sizes[2:] if nchw else sizes[1:-1]) * sizes[0]
    if op.type == "Conv2DBackpropInput":  # transposed convolution: each input pixel meets the whole kernel
        nchw = op.get_attr("data_format").decode().startswith("NC")
        sizes = _sizes(op, op.inputs[2])
        return math.prod(_sizes(op, op.inputs[1])) * math.prod(sizes[2:] if nchw else sizes[1:-1]) * sizes[0]
    if op.type in {"MatMul", "BatchMatMulV2"}:
        inner = _sizes(op, op.inputs[0])[-2 if op.get_attr(_FIRST_TRANSPOSED[op.type]) else -1]
        return math.prod(_sizes(op, op.outputs[0])) * inner
    return 0


_FIRST_TRANSPOSED = {"MatMul": "transpose_a", "BatchMatMulV2": "adj_x"}


def _sizes(op: tf.Operation, tensor: tf.Tensor) -> list[int]:
    sizes = tensor.shape.as_list()
    if None in sizes:
        raise ValueError(
            f"{op.name}: its size {sizes} is not known, so it cannot be counted; give the input's full size."
        )
    return sizes


def _variable_scope_of(op: tf.Operation, owners: Set[str]) -> str:
    """The scope of the variable an operation's kernel is made of; its own scope when both factors are activations."""
    for kernel in reversed(op.inputs):
        seen, waiting = {kernel.op.name}, [kernel.op]
        found = None
        while waiting:
            current = waiting.pop()
            if current.type == "Placeholder":
                found = None
                break
            if current.type in _VARIABLE_OPS:
                found = found or current.name.rpartition("/")[0]
            for source in current.inputs:
                if source.op.name not in seen:
                    seen.add(source.op.name)
                    waiting.append(source.op)
        if found is not None:
            return found
    return _longest(op.name, owners) or op.name.rpartition("/")[0]


def _longest(name: str, scopes: Set[str]) -> str | None:
    """The innermost of the scopes that an operation lies in, or that bears its very name."""
    while name and name not in scopes:
        name = name.rpartition("/")[0]
    return name or None


def _above(scope: str) -> list[str]:
    parts = scope.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _is_variable_plumbing(op: tf.Operation) -> bool:
    """Whether an operation makes, fills or reads a variable rather than computes with it."""
    plumbing = {"ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "Assign"}
    return op.type in plumbing or "/Initializer/" in op.name


def _without_batch(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list()[1:])


def _info(variable: tf.Variable, trainable: bool) -> VariableInfo:
    return VariableInfo(variable.op.name, tuple(variable.shape.as_list()), trainable)


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    batch_of_one = [1, *spec.shape.as_list()[1:]] if spec.shape.rank else spec.shape
    return tf.compat.v1.placeholder(spec.dtype, batch_of_one)


def summary_text(model: Model, width: int | None = None) -> str:
    """Returns a table of the model's scopes: variables, parameters (those inside included), output, frozen or not."""
    rows: dict[str, list[str]] = {}
    params: dict[str, int] = {}
    for name, weight in model._store.weights.items():
        scope, _, leaf = name.rpartition("/")
        size = math.prod(weight.shape)
        parts = scope.split("/") if scope else []
        for depth in range(len(parts) + 1):
            above = "/".join(parts[:depth])
            rows.setdefault(above, [])
            params[above] = params.get(above, 0) + size
        rows[scope].append(f"{leaf} {tuple(weight.shape)}")
    total = params.pop("", 0)
    own = rows.pop("", [])
    table = Table(title=f"{model.name}: {total:,} parameters", title_justify="left", title_style="bold")
    for column in ("Scope", "Output", "Variables"):
        table.add_column(column, overflow="fold")
    table.add_column("Parameters", justify="right")
    table.add_column("Trained")
    if own:
        table.add_row("(no scope)", "", ", ".join(own), "", "yes" if model.trainable else "no")
    outputs = _outputs(model)
    for scope, variables in rows.items():
        indent = "  " * scope.count("/")
        trained = "no" if model._store.is_frozen(scope) else "yes"
        leaf = scope.rpartition("/")[2]
        table.add_row(f"{indent}{leaf}", outputs.get(scope, ""), ", ".join(variables), f"{params[scope]:,}", trained)
    trainable = sum(math.prod(w.shape) for w in model.trainable_weights)
    table.caption = f"Trainable: {trainable:,}. Not trainable: {total - trainable:,}."
    console = Console(width=width or (None if Console().is_terminal else 110))
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _outputs(model: Model) -> dict[str, str]:
    """End points' shapes by the scope they are named after."""
    shapes = {}
    for name, spec in model.end_point_specs.items():
        for scope in model._store.scopes:
            if (scope == name or scope.endswith(f"/{name}")) and hasattr(spec, "shape"):
                shapes[scope] = str(tuple(spec.shape))
    return shapes
