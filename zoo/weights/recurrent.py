"""Recurrent weights from and to Keras, PyTorch and cuDNN.

Everything goes through TF1's form: ``kernel`` [width + units, 4 units] with the columns i, j, f, o, and ``bias``
[4 units], to which the cell adds its `forget_bias` when it runs. The others have no forget bias: it is folded into the
bias on the way out and taken out again on the way in.

    TF1      kernel rows x then h   i j f o   bias, + forget_bias at run time   state (c, h)
    Keras    two kernels            i f c o   bias                              state [h, c]     (c is j)
    PyTorch  two, transposed        i f g o   two biases, summed                state (h, c)     (g is j)
    cuDNN    eight, transposed      i f j o   two biases, summed                state h, c
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = [
    "LSTMWeights",
    "bidirectional_from_keras",
    "bidirectional_to_keras",
    "gru_from_keras",
    "gru_to_keras",
    "gru_to_torch",
    "lstm_from_cudnn",
    "lstm_from_keras",
    "lstm_from_torch",
    "lstm_to_cudnn",
    "lstm_to_keras",
    "lstm_to_torch",
]

TORCH_PARTS: Final = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
RESET: Final = (
    "{}: it multiplies by the reset gate after the matrix product, TF1's GRU before it, so no weights make them equal. "
    "Use keras.layers.GRU(reset_after=False), or train again"
)


@dataclass(frozen=True)
class LSTMWeights:
    """One LSTM layer in TF1's form.

    Args:
      kernel: [width + units, 4 units], columns i, j, f, o.
      bias: [4 units], without the forget bias.

    Raises:
      ValueError: shapes that do not belong to one layer.
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        kernel, bias = np.asarray(self.kernel), np.asarray(self.bias)
        if (
            kernel.ndim != 2
            or bias.shape != kernel.shape[1:]
            or kernel.shape[1] % 4
            or 4 * kernel.shape[0] <= len(bias)
        ):
            raise ValueError(
                f"an LSTM has a kernel [width + units, 4 units] and a bias [4 units], got {kernel.shape}, {bias.shape}"
            )
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "bias", bias)

    @property
    def units(self) -> int:
        """Width of the cell."""
        return len(self.bias) // 4


def _layer(weights: Any) -> LSTMWeights:
    """Returns `weights` if they are one LSTM layer, and raises TypeError if not."""
    if isinstance(weights, LSTMWeights):
        return weights
    if isinstance(weights, Mapping) and any("gates" in str(key) for key in weights):
        raise ValueError("these are the weights of a GRU, and an LSTM is converted here: use gru_to_keras")
    raise TypeError(
        f"an LSTM layer is given as LSTMWeights(kernel, bias), got {type(weights).__name__}: wrap the two arrays, as "
        "LSTMWeights(model.variable('rnn/basic_lstm_cell/kernel').numpy(), ...)"
    )


