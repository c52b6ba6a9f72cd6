"""How a model file that others may have written is loaded: what it may name, and how much memory it may ask for.

Keras makes whatever class a model file names, with the arguments that it gives. So the file's configuration is compared
with a list of what models are made of before Keras sees it, its weights are read in a child process (``zoo.hdf5``), and
what the configuration makes is compared with them before it is allocated. Keras then reads a copy that zoo wrote.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from zoo._compat import FuncGraph
from zoo.files import ZipReader, current_limits, parse_json, reading
from zoo.hdf5 import MEMBER, SIGNATURE, H5Content, read_h5, write_h5

# Keras' public modules -> what a class there must be to be made from a file.
_KINDS: Mapping[str, type] = {
    "keras.layers": keras.layers.Layer,
    "keras.initializers": keras.initializers.Initializer,
    "keras.regularizers": keras.regularizers.Regularizer,
    "keras.constraints": keras.constraints.Constraint,
    "keras.optimizers": keras.optimizers.Optimizer,
    "keras.optimizers.schedules": keras.optimizers.schedules.LearningRateSchedule,
    "keras.losses": keras.losses.Loss,
    "keras.metrics": keras.metrics.Metric,
    "keras.models": keras.Model,
    "keras.dtype_policies": keras.dtype_policies.DTypePolicy,
}
# Layers that run code of the file, or open other files.
_NEVER = {
    "Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper", "StringLookup", "IntegerLookup",
    "TextVectorization",
}  # fmt: skip
_FUNCTIONS_OF = ("keras.activations", "keras.losses", "keras.metrics")
_NO_FUNCTIONS = {"get", "serialize", "deserialize"}
_VALUES = {"__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__", "__tuple__"}
_FILE_ARGUMENT = re.compile(r"(^|_)(file|file_?path|file_?name|path|url|uri|origin|dir|directory|vocabulary)s?$")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[/~]|\\\\|[A-Za-z]:[\\/]|(.*[\\/])?\.\.[\\/]")
_SPARE = 4  # weights that a model may have for each that is in the file: its optimizer's come besides
_SPARE_VARIABLES = 200  # building Keras' models takes time that grows with the square of their layers


def load_model(
    path: str | os.PathLike[str],
    *,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Loads a model from a `.keras` file, or Keras' legacy `.h5`, that others may have written.

    The file may make Keras' own layers, initializers, regularizers, constraints, optimizers, losses and metrics, zoo's
    models with registered networks (`register_function`), and what `custom_objects` holds; nothing else, no `Lambda`,
    and nothing that opens another file.

    Args:
      path: The file.
      custom_objects: Classes and functions of yours that the file may name besides, by name.
      compile: Whether to compile the model as it was when saved.
      safe_mode: Always True; it is there because Keras' function has it.

    Returns:
      The model.

    Raises:
      OSError: The file is not there, or cannot be read.
      ValueError: The file is damaged, names something else than models are made of, or asks for more memory than its
        weights take; the message names it.
    """
    if not safe_mode:
        raise ValueError(
            "zoo.load_model runs no code of a file. Received: safe_mode=False. keras.saving.load_model(path, "
            "safe_mode=False) does, for files that you trust as you trust a program."
        )
    custom = dict(custom_objects or {})
    with reading(path, "a Keras model"):
        with open(path, "rb") as file:
            legacy = file.read(len(SIGNATURE)) == SIGNATURE
        config = None if legacy else _config_of_archive(path)
        if config is not None:
            check_config(config, path, custom)
        content = read_h5(path)
        if legacy:
            _check_legacy(content, custom)
        with tempfile.TemporaryDirectory(prefix="zoo-") as folder, _within(content):
            copy = Path(folder) / ("model.h5" if legacy else "model")
            if legacy:
                write_h5(content, copy)
            else:
                copy.mkdir()
                (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
                write_h5(content, copy / MEMBER)
            return keras.saving.load_model(str(copy), custom_objects=custom, compile=compile)


def _config_of_archive(path: str | os.PathLike[str]) -> Any:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is neither a .keras archive nor an HDF5 file, or it was cut")
    with ZipReader(path) as archive:
        return parse_json(archive.read("config.json"), path)


def _check_legacy(content: H5Content, custom: Mapping[str, Any]) -> None:
    """Checks the configurations that Keras' legacy format keeps in attributes."""
    for key in ("model_config", "training_config"):
        text = content.text(key)
        if text is not None:
            check_config(parse_json(text, content.path), content.path, custom)
        elif key == "model_config":
            raise ValueError(f"{content.path} holds weights and no model: build it, and give the file to load_weights")


def check_config(config: Any, path: str | os.PathLike[str], custom: Mapping[str, Any]) -> None:
    """Compares everything that a model's configuration would make with what models are made of.

    Args:
      config: The configuration, as JSON gives it.
      path: The file, for messages.
      custom: Classes and functions that it may name besides, by name.

    Raises:
      ValueError: It names something else, or a file or an address as an argument of Keras' classes.
    """
    waiting: list[tuple[Any, str, bool]] = [(config, "", False)]
    while waiting:
        value, key, is_argument = waiting.pop()
        if isinstance(value, dict):
            if "class_name" in value:
                is_argument = _check_class(value, path, custom)
            waiting += [(item, name, is_argument) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [(item, key, is_argument) for item in value]
        elif is_argument and isinstance(value, str) and _names_a_file(key, value):
            raise ValueError(
                f"{path} is refused: argument {key!r} of its configuration names a file or an address, {value[:80]!r}"
            )


def _names_a_file(key: str, value: str) -> bool:
    return bool(value and (_FILE_ARGUMENT.search(key) or _ADDRESS.match(value)))


def _check_class(config: Mapping[str, Any], path: Any, custom: Mapping[str, Any]) -> bool:
    """Refuses what no model is made of; returns whether its arguments are those of one of Keras' classes."""
    name, module, registered = (config.get(key) for key in ("class_name", "module", "registered_name"))
    if name in _VALUES:
        return True
    if name == "function":
        function = config.get("config")
        if function in custom or (_is_keras_function(function, module) and registered in (None, name, function)):
            return True
        name = function
    elif name in custom or registered in custom:
        return False
    elif isinstance(registered, str) and registered.startswith("zoo>"):
        known = keras.saving.get_registered_object(registered)
        if known is not None and known.__module__.startswith("zoo."):
            return False
    elif registered in (None, name) and (module, name) in _makeable():
        return True
    raise ValueError(
        f"{path} is refused: it names {'.'.join(str(part) for part in (module, name) if part)}, and a model file may "
        "name Keras' own layers (none that runs code or opens files), initializers, regularizers, constraints, "
        "optimizers, losses and metrics, and functions of @zoo.register_function. If it is yours, pass "
        f"custom_objects={{{name!r}: ...}}."
    )


def _is_keras_function(name: Any, module: Any) -> bool:
    places = _FUNCTIONS_OF if module in (None, "builtins") else (module,) if module in _FUNCTIONS_OF else ()
    if not isinstance(name, str) or name in _NO_FUNCTIONS:
        return False
    found = [getattr(getattr(keras, place.removeprefix("keras.")), name, None) for place in places]
    return any(callable(function) and not isinstance(function, type) for function in found)


@functools.lru_cache(maxsize=1)
def _makeable() -> frozenset[tuple[str | None, str]]:
    """Module, as files name it, and name of every class of Keras that a file may make."""
    found: set[tuple[str | None, str]] = set()
    for module, kind in _KINDS.items():
        public = functools.reduce(getattr, module.split(".")[1:], keras)
        for name, item in vars(public).items():
            if isinstance(item, type) and issubclass(item, kind) and name not in _NEVER:
                found |= {(module, name), (item.__module__, name), (None, name)}
    for name in ("Sequential", "Model", "Functional"):
        found |= {("keras", name), ("keras.models", name), (f"keras.src.models.{name.lower()}", name), (None, name)}
    found |= {("keras", name) for module, name in found if module == "keras.dtype_policies"}
    return frozenset(found)


@contextlib.contextmanager
def _within(content: H5Content) -> Iterator[None]:
    """Refuses variables as soon as they are many more, or much larger, than those in the file; before they are made."""
    held = sum(array.nbytes for array in content.arrays.values())
    most = _SPARE * held + current_limits().small
    most_variables = _SPARE * len(content.arrays) + _SPARE_VARIABLES
    declared = count = 0

    def check() -> None:
        if declared > most or count > most_variables:
            raise ValueError(
                f"{content.path} is refused: its configuration asks for {count:,} variables of {declared:,} bytes, and "
                f"the file holds {len(content.arrays):,} of {held:,}"
            )

    def creator(next_creator: Any, **how: Any) -> Any:
        nonlocal declared, count
        count += 1
        declared += _declared(how.get("initial_value"))
        check()
        return next_creator(**how)

    with tf.variable_creator_scope(creator):
        yield
    check()  # Keras goes on after some errors of a layer's build


def _declared(initial: Any) -> int:
    """Bytes of a variable, from the Keras variable that its initializer belongs to, or the initializer traced."""
    cells = [cell.cell_contents for cell in getattr(initial, "__closure__", None) or ()]
    owner = next((item for item in cells if isinstance(item, keras.Variable)), None)
    if owner is None and callable(initial):
        with FuncGraph("zoo_sizes").as_default():
            owner = initial()
    owner = initial if owner is None else owner
    shape, dtype = getattr(owner, "shape", ()), getattr(owner, "dtype", None)
    return math.prod(n or 0 for n in tuple(shape)) * (tf.as_dtype(dtype).size if dtype is not None else 8)
