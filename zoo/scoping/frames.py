"""The rules of TF1's variables, applied by one custom getter, also inside Keras 3 models and in eager mode.

A *frame* is one run of a scoped function over one store of variables. While a frame is active, one custom getter at the
root of the variable scopes answers every `get_variable`, whether zoo's, TensorFlow's or tf_slim's.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import tensorflow as tf

from zoo._compat import forget_counted_scopes, hook_legacy_layers, route_collections, set_reuse
from zoo.scoping.initial import ScopeError, gives_its_shape, initial_value

VariableScope = tf.compat.v1.VariableScope
get_variable_scope = tf.compat.v1.get_variable_scope

REGULARIZATION_LOSSES = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
_GLOBAL_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP
_TF_PACKAGES = ("tensorflow", "keras", "tf_slim", "contextlib", "zoo.scoping", "zoo.layers", "zoo.rnn")


class Store(Protocol):
    """Where a frame's variables live: a `zoo.Model`'s store or a `variable_store`."""

    @property
    def seed(self) -> int:
        """What the seeds of variables and runs are made from."""

    @property
    def compute_dtype(self) -> str:
        """The type that is computed in."""

    @property
    def raw(self) -> Mapping[str, tf.Variable]:
        """The variables by full name."""

    @property
    def places(self) -> Mapping[str, str]:
        """Where each was made, as `file:line`."""

    def create(self, name: str, shape: tuple[int, ...], dtype: tf.DType, initial: Callable[[], Any], **how: Any) -> Any:
        """Makes the variable `name` and returns it."""

    def regularize(self, name: str, regularizer: Callable[[Any], Any]) -> None:
        """Adds the regularizer's loss of the variable of that full name, once."""

    def is_frozen(self, scope: str) -> bool:
        """Whether the scope of that full name is frozen."""

    def next_seed(self) -> tf.Tensor:
        """A new int32[2] seed for this run."""

    @property
    def collections(self) -> Mapping[Any, Sequence[str]]:
        """The names of the variables in each collection; for the regularization losses, of those that have one."""

    def regularization(self, name: str) -> Any:
        """The loss that the regularizer of the variable of that full name gives now; None if it gives none."""


class Collections:
    """TF1's collections in one run: the store's variables that the run has asked for, and what it adds itself."""

    def __init__(self, frame: Frame) -> None:
        self._frame = weakref.proxy(frame)
        self._lists: dict[Any, list[Any]] = {}
        self._kept: dict[Any, dict[str, Any]] = {}  # what came from the store, by name

    def of(self, key: Any) -> list[Any]:
        """The collection itself: what a caller changes in it is changed for the rest of the run."""
        found, kept = self._lists.setdefault(key, []), self._kept.setdefault(key, {})
        store, seen = self._frame.store, self._frame.seen
        for name in store.collections.get(key, ()):
            if name in kept or name not in seen:
                continue
            if key == REGULARIZATION_LOSSES:
                with drawn_once():
                    kept[name] = store.regularization(name)
            else:
                kept[name] = store.raw[name]
            if kept[name] is not None:
                found.append(kept[name])
        return found

    def added(self, key: Any) -> list[Any]:
        """What the run itself has put into the collection."""
        kept = {id(value) for value in self._kept.get(key, {}).values()}
        return [value for value in self._lists.get(key, ()) if id(value) not in kept]

    def losses(self) -> list[Any]:
        """The losses that the run itself has put into TF1's collections of losses, each once."""
        found = [*self.added(tf.compat.v1.GraphKeys.LOSSES), *self.added(REGULARIZATION_LOSSES)]
        return list({id(loss): loss for loss in found}.values())

    def keys(self) -> list[Any]:
        """The collections in use; that of regularization losses only once somebody asked, as it costs operations."""
        stored = [key for key in self._frame.store.collections if key != REGULARIZATION_LOSSES]
        return [key for key in dict.fromkeys([*self._lists, *stored]) if self.of(key)]


