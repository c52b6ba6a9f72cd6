"""What a new variable starts from: shape, type and first value by TF1's rules, also when other variables give it."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class ScopeError(ValueError):
    """A rule of variable scopes was broken: a name made twice, missing, or of another shape or type."""

    __init__ = Exception.__init__  # autograph raises such errors again as what they are


def initial_value(
    name: str, shape: Any, dtype: Any, initializer: Any, seed: Callable[[], tf.Tensor]
) -> tuple[tuple[int, ...], tf.DType, Callable[[], Any]]:
    """Resolves shape, dtype and initial value as TF1's variable store does."""
    if inspect.isclass(initializer):
        initializer = initializer()
    if initializer is None:
        initializer = _default_initializer(name, tf.as_dtype(dtype or tf.float32), seed)
    if not callable(initializer):
        if shape is not None:
            raise ScopeError(
                f"Variable {name}: If initializer is a constant, do not specify shape. Received: shape={shape}. "
                "Drop the shape, or use a constant_initializer."
            )
        value = tf.convert_to_tensor(initializer)
        return tuple(value.shape.as_list()), value.dtype.base_dtype, lambda: _lifted(name, value)
    static = tf.TensorShape(shape)
    dtype = tf.as_dtype(dtype or tf.float32).base_dtype
    if static.is_fully_defined():
        dims = static.as_list()
        return tuple(dims), dtype, lambda: _call(initializer, list(dims), dtype)
    if gives_its_shape(initializer, shape):
        with tf.init_scope():
            value = tf.convert_to_tensor(initializer())
        return tuple(value.shape.as_list()), value.dtype, lambda: value
    raise ScopeError(
        f"Variable {name} did not get a complete shape: shape={shape}. Its initializer {initializer!r} needs one: "
        f"pass shape=[...] "
        "with known sizes, or a constant initializer without shape."
    )


def gives_its_shape(initializer: Any, shape: Any) -> bool:
    """Whether shape and type are the initializer's: a constant, a tensor, or a function without arguments."""
    if initializer is None or inspect.isclass(initializer):
        return False
    return not callable(initializer) or (shape is None and not _required_arguments(initializer))


def _call(initializer: Callable[..., Any], shape: list[int], dtype: Any, partition_info: Any = None) -> Any:
    """Calls an initializer as TF1 does: those that take `partition_info` get it, None for a variable in one piece."""
    part = {"partition_info": partition_info} if "partition_info" in (_parameters(initializer) or ()) else {}
    return initializer(shape, dtype=dtype, **part)


def _default_initializer(name: str, dtype: tf.DType, seed: Callable[[], tf.Tensor]) -> Callable[..., Any]:
    if dtype.is_floating:
        return functools.partial(_glorot_uniform, seed)
    if dtype.is_integer or dtype.is_bool or dtype == tf.string:
        return tf.compat.v1.zeros_initializer()
    raise ScopeError(f"An initializer for variable {name} of {dtype.name} is required.")


def _glorot_uniform(seed: Callable[[], tf.Tensor], shape: list[int], dtype: tf.DType) -> tf.Tensor:
    """TF1's default initializer, uniform in +-sqrt(6 / (fan_in + fan_out)), drawn from the frame's seed."""
    field = math.prod(shape[:-2])
    fans = (shape[-2] + shape[-1]) * field if len(shape) > 1 else 2 * max(shape, default=1)
    limit = tf.cast(math.sqrt(6 / max(1, fans)), dtype)
    return tf.random.stateless_uniform(shape, seed(), -limit, limit, dtype)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The parameters of a function by name; None for one written in C that does not tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def _required_arguments(function: Callable[..., Any]) -> bool:
    found = _parameters(function)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return found is None or any(p.default is p.empty and p.kind in positional for p in found.values())


