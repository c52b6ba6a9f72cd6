"""How a model is written to files and made again: its configuration, its variables by name, its export."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from zoo.files import reading
from zoo.hdf5 import clean_copy
from zoo.scoping.functions import find_function, function_name
from zoo.scoping.layer import load_named, save_named
from zoo.scoping.specs import named_specs, specs_from_config, specs_to_config


class SavingMixin:
    """Keras' saving for a model of scopes."""

    def get_config(self: Any) -> dict[str, Any]:
        """The network's registered name and its options."""
        if self.book.defaults:
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
    def from_config(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Makes the model again; only registered networks and functions are found."""
        config = dict(config)
        network = find_function(config.pop("network"), config.pop("module", ""))
        options = keras.saving.deserialize_keras_object(config.pop("options"))
        options = {k: find_function(v["function"]) if _names_function(v) else v for k, v in options.items()}
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        return cls(network, **config, **options)

    def get_build_config(self: Any) -> dict[str, Any] | None:
        """The inputs' shapes and types."""
        if not self.built:
            return None
        frozen = [name for name, scope in self.book.scopes.items() if not scope.trainable]
        return {"inputs": specs_to_config(self.book.input_specs), "frozen": frozen, "card": self.book.card}

    def build_from_config(self: Any, config: dict[str, Any]) -> None:
        """Builds from `get_build_config`'s shapes and types."""
        self._build_from(specs_from_config(config["inputs"]))
        self.card = config.get("card", {})
        for name in config.get("frozen", ()):
            self.book.scopes[name].trainable = False

    @property
    def card(self: Any) -> dict[str, Any]:
        """What is known of the loaded weights: origin, conventions, preprocessing (`zoo.weights.Card`'s plain values).

        It is saved with the model.
        """
        return self.book.card

    @card.setter
    def card(self: Any, values: dict[str, Any]) -> None:
        self.book.card = dict(values)
        self.book.range_checked = False  # other weights may expect another range

    def save(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Writes the model to a `.keras` file, as Keras does.

        Raises:
          ValueError: A file name that ends in `.h5`: Keras' legacy format cannot name a model of another class, so that
            nothing reads it back.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                "A zoo.Model is saved as a .keras file: nothing could read it from Keras' legacy .h5 format. "
                f"Received: {str(filepath)!r}. Write model.save('NAME.keras'), model.save_weights('NAME.weights.h5') "
                "for the variables alone, or zoo.weights.save(model, 'NAME.h5') for keras.applications' own layout."
            )
        keras.Model.save(self, filepath, *args, **kwargs)

    @property
    def _default_save_signature(self: Any) -> Any:
        """What `tf.saved_model.save` makes `serving_default` of: a call in inference, on the inputs built for."""
        self._need_built()

        @tf.function(input_signature=(named_specs(self.book.input_specs),), autograph=False)
        def serving_default(inputs: Any) -> Any:
            return self(inputs, training=False)

        return serving_default

    def export(self: Any, filepath: Any, *args: Any, input_signature: Any = None, **kwargs: Any) -> Any:
        """Writes a SavedModel (or another of Keras' formats) for inference; the inputs are those the model was
        built for.
        """
        if input_signature is None:
            self._need_built()
            specs = named_specs(self.book.input_specs)
            input_signature = [
                tf.nest.map_structure(lambda s: keras.InputSpec(dtype=s.dtype.name, shape=s.shape, name=s.name), specs)
            ]
        return keras.Model.export(self, filepath, *args, input_signature=input_signature, **kwargs)

    def load_weights(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
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

    def save_own_variables(self: Any, store: Any) -> None:
        """Writes the variables outside any scope by name."""
        save_named(self, store)

    def load_own_variables(self: Any, store: Any) -> None:
        """Reads the variables outside any scope by name."""
        load_named(self, store, "")


def _names_function(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"function"}
