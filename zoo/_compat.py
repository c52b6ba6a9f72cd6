"""Every private API of TensorFlow and Keras that zoo uses, each with why: nobody else in zoo/ names one (a test looks).

``zoo/slim.py`` is excepted, whose job is to repair other people's code. Tried with TensorFlow 2.18 and 2.21 and Keras
3.12 and 3.15, the ends of what pyproject.toml allows (``make test-lowest`` and ``make test-newest``). When a release
moves one of these, this file is the one to change.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.utils.naming import to_snake_case
from tensorflow.python.eager import forwardprop_util, record
from tensorflow.python.framework import config
from tensorflow.python.ops.losses import util as losses_util

# ---- TensorFlow ----------------------------------------------------------------------------------------------------

# A graph for a trace that is thrown away: `tf.Graph` is none of `tf.function`'s, in which variables are captured.
FuncGraph = tf.__internal__.FuncGraph

# Whether a tape or an accumulator is active, and how to pause both: no public name says.
could_possibly_record = record.could_possibly_record
stop_recording = record.stop_recording
# `tf.config.experimental.enable_op_determinism` has no public question beside it.
is_op_determinism_enabled = config.is_op_determinism_enabled


def in_forward_mode(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether a `tf.autodiff.ForwardAccumulator` follows one of the tensors."""
    return bool(forwardprop_util.pack_tangents(list(tensors)).tangents)


def innermost_device(graph: tf.Graph) -> str:
    """The `tf.device` that is open in a graph being made; empty for none. Only an operation that is made would tell."""
    return str(graph._device_function_stack.peek_objs()[-1:] or "")


def worker_count(strategy: tf.distribute.ParameterServerStrategy) -> int:
    """How many workers stand behind parameter servers: the strategy has no public name for it."""
    return int(strategy._num_workers)


def variables_of(graph: Any, made: Sequence[Any]) -> list[Any]:
    """The variables that a trace has read or made, whole; `FuncGraph.variables` has only those that are trained."""
    return [_whole(variable) for variable in (*graph._watched_variables, *made)]


def _whole(variable: Any) -> Any:
    """The variable that all devices share, of which this may be one device's part; a part does not say it publicly."""
    container = getattr(variable, "_distributed_container", None)
    return variable if container is None or container() is None else container()


def set_reuse(scope: tf.compat.v1.VariableScope, reuse: Any) -> None:
    """Undoes the AUTO_REUSE that TensorFlow forces on each variable scope in eager mode; `reuse` cannot be set."""
    scope._reuse = reuse


def forget_counted_scopes() -> None:
    """Starts the counters of `default_name` again, which are kept in a collection of the graph without a name."""
    tf.compat.v1.get_collection_ref(("__varscope",))[0].variable_scopes_count.clear()


class RunCollections(Protocol):
    """The collections of one run of scoped code."""

    def of(self, key: str) -> list[Any]:
        """The collection of that name itself, empty where nothing was added."""

    def keys(self) -> list[str]:
        """The names of those in use."""


class _Routed(dict[Any, Any]):
    """A graph's collections; those named by a text are the active run's while one is. TensorFlow's own have tuples."""

    def __init__(self, own: dict[Any, Any], active: Callable[[], RunCollections | None]) -> None:
        super().__init__(own)
        self._active = active

    def get(self, key: Any, default: Any = None) -> Any:
        run = None if type(key) is tuple else self._active()
        return dict.get(self, key, default) if run is None else run.of(key)

    def __getitem__(self, key: Any) -> Any:
        run = None if type(key) is tuple else self._active()
        return dict.__getitem__(self, key) if run is None else run.of(key)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) if type(key) is tuple or self._active() is None else True

    def __setitem__(self, key: Any, value: Any) -> None:
        run = None if type(key) is tuple else self._active()
        if run is None:
            dict.__setitem__(self, key, value)
        else:
            run.of(key)[:] = value

    def __delitem__(self, key: Any) -> None:
        run = None if type(key) is tuple else self._active()
        if run is None:
            dict.__delitem__(self, key)
        else:
            run.of(key).clear()

    def __iter__(self) -> Iterator[Any]:
        run = self._active()
        return dict.__iter__(self) if run is None else iter(run.keys())


def route_collections(active: Callable[[], RunCollections | None]) -> None:
    """Lets TF1's functions find the active run's collections: all of them ask the default graph, in eager mode too.

    A graph that a TF1 program builds keeps its own: sessions and savers look there.
    """
    graph = tf.compat.v1.get_default_graph()
    if type(graph._collections) is not _Routed and (tf.executing_eagerly() or isinstance(graph, FuncGraph)):
        graph._collections = _Routed(graph._collections, active)
        _keep_losses(active)


@functools.cache
def _keep_losses(active: Callable[[], Any]) -> None:
    """Lets `tf.losses` collect in eager mode while a run is active; else TensorFlow drops losses, as no run ends."""
    eager = losses_util.context.executing_eagerly
    view = types.ModuleType(losses_util.context.__name__)
    vars(view).update(vars(losses_util.context), executing_eagerly=lambda: active() is None and eager())
    losses_util.context = view


