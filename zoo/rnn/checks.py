"""What cells accept: dtypes, widths, and the structure of states; each refusal says which part is wrong."""

from __future__ import annotations

import enum
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from zoo.rnn.cells import RNNCell

Tensor: TypeAlias = tf.Tensor
State: TypeAlias = Any  # a tensor, or a (nested) tuple of them, in the structure of a cell's `state_size`
DType: TypeAlias = "tf.DType | str"
ScopeOrName: TypeAlias = "str | tf.compat.v1.VariableScope"
Reuse: TypeAlias = "bool | enum.Enum | None"  # True, or zoo.AUTO_REUSE
Lengths: TypeAlias = "Sequence[int] | np.ndarray | tf.Tensor | None"


def dim(tensor: Tensor, axis: int) -> Any:
    """Returns a static size as an int, None where it is not known; also under TF1's `disable_v2_behavior`."""
    size = tensor.shape[axis]
    return getattr(size, "value", size)


def check_floating(inputs: State) -> None:
    """Raises ValueError for integer tensors in a structure of inputs or states, as TF1 does."""
    for tensor in tf.nest.flatten(inputs):
        dtype = tf.as_dtype(tensor.dtype)
        if not (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"RNN cell only supports floating point inputs, but saw dtype: {dtype.name}. "
                "Embed integer ids first, or cast"
            )


def check_cell(cell: Any, where: str) -> None:
    """Raises TypeError for what is no recurrent cell: a class, a cell of Keras, what lacks what loops need."""
    if isinstance(cell, type):
        raise TypeError(f"{where} takes a cell, got the class {cell.__name__}: make one, as {cell.__name__}(128)")
    lacks = [need for need in ("state_size", "output_size", "zero_state") if not hasattr(cell, need)]
    if lacks or not callable(cell):
        keras = type(cell).__module__.partition(".")[0] in ("keras", "tf_keras")
        remedy = "Keras' cells belong in keras.layers.RNN" if keras else "give an instance"
        what = f"it has no {lacks[0]}" if lacks else "it cannot be called"
        raise TypeError(
            f"{where} takes a cell such as zoo.rnn.BasicLSTMCell(128), got {_short(cell)}: {what}; {remedy}"
        )


def check_keys(inputs: Mapping[str, Any], needed: Sequence[str], where: str) -> None:
    """Raises ValueError for a batch (a dict) with other parts than a network reads."""
    if set(inputs) != set(needed):
        missing = [name for name in needed if name not in inputs]
        what = f"{', '.join(map(repr, missing))} is missing" if missing else "there are others"
        raise ValueError(
            f"{where}: a batch is a dict of {' and '.join(map(repr, needed))}; {what}, got "
            f"{', '.join(map(repr, inputs)) or 'nothing'}"
        )


def check_positive(limit: Any, what: str) -> None:
    """Raises ValueError for a clip or scale that is known not to be a positive number; None is none."""
    if limit is not None and not tf.is_tensor(limit) and not (isinstance(limit, numbers.Real) and float(limit) > 0):
        raise ValueError(f"{what} must be a positive number or None, got {limit!r}")


def check_zero_state(batch_size: int | Tensor, dtype: DType) -> None:
    """Raises ValueError for a batch size below 0 or of no integer, and for a type that is not floating point."""
    if not tf.is_tensor(batch_size) and (not isinstance(batch_size, numbers.Integral) or batch_size < 0):
        raise ValueError(f"batch_size must be an integer of at least 0 or a scalar tensor, got {batch_size!r}")
    dtype = tf.as_dtype(dtype)
    if not (dtype.is_floating or dtype.is_complex):
        raise ValueError(f"a state is floating point, got dtype {dtype.name}: give float32 or the inputs' own")


def _short(value: Any) -> str:
    return f"a tensor of shape {value.shape}" if tf.is_tensor(value) else repr(value)


def _rows(tensor: Tensor) -> int | None:
    return None if tensor.shape.rank is None else dim(tensor, 0)


def check_state(cell: RNNCell, state: State, inputs: Tensor) -> State:
    """Brings a state into the structure of the cell's `state_size`, and checks widths and the batch of inputs.

    Raises ValueError for what does not fit, with the path of the offending part (``state[0].c``).
    """
    size = cell.state_size
    if isinstance(size, tuple) and not isinstance(state, tuple | list):
        raise ValueError(
            f"Expected state to be a tuple of length {len(size)}, but received: {_short(state)}. "
            f"{type(cell).__name__}.zero_state makes one"
        )
    check_floating(inputs)

    def fit(want: Any, got: State, path: str) -> State:
        if isinstance(want, tuple):
            if not isinstance(got, tuple | list) or len(got) != len(want):
                what = f"{len(got)} parts" if isinstance(got, tuple | list) else type(got).__name__
                raise ValueError(f"{path} must be a tuple of length {len(want)}, got {what}: use zero_state")
            names = getattr(want, "_fields", range(len(want)))
            parts = [fit(w, g, f"{path}.{n}" if isinstance(n, str) else f"{path}[{n}]")
                     for w, g, n in zip(want, got, names, strict=True)]  # fmt: skip
            return type(want)(*parts) if hasattr(want, "_fields") else tuple(parts)
        if got is None:
            raise ValueError(f"{path} is None, and must be a tensor [batch, {want}]: use zero_state")
        if isinstance(got, tuple | list):
            raise ValueError(f"{path} must be one tensor of width {want}, got a tuple of {len(got)}: use zero_state")
        got = tf.convert_to_tensor(got)
        check_floating(got)
        if got.shape.rank is not None and (got.shape.rank != 2 or dim(got, -1) not in {None, want}):
            raise ValueError(f"{path} must have shape [batch, {want}], got {got.shape}")
        if _rows(inputs) is not None and _rows(got) is not None and _rows(inputs) != _rows(got):
            raise ValueError(f"{path} has {_rows(got)} rows but the inputs have a batch of {_rows(inputs)}")
        return got

    return fit(size, state, "state")


def check_units(num_units: Any, what: str = "num_units") -> int:
    """Returns a width; ValueError when it is not a positive integer."""
    if isinstance(num_units, bool) or not isinstance(num_units, numbers.Integral) or num_units < 1:
        raise ValueError(f"{what} must be a positive integer, got {num_units!r}")
    return int(num_units)


def check_kernel(cell: RNNCell, kernel: tf.Variable, rows: int, width: int | None) -> None:
    """Raises ValueError for inputs of another width than the kernel [width + rows, ...] was made for."""
    if width is not None and dim(kernel, 0) != width + rows:
        raise ValueError(
            f"{type(cell).__name__} shares the kernel {kernel.name} of shape {tuple(kernel.shape)}, made for inputs "
            f"of width {dim(kernel, 0) - rows}, but got inputs of width {width}: make one cell per layer"
        )
