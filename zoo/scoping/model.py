"""A scoped function as a Keras 3 model: its variable scopes become sublayers, its variables keep their TF1 names."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

from zoo.scoping.args import arg_scope, current_arg_scope
from zoo.scoping.features import BottleneckMixin
from zoo.scoping.frames import Frame
from zoo.scoping.freezing import FreezingMixin, find_name
from zoo.scoping.functions import check_options
from zoo.scoping.initial import ScopeError
from zoo.scoping.layer import Constraint, RegularizationLoss, Scope, aggregation, attach
from zoo.scoping.losses import check_loss, makers_of
from zoo.scoping.net_spec import NetSpec, description_of
from zoo.scoping.owned import Used, noted, own
from zoo.scoping.replicas import replicas
from zoo.scoping.saving import SavingMixin
from zoo.scoping.specs import as_specs, check_dense, dense_tensor, spec_of
from zoo.scoping.summary import summary_text
from zoo.scoping.variables import collections_of

Network = Callable[..., Any]


@dataclass
class _Book:
    """What a model knows of its scopes and variables, by full name; a plain object, so that Keras does not track
    it twice.
    """

    defaults: dict[Any, Any] = field(default_factory=current_arg_scope)  # the same in every run, whoever calls
    scopes: dict[str, Scope] = field(default_factory=dict)
    weights: dict[str, keras.Variable] = field(default_factory=dict)
    raw: dict[str, tf.Variable] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # where each was made, as `file:line`
    collections: dict[str, list[tf.Variable]] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    building: bool = False
    range_checked: bool = False
    generator: keras.random.SeedGenerator | None = None
    input_specs: Any = None
    output_specs: Any = None
    end_point_specs: dict[str, Any] = field(default_factory=dict)
    makers: Any = None  # of the outputs: the types of the ops
    loss: Any = None  # compiled before the model was built
    card: dict[str, Any] = field(default_factory=dict)


class NotBuiltError(ValueError, AttributeError):
    """A model was asked for what it has only once it is built; an AttributeError, as Keras looks with `hasattr`."""


@keras.saving.register_keras_serializable(package="zoo")
class Model(FreezingMixin, SavingMixin, BottleneckMixin, keras.Model):
    """A scoped function as a Keras 3 model.

    Args:
      network: Function `(inputs, *, is_training=False, **options)` that returns outputs, or `(outputs, end_points)`.
      name: Name of the model; variables do not carry it. Default: the function's name.
      input_shape: Shape of the input without the batch, or a structure of `tf.TensorSpec` or `keras.KerasTensor`:
        builds the model now. Default: built at the first call.
      seed: Seed of initializers and dropout; default: drawn from Python's `random`, so
        `keras.utils.set_random_seed` fixes it.
      dtype: Keras dtype policy (`"mixed_bfloat16"`, ...); default: the global one. Variables are float32 under
        mixed policies, outputs are cast back to float32.
      trainable: False freezes the whole model.
      **options: Keyword arguments of the network.

    Raises:
      TypeError: `network` cannot be called, or does not take one of the options.
      RuntimeError: TensorFlow's eager execution or its shapes of version 2 were switched off, which Keras needs.
    """

    misfit = ""  # see `load_named`
    towers: Any = None  # a `zoo.parallel.Towers` that calls of the model are spread over

    def __init__(
        self,
        network: Network,
        *,
        name: str | None = None,
        input_shape: Any = None,
        seed: int | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        if not callable(network):
            raise TypeError(f"A network is a function (inputs, *, is_training, **options). Received: {network!r}.")
        _check_tensorflow()
        check_options(network, options)
        super().__init__(name=name or getattr(network, "__name__", "model").strip("<>"), dtype=dtype, autocast=False)
        self.network = network
        self.options = options
        self.seed = random.randint(1, 2**31 - 1) if seed is None else seed
        # plain containers that Keras must not track again: the scopes and weights are tracked as attributes
        self.book = _Book()
        self.trainable = trainable
        if input_shape is not None:
            self._build_from(as_specs(input_shape, self.input_dtype, batch=True))

    # ---- building -------------------------------------------------------------------------------------------------

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the network; the first call builds the model from the input's shapes and types."""
        if not isinstance(inputs, tf.Tensor):
            check_dense(inputs, self.name)
        if not self.built:
            self._build_from(tf.nest.map_structure(spec_of, inputs))
        return super().__call__(inputs, *args, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Traces the network on symbolic inputs, so that all its variables exist; runs nothing.

        Args:
          input_shape: Shape with the batch (None is any), or a structure of `tf.TensorSpec`.
        """
        specs = self.book.input_specs or as_specs(input_shape, self.input_dtype, batch=False)
        self.book.input_specs = specs
        self.book.building = True
        try:
            (outputs, end_points, _), used = self._traced("zoo_build", specs, training=True)
        finally:
            self.book.building = False
        if used.owned() or used.loose():
            own(self, used, [self._traced("zoo_again", specs, training)[1] for training in (True, False)])
        self.book.output_specs = tf.nest.map_structure(spec_of, outputs)
        self.book.makers = makers_of(outputs)
        if self.book.loss is not None:
            check_loss(self.book.makers, self.book.loss, strict=False)
        self.book.end_point_specs = {k: tf.nest.map_structure(spec_of, v) for k, v in end_points.items()}
        self.built = True

    def _build_from(self, specs: Any) -> None:
        self.book.input_specs = specs
        self.build(tf.nest.map_structure(lambda s: tuple(s.shape), specs))

    @property
    def is_building(self) -> bool:
        """Whether the model is making its variables just now."""
        return self.book.building

    # ---- the store of variables: what a frame asks for --------------------------------------------------------------

    def lookup(self, name: str) -> tf.Variable | None:
        """Returns the `tf.Variable` of that full name, or None."""
        return self.book.raw.get(name)

    def place_of(self, name: str) -> str:
        """Returns where the variable of that full name was made when the model was built, as `file:line`."""
        return self.book.places[name]

    def create(
        self, name: str, shape: tuple[int, ...], dtype: tf.DType, initial: Callable[[], Any], **how: Any
    ) -> tf.Variable:
        """Makes the weight of that full name in the sublayer of its scope."""
        if not self.book.building:
            raise ScopeError(
                f"Variable {name} is new: it was not made when the model {self.name!r} was built (with "
                f"is_training=True), and is "
                f"asked for at {how['where']}. Make the same variables in training and in inference."
            )
        self.book.places[name] = how["where"]
        scope, _, leaf = name.rpartition("/")
        trainable = how["trainable"] is not False
        owner = self._scope(scope)
        above = scope.rpartition("/")[0]  # Keras adds the last part
        with tf.init_scope(), tf.compat.v1.name_scope(f"{above}/" if above else None):
            weight = owner.add_weight(
                shape=shape,
                initializer=lambda *_, **__: initial(),
                dtype=dtype.name,
                trainable=trainable,
                autocast=False,
                constraint=how["constraint"] and Constraint(how["constraint"]),
                aggregation=aggregation(how["aggregation"], trainable, dtype),
                name=leaf,
            )
        raw = weight._value  # the tf.Variable itself: `value` is a cast copy inside another layer's autocast scope
        self.book.weights[name] = weight
        self.book.raw[name] = raw
        attach(owner, leaf, weight)
        if how["regularizer"] is not None:
            self.regularize(name, how["regularizer"])
        for key in collections_of(how["collections"], trainable):
            self.book.collections.setdefault(key, []).append(raw)
        return raw

    def regularize(self, name: str, regularizer: Callable[[Any], Any]) -> None:
        """Adds the regularizer's loss of the variable of that full name to `losses`, once; one of None adds nothing."""
        if self.book.building and regularizer(self.book.raw[name]) is not None:  # as slim's of scale 0
            self.book.weights[name].regularizer = RegularizationLoss(regularizer)

    def _scope(self, path: str) -> Model | Scope:
        """The sublayer of a scope, made with its parents when new."""
        if not path:
            return self
        if path not in self.book.scopes:
            parent_path, _, leaf = path.rpartition("/")
            parent = self._scope(parent_path)
            scope = self.book.scopes[path] = Scope(leaf or "_", path, self)
            attach(parent, leaf, scope)
        return self.book.scopes[path]

    def is_frozen(self, scope: str) -> bool:
        """Whether the scope of that full name is frozen."""
        if not self.trainable:
            return True
        while scope and scope not in self.book.scopes:
            scope = scope.rpartition("/")[0]
        return bool(scope) and not self.book.scopes[scope].trainable

    def next_seed(self) -> tf.Tensor:
        """A new int32[2] seed for one run; each replica under tf.distribute gets its own."""
        if self.book.building and self.book.generator is None:
            with tf.init_scope():
                self.book.generator = keras.random.SeedGenerator(self.seed & 0x7FFFFFFF, name="dropout_seed")
            self.seed_generator = self.book.generator
        if self.book.generator is None:
            raise ScopeError(
                f"Model {self.name!r} draws random numbers now and drew none when it was built with is_training=True. "
                "Draw them in training."
            )
        group, draw = replicas(), self.book.generator.next
        seed = tf.cast(draw() if group is None else group.once(draw), tf.int32)
        return seed if group is None else tf.random.experimental.stateless_fold_in(seed, group.index)

    def variables_in(self, collection: str) -> list[tf.Variable]:
        """The model's variables in that collection."""
        return list(self.book.collections.get(collection, ()))

    # ---- running ----------------------------------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert  # the build and eager calls do not convert either
    def _run(self, inputs: Any, training: Any) -> tuple[Any, dict[str, Any], Frame]:
        inputs = self._in_compute_dtype(inputs)
        frame = Frame(self)
        with frame.entered(tf.as_dtype(self.variable_dtype)), arg_scope(self.book.defaults):
            result = self.network(inputs, is_training=training, **self.options)
        outputs, end_points = result, {}
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
            outputs, end_points = result[0], dict(result[1])
        return tf.nest.map_structure(self._in_variable_dtype, outputs), end_points, frame

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Returns the network's outputs; each tower of a model that has them (`zoo.multi_gpu`) takes its part."""
        training = False if training is None else training
        spread = self.towers is not None and replicas() is None and not self.book.building
        return self.towers.call(self, inputs, training) if spread else self._run(inputs, training)[0]

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, *args: Any, **kwargs: Any) -> None:
        """Keras' `compile`; says it where a loss takes probabilities and the network returns logits.

        Args:
          optimizer: Keras' name or object.
          loss: Keras' name, object or function, or a list or dict of them. For a network that returns logits, as all
            of `zoo.nets` do, one with `from_logits=True`.
          *args: Keras' other arguments.
          **kwargs: Likewise.

        Raises:
          ValueError: The loss takes probabilities, and the network returns a product or a convolution as it is.
        """
        self.check_loss(loss)
        keras.Model.compile(self, optimizer, loss, *args, **kwargs)

    def check_loss(self, loss: Any) -> None:
        """Says that a loss takes probabilities where the network returns logits, now or once the model is built."""
        if self.built:
            check_loss(self.book.makers, loss)
        self.book.loss = None if self.built else loss

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was saved; a loss that `compile` would refuse gets a warning."""
        config = keras.saving.deserialize_keras_object(config)
        check_loss(self.book.makers, config.get("loss"), strict=False)
        keras.Model.compile(self, **config)
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def _in_compute_dtype(self, inputs: Any) -> Any:
        def cast(x: Any) -> Any:
            x = dense_tensor(x, self.name)
            return tf.cast(x, self.compute_dtype) if x.dtype.is_floating and x.dtype.name != self.compute_dtype else x

        return tf.nest.map_structure(cast, inputs)

    def _in_variable_dtype(self, x: Any) -> Any:
        half = tf.is_tensor(x) and x.dtype in (tf.float16, tf.bfloat16)
        return tf.cast(x, self.variable_dtype) if half else x

    @property
    def spec(self) -> NetSpec | None:
        """What the network says about itself; None for a function that is no registered network."""
        return description_of(self.network)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Shape of the output for that shape of the input, both with the batch; traces the network and runs nothing.

        Args:
          input_shape: As for `build`. A model that is not built stays so.
        """
        specs = as_specs(input_shape, self.input_dtype, batch=False)
        if not self.built:
            other = Model(self.network, seed=self.seed, dtype=self.dtype_policy, **self.options)
            other.book.defaults = self.book.defaults
            other._build_from(specs)
            return other.output_shape
        specs = tf.nest.map_structure(
            lambda new, old: tf.TensorSpec(new.shape, old.dtype), specs, self.book.input_specs
        )
        (outputs, _, _), _ = self._traced("zoo_shape", specs, training=False)
        return tf.nest.map_structure(lambda y: tuple(y.shape.as_list()), outputs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shape and type of the output, which is not always of the compute type that Keras takes it to be of."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _traced(self, name: str, specs: Any, training: bool) -> tuple[tuple[Any, dict[str, Any], Frame], Used]:
        """Runs the network on symbolic inputs, in a graph that is thrown away; returns also what the network used."""
        with _real_variables(), noted(self, name) as used:
            inputs = tf.nest.map_structure(lambda s: tf.compat.v1.placeholder(s.dtype, s.shape), specs)
            return self._run(inputs, training), used

    @property
    def input_dtype(self) -> str:
        """The type taken for inputs of which only the shape is known."""
        return self.variable_dtype

    @property
    def input_shape(self) -> Any:
        """Shape of the input that the model was built for, None for the batch; as a functional Keras model has it."""
        self._need_built()
        return tf.nest.map_structure(lambda s: tuple(s.shape), self.book.input_specs)

    @property
    def output_shape(self) -> Any:
        """Shape of the output, None for the batch."""
        self._need_built()
        return tf.nest.map_structure(lambda s: tuple(s.shape), self.book.output_specs)

    # ---- looking up -------------------------------------------------------------------------------------------------

    @property
    def variable_names(self) -> list[str]:
        """The full TF1 names of all variables, in order of creation: the names in checkpoints."""
        self._need_built()
        return list(self.book.weights)

    def variable(self, name: str) -> keras.Variable:
        """Returns the variable of that full name, or name relative to the network's root scope (`conv1/weights`)."""
        self._need_built()
        return self.book.weights[find_name(name, self.book.weights, "variable")]

    @property
    def scope_names(self) -> list[str]:
        """The full names of all variable scopes, in order of creation."""
        self._need_built()
        return list(self.book.scopes)

    def get_layer(self, name: str | None = None, index: int | None = None) -> keras.layers.Layer:
        """Returns the sublayer of a variable scope, by full or relative name, or by index in order of creation."""
        self._need_built()
        if name is None:
            if index is None:
                raise ValueError("get_layer needs a name or an index. Received: neither.")
            return list(self.book.scopes.values())[index]
        return self.book.scopes[find_name(name, self.book.scopes, "variable scope")]

    def end_points(self, inputs: Any, training: bool = False) -> dict[str, Any]:
        """Runs the network and returns its end points: name -> tensor."""
        inputs = self._ready(inputs)
        return self._run(inputs, training)[1]

    def get_collection(self, name: str, inputs: Any = None) -> list[Any]:
        """Returns the variables in a collection, and, given inputs, what one run of the network adds to it."""
        self._need_built()
        added = [] if inputs is None else self._run(self._ready(inputs), False)[2].collections.get(name, [])
        return [*self.variables_in(name), *added]

    def _ready(self, inputs: Any) -> Any:
        check_dense(inputs, self.name)
        inputs = tf.nest.map_structure(lambda x: dense_tensor(x, self.name), inputs)
        if not self.built:
            self._build_from(tf.nest.map_structure(spec_of, inputs))
        self.check_once(inputs)
        return inputs

    def _need_built(self) -> None:
        if not self.built:
            raise NotBuiltError(
                f"Model {self.name!r} has no variables yet: it is built from its input's shape. Pass "
                "input_shape=(32, 32, 1) when you make it, or call it once."
            )

    def summary(self, line_length: int | None = None, print_fn: Callable[[str], Any] = print, **_: Any) -> None:
        """Prints a table of the variable scopes, nested, with their outputs, variables and parameters.

        Args:
          line_length: Characters a line; default: the terminal's.
          print_fn: What takes the text.
          **_: Keras' other arguments, which mean nothing here.
        """
        self._need_built()
        print_fn(summary_text(self, line_length))


def _check_tensorflow() -> None:
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


@contextlib.contextmanager
def _real_variables() -> Iterator[None]:
    """Leaves Keras' stateless scope, in which `fit` and functional models first call a model and variables stay
    empty.
    """
    scope = global_state.get_global_attribute("stateless_scope")
    global_state.set_global_attribute("stateless_scope", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("stateless_scope", scope)
