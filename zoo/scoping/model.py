"""A scoped function as a Keras 3 model: its variable scopes become sublayers, its variables keep their TF1 names."""

from __future__ import annotations

import difflib
import fnmatch
import random
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from zoo._compat import SymbolicBuild, check_tensorflow, keras_global, optimizer_for, replace_losses
from zoo.files import reading
from zoo.hdf5 import clean_copy
from zoo.inputs import check_card, check_inputs, check_range
from zoo.scoping.args import arg_scope
from zoo.scoping.cost import summary_text
from zoo.scoping.features import Features, one_for_none
from zoo.scoping.frames import Frame
from zoo.scoping.layer import ModelStore, NotBuiltError, Used, load_named, noted, own, save_named
from zoo.scoping.losses import check_loss, makers_of
from zoo.scoping.names import (
    check_options,
    find_function,
    find_name,
    function_name,
    legacy_format_error,
    root_of,
)
from zoo.scoping.net_spec import NetSpec, description_of
from zoo.scoping.replicas import optimizer_here, replicas
from zoo.scoping.specs import (
    as_specs,
    cast_to_specs,
    check_dense,
    dense_tensor,
    named_specs,
    spec_of,
    specs_from_config,
    specs_to_config,
)

Network = Callable[..., Any]


@keras.saving.register_keras_serializable(package="zoo")
class Model(SymbolicBuild):
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
        check_tensorflow()
        check_options(network, options)
        super().__init__(name=name or getattr(network, "__name__", "model").strip("<>"), dtype=dtype, autocast=False)
        self.network = network
        self.options = options
        self.seed = random.randint(1, 2**31 - 1) if seed is None else seed
        # plain containers that Keras must not track again: the scopes and weights are tracked as attributes
        self._store = ModelStore(self)
        self.trainable = trainable
        if input_shape is not None:
            self._build_from(as_specs(input_shape, self.input_dtype, batch=True))

    # ---- building ----------------------------------------------------------------------------------------------------

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Builds the model at its first call, looks at the inputs' range and runs it; no pictures give no outputs."""
        if not isinstance(inputs, tf.Tensor):
            check_dense(inputs, self.name)
        if not self.built:
            self._build_from(tf.nest.map_structure(spec_of, inputs))
        self.check_once(inputs)
        one = None if args or kwargs.get("training") else one_for_none(inputs)
        if one is None:
            return super().__call__(inputs, *args, **kwargs)
        return tf.nest.map_structure(lambda y: y[:0], super().__call__(one, **kwargs))

    def build(self, input_shape: Any) -> None:
        """Traces the network on symbolic inputs, so that all its variables exist; runs nothing.

        Args:
          input_shape: Shape with the batch (None is any), or a structure of `tf.TensorSpec`.
        """
        specs = self._store.input_specs or as_specs(input_shape, self.input_dtype, batch=False)
        self._store.input_specs = specs
        self._store.is_building = True
        try:
            (outputs, end_points, frame), used = self._traced("zoo_build", specs, training=True)
            self._store.collects_losses = bool(frame.losses)
        finally:
            self._store.is_building = False
        if used.owned() or used.loose():
            own(self, used, [self._traced("zoo_again", specs, training)[1] for training in (True, False)])
        self._store.output_specs = tf.nest.map_structure(spec_of, outputs)
        self._store.makers = makers_of(outputs)
        if self._store.loss is not None:
            check_loss(self._store.makers, *self._store.loss, strict=False)
        self._store.end_point_specs = {k: tf.nest.map_structure(spec_of, v) for k, v in end_points.items()}
        self.built = True

    def _build_from(self, specs: Any) -> None:
        self._store.input_specs = specs
        self.build(tf.nest.map_structure(lambda s: tuple(s.shape), specs))

    # ---- running -----------------------------------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert  # the build and eager calls do not convert either
    def _run(self, inputs: Any, training: Any) -> tuple[Any, dict[str, Any], Frame]:
        inputs = self._in_compute_dtype(inputs)
        frame = Frame(self._store)
        with frame.entered(tf.as_dtype(self.variable_dtype)), arg_scope(self._store.defaults):
            result = self.network(inputs, is_training=training, **self.options)
        outputs, end_points = result, {}
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
            outputs, end_points = result[0], dict(result[1])
        return tf.nest.map_structure(self._in_variable_dtype, outputs), end_points, frame

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Returns the network's outputs; each tower of a model that has them (`zoo.multi_gpu`) takes its part."""
        training = False if training is None else training
        if self.towers is not None and replicas() is None and not self._store.is_building:
            self._store.check_towers(training)
            return self.towers.call(self, inputs, training)
        outputs, _, frame = self._run(inputs, training)
        self.add_loss(frame.losses)
        return outputs

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, *args: Any, **kwargs: Any) -> None:
        """Keras' `compile`; says it where a loss or a metric takes probabilities and the network returns logits.

        A model that was built in a strategy's scope is compiled in it, wherever this is called.

        Args:
          optimizer: Keras' name or object.
          loss: Keras' name, object or function, or a list or dict of them. For a network that returns logits, as all
            of `zoo.nets` do, one with `from_logits=True`.
          *args: Keras' other arguments.
          **kwargs: Likewise.

        Raises:
          ValueError: The loss takes probabilities, and the network returns a product or a convolution as it is.
        """
        given = dict(zip(("loss_weights", "metrics", "weighted_metrics"), args, strict=False)) | kwargs  # Keras' order
        self.check_loss(loss, *(given.get(name) for name in ("metrics", "weighted_metrics")))
        with self.distribute_strategy.scope():
            if isinstance(optimizer, keras.optimizers.Optimizer):
                optimizer = optimizer_here(optimizer)
            keras.Model.compile(self, optimizer, loss, *args, **kwargs)

    def before_symbolic_build(self, batch: Any) -> Any:
        """Before its first step `fit` looks at the mean of the replicas' inputs, of word numbers no whole numbers."""
        if not self.built or self.distribute_strategy.num_replicas_in_sync < 2:
            return batch
        inputs, *others = batch if isinstance(batch, tuple) else (batch,)
        return (cast_to_specs(inputs, self.input_specs), *others)

    def check_loss(self, loss: Any, *metrics: Any) -> None:
        """Says that a loss or a metric takes probabilities where the network returns logits, at once or when built."""
        self._store.loss = None if self.built else (loss, metrics)
        if self.built:
            check_loss(self._store.makers, loss, metrics)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was saved; a loss that `compile` would refuse gets a warning."""
        config = keras.saving.deserialize_keras_object(config)
        metrics = [config.get("metrics"), config.get("weighted_metrics")]
        check_loss(self._store.makers, config.get("loss"), metrics, strict=False)
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
            other._store.defaults = self._store.defaults
            other._build_from(specs)
            return other.output_shape
        specs = tf.nest.map_structure(
            lambda new, old: tf.TensorSpec(new.shape, old.dtype), specs, self._store.input_specs
        )
        (outputs, _, _), _ = self._traced("zoo_shape", specs, training=False)
        return tf.nest.map_structure(lambda y: tuple(y.shape.as_list()), outputs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shape and type of the output, which is not always of the compute type that Keras takes it to be of."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _traced(self, name: str, specs: Any, training: bool) -> tuple[tuple[Any, dict[str, Any], Frame], Used]:
        """Runs the network on symbolic inputs, in a graph that is thrown away; returns also what the network used."""
        with noted(self, name) as used:
            inputs = tf.nest.map_structure(lambda s: tf.compat.v1.placeholder(s.dtype, s.shape), specs)
            return self._run(inputs, training), used

    @property
    def input_dtype(self) -> str:
        """The type taken for inputs of which only the shape is known."""
        return self.variable_dtype

    @property
    def input_specs(self) -> Any:
        """What the model was built for: a `tf.TensorSpec`, or a structure of them, with the batch; None before."""
        return self._store.input_specs

    @property
    def output_specs(self) -> Any:
        """Shapes and types of the output, likewise."""
        return self._store.output_specs

    @property
    def end_point_specs(self) -> dict[str, Any]:
        """Shapes and types of the end points by name; empty before the model is built."""
        return self._store.end_point_specs

    @property
    def input_shape(self) -> Any:
        """Shape of the input that the model was built for, None for the batch; as a functional Keras model has it."""
        self._need_built()
        return tf.nest.map_structure(lambda s: tuple(s.shape), self._store.input_specs)

    @property
    def output_shape(self) -> Any:
        """Shape of the output, None for the batch."""
        self._need_built()
        return tf.nest.map_structure(lambda s: tuple(s.shape), self._store.output_specs)

    # ---- features: end points, and a look at the range of the inputs -------------------------------------------------

    def check_once(self, inputs: Any, looks: bool = True) -> None:
        """Warns, the first time that the model meets values, of pictures unlike its card's; see `check_inputs`."""
        self._store.range_checked = self._store.range_checked or check_inputs(self.card, inputs, looks)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `fit`; warns once of arrays in another range than the model expects."""
        self.check_once(x, looks=False)  # trained on them, they will not be strange
        return keras.Model.fit(self, x, *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `evaluate`; warns once of arrays in another range than the model expects."""
        self.check_once(x)
        return keras.Model.evaluate(self, x, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' `predict`; warns once of arrays in another range than the model expects; no pictures give no rows."""
        self.check_once(x)
        one = one_for_none(x)
        if one is not None:
            return tf.nest.map_structure(lambda y: y[:0], keras.Model.predict(self, one, *args, **kwargs))
        if getattr(x, "shape", (1,))[:1] == (0,):
            raise ValueError(f"predict needs one input or more. Received: an array of shape {tuple(x.shape)}.")
        return keras.Model.predict(self, x, *args, **kwargs)

    def outputs_and_end_points(self, inputs: Any, training: bool = False) -> tuple[Any, dict[str, Any]]:
        """Runs the network once and returns both parts of its result; a call returns the first.

        Args:
          inputs: A batch of network inputs, of a built model.
          training: Whether dropout and batch norm act as in training; also a bool tensor.

        Returns:
          The outputs as from a call, and the end points: name -> tensor.
        """
        outputs, end_points, frame = self._run(inputs, training)
        replace_losses(self, frame.losses)
        return outputs, end_points

    def features(self, inputs: Any, name: str) -> Any:
        """Returns one end point; in a graph nothing else is computed (eager calls run a compiled function).

        The first inputs that the model meets are checked against the range that the weights expect.
        """
        inputs = self._ready(inputs)
        key = find_name(name, self._store.end_point_specs, "end point")
        if not tf.executing_eagerly():
            return self._run(inputs, False)[1][key]
        if key not in self._store.functions:  # without AutoGraph: it would bury the network's own messages
            self._store.functions[key] = tf.function(lambda x: self._run(x, False)[1][key], autograph=False)
        one = one_for_none(inputs)
        if one is not None:
            return tf.nest.map_structure(lambda y: y[:0], self._store.functions[key](one))
        return self._store.functions[key](inputs)

    def feature_model(self, name: str) -> keras.Model:
        """Returns a functional `keras.Model` from the inputs to one end point, sharing this model's weights."""
        self._need_built()
        find_name(name, self._store.end_point_specs, "end point")
        inputs = tf.nest.map_structure(
            lambda s: keras.KerasTensor(s.shape.as_list(), dtype=s.dtype.name), self._store.input_specs
        )
        inputs = tf.nest.map_structure(lambda t: keras.Input(batch_shape=t.shape, dtype=t.dtype), inputs)
        return keras.Model(inputs, Features(self, name)(inputs), name=f"{self.name}_features")

    def bottleneck(self, inputs: Any) -> tf.Tensor:
        """Returns the pooled features, before dropout; warns about inputs in another range than the weights expect.

        Args:
          inputs: A batch of network inputs; an empty one gives [0, C].

        Returns:
          [N, C]: 2048 numbers an image for Inception-v3.

        Raises:
          ValueError: The network has no pooled end point.
        """
        if not tf.is_symbolic_tensor(inputs):
            self._store.range_checked = True  # here, each time
        inputs = self._ready(inputs)
        pooled = (self.spec or NetSpec).pooled
        name = next((name for name in pooled if name in self._store.end_point_specs), None)
        if name is None:
            raise ValueError(
                f"{self.name!r} has no pooled features: none of its end points is called {' or '.join(pooled)}. "
                "Take another with features(inputs, name)."
            )
        if "input_range" in self.card and inputs.dtype.is_floating:
            check_range(inputs, *self.card["input_range"])
        return tf.reduce_mean(self.features(inputs, name), [1, 2])

    # ---- saving ------------------------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The network's registered name and its options."""
        if keras_global("use_legacy_config"):  # `keras.saving.save_model(model, "m.h5")` comes here, not by `save`
            raise legacy_format_error("an .h5 file")
        if self._store.defaults:
            raise ValueError(
                "A model file holds the network and its options. Received: a model made inside an arg_scope, which "
                "would be lost. Open the arg_scope inside the network, or pass what it sets as options."
            )
        options = {k: {"function": function_name(v)} if callable(v) else v for k, v in self.options.items()}
        return {
            "network": function_name(self.network),
            "module": self.network.__module__,
            "name": self.name,
            "seed": self.seed,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "options": keras.saving.serialize_keras_object(options),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Makes the model again; only registered networks and functions are found."""
        config = dict(config)
        network = find_function(config.pop("network"), config.pop("module", ""))
        options = keras.saving.deserialize_keras_object(config.pop("options"))
        named = [k for k, v in options.items() if isinstance(v, dict) and set(v) == {"function"}]
        options |= {k: find_function(options[k]["function"]) for k in named}
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        return cls(network, **config, **options)

    def get_build_config(self) -> dict[str, Any] | None:
        """The inputs' shapes and types."""
        if not self.built:
            return None
        frozen = [name for name, scope in self._store.scopes.items() if not scope.trainable]
        return {"inputs": specs_to_config(self._store.input_specs), "frozen": frozen, "card": self._store.card}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Builds from `get_build_config`'s shapes and types."""
        self._build_from(specs_from_config(config["inputs"]))
        self.card = config.get("card", {})
        for name in config.get("frozen", ()):
            self._store.scopes[name].trainable = False

    @property
    def card(self) -> dict[str, Any]:
        """What is known of the loaded weights: origin, conventions, preprocessing (`zoo.weights.Card`'s plain values).

        It is saved with the model.
        """
        return self._store.card

    @card.setter
    def card(self, values: dict[str, Any]) -> None:
        check_card(values)
        self._store.card = dict(values)
        self._store.range_checked = False  # other weights may expect another range

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Writes the model to a `.keras` file, as Keras does; ValueError for `.h5`, which nothing could read back."""
        if str(filepath).endswith((".h5", ".hdf5")):
            raise legacy_format_error(repr(str(filepath)))
        keras.Model.save(self, filepath, *args, **kwargs)

    @property
    def _default_save_signature(self) -> Any:
        """What `tf.saved_model.save` makes `serving_default` of: a call in inference, on the inputs built for."""
        self._need_built()

        @tf.function(input_signature=(named_specs(self._store.input_specs),), autograph=False)
        def serving_default(inputs: Any) -> Any:
            return self(inputs, training=False)

        return serving_default

    def export(self, filepath: Any, *args: Any, input_signature: Any = None, **kwargs: Any) -> Any:
        """Writes a SavedModel (or another of Keras' formats) for inference; the inputs are those the model was
        built for.
        """
        if input_signature is None:
            self._need_built()
            specs = named_specs(self._store.input_specs)
            input_signature = [
                tf.nest.map_structure(lambda s: keras.InputSpec(dtype=s.dtype.name, shape=s.shape, name=s.name), specs)
            ]
        return keras.Model.export(self, filepath, *args, input_signature=input_signature, **kwargs)

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Reads the variables from a `.weights.h5`, `.keras` or `.weights.json` file, as Keras does; the file is read
        in a child process, and may be anybody's.

        Raises:
          OSError: The file is not there, or cannot be read.
          ValueError: It is damaged, or its variables are others than the model's; the message names it.
        """
        if not str(filepath).endswith((".h5", ".hdf5", ".keras", ".weights.json")):
            keras.Model.load_weights(self, filepath, *args, **kwargs)  # refuses it, or reads another format
            return
        with reading(filepath, "weights of this model"), clean_copy(filepath) as copy:
            keras.Model.load_weights(self, copy, *args, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        """Writes the variables outside any scope by name."""
        save_named(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Reads the variables outside any scope by name."""
        load_named(self, store, "")

    # ---- freezing ----------------------------------------------------------------------------------------------------

    def freeze(self, *patterns: str) -> list[str]:
        """Freezes the scopes that match, and all scopes inside them: not trained, batch norm on moving statistics.

        Works at any time, also after `compile`.

        Args:
          *patterns: Globs on full or relative scope names: `"conv*"`, `"Mixed_5?"`, `"*"`.

        Returns:
          Full names of the scopes that matched.

        Raises:
          ValueError: A pattern matches nothing.
        """
        return self._set_trainable(patterns, False)

    def unfreeze(self, *patterns: str) -> list[str]:
        """Undoes `freeze` for the scopes that match; arguments and result are `freeze`'s."""
        return self._set_trainable(patterns, True)

    def _set_trainable(self, patterns: tuple[str, ...], trainable: bool) -> list[str]:
        names = self.scope_names
        root = root_of(self.variable_names)
        matched: dict[str, None] = {}
        for pattern in patterns:
            hits = [
                n
                for n in names
                if fnmatch.fnmatchcase(n, pattern) or fnmatch.fnmatchcase(n.removeprefix(root), pattern)
            ]
            if not hits:
                relative = [n.removeprefix(root) for n in names]
                nearest = difflib.get_close_matches(pattern, relative, 5, 0.3) or relative[:8]
                raise ValueError(
                    f"Each pattern must match a scope. {pattern!r} matches none of {len(names)}. Nearest: {nearest}."
                )
            matched.update(dict.fromkeys(hits))
        for name in matched:
            self._store.scopes[name].trainable = trainable
        self.retrace()  # a Keras layer of the network does not do so by itself
        return list(matched)

    def retrace(self) -> None:
        """Drops compiled functions, so that `fit` and `predict` see which scopes are frozen now."""
        self._store.functions.clear()
        self.train_function = self.test_function = self.predict_function = None
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and optimizer.built:
            self.optimizer = optimizer_for(optimizer, self.trainable_variables)

    # ---- looking up --------------------------------------------------------------------------------------------------

    @property
    def variable_names(self) -> list[str]:
        """The full TF1 names of all variables, in order of creation: the names in checkpoints."""
        self._need_built()
        return list(self._store.weights)

    def variable(self, name: str) -> keras.Variable:
        """Returns the variable of that full name, or name relative to the network's root scope (`conv1/weights`)."""
        self._need_built()
        return self._store.weights[find_name(name, self._store.weights, "variable")]

    @property
    def scope_names(self) -> list[str]:
        """The full names of all variable scopes, in order of creation."""
        self._need_built()
        return list(self._store.scopes)

    def get_layer(self, name: str | None = None, index: int | None = None) -> keras.layers.Layer:
        """Returns the sublayer of a variable scope, by full or relative name, or by index in order of creation."""
        self._need_built()
        if name is None:
            if index is None:
                raise ValueError("get_layer needs a name or an index. Received: neither.")
            return list(self._store.scopes.values())[index]
        return self._store.scopes[find_name(name, self._store.scopes, "variable scope")]

    def end_points(self, inputs: Any, training: bool = False) -> dict[str, Any]:
        """Runs the network and returns its end points: name -> tensor."""
        inputs = self._ready(inputs)
        return self._run(inputs, training)[1]

    def get_collection(self, name: str, inputs: Any = None) -> list[Any]:
        """Returns the variables in a collection, and, given inputs, what one run of the network adds to it."""
        self._need_built()
        added = [] if inputs is None else self._run(self._ready(inputs), False)[2].collections.added(name)
        return [*self._store.variables_in(name), *added]

    def _ready(self, inputs: Any) -> Any:
        check_dense(inputs, self.name)
        inputs = tf.nest.map_structure(lambda x: dense_tensor(x, self.name), inputs)
        if not self.built:
            self._build_from(tf.nest.map_structure(spec_of, inputs))
        self.check_once(inputs)
        return inputs

    def _need_built(self) -> None:
        if not self.built:
            missing = f"Model {self.name!r} has no variables yet: it is built from its input's shape. "
            raise NotBuiltError(f"{missing}Pass input_shape=(32, 32, 1) when you make it, or call it once.")

    def summary(self, line_length: int | None = None, print_fn: Callable[[str], Any] = print, **_: Any) -> None:
        """Prints a table of the variable scopes, nested, with their outputs, variables and parameters.

        Args:
          line_length: Characters a line; default: the terminal's.
          print_fn: What takes the text.
          **_: Keras' other arguments, which mean nothing here.
        """
        self._need_built()
        print_fn(summary_text(self, line_length))