class Frame:
    """One run of a scoped function: which names were asked for, what was collected, which seeds were drawn."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seen: dict[str, str] = {}
        self._traces: dict[str, tuple[Callable[[], Any], str]] = {}  # name -> the `tf.function` trace that made it
        self._collections: dict[Any, Collections] = {}  # by the function being traced
        self.losses: list[Any] = []  # that a model's run put into its collections
        self.native = False
        self.last = ""
        self.creating: str | None = None
        self.entry = 0  # how often a store has been entered
        self._seeds: tuple[Any, tf.Tensor] | None = None  # the run and its seed
        self._draws = 0

    @contextlib.contextmanager
    def entered(self, dtype: tf.DType = tf.float32) -> Iterator[Frame]:
        """Makes this the active frame, at the root of the variable scopes and with fresh `default_name` counters."""
        root = VariableScope(False, custom_getter=_root_getter, use_resource=True, dtype=dtype)
        outer = self._collections if _FRAME.get() is self else None
        token = _FRAME.set(self)
        self.entry += 1
        self._collections = {}
        try:
            route_collections(_active_collections)
            with tf.compat.v1.variable_scope(root, auxiliary_name_scope=False) as scope:
                set_reuse(scope, False)
                forget_counted_scopes()  # re-entering a scope object saved the counters and will restore them
                yield self
                self.losses = self.collections.losses()
        except RuntimeError as error:  # TensorFlow's "Improper nesting" hides what it says of caching devices
            if isinstance(error.__context__, NotImplementedError) and "aching device" in str(error.__context__):
                raise ScopeError(
                    "A caching_device is where a graph keeps copies of variables, and tf.compat.v1.variable_scope "
                    "refuses it in eager mode. Open zoo.variable_scope(..., caching_device=...), which takes it "
                    "everywhere, or call the model in a tf.function."
                ) from error
            raise
        finally:
            _FRAME.reset(token)
            if outer is not None:
                self._collections = outer

    def random_seed(self, seed: int | None) -> tf.Tensor:
        """The next int32[2] seed of this run (of the variable being made, while one is)."""
        if self.creating is not None:
            key = zlib.crc32(self.creating.encode()) & 0x7FFFFFFF
            return tf.constant([self.store.seed & 0x7FFFFFFF, key] if seed is None else [seed, 0], tf.int32)
        run = self.run()
        if self._seeds is None or self._seeds[0] != run:
            with drawn_once():
                self._seeds = run, self.store.next_seed()
        drawn = self._seeds[1]
        if seed is not None:
            return tf.stack([tf.constant(seed, tf.int32), drawn[1]])
        self._draws += 1
        return tf.random.experimental.stateless_fold_in(drawn, self._draws)

    def run(self) -> tuple[int, Any]:
        """What tells one call from the next: a tensor that is kept must not outlive it.

        A model has a frame for each call, a store one for all: there a call is an entry, or the trace of a function.
        """
        graph = function_graph()
        return self.entry, None if graph is None else weakref.ref(graph)

    def get(self, name: str, shape: Any, dtype: Any, initializer: Any, reuse: Any, **how: Any) -> Any:
        """Answers one `get_variable(name)` by TF1's rules: share, make, or say what is wrong."""
        if _GLOBAL_STEP in (how["collections"] or ()):  # asked for by `get_or_create_global_step`
            for made in self.store.collections.get(_GLOBAL_STEP, ()):
                return self.store.raw[made]
            for step in self.collections.of(_GLOBAL_STEP):
                return step
        self.check_reuse(name, reuse)
        found = self.store.raw.get(name)
        if found is None:
            found = self._create(name, shape, dtype, initializer, caller(), **how)
        else:
            check_match(name, found, shape, None if gives_its_shape(initializer, shape) else dtype)
        if name not in self.seen:
            self.seen[name] = caller()
            trace = _current_trace()
            if trace is not None:
                self._traces[name] = (weakref.ref(trace), trace.name)
        return found

    @property
    def collections(self) -> Collections:
        """Those of this run: of the last entry, and of the function that is being traced, whose tensors stay in it."""
        graph = function_graph()
        key = None if graph is None else weakref.ref(graph)
        if key not in self._collections:
            self._collections[key] = Collections(self)
        return self._collections[key]

    def check_reuse(self, name: str, reuse: Any) -> None:
        """Raises ScopeError for a name made twice without reuse, or missing under reuse=True.

        The same line of the same `tf.function` may ask again in another trace: TensorFlow traces twice what makes
        variables, and anew for other shapes.
        """
        if not reuse and name in self._traces:
            trace, function = _current_trace(), self._traces[name][1]
            again = trace is not None and trace is not self._traces[name][0]() and trace.name == function
            if again and self.seen[name] == caller():
                return
        check_reuse(name, reuse, self.seen)

    def shared(self, name: str, shape: Any, dtype: Any, reuse: Any) -> tf.Variable | None:
        """The variable of that full name if it is there, by TF1's rules; the way of all calls but a model's first."""
        found = self.store.raw.get(name)
        if found is not None:
            self.check_reuse(name, reuse)
            check_match(name, found, shape, dtype)
            if name not in self.seen:  # looking for the line that asks would take longer than all else here
                self.seen[name] = self.store.places.get(name, "another place")
        return found

    def _create(self, name: str, shape: Any, dtype: Any, initializer: Any, where: str, **how: Any) -> Any:
        full_shape, dtype, initial = initial_value(name, shape, dtype, initializer, lambda: self.random_seed(None))

        def make() -> Any:
            self.creating = name
            try:
                return initial()
            finally:
                self.creating = None

        return self.store.create(name, full_shape, dtype, make, where=where, **how)


