"""Networks as plain scoped functions for TensorFlow 2 and Keras 3.

The public names load when first used (PEP 562), so that ``import zoo`` does not import TensorFlow.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.nets.cifarnet import cifarnet as cifarnet
    from zoo.nets.densenet import densenet as densenet
    from zoo.nets.densenet import densenet121 as densenet121
    from zoo.nets.densenet import densenet161 as densenet161
    from zoo.nets.densenet import densenet169 as densenet169
    from zoo.nets.densenet import densenet201 as densenet201
    from zoo.nets.densenet import densenet264 as densenet264
    from zoo.nets.densenet import densenet_cifar as densenet_cifar
    from zoo.nets.inception_v3 import inception_v3 as inception_v3
    from zoo.nets.lenet5 import lenet5 as lenet5
    from zoo.nets.sequence_tagger import row_classifier as row_classifier
    from zoo.nets.sequence_tagger import sequence_tagger as sequence_tagger
    from zoo.nets.word_lm import word_lm as word_lm
    from zoo.parallel import multi_gpu as multi_gpu
    from zoo.registry import create as create
    from zoo.registry import list_nets as list_nets
    from zoo.registry import register_net as register_net
    from zoo.scoping import AUTO_REUSE as AUTO_REUSE
    from zoo.scoping import Model as Model
    from zoo.scoping import NetSpec as NetSpec
    from zoo.scoping import ScopeError as ScopeError
    from zoo.scoping import add_arg_scope as add_arg_scope
    from zoo.scoping import add_to_collection as add_to_collection
    from zoo.scoping import arg_scope as arg_scope
    from zoo.scoping import get_collection as get_collection
    from zoo.scoping import get_variable as get_variable
    from zoo.scoping import get_variable_scope as get_variable_scope
    from zoo.scoping import load_model as load_model
    from zoo.scoping import no_regularizer as no_regularizer
    from zoo.scoping import register_function as register_function
    from zoo.scoping import variable_scope as variable_scope
    from zoo.scoping import variable_store as variable_store

__version__ = "0.1.0"

# Public name -> module that defines it.
_NAMES = {
    "AUTO_REUSE": "zoo.scoping",
    "Model": "zoo.scoping",
    "load_model": "zoo.scoping",
    "add_arg_scope": "zoo.scoping",
    "add_to_collection": "zoo.scoping",
    "arg_scope": "zoo.scoping",
    "get_collection": "zoo.scoping",
    "get_variable": "zoo.scoping",
    "get_variable_scope": "zoo.scoping",
    "register_function": "zoo.scoping",
    "ScopeError": "zoo.scoping",
    "no_regularizer": "zoo.scoping",
    "variable_scope": "zoo.scoping",
    "variable_store": "zoo.scoping",
    "avg_pool2d": "zoo.layers",
    "batch_norm": "zoo.layers",
    "conv2d": "zoo.layers",
    "conv_relu": "zoo.layers",
    "dropout": "zoo.layers",
    "flatten": "zoo.layers",
    "fully_connected": "zoo.layers",
    "max_pool2d": "zoo.layers",
    "NetSpec": "zoo.scoping",
    "create": "zoo.registry",
    "list_nets": "zoo.registry",
    "register_net": "zoo.registry",
    "cifarnet": "zoo.nets.cifarnet",
    "densenet": "zoo.nets.densenet",
    "densenet121": "zoo.nets.densenet",
    "densenet161": "zoo.nets.densenet",
    "densenet169": "zoo.nets.densenet",
    "densenet201": "zoo.nets.densenet",
    "densenet264": "zoo.nets.densenet",
    "densenet_cifar": "zoo.nets.densenet",
    "inception_v3": "zoo.nets.inception_v3",
    "lenet5": "zoo.nets.lenet5",
    "multi_gpu": "zoo.parallel",
    "row_classifier": "zoo.nets.sequence_tagger",
    "sequence_tagger": "zoo.nets.sequence_tagger",
    "word_lm": "zoo.nets.word_lm",
}

# Rooms reachable as ``zoo.layers`` and so on.
_ROOMS = {
    "data",
    "files",
    "inference",
    "layers",
    "nets",
    "parallel",
    "registry",
    "rnn",
    "scoping",
    "slim",
    "training",
    "transfer",
    "weights",
}

__all__ = sorted([*_NAMES, *_ROOMS])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports a public name or room at its first use."""
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
    elif name in _ROOMS:
        value = import_module(f"zoo.{name}")
    else:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'; dir(zoo) lists the public names")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the public names, loaded or not."""
    return sorted({*globals(), *__all__})


if "keras" in sys.modules:  # then Keras can load zoo's models at once; else at the first use of anything of zoo's
    import_module("zoo.scoping")