@functools.cache
def hook_legacy_layers(regularize: Callable[[Any], bool]) -> None:
    """Lets regularizers of TensorFlow's legacy layers be heard of: those layers, on which tf_slim stands, tell nobody.

    Called when foreign code first asks for a variable: the layers' module is loaded then, if it is used at all.

    Args:
      regularize: takes the regularizer of the variable just made, and says whether it is seen to.
    """
    module = sys.modules.get("tensorflow.python.keras.engine.base_layer")
    if module is None:
        return
    original = module.Layer._handle_weight_regularization

    @functools.wraps(original)
    def handle(layer: Any, name: str, variable: Any, regularizer: Any) -> None:
        if not regularize(regularizer):
            original(layer, name, variable, regularizer)

    module.Layer._handle_weight_regularization = handle


# ---- Keras ---------------------------------------------------------------------------------------------------------


def keras_global(name: str) -> Any:
    """One of Keras' global attributes: its stack of open name scopes is how a call of a layer is noticed."""
    return global_state.get_global_attribute(name)


@contextlib.contextmanager
def keras_globals(**values: Any) -> Iterator[None]:
    """Sets some of Keras' global attributes for a while (None takes one away)."""
    before = {name: global_state.get_global_attribute(name) for name in values}
    for name, value in values.items():
        global_state.set_global_attribute(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            global_state.set_global_attribute(name, value)


def tf_variable(variable: keras.Variable) -> Any:
    """The `tf.Variable` of a Keras variable: `value` is a cast copy inside another layer's autocast scope."""
    return variable._value


def identities(variables: Sequence[keras.Variable]) -> set[int]:
    """The `id` of the `tf.Variable` of each, of its parts on devices, and of what parameter servers wrap."""
    return {id(part) for variable in variables for part in _parts(variable._value)}


def _parts(variable: Any) -> Iterator[Any]:
    whole = _whole(variable)
    yield from (whole, *(getattr(whole, "values", None) or [variable]))
    inner = vars(whole).get("_v")  # a copy cached by a worker is a variable around the one that reads are noted of
    if inner is not None:
        yield from _parts(inner)


def own_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The variables of a layer without those of its sublayers, which the public lists hold too."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def track_variable(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Makes a variable that is there already a layer's: `add_weight` makes a new one."""
    layer._track_variable(variable)


def layers_inside(layer: keras.layers.Layer, *, include_self: bool = True) -> list[keras.layers.Layer]:
    """The layer and all its sublayers, at any depth: a model's `layers` are those directly in it."""
    return list(layer._flatten_layers(include_self=include_self))


class SymbolicBuild(keras.Model):
    """A Keras model that may change the batch by which `fit` learns the shapes and types of its inputs."""

    def before_symbolic_build(self, batch: Any) -> Any:
        """Returns the batch to learn from."""
        return batch

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        prepared = None if data_batch is None else self.before_symbolic_build(data_batch)
        super()._symbolic_build(iterator=iterator, data_batch=prepared)


def replace_losses(layer: keras.layers.Layer, losses: Sequence[Any]) -> None:
    """Makes these the losses of the layer's last run, as a call of it does, which forgets those of the run before."""
    if losses or layer._losses:
        layer._clear_losses()
        layer.add_loss(list(losses))


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """The rate as it was given, a variable, a schedule or a function: `learning_rate` is its value now."""
    return optimizer._learning_rate


def sum_gradients_by(optimizer: keras.optimizers.Optimizer, how: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Lets a function sum an optimizer's gradients over replicas; it gets pairs with variables, and Keras' way."""
    by_keras = type(optimizer)._all_reduce_sum_gradients
    optimizer._all_reduce_sum_gradients = lambda pairs: how(pairs, functools.partial(by_keras, optimizer))


def optimizer_for(optimizer: Any, variables: list[Any]) -> Any:
    """The optimizer, or a copy for these variables if it was built for fewer, with the state it had for those it knew.

    Its variables are its state; what it was built for it does not say publicly.
    """
    if {id(v) for v in variables} <= {id(v) for v in optimizer._trainable_variables}:
        return optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    fresh = type(inner).from_config(inner.get_config())
    union = [
        *inner._trainable_variables,
        *(v for v in variables if all(v is not k for k in inner._trainable_variables)),
    ]
    with tf.init_scope():
        fresh.build(union)
    old = {v.path: v for v in inner.variables}
    for variable in fresh.variables:
        if variable.path in old and variable.shape == old[variable.path].shape:
            variable.assign(old[variable.path])
    if inner is optimizer:
        return fresh
    optimizer.inner_optimizer = fresh
    return optimizer


def usual_name(layer: keras.layers.Layer) -> str:
    """The name that Keras gives to layers of that class, before it numbers them by order of creation."""
    return to_snake_case(type(layer).__name__)


def check_tensorflow() -> None:
    """Says what of TensorFlow 2 was switched off, without which a Keras 3 model is built and then fails in `fit`."""
    off = [] if isinstance(tf.TensorShape([1])[0], int) else ["its tensor shapes (disable_v2_tensorshape)"]
    with tf.init_scope():
        eager = tf.executing_eagerly()
    if not eager:  # inside a TF1 graph, or everywhere: a new thread tells
        with ThreadPoolExecutor(1) as thread:
            off += [] if thread.submit(tf.executing_eagerly).result() else ["eager execution (disable_eager_execution)"]
    if off:
        raise RuntimeError(
            "A Keras 3 model needs TensorFlow 2's behaviour. This program has switched off "
            f"{' and '.join(off)}; tf.compat.v1.disable_v2_behavior() does both. Remove that call, or call the network "
            "function itself in the graph: zoo.lenet5(images), where `images` is a tensor."
        )
