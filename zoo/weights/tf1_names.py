"""TF1's names of recurrent variables, of every age, brought to those of TF 1.2 and later, which zoo's cells make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from zoo.weights.names import assign, named_variables
from zoo.weights.tf1 import read_tf1

if TYPE_CHECKING:
    from zoo.scoping import Model

# TF 0.x and other names of a cell -> its last name.
_CELLS: Final = {
    "BasicRNNCell": "basic_rnn_cell",
    "BasicLSTMCell": "basic_lstm_cell",
    "LSTMCell": "lstm_cell",
    "GRUCell": "gru_cell",
    "LSTMBlockCell": "lstm_cell",
    "lstm_block_cell": "lstm_cell",
}
# Variables inside a cell: first TF 0.x, then TF 1.0 and 1.1.
_LEAVES: Final = {
    "Linear/Matrix": "kernel",
    "Linear/Bias": "bias",
    "Gates/Linear/Matrix": "gates/kernel",
    "Gates/Linear/Bias": "gates/bias",
    "Candidate/Linear/Matrix": "candidate/kernel",
    "Candidate/Linear/Bias": "candidate/bias",
    "W_0": "kernel",
    "B": "bias",
    "W_F_diag": "w_f_diag",
    "W_I_diag": "w_i_diag",
    "W_O_diag": "w_o_diag",
    "W_P_0": "projection/kernel",
    "W": "kernel",
    "b": "bias",
    "weights": "kernel",
    "biases": "bias",
    "gates/weights": "gates/kernel",
    "gates/biases": "gates/bias",
    "candidate/weights": "candidate/kernel",
    "candidate/biases": "candidate/bias",
    "projection/weights": "projection/kernel",
}
# Scopes around a cell.
_SCOPES: Final = (
    (r"MultiRNNCell/Cell(\d+)/", r"multi_rnn_cell/cell_\1/"),
    (r"BiRNN/FW/|BiRNN_FW/", "bidirectional_rnn/fw/"),
    (r"BiRNN/BW/|BiRNN_BW/", "bidirectional_rnn/bw/"),
)
_INSIDE: Final = re.compile(
    rf"(?P<scopes>.*?)(?<![^/])(?P<cell>{'|'.join([*_CELLS, *set(_CELLS.values())])})/"
    rf"(?P<leaf>{'|'.join(sorted(_LEAVES, key=len, reverse=True))})(?P<rest>[/:].*)?"
)


def modern_name(name: str) -> str:
    """Brings the name of a variable to that of TF 1.2 and later.

    Args:
      name: as in a checkpoint; a slot's suffix (``/Adam``) and ``:0`` are kept.

    Returns:
      The name zoo's cells make; names that are modern, or outside recurrent cells, come back as they are.
    """
    for old, new in _SCOPES:
        name = re.sub(rf"(?<![^/])(?:{old})", new, name)
    match = _INSIDE.fullmatch(name)
    if match is None:
        return name
    cell = _CELLS.get(match["cell"], match["cell"])
    return f"{match['scopes']}{cell}/{_LEAVES[match['leaf']]}{match['rest'] or ''}"


def read_checkpoint(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a TF1 checkpoint of any age under modern names.

    Args:
      path: prefix of the checkpoint (``model.ckpt-1000``), or a folder with a ``checkpoint`` file.

    Returns:
      Modern name to value; slots of optimizers are there too.

    Raises:
      FileNotFoundError: no checkpoint there.
      ValueError: the checkpoint is damaged, or two variables get the same modern name.
    """
    found: dict[str, np.ndarray] = {}
    try:
        stored = read_tf1(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is no TF1 checkpoint; give its prefix: {error}") from error
    for name, value in stored.items():
        modern = modern_name(name)
        if modern in found:
            raise ValueError(f"{path}: two variables are called {modern} today, one of them {name}: load them by hand")
        found[modern] = value
    return found


def assign_checkpoint(model: Model, path: str | Path, renamed: Mapping[str, str] | None = None) -> list[str]:
    """Loads a TF1 checkpoint of any age into a model.

    Args:
      model: a built `zoo.Model`.
      path: see `read_checkpoint`.
      renamed: modern name in the checkpoint to name in the model, or prefix to prefix when both end in ``/``, such as
        ``{"RNN/": "rnn/"}`` (TF 0.x's scope of ``dynamic_rnn``) or ``{"Model/": ""}``.

    Returns:
      Names in the checkpoint that no variable took.

    Raises:
      ValueError: a variable that is not there, or of another shape; nothing is assigned then.
    """

    def final(name: str) -> str:
        for old, new in (renamed or {}).items():
            if name == old or (old.endswith("/") and name.startswith(old)):
                name = new + name[len(old) :]
        return name

    stored = read_checkpoint(path)
    values = {final(name): value for name, value in stored.items()}
    variables = named_variables(model)
    missing = [f"{name} is not there" for name in variables if name not in values]
    if missing:
        held = ", ".join(sorted(values)[:8])
        raise ValueError(f"{path} does not fit: {'; '.join(missing[:5])}. It holds {held}...; see `renamed`")
    taken = {name: values[name] for name in variables}
    assign(variables, taken, f"checkpoint {path}", remedy="build the model with the widths that the checkpoint has")
    return sorted(name for name in stored if final(name) not in variables)
