"""A stack of cells as one cell."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.rnn import steps
from zoo.rnn.cells import RNNCell
from zoo.rnn.checks import DType, ScopeOrName, State, Tensor, check_cell


def leaf(cell: Any) -> Any:
    """Returns the innermost cell behind wrappers: the one that owns the weights."""
    while hasattr(cell, "wrapped_cell"):
        cell = cell.wrapped_cell
    return cell


def independent(cells: Sequence[Any], where: str) -> list[Any]:
    """Gives every position a cell of its own: a cell met before is copied, and one warning names the positions.

    The cells may be one object several times, perhaps behind different wrappers. Raises ValueError for a repeated cell
    that is not zoo's, which cannot be copied; `where` is for the messages.
    """
    seen: dict[int, int] = {}
    result, repeated = [], []
    for index, cell in enumerate(cells):
        first = seen.setdefault(id(leaf(cell)), index)
        if first == index:
            result.append(cell)
            continue
        if not isinstance(leaf(cell), RNNCell):
            raise ValueError(
                f"{where}: cells {first} and {index} are one object, and {cell!r} cannot be copied: make two"
            )
        repeated.append(index)
        result.append(cell.clone())
    if repeated:
        originals = sorted({seen[id(leaf(cells[i]))] for i in repeated})
        warnings.warn(
            f"{where}: positions {repeated} hold the same cell as {originals}; each gets weights of its own, as in "
            "TF 1.0. Pass share_weights=True to share, or make one cell per position to silence this.",
            stacklevel=3,
        )
    return result


class MultiRNNCell(RNNCell):
    """A stack: each cell reads the output of the one below.

    ``MultiRNNCell([cell] * n)`` means n layers with weights of their own, as the tutorials of TF 1.0 did.

    Args:
      cells: list or tuple of cells, the lowest first.
      state_is_tuple: False concatenates the states of the cells along the columns.
      share_weights: keep repeated cells as they are, so that their layers share weights.

    Raises:
      ValueError: no cells, or cells with tuple states under ``state_is_tuple=False``.
      TypeError: `cells` is not a list or tuple, or something in it is no cell.

    Source: TF1's ``MultiRNNCell``.
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True, share_weights: bool = False) -> None:
        super().__init__()
        if not isinstance(cells, list | tuple):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells!r}. Write MultiRNNCell([cell])")
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        for number, cell in enumerate(cells):
            check_cell(cell, f"MultiRNNCell: cells[{number}]")
        if not state_is_tuple and any(isinstance(c.state_size, tuple) for c in cells):
            raise ValueError(
                "Some cells return tuples of states, but the flag state_is_tuple is not set.  State sizes are: "
                f"{[c.state_size for c in cells]}. Set state_is_tuple=True, or False in every cell"
            )
        self.cells = list(cells) if share_weights else independent(cells, "MultiRNNCell")
        self.state_is_tuple = state_is_tuple

    @property
    def state_size(self) -> Any:
        """A tuple with each cell's, or their sum."""
        sizes = tuple(cell.state_size for cell in self.cells)
        return sizes if self.state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> int:
        """That of the last cell."""
        return self.cells[-1].output_size

    @property
    def variables(self) -> list[tf.Variable]:
        """Those of the cells, lowest first."""
        return [v for cell in self.cells for v in getattr(cell, "variables", ())]

    def zero_state(self, batch_size: int | Tensor, dtype: DType | None = None) -> State:
        """See `RNNCell.zero_state`."""
        with tf.name_scope("MultiRNNCellZeroState"):
            if not self.state_is_tuple:
                return super().zero_state(batch_size, dtype)
            return tuple(cell.zero_state(batch_size, dtype or tf.float32) for cell in self.cells)

    def clone(self) -> RNNCell:
        """See `RNNCell.clone`."""
        other: Any = super().clone()
        other.cells = [cell.clone() for cell in self.cells]
        return other

    def prepare(self, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
        """See `RNNCell.prepare`."""
        with self._enter(scope):
            for index, cell in enumerate(self.cells):
                with scoping.variable_scope(f"cell_{index}"):
                    prepare(cell, width, dtype)
                width = cell.output_size

    def _first(self, width: int | None) -> None:
        """The cells make their variables themselves."""

    def _states(self, state: State) -> list[State]:
        return list(state) if self.state_is_tuple else tf.split(state, [c.state_size for c in self.cells], axis=1)

    def _joined(self, states: list[State]) -> State:
        return tuple(states) if self.state_is_tuple else tf.concat(states, 1)

    def call(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """See `RNNCell.call`."""
        states = []
        for index, (cell, old) in enumerate(zip(self.cells, self._states(state), strict=True)):
            with scoping.variable_scope(f"cell_{index}"):
                inputs, new = cell(inputs, old)
            states.append(new)
        return inputs, self._joined(states)

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `RNNCell.sequence`; one layer after the other, each over the whole sequence."""
        states = []
        for cell, old in zip(self.cells, self._states(state), strict=True):
            run = cell.sequence if isinstance(cell, RNNCell) else lambda *args, cell=cell: steps.run(cell, *args)
            inputs, new = run(inputs, old, mask)
            states.append(new)
        return inputs, self._joined(states)


def prepare(cell: Any, width: int | None, dtype: tf.DType, scope: ScopeOrName | None = None) -> None:
    """Makes a cell's variables before a loop over inputs of a width, also those of a cell that is not zoo's."""
    if isinstance(cell, RNNCell):
        cell.prepare(width, dtype, scope)
    else:
        cell(tf.zeros([1, width], dtype), cell.zero_state(1, dtype))
