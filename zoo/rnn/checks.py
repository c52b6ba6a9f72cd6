"""What cells accept: dtypes, widths, and the structure of states; each refusal says which part is wrong."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def dim(tensor: Any, axis: int) -> Any:
    """Returns a static size, None where it is not known; also under TF1's `disable_v2_behavior`.

    Args:
      tensor: the tensor.
      axis: which dimension.
    """
    size = tensor.shape[axis]
    return getattr(size, "value", size)


def check_floating(inputs: Any) -> None:
    """Refuses integer inputs and states, as TF1 does.

    Args:
      inputs: (nested structure of) tensors.

    Raises:
      ValueError: a tensor is neither floating nor complex.
    """
    for tensor in tf.nest.flatten(inputs):
        dtype = tf.as_dtype(tensor.dtype)
        if not (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"RNN cell only supports floating point inputs, but saw dtype: {dtype.name}. "
                "Embed integer ids first, or cast"
            )


def check_cell(cell: Any, where: str) -> None:
    """Refuses what is no recurrent cell.

    Args:
      cell: the value given.
      where: who takes it, for the message.

    Raises:
      TypeError: a class, a cell of Keras, or anything that lacks what loops need.
    """
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
    """Refuses a batch with other parts than a network reads.

    Args:
      inputs: the batch.
      needed: names of its parts.
      where: the network's name.

    Raises:
      ValueError: a part is missing, or one too many.
    """
    if set(inputs) != set(needed):
        missing = [name for name in needed if name not in inputs]
        what = f"{', '.join(map(repr, missing))} is missing" if missing else "there are others"
        raise ValueError(
            f"{where}: a batch is a dict of {' and '.join(map(repr, needed))}; {what}, got "
            f"{', '.join(map(repr, inputs)) or 'nothing'}"
        )


def check_positive(limit: Any, what: str) -> None:
    """Refuses a clip or scale that is not a positive number.

    Args:
      limit: number, tensor, or None.
      what: the argument's name.

    Raises:
      ValueError: zero, negative, NaN, or no number.
    """
    if limit is not None and not tf.is_tensor(limit) and not (isinstance(limit, numbers.Real) and float(limit) > 0):
        raise ValueError(f"{what} must be a positive number or None, got {limit!r}")


def check_zero_state(batch_size: Any, dtype: Any) -> None:
    """Refuses sizes and types that a state cannot have.

    Args:
      batch_size: int or scalar tensor.
      dtype: of the state.

    Raises:
      ValueError: no size or a negative one, or a type that is not floating point.
    """
    if not tf.is_tensor(batch_size) and (not isinstance(batch_size, numbers.Integral) or batch_size < 0):
        raise ValueError(f"batch_size must be an integer of at least 0 or a scalar tensor, got {batch_size!r}")
    dtype = tf.as_dtype(dtype)
    if not (dtype.is_floating or dtype.is_complex):
        raise ValueError(f"a state is floating point, got dtype {dtype.name}: give float32 or the inputs' own")


def _short(value: Any) -> str:
    return f"a tensor of shape {value.shape}" if tf.is_tensor(value) else repr(value)


def _rows(tensor: Any) -> int | None:
    return None if tensor.shape.rank is None else dim(tensor, 0)


def check_state(cell: Any, state: Any, inputs: Any) -> Any:
    """Brings a state into the cell's structure and checks widths and batch.

    Args:
      cell: has `state_size`.
      state: (nested) tuples or lists of tensors.
      inputs: [batch, width].

    Returns:
      The state in the structure of `state_size`.

    Raises:
      ValueError: what does not fit, with the path of the offending part.
    """
    size = cell.state_size
    if isinstance(size, tuple) and not isinstance(state, tuple | list):
        raise ValueError(
            f"Expected state to be a tuple of length {len(size)}, but received: {_short(state)}. "
            f"{type(cell).__name__}.zero_state makes one"
        )
    check_floating(inputs)

    def fit(want: Any, got: Any, path: str) -> Any:
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
    """Refuses a width that is not a positive integer.

    Args:
      num_units: the value given.
      what: the argument's name.

    Returns:
      The width.

    Raises:
      ValueError: not a positive integer.
    """
    if isinstance(num_units, bool) or not isinstance(num_units, numbers.Integral) or num_units < 1:
        raise ValueError(f"{what} must be a positive integer, got {num_units!r}")
    return int(num_units)


def check_kernel(cell: Any, kernel: Any, rows: int, width: int | None) -> None:
    """Refuses inputs of another width than the one the kernel was made for.

    Args:
      cell: for the message.
      kernel: variable [width + rows, ...].
      rows: rows of the kernel that belong to the state.
      width: width of the inputs.

    Raises:
      ValueError: another width.
    """
    if width is not None and dim(kernel, 0) != width + rows:
        raise ValueError(
            f"{type(cell).__name__} shares the kernel {kernel.name} of shape {tuple(kernel.shape)}, made for inputs "
            f"of width {dim(kernel, 0) - rows}, but got inputs of width {width}: make one cell per layer"
        )
