"""Weights of TF1's GRU from and to Keras, and why there is no way to PyTorch's and cuDNN's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

RESET: Final = (
    "{}: it multiplies by the reset gate after the matrix product, TF1's GRU before it, so no weights make them equal. "
    "Use keras.layers.GRU(reset_after=False), or train again"
)


def keras_kernels(weights: Any, layer: str, gates: int) -> list[np.ndarray]:
    """Takes the kernels out of what ``get_weights`` gave.

    Args:
      weights: two or three arrays.
      layer: "LSTM" or "GRU".
      gates: 4 or 3.

    Returns:
      Kernel and recurrent kernel.

    Raises:
      TypeError: no list of arrays.
      ValueError: not the arrays of that layer.
    """
    if not isinstance(weights, list | tuple):
        raise TypeError(f"give layer.get_weights() of a Keras {layer}, a list of arrays; got {type(weights).__name__}")
    if len(weights) not in (2, 3):
        raise ValueError(f"a Keras {layer} has kernel, recurrent kernel and perhaps a bias, got {len(weights)} arrays")
    shapes = [np.shape(array) for array in weights]
    units = shapes[1][0] if len(shapes[1]) == 2 else 0
    columns = gates * units
    if len(shapes[0]) != 2 or shapes[0][1] != columns or shapes[1] != (units, columns):
        other = shapes[1] == (units, (7 - gates) * units)
        reason = f"; these are of {'a GRU' if gates == 4 else 'an LSTM'}" if other else ""
        raise ValueError(
            f"a Keras {layer} has a kernel [width, {gates} units] and a recurrent kernel [units, {gates} units], got "
            f"{shapes[0]} and {shapes[1]}{reason}"
        )
    return [np.asarray(array) for array in weights[:2]]


def gru_to_keras(
    gates_kernel: np.ndarray, gates_bias: np.ndarray, candidate_kernel: np.ndarray, candidate_bias: np.ndarray
) -> list[np.ndarray]:
    """Converts a TF1 GRU to ``keras.layers.GRU(reset_after=False)``; Keras' z is TF1's u.

    Args:
      gates_kernel: [width + units, 2 units], columns r, u.
      gates_bias: [2 units].
      candidate_kernel: [width + units, units].
      candidate_bias: [units].

    Returns:
      For ``set_weights``: kernel [width, 3 units], recurrent kernel [units, 3 units], bias [3 units].

    Raises:
      ValueError: shapes that do not belong to one GRU.
    """
    arrays = [np.asarray(a) for a in (gates_kernel, gates_bias, candidate_kernel, candidate_bias)]
    rows, units = len(arrays[0]) if arrays[0].ndim else 0, arrays[3].size
    wanted = [(rows, 2 * units), (2 * units,), (rows, units), (units,)]
    if [a.shape for a in arrays] != wanted or rows <= units:
        raise ValueError(
            "a TF1 GRU has gates [width + units, 2 units] and [2 units], candidate [width + units, units] and [units]; "
            f"got {', '.join(str(a.shape) for a in arrays)}"
        )
    r, u = np.split(arrays[0], 2, axis=1)
    b_r, b_u = np.split(arrays[1], 2)
    kernel = np.concatenate([u, r, arrays[2]], axis=1)
    width = rows - units
    return [kernel[:width], kernel[width:], np.concatenate([b_u, b_r, arrays[3]])]


def gru_from_keras(weights: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Converts from ``keras.layers.GRU(reset_after=False)``.

    Args:
      weights: of ``get_weights``, with a bias.

    Returns:
      ``gates/kernel``, ``gates/bias``, ``candidate/kernel``, ``candidate/bias``.

    Raises:
      TypeError: no list of arrays.
      ValueError: not the three arrays of a GRU, or of one with ``reset_after=True`` (Keras' default), which is another
        function.
    """
    if isinstance(weights, list | tuple) and len(weights) == 2:
        raise ValueError("TF1's GRU has a bias; this Keras GRU has none (use_bias=False): append zeros [3 units]")
    kernel, recurrent = keras_kernels(weights, "GRU", 3)
    bias = np.asarray(weights[2])
    if bias.ndim == 2:
        raise ValueError(RESET.format("this Keras GRU has reset_after=True"))
    z, r, candidate = np.split(np.concatenate([kernel, recurrent]), 3, axis=1)
    b_z, b_r, b_candidate = np.split(bias, 3)
    return {
        "gates/kernel": np.concatenate([r, z], axis=1),
        "gates/bias": np.concatenate([b_r, b_z]),
        "candidate/kernel": candidate,
        "candidate/bias": b_candidate,
    }


def gru_to_torch(*_: Any) -> None:
    """Refuses: PyTorch's GRU is another function.

    Raises:
      ValueError: always, with the reason.
    """
    raise ValueError(RESET.format("torch.nn.GRU (like cuDNN's) is another function than TF1's GRU"))
