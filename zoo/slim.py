"""TF-Slim 1.1.0, repaired: `import zoo.slim as slim` instead of `import tf_slim as slim`.

All of `tf_slim` is here, and `slim.nets`. Importing this module repairs the installed package in place, so that other
people's modules that say `import tf_slim` work too:

- Functions that TensorFlow 2.16 and later moved or dropped are put back where tf_slim looks for them; TensorFlow's own
  modules are not touched.
- `batch_norm`, whose base class went away with Keras 2, and `dropout` are zoo's, which have the same arguments; so
  frozen scopes keep their statistics, and both work in a `zoo.Model`.
- `arg_scope` is zoo's. A scope for `zoo.layers.conv2d` also configures `slim.conv2d`, and the other way round; names
  that the other function does not have are left out.
- Collections of variables and end points are the running model's, inside a model.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
import tf_slim
import tf_slim.nets
from tf_slim.layers import layers as _slim_layers
from tf_slim.layers import utils as _slim_utils
from tf_slim.ops import arg_scope as _slim_arg_scope

from zoo import layers, scoping
from zoo.layers import context
from zoo.scoping.frames import current_frame

_MOVED: dict[str, dict[str, Any]] = {
    "tensorflow.python.framework.ops": {"Tensor": tf.Tensor, "IndexedSlices": tf.IndexedSlices},
    "tensorflow.python.ops.array_ops": {"stack": tf.stack, "unstack": tf.unstack},
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": tf.debugging.Assert,
        "case": tf.compat.v1.case,
        "cond": tf.compat.v1.cond,
        "while_loop": tf.compat.v1.while_loop,
    },
    "tensorflow.python.ops.variable_scope": {"variable": tf.compat.v1.Variable},
}

# tf_slim's function -> zoo's, with which it shares its entry in an arg_scope.
_TWINS: dict[str, Callable[..., Any]] = {
    "avg_pool2d": layers.avg_pool2d,
    "convolution2d": layers.conv2d,
    "convolution2d_transpose": layers.conv2d_transpose,
    "flatten": layers.flatten,
    "fully_connected": layers.fully_connected,
    "group_norm": layers.group_norm,
    "layer_norm": layers.layer_norm,
    "max_pool2d": layers.max_pool2d,
    "one_hot_encoding": layers.one_hot_encoding,
    "separable_convolution2d": layers.separable_conv2d,
    "softmax": layers.softmax,
}


class _View(types.ModuleType):
    """A module with further attributes; the module itself stays as it is."""

    def __init__(self, module: types.ModuleType, further: dict[str, Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(further)
        self.__dict__["_zoo_view_of"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_zoo_view_of"], name)


def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> OrderedDict[str, tf.Tensor]:
    """Returns the tensors of a collection by their aliases.

    Args:
      collection: name of the collection: of the running model or variable store inside one, else of the graph.
      clear_collection: also empty it, default False.

    Returns:
      Alias -> tensor, in the order of the collection.
    """
    tensors = OrderedDict(
        (alias, tensor)
        for tensor in scoping.get_collection(collection)
        for alias in getattr(tensor, "aliases", None) or _slim_utils.get_tensor_aliases(tensor)
    )
    if clear_collection:
        frame = current_frame()
        if frame is not None:
            frame.collections.of(collection).clear()
        else:
            tf.compat.v1.get_default_graph().clear_collection(collection)
    return tensors


def _add_variable_to_collections(variable: Any, collections_set: Any, collections_name: str) -> None:
    """Adds a layer's variable, or all its parts, to the collections asked for under that name."""
    names = _slim_utils.get_variable_collections(collections_set, collections_name) or []
    for name in [names] if isinstance(names, str) else names:
        for part in variable if isinstance(variable, tf.compat.v1.PartitionedVariable) else [variable]:
            if not any(part is known for known in scoping.get_collection(name)):
                scoping.add_to_collection(name, part)


def _modules() -> Iterable[types.ModuleType]:
    return [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "tf_slim" and m is not None]


def _scoped_functions() -> dict[int, Any]:
    """tf_slim's arg_scope functions and decorated layers -> ours, by the old object's id."""
    new: dict[int, Any] = {id(_slim_layers.batch_norm): layers.batch_norm, id(_slim_layers.dropout): layers.dropout}
    for name in _slim_arg_scope.__all__:
        new[id(getattr(_slim_arg_scope, name))] = getattr(scoping, name)
    for module in _modules():
        for old in list(vars(module).values()):
            if isinstance(old, types.FunctionType) and hasattr(old, "_key_op") and id(old) not in new:
                wrappers = [old]  # the decorated function is the innermost; a notice of deprecation may lie around it
                while hasattr(wrappers[-1], "__wrapped__"):
                    wrappers.append(wrappers[-1].__wrapped__)
                inner = wrappers[-1]
                ours = scoping.add_arg_scope(inner, shares=_TWINS.get(inner.__name__))
                for function in wrappers:  # what others hold already takes part in zoo's scopes too
                    vars(function).update(
                        _key_op=vars(ours)["_key_op"], _arg_scope_names=vars(ours)["_arg_scope_names"]
                    )
                if len(wrappers) == 2:
                    new[id(old)] = ours
    for module in _modules():
        for old in list(vars(module).values()):
            if isinstance(old, functools.partial) and id(old.func) in new:
                new[id(old)] = functools.partial(new[id(old.func)], *old.args, **old.keywords)
    return new


def _repair() -> None:
    """Replaces in every module of tf_slim what does not work, by identity, so the order of imports does not matter."""
    if getattr(tf_slim, "_repaired_by_zoo", False):
        return
    replacements: dict[int, Any] = {
        id(_slim_utils.collect_named_outputs): context.collect,
        id(_slim_utils.convert_collection_to_dict): convert_collection_to_dict,
        id(_slim_layers._add_variable_to_collections): _add_variable_to_collections,
        **_scoped_functions(),
    }
    for name, further in _MOVED.items():
        module = sys.modules[name]
        missing = {key: value for key, value in further.items() if not hasattr(module, key)}
        replacements[id(module)] = _View(module, missing)
    for module in _modules():
        for name, old in list(vars(module).items()):
            if id(old) in replacements and not name.startswith("__"):
                setattr(module, name, replacements[id(old)])
    tf_slim._repaired_by_zoo = True


_repair()
globals().update({name: getattr(tf_slim, name) for name in dir(tf_slim) if not name.startswith("_")})
variable_scope = scoping.variable_scope
