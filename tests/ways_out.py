"""Every way out of a model, over every registered network: written by one process, read by another."""

import copy
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo
from zoo import weights

ROWS, STEPS = 2, 5


@dataclass(frozen=True)
class Case:
    """A network in a small configuration, and a function that makes a batch for it."""

    net: str
    batch: Callable[[np.random.Generator], Any]
    options: dict[str, Any] = field(default_factory=dict)
    slow: bool = False

    @property
    def name(self) -> str:
        return "-".join([self.net, *map(str, self.options)])

    def build(self, seed: int) -> zoo.Model:
        return zoo.create(self.net, seed=seed, **self.options)

    def inputs(self) -> Any:
        return tf.nest.map_structure(tf.constant, self.batch(np.random.default_rng(0)))


def pictures(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.uniform(-1, 1, [ROWS, *shape]).astype(np.float32)


def words(rng: np.random.Generator) -> Any:
    return rng.integers(0, 9, [ROWS, STEPS], np.int32)


LENGTHS = np.int32([5, 3])
INCEPTION = {"num_classes": 3, "depth_multiplier": 0.1, "min_depth": 4, "aux_logits": False, "input_shape": (75, 75, 3)}
CASES = [
    Case("lenet5", pictures(32, 32, 1)),
    Case("lenet5", pictures(32, 32, 1), {"variant": "original"}, slow=True),
    Case("cifarnet", pictures(8, 8, 3), {"input_shape": (8, 8, 3), "num_classes": 3}),
    Case("densenet", pictures(32, 32, 3), {"block_config": (1, 1), "growth_rate": 4, "input_shape": (32, 32, 3)}),
    Case("densenet_cifar", pictures(8, 8, 3), {"depth": 10, "growth_rate": 4, "input_shape": (8, 8, 3)}, slow=True),
    Case("row_classifier", pictures(65, 2, 1), {"hidden": 4, "input_shape": (65, 2, 1)}),
    Case("row_classifier", pictures(4, 2, 1), {"cell": "gru", "hidden": 4, "input_shape": (4, 2, 1)}),
    Case("sequence_tagger", lambda rng: {"sequence": pictures(STEPS, 8)(rng), "length": LENGTHS}, {"hidden": 4}),
    Case(
        "sequence_tagger",
        lambda rng: {"sequence": words(rng), "length": LENGTHS},
        {"vocab_size": 9, "hidden": 4, "bidirectional": False},
    ),
    Case("word_lm", words, {"vocab_size": 9, "hidden": 4}),
    Case(
        "word_lm",
        lambda rng: {"tokens": words(rng), "first": np.ones([ROWS], bool)},
        {"vocab_size": 9, "hidden": 4, "carry": ROWS},
    ),
    Case("inception_v3", pictures(75, 75, 3), INCEPTION, slow=True),
]


def measure(call: Callable[[Any], Any], inputs: Any, variables: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs and the gradients of their squares' sum, by name of the variable or place of the input."""
    floats = [x for x in tf.nest.flatten(inputs) if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        outputs = call(inputs)
        loss = tf.reduce_sum(tf.square(outputs))
    by_input, by_name = tape.gradient(loss, [floats, variables])
    found = {f"gradient of {name}": tf.convert_to_tensor(value).numpy() for name, value in by_name.items()}
    found |= {f"gradient of input {i}": value.numpy() for i, value in enumerate(by_input)}
    return {"outputs": outputs.numpy(), **found}


def trainable(model: zoo.Model) -> dict[str, Any]:
    raw = {name: model.variable(name).value for name in model.variable_names}
    return {name: variable for name, variable in raw.items() if variable.trainable}


def of_model(model: zoo.Model, inputs: Any) -> dict[str, np.ndarray]:
    return measure(lambda x: model(x, training=False), inputs, trainable(model))


# How each way is written; `folder` is the case's own.
WRITERS: dict[str, Callable[[zoo.Model, Path], Any]] = {
    "keras": lambda model, folder: model.save(folder / "m.keras"),
    "weights_h5": lambda model, folder: model.save_weights(folder / "m.weights.h5"),
    "export": lambda model, folder: model.export(str(folder / "export"), verbose=False),
    "saved_model": lambda model, folder: tf.saved_model.save(model, str(folder / "saved_model")),
    "tf1": lambda model, folder: weights.save_tf1(model, folder / "tf1" / "model.ckpt", step=3),
    "safetensors": lambda model, folder: weights.save(model, folder / "m.safetensors"),
    "pickle": lambda model, folder: (folder / "m.pickle").write_bytes(pickle.dumps(model)),
}


def _exported(call: Any, variables: Any, inputs: Any) -> dict[str, np.ndarray]:
    named = {variable.name.partition(":")[0]: variable for variable in variables if variable.trainable}
    return measure(call, inputs, named)


def _saved_model(folder: Path, inputs: Any) -> dict[str, np.ndarray]:
    """A SavedModel by its default signature, whose arguments have the names of the inputs, where those have names."""
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def call(x: Any) -> Any:
        return next(iter(signature(**(x if isinstance(x, dict) else {"inputs": x})).values()))

    return _exported(call, signature.variables, inputs)


def _export(folder: Path, inputs: Any) -> dict[str, np.ndarray]:
    loaded = tf.saved_model.load(str(folder))
    found = _exported(loaded.serve, loaded.variables, inputs)
    if isinstance(inputs, dict):
        assert set(loaded.signatures["serving_default"].structured_input_signature[1]) == set(inputs)
    return found


def _into(load: Callable[[zoo.Model, Path], Any]) -> Callable[..., dict[str, np.ndarray]]:
    def read(folder: Path, inputs: Any, blank: zoo.Model) -> dict[str, np.ndarray]:
        for weight in blank.weights:
            weight.assign(tf.cast(tf.fill(weight.shape, 7), weight.dtype))
        load(blank, folder)
        return of_model(blank, inputs)

    return read


# How each way is read again, in a process that has never seen the model; the last group in the process itself.
READERS: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "keras": lambda folder, inputs, _: of_model(zoo.load_model(folder / "m.keras"), inputs),
    "weights_h5": _into(lambda model, folder: model.load_weights(folder / "m.weights.h5")),
    "export": lambda folder, inputs, _: _export(folder / "export", inputs),
    "saved_model": lambda folder, inputs, _: _saved_model(folder / "saved_model", inputs),
    "tf1 by folder": _into(lambda model, folder: weights.restore_tf1(model, folder / "tf1")),
    "tf1 by prefix": _into(lambda model, folder: weights.load(model, folder / "tf1" / "model.ckpt-3")),
    "safetensors": _into(lambda model, folder: weights.load(model, folder / "m.safetensors")),
    "pickle": lambda folder, inputs, _: of_model(pickle.loads((folder / "m.pickle").read_bytes()), inputs),
}


def _clone(model: zoo.Model, inputs: Any) -> dict[str, np.ndarray]:
    clone = keras.models.clone_model(model)
    clone(inputs)
    assert clone.variable_names == model.variable_names
    clone.set_weights(model.get_weights())
    return of_model(clone, inputs)


COPIES: dict[str, Callable[[zoo.Model, Any], dict[str, np.ndarray]]] = {
    "clone_model": _clone,
    "deepcopy": lambda model, inputs: of_model(copy.deepcopy(model), inputs),
}


def difference(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> str:
    """Words the largest difference, relative to the largest value; empty when there is none to speak of."""
    if found.keys() != wanted.keys():
        return f"has {sorted(found.keys() ^ wanted.keys())} alone"
    for name, value in wanted.items():
        error = np.abs(found[name] - value).max() / max(np.abs(value).max(), 1e-6)
        if found[name].shape != value.shape or not error <= 1e-5:
            return f"{name}: {found[name].shape} of {value.shape}, {error:.1e} apart"
    return ""


def attempt(action: Callable[[], str]) -> str:
    """Runs a cell; what goes wrong is what it says."""
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:500]}"


def write(case: Case, folder: Path) -> dict[str, str]:
    """Writes a case every way, and says what went wrong with a way, or with a copy in this process."""
    folder.mkdir()
    model, inputs = case.build(seed=1), case.inputs()
    wanted = of_model(model, inputs)
    np.savez(folder / "wanted.npz", **wanted)
    said = {way: attempt(lambda: difference(copied(model, inputs), wanted)) for way, copied in COPIES.items()}  # noqa: B023
    return said | {way: attempt(lambda: str(writer(model, folder) or "")[:0]) for way, writer in WRITERS.items()}  # noqa: B023


def read(case: Case, folder: Path) -> dict[str, str]:
    """Reads a case every way, and says what is wrong with each; empty when nothing is."""
    wanted, inputs, blank = dict(np.load(folder / "wanted.npz")), case.inputs(), case.build(seed=2)
    return {way: attempt(lambda: difference(reader(folder, inputs, blank), wanted)) for way, reader in READERS.items()}  # noqa: B023


if __name__ == "__main__":
    place = Path(sys.argv[1])
    cases = {case.name: case for case in CASES}
    there = [cases[folder.name] for folder in sorted(place.iterdir()) if folder.is_dir()]
    (place / "read.json").write_text(json.dumps({case.name: read(case, place / case.name) for case in there}))