_FRAME: ContextVar[Frame | None] = ContextVar("zoo_frame", default=None)


def current_frame() -> Frame | None:
    """Returns the active frame, or None outside any model and `variable_store`."""
    return _FRAME.get()


def _active_collections() -> Collections | None:
    """The collections of the active frame's run."""
    frame = _FRAME.get()
    return None if frame is None else frame.collections


def random_seed(seed: int | None = None) -> tf.Tensor:
    """A seed for a stateless random op, new in each run of the model, store or session.

    Args:
      seed: Fixes the sequence, whatever the model's seed; default: follows the model's seed, or the graph's.

    Returns:
      int32[2]. While a variable is made: the same for the same model seed and variable name.
    """
    frame = _FRAME.get()
    if frame is not None:
        return frame.random_seed(seed)
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32, seed=seed)


def _current_trace() -> Any:
    """Returns the graph of the outermost `tf.function` being traced, or None."""
    graph, found = tf.compat.v1.get_default_graph(), None
    while hasattr(graph, "outer_graph"):
        graph, found = graph.outer_graph, graph
    return found


def function_graph() -> Any:
    """Returns the graph of the function being traced, outside its loops and branches; None in eager mode."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return graph


@contextlib.contextmanager
def drawn_once() -> Iterator[None]:
    """Lifts what is made inside out of loops and branches, so that all of the run can use it."""
    graph = function_graph()
    if graph is None or graph is tf.compat.v1.get_default_graph():
        yield
        return
    with graph.as_default():
        yield


def caller() -> str:
    """Returns `file:line` of the innermost user code, for messages."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_TF_PACKAGES):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def check_reuse(name: str, reuse: Any, seen: Mapping[str, str]) -> None:
    """Raises ScopeError for a name made twice without reuse, or missing under reuse=True."""
    scope = name.rpartition("/")[0]
    if reuse is True and name not in seen:
        raise ScopeError(
            f"Variable {name} does not exist, or was not created with get_variable() in this run, but scope "
            f"{scope!r} has "
            "reuse=True, which only shares what is already there. Did you mean to set reuse=zoo.AUTO_REUSE, or to "
            "make the "
            f"variable first? Names made so far in that scope: {[n for n in seen if n.rpartition('/')[0] == scope]}."
        )
    if not reuse and name in seen:
        raise ScopeError(
            f"Variable {name} already exists, disallowed: it was made at {seen[name]} and is asked for again at "
            f"{caller()}, and "
            f"scope {scope!r} does not reuse. Did you mean to set reuse=True or reuse=zoo.AUTO_REUSE in the "
            f"variable_scope, "
            "or another name?"
        )


