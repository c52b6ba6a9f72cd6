"""The trained weights that come with zoo: one safetensors file each, with a card that says how it was made.

A card is a JSON object: ``net``, ``options``, ``data``, ``pictures`` (see `pictures_of`), ``recipe`` (the
command), ``seed``, ``accuracy``, ``sha256`` of the weights file, ``licence`` and ``versions``.
"""

import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

import zoo
from zoo.files import hash_of, read_json, write_whole
from zoo.weights.names import assign

if TYPE_CHECKING:
    from zoo.scoping import Model

REMEDY = "Build the model with the options they were made with."


def folder() -> Path:
    """Returns where the weights lie: inside an installed package, or beside the package in a checkout."""
    package = Path(zoo.__file__).parent
    installed = package / "_weights"
    return installed if installed.is_dir() else package.parent / "weights"


def names(net: str) -> list[str]:
    """Returns the names of the weights that come with zoo for a network, such as ``["digits"]`` for ``"lenet5"``."""
    return sorted(path.stem.removeprefix(f"{net}-") for path in folder().glob(f"{net}-*.safetensors"))


def card(net: str, name: str) -> dict[str, Any]:
    """Returns the card of some weights, such as lenet5's "digits"; ValueError with those there are for others."""
    path = folder() / f"{net}-{name}.json"
    if name not in names(net) or not path.is_file():
        there_are = ", ".join(map(repr, names(net))) or "none"
        raise ValueError(f"{net} has no weights {name!r}; those that come with zoo are: {there_are}.")
    return dict(read_json(path))


def read(stem: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads the card ``STEM.json`` and the arrays of ``STEM.safetensors``, whose SHA-256 the card says.

    Raises ValueError when one is missing, or the file is not the one its card describes.
    """
    path = folder() / f"{stem}.safetensors"
    if not path.is_file():
        raise ValueError(f"The weights {stem} that come with zoo are missing ({path}). Install scoped-zoo again.")
    about, found = dict(read_json(path.with_suffix(".json"))), hash_of(path)
    if found != about["sha256"]:
        raise ValueError(
            f"{path}: its SHA-256 is {found}, but its card says {about['sha256']}: the file was changed or damaged. "
            "Install scoped-zoo again."
        )
    return about, safetensors.numpy.load_file(path)


def load(model: "Model", net: str, name: str) -> None:
    """Loads weights that come with zoo into a built model of the network, whole but for the heads that it leaves out.

    Raises:
        ValueError: There are no such weights, the file is not the one its card describes, or the model's variables have
            other names or shapes because it was built with other options.
    """
    card(net, name)
    about, values = read(f"{net}-{name}")
    _check_options(model, about["options"], f"{net} weights {name!r}")
    from zoo.scoping import parts_of  # imports TensorFlow, which names of weights do without

    parts, mine = parts_of(model), set(model.variable_names)
    values = {key: value for key, value in values.items() if key in mine or parts.part_of(key) == "trunk"}
    assign(model, values, f"{net} weights {name!r} (made with options {about['options']})", remedy=REMEDY)


def _check_options(model: "Model", made_with: Mapping[str, Any], what: str) -> None:
    """Raises ValueError when an option that changes what is computed is not the one the weights were made with."""
    parameters = inspect.signature(model.network).parameters
    for option in model.spec.computing if model.spec else ():
        wanted, given = (options.get(option, parameters[option].default) for options in (made_with, model.options))
        if wanted != given:
            raise ValueError(
                f"{what} were made with {option}={wanted!r}. Received: {option}={given!r}. "
                "Build the model with the same."
            )


def save(model: "Model", path: str | Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a model's variables to ``.safetensors``, and beside it the card, completed with the file's SHA-256."""
    path = Path(path)
    content = safetensors.numpy.save({name: np.asarray(model.variable(name)) for name in model.variable_names})
    write_whole(path, content)
    complete = {**about, "sha256": hash_of(path)}
    write_whole(path.with_suffix(".json"), (json.dumps(complete, indent=2) + "\n").encode())
    return complete


def pictures_of(batches: Iterable[np.ndarray], what: str) -> dict[str, Any]:
    """Describes pictures for a card, so that a model can say when it meets other ones (see `check_looks`).

    ``batches`` are of [N, H, W, C]; ``what`` says in words what they are; the card also has ``size``, ``range``, and
    the least and the most of each of `looks_of`'s numbers.
    """
    from zoo.inputs import looks_of  # imports TensorFlow, which names of weights do without

    size: list[int] = []
    values: dict[str, list[np.ndarray]] = {}
    for images in batches:
        size = list(images.shape[1:])
        for name, numbers in {"range": images.reshape(len(images), -1), **looks_of(images)}.items():
            values.setdefault(name, []).append(np.array([numbers.min(), numbers.max()], np.float64))
    least_and_most = {
        name: [round(float(np.min(pairs)), 4), round(float(np.max(pairs)), 4)] for name, pairs in values.items()
    }
    return {"what": what, "size": size, **least_and_most}
