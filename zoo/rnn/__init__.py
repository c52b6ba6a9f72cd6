"""Recurrent cells with TF1's numbers and names, wrappers, and loops with a fast path.

What runs when: a loop (`loops`) makes the variables and the masks, and asks the cell for the whole sequence.

    cell                                   CPU                    GPU, float16 or 32   under XLA
    LSTM: tanh, no peepholes, projection   `fused`                one cuDNN call       `fused` on a CPU; with a GPU no
      or clipping                                                   (`cudnn`)            XLA (``supports_jit = False``)
    other cells, dropout of the state,     `steps`: a cell call   the same             the same; gradients need a known
      ``residual_fn``, ``fast_path=False``   a step                                      number of steps
    ``MultiRNNCell``                       layer by layer, each cell as above
    residual, device, other dropout        on the whole sequence, around the cell's own way
    a cell called by hand                  its `call`, one step, everywhere

`fused` writes at most `fused.UNROLL_LIMIT` steps out in a graph (eagerly any number), and puts more, or an unknown
number, into a while loop. `steps` takes a while loop in every graph.

``convert`` and ``tf1_names``, the conversion of weights, live in `zoo.weights` (a room below) and load at first use.
"""

from importlib import import_module
from types import ModuleType

from zoo.rnn.basic import BasicRNNCell, GRUCell
from zoo.rnn.carried import CarriedState
from zoo.rnn.cells import RNNCell
from zoo.rnn.loops import (
    bidirectional_dynamic_rnn,
    dynamic_rnn,
    stack_bidirectional_dynamic_rnn,
    static_rnn,
)
from zoo.rnn.lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from zoo.rnn.multi import MultiRNNCell
from zoo.rnn.vocabulary import embedding, softmax_cross_entropy
from zoo.rnn.wrappers import DeviceWrapper, DropoutWrapper, ResidualWrapper

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "CarriedState",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "bidirectional_dynamic_rnn",
    "convert",
    "dynamic_rnn",
    "embedding",
    "softmax_cross_entropy",
    "stack_bidirectional_dynamic_rnn",
    "static_rnn",
    "tf1_names",
]

_CONVERSIONS = {"convert": "zoo.weights.recurrent", "tf1_names": "zoo.weights.tf1_names"}


def __getattr__(name: str) -> ModuleType:
    """Imports a module of conversions at its first use."""
    if name not in _CONVERSIONS:
        raise AttributeError(f"module 'zoo.rnn' has no attribute '{name}'")
    globals()[name] = module = import_module(_CONVERSIONS[name])
    return module
