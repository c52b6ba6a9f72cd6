"""Recurrent cells with TF1's numbers and names, wrappers, loops with a fast path, and conversion of weights."""

from zoo.rnn import convert, tf1_names
from zoo.rnn.basic import BasicRNNCell, GRUCell
from zoo.rnn.carried import CarriedState
from zoo.rnn.cells import RNNCell
from zoo.rnn.embedding import embedding
from zoo.rnn.loops import (
    bidirectional_dynamic_rnn,
    dynamic_rnn,
    stack_bidirectional_dynamic_rnn,
    static_rnn,
)
from zoo.rnn.losses import softmax_cross_entropy
from zoo.rnn.lstm import BasicLSTMCell, LSTMCell, LSTMStateTuple
from zoo.rnn.multi import MultiRNNCell
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