def check_match(name: str, found: Any, shape: Any, dtype: Any) -> None:
    """Raises ScopeError when a shared variable is not of the shape and dtype asked for."""
    if shape is not None and not found.shape.is_compatible_with(shape):
        raise ScopeError(
            f"Trying to share variable {name}, but specified shape {tf.TensorShape(shape)} and found shape "
            f"{found.shape}. "
            "Ask for the shape it was made with, or use another name or scope."
        )
    if dtype is not None and tf.as_dtype(dtype).base_dtype != found.dtype.base_dtype:
        raise ScopeError(
            f"Trying to share variable {name}, but specified dtype {tf.as_dtype(dtype).name} and found dtype "
            f"{found.dtype.base_dtype.name}. Ask for the dtype it was made with, or use another name or scope."
        )


def collections_of(named: Sequence[str] | None, trainable: bool) -> list[str]:
    """The collections that TF1 puts a variable into: those named or the global ones, and the trainable ones."""
    keys = tf.compat.v1.GraphKeys
    wanted = list(named or (keys.GLOBAL_VARIABLES,))
    return [*wanted, keys.TRAINABLE_VARIABLES] if trainable and keys.TRAINABLE_VARIABLES not in wanted else wanted


def _root_getter(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """The custom getter at the root of every frame."""
    frame = _FRAME.get()
    if frame is None:  # a scope object of a model, entered outside it
        return getter(name, *args, **kwargs)
    bound = _GETTER_SIGNATURE.bind(name, *args, **kwargs).arguments
    bound.update(bound.pop("rest", {}))
    name = name.rstrip("/")  # slots of TF1 (moving averages) are called "" in a scope of their own
    if tf.executing_eagerly():
        bound["reuse"] = get_variable_scope().reuse
    half = frame.store.compute_dtype
    foreign = not frame.native and half in ("bfloat16", "float16")
    asked_half = foreign and bound.get("dtype") is not None and tf.as_dtype(bound["dtype"]) == half
    if asked_half:
        bound["dtype"] = tf.float32  # the variable stays float32; the caller gets what it asked for
    variable = frame.get(name, **{k: bound.get(k) for k in _GETTER_ARGUMENTS})
    if not frame.native:
        route_collections(_active_collections)  # of a function that is traced inside the run
        hook_legacy_layers(_regularized)
        frame.last = name
    if asked_half or (foreign and variable.shape.rank >= 2 and variable.dtype.base_dtype == tf.float32):
        return tf.cast(variable, half)
    return variable


def _regularized(regularizer: Any) -> bool:
    """Gives a foreign layer's regularizer to the model or store that runs; False outside of any."""
    frame = _FRAME.get()
    if frame is not None:
        frame.store.regularize(frame.last, regularizer)
    return frame is not None


def in_frame(custom_getter: Callable[..., Any]) -> Callable[..., Any]:
    """Puts a `custom_getter` argument around the frame's getter: TensorFlow would put it in its place."""
    parameters = inspect.signature(custom_getter).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def around(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not takes_all and "constraint" not in parameters:
            kwargs.pop("constraint", None)
        return custom_getter(functools.partial(_root_getter, getter), *args, **kwargs)

    return around


def _getter_arguments(
    name: Any,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Any = None,
    **rest: Any,
) -> None:
    """The positional order in which TF1 calls custom getters."""


_GETTER_SIGNATURE = inspect.signature(_getter_arguments)
_GETTER_ARGUMENTS = (
    *("shape", "dtype", "initializer", "regularizer", "reuse", "trainable", "collections"),
    *("constraint", "synchronization", "aggregation"),
)