def _swap(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Exchanges the second and third of four blocks: i, j, f, o <-> i, f, j, o."""
    first, second, third, fourth = np.split(values, 4, axis)
    return np.concatenate([first, third, second, fourth], axis)


def _add_forget(bias: np.ndarray, forget_bias: float) -> np.ndarray:
    units = len(bias) // 4
    return np.concatenate(
        [bias[: 2 * units], bias[2 * units : 3 * units] + bias.dtype.type(forget_bias), bias[3 * units :]]
    )


def keras_kernels(weights: Any, layer: str, gates: int) -> list[np.ndarray]:
    """Takes kernel and recurrent kernel out of what ``get_weights`` of a Keras "LSTM" (4 gates) or "GRU" (3) gave.

    TypeError for no list of arrays, ValueError for the arrays of another layer.
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


def lstm_to_keras(weights: LSTMWeights, forget_bias: float = 1.0) -> list[np.ndarray]:
    """Converts to ``keras.layers.LSTM`` (with its sigmoid and tanh).

    Args:
      weights: the layer.
      forget_bias: of the TF1 cell.

    Returns:
      For ``set_weights``: kernel [width, 4 units], recurrent kernel [units, 4 units], bias [4 units].

    Raises:
      TypeError: `weights` is no `LSTMWeights`.
    """
    weights = _layer(weights)
    rows = len(weights.kernel) - weights.units
    kernel = _swap(weights.kernel)
    return [kernel[:rows], kernel[rows:], _swap(_add_forget(weights.bias, forget_bias))]


def lstm_from_keras(weights: Sequence[np.ndarray], forget_bias: float = 1.0) -> LSTMWeights:
    """Converts from ``keras.layers.LSTM``.

    Args:
      weights: of ``get_weights``; without a bias it is zeros.
      forget_bias: of the TF1 cell that will use them.

    Returns:
      The layer.

    Raises:
      TypeError: no list of arrays.
      ValueError: not two or three arrays, or not those of an LSTM.
    """
    kernel, recurrent = keras_kernels(weights, "LSTM", 4)
    bias = np.asarray(weights[2]) if len(weights) == 3 else np.zeros(kernel.shape[1], kernel.dtype)
    return LSTMWeights(_swap(np.concatenate([kernel, recurrent])), _add_forget(_swap(bias), -forget_bias))


def bidirectional_to_keras(forward: LSTMWeights, backward: LSTMWeights, forget_bias: float = 1.0) -> list[np.ndarray]:
    """Converts to ``keras.layers.Bidirectional(LSTM)``.

    Args:
      forward: the forward layer.
      backward: the backward layer.
      forget_bias: of both TF1 cells.

    Returns:
      Six arrays for ``set_weights``.
    """
    return [w for side in (forward, backward) for w in lstm_to_keras(side, forget_bias)]


def bidirectional_from_keras(
    weights: Sequence[np.ndarray], forget_bias: float = 1.0
) -> tuple[LSTMWeights, LSTMWeights]:
    """Converts from ``keras.layers.Bidirectional(LSTM)``.

    Args:
      weights: of ``get_weights``.
      forget_bias: of the TF1 cells that will use them.

    Returns:
      Forward and backward layer.

    Raises:
      ValueError: not four or six arrays.
    """
    half = len(weights) // 2
    if len(weights) not in (4, 6):
        raise ValueError(f"a bidirectional Keras LSTM has four or six arrays, got {len(weights)}")
    return lstm_from_keras(weights[:half], forget_bias), lstm_from_keras(weights[half:], forget_bias)


def lstm_to_torch(
    layers: Sequence[LSTMWeights | tuple[LSTMWeights, LSTMWeights]], forget_bias: float = 1.0
) -> dict[str, np.ndarray]:
    """Converts to ``torch.nn.LSTM``.

    Args:
      layers: lowest first; a pair (forward, backward) each for ``bidirectional=True``.
      forget_bias: of the TF1 cells.

    Returns:
      A state dict of arrays: ``weight_ih_l0`` [4 units, width], ... The bias goes to ``bias_ih``; ``bias_hh`` is 0.

    Raises:
      TypeError: no list of `LSTMWeights` or pairs of them.
    """
    if not isinstance(layers, list | tuple):
        raise TypeError(f"lstm_to_torch takes a list of layers, the lowest first, got {type(layers).__name__}")
    state: dict[str, np.ndarray] = {}
    for number, layer in enumerate(layers):
        pair = layer if isinstance(layer, tuple) else (layer,)
        if len(pair) > 2:
            raise TypeError(f"a layer has one direction or two, got {len(pair)} parts in layer {number}")
        for suffix, weights in zip(("", "_reverse")[: len(pair)], pair, strict=True):
            kernel, recurrent, bias = lstm_to_keras(weights, forget_bias)
            values = (kernel.T, recurrent.T, bias, np.zeros_like(bias))
            state.update({f"{p}_l{number}{suffix}": v.copy() for p, v in zip(TORCH_PARTS, values, strict=True)})
    return state


def lstm_from_torch(
    state: Mapping[str, Any], forget_bias: float = 1.0
) -> list[LSTMWeights | tuple[LSTMWeights, LSTMWeights]]:
    """Converts from ``torch.nn.LSTM``.

    Args:
      state: its state dict, tensors or arrays; other keys are refused.
      forget_bias: of the TF1 cells that will use them.

    Returns:
      Layers, lowest first; pairs (forward, backward) when bidirectional.

    Raises:
      TypeError: no state dict.
      ValueError: a GRU or RNN, a projection, or keys that are none of an LSTM's or missing.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"lstm_from_torch takes lstm.state_dict(), got {type(state).__name__}")
    arrays = {key: np.asarray(value) for key, value in state.items()}
    pattern = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l(\d+)(_reverse)?")
    strange = [key for key in arrays if not pattern.fullmatch(key)]
    if strange or "weight_hh_l0" not in arrays:
        what = (
            "weight_hr is a projection of PyTorch's kind"
            if any("weight_hr" in key for key in strange)
            else "strip prefixes"
        )
        raise ValueError(
            f"not the state dict of a torch.nn.LSTM ({what}): {', '.join(strange[:5]) or 'no weight_hh_l0'}"
        )
    gates = arrays["weight_hh_l0"].shape[0] // arrays["weight_hh_l0"].shape[1]
    if gates == 3:
        raise ValueError(RESET.format("this is a torch.nn.GRU"))
    if gates != 4:
        raise ValueError(f"an LSTM has 4 gates, this recurrent network of PyTorch has {gates}")

    def layer(suffix: str) -> LSTMWeights:
        lacks = [f"{part}_{suffix}" for part in TORCH_PARTS[:2] if f"{part}_{suffix}" not in arrays]
        if lacks:
            raise ValueError(f"not the state dict of a torch.nn.LSTM: {', '.join(lacks)} is missing")
        kernel, recurrent = (arrays[f"{part}_{suffix}"].T for part in TORCH_PARTS[:2])
        biases = [arrays[f"{part}_{suffix}"] for part in TORCH_PARTS[2:] if f"{part}_{suffix}" in arrays]
        return lstm_from_keras([kernel, recurrent, *([np.sum(biases, axis=0)] if biases else [])], forget_bias)

    count = 1 + max(int(key.partition("_l")[2].partition("_")[0]) for key in arrays)
    both = "weight_ih_l0_reverse" in arrays
    return [(layer(f"l{n}"), layer(f"l{n}_reverse")) if both else layer(f"l{n}") for n in range(count)]


def lstm_to_cudnn(weights: LSTMWeights, forget_bias: float = 1.0, split: bool = True) -> np.ndarray:
    """Converts to cuDNN's canonical vector: four input matrices, four recurrent ones, eight biases.

    Args:
      weights: the layer.
      forget_bias: of the TF1 cell.
      split: True halves the bias over both sides, as TF1's ``CudnnLSTM`` did; False gives it to the input side.

    Returns:
      (width + units + 2) x 4 units values.
    """
    kernel, recurrent, bias = lstm_to_keras(weights, forget_bias)
    matrices = [block.T.ravel() for side in (kernel, recurrent) for block in np.split(side, 4, axis=1)]
    biases = [bias / 2, bias / 2] if split else [bias, np.zeros_like(bias)]
    return np.concatenate([*matrices, *biases])


def lstm_from_cudnn(values: np.ndarray, width: int, units: int, forget_bias: float = 1.0) -> LSTMWeights:
    """Converts from cuDNN's canonical vector of one layer.

    Args:
      values: (width + units + 2) x 4 units values.
      width: of the inputs.
      units: of the cell.
      forget_bias: of the TF1 cell that will use them.

    Returns:
      The layer.

    Raises:
      ValueError: another number of values.
    """
    values = np.asarray(values)
    if values.size != 4 * units * (width + units + 2):
        raise ValueError(f"a layer of {units} units on {width} inputs has {4 * units * (width + units + 2)} values, "
                         f"got {values.size}")  # fmt: skip
    ends = np.cumsum([4 * units * width, 4 * units * units, 4 * units])
    w, r, b_w, b_r = np.split(values, ends)
    kernel, recurrent = (np.concatenate([m.T for m in part.reshape(4, units, -1)], 1) for part in (w, r))
    return lstm_from_keras([kernel, recurrent, b_w + b_r], forget_bias)


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