def _lifted(name: str, value: tf.Tensor) -> tf.Tensor:
    """Evaluates a symbolic initial value (`other.initialized_value()`, `other * 2`) outside the graph being traced."""
    if hasattr(value, "numpy"):
        return value
    constant = tf.get_static_value(value)
    if constant is not None:
        return tf.constant(constant)
    graph = value.graph
    outside = {inner.op: outer for outer, inner in graph.captures}
    reached, ops = set(), [value.op]
    while ops:
        op = ops.pop()
        if op.type == "Placeholder" and op not in outside:
            raise ScopeError(
                f"Variable {name}: its initial value depends on the network's input, which is not known when "
                f"variables are "
                "made. Use an initializer, or a value that depends on other variables and constants only."
            )
        if op not in reached:
            reached.add(op)
            ops.extend(tensor.op for tensor in op.inputs)
    needed = [op for op in outside if op in reached]
    definition = graph.as_graph_def()
    with tf.init_scope():
        wrapped = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(definition, name=""), [])
        function = wrapped.prune([wrapped.graph.get_tensor_by_name(f"{op.name}:0") for op in needed], value.name)
        return function(*(outside[op] for op in needed))


# ---- in a TF1 graph, where all variables are initialized in one run, in any order ------------------------------------


def guarded_initializer(initializer: Any, shape: Any) -> Any:
    """Returns the initializer with guarded reads of other variables (see `_guarded`), as `get_variable` takes it."""
    if inspect.isclass(initializer):
        initializer = initializer()
    if tf.is_tensor(initializer):
        return _guarded(tf.convert_to_tensor(initializer))
    if not callable(initializer):
        return initializer
    if gives_its_shape(initializer, shape):
        return lambda: _guarded(initializer())

    def of_shape(shape: list[int], dtype: Any = None, partition_info: Any = None) -> Any:
        return _guarded(_call(initializer, shape, dtype, partition_info))

    return of_shape


def _guarded(value: Any) -> Any:
    """Replaces each read of a variable that a value depends on: by its initial value while it is not initialized.

    So variables that start from each other may be initialized in one run, as with TF1's `initialized_value`. What does
    not depend on a variable (a random draw) is kept as it is, and so drawn once.
    """
    if not tf.is_tensor(value) or hasattr(value, "numpy"):
        return value
    value = tf.convert_to_tensor(value)
    graph = value.graph
    keys = tf.compat.v1.GraphKeys
    known = [*graph.get_collection(keys.GLOBAL_VARIABLES), *graph.get_collection(keys.LOCAL_VARIABLES)]
    variables = {v.handle.op: v for v in known if hasattr(v, "handle")}
    done: dict[tf.Operation, list[tf.Tensor]] = {}

    def safe(tensor: tf.Tensor) -> tf.Tensor:
        op = tensor.op
        if op not in done:
            done[op] = list(op.outputs)  # meanwhile, for loops
            held = [variables[source.op] for source in op.inputs if source.op in variables]
            if held and op.type in _READS:
                done[op] = [_READS[op.type](op, _value_or_first(held[0]))]
            elif op.type not in ("VarIsInitializedOp", "VarHandleOp"):
                inputs = [safe(source) for source in op.inputs]
                if held or any(new is not old for new, old in zip(inputs, op.inputs, strict=True)):
                    types = [output.dtype for output in op.outputs]
                    with tf.control_dependencies([_made_sure(variable) for variable in held]):
                        again = graph.create_op(op.type, inputs, types, name=f"{op.name}_safe", attrs=_attributes(op))
                    done[op] = list(again.outputs)
        return done[op][tensor.value_index]

    return safe(value)


def _value_or_first(variable: Any) -> tf.Tensor:
    return tf.cond(variable.is_initialized(), variable.read_value, lambda: variable.initial_value)


def _made_sure(variable: Any) -> tf.Tensor:
    """Initializes a variable that is not, for what reads it inside a branch, a loop or a function."""

    def initialize() -> tf.Tensor:
        with tf.control_dependencies([variable.assign(variable.initial_value, read_value=False)]):
            return tf.constant(True)

    return tf.cond(variable.is_initialized(), lambda: tf.constant(True), initialize)


def _attributes(op: tf.Operation) -> dict[str, Any]:
    return {key: value for key, value in op.node_def.attr.items() if key != "_class"}  # not where the read was


# Operations that read a variable through its handle, and the same on its value.
_READS: dict[str, Callable[[tf.Operation, tf.Tensor], tf.Tensor]] = {
    "ReadVariableOp": lambda op, value: value,
    "ResourceGather": lambda op, value: tf.gather(value, op.inputs[1], batch_dims=op.get_attr("batch_dims")),
    "ResourceGatherNd": lambda op, value: tf.gather_nd(value, op.inputs[1]),
}
