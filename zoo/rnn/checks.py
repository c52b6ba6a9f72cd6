"""What cells accept: dtypes, widths, and the structure of states; each refusal says which part is wrong."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf


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


def _rows(tensor: Any) -> int | None:
    return None if tensor.shape.rank is None else tensor.shape[0]


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
            f"Expected state to be a tuple of length {len(size)}, but received: {state!r}. "
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
        if isinstance(got, tuple | list):
            raise ValueError(f"{path} must be one tensor of width {want}, got a tuple of {len(got)}: use zero_state")
        got = tf.convert_to_tensor(got)
        check_floating(got)
        if got.shape.rank is not None and (got.shape.rank != 2 or got.shape[-1] not in {None, want}):
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
    if width is not None and kernel.shape[0] != width + rows:
        raise ValueError(
            f"{type(cell).__name__} shares the kernel {kernel.name} of shape {tuple(kernel.shape)}, made for inputs "
            f"of width {kernel.shape[0] - rows}, but got inputs of width {width}: make one cell per layer"
        )
