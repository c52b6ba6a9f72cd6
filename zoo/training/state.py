"""Everything a run must remember: which variables, which random states, which configuration."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.training.step import REGULARIZATION, TASK, Engine
from zoo.weights.names import assign as assign_by_name
from zoo.weights.names import named_variables

_log = logging.getLogger("zoo")
_AUTO_NUMBER = re.compile(r"_\d+(?=/|$)")
_PLAIN = (bool, int, float, str, type(None))


@dataclasses.dataclass
class _Stop:
    best: float | None
    best_step: int | None
    worse: int


@dataclasses.dataclass
class Sums:
    """Losses since a line or an epoch began."""

    task: float
    regularization: float
    steps: int

    def add(self, row: np.ndarray) -> None:
        """Adds a step's losses."""
        self.task += float(row[TASK])
        self.regularization += float(row[REGULARIZATION])
        self.steps += 1

    def means(self) -> dict[str, float]:
        """Returns the mean total, task and regularization loss."""
        count = max(self.steps, 1)
        task, regularization = self.task / count, self.regularization / count
        return {"loss": task + regularization, "task_loss": task, "regularization_loss": regularization}


@dataclasses.dataclass
class _Last:
    log: int
    validation: int
    save: int
    epoch_end: int


@dataclasses.dataclass
class _Random:
    python: tuple[int, list[int], float | None]
    numpy: tuple[str, list[int], int, int, float]
    tensorflow: list[int] | None


@dataclasses.dataclass
class RunState:
    """What a run needs of its checkpoint beside the variables: the file is compared with it before anything changes."""

    time: float
    step: int
    epoch: int
    batch: int
    rate: float
    training_seconds: float
    results: dict[str, float]
    monitor: _Stop
    last: _Last
    line_sums: Sums
    epoch_sums: Sums
    random: _Random
    callbacks: list[dict[str, Any]]


_REMEDY = "go on with the model, optimizer and averages that the run was started with, or take another folder"
_SPANS = (
    ". A schedule that spans the run (cosine, polynomial) changes with the run's length: accept the change to go on "
    "along the new curve, or start with a schedule of its own length (--schedule constant, per_epoch or exponential) "
    "if the length may change"
)


class ConfigChangedError(ValueError):
    """A run folder belongs to another configuration; the message is the difference.

    Args:
        folder: the run folder.
        lines: one line a difference.
    """

    def __init__(self, folder: Any, lines: list[str]) -> None:
        self.lines = lines
        spans = any(line.startswith("learning_rate.") and "steps" in line.partition(":")[0] for line in lines)
        super().__init__(
            f"{folder} holds a run with another configuration:\n"
            + "\n".join(f"  {line}" for line in lines)
            + "\nkeep the old settings, choose another folder, or accept the change (accept_changes, --accept-changes)"
            + (_SPANS if spans else "")
        )


def variables_of(engine: Engine) -> dict[str, Any]:
    """Maps a checkpoint's names to the variables that a run needs to go on exactly.

    They begin with ``model/``, ``model_state/`` (random seeds of layers), ``optimizer/``, ``averages/``, ``metrics/``,
    or are ``step``. Listed anew at every save, so a variable made later is saved as well.
    """
    model = engine.model
    own_names = hasattr(model, "variable_names")
    found: dict[str, Any] = {}
    keys, known = {}, set()
    for number, (name, variable) in enumerate(named_variables(model).items()):
        # Keras numbers layers by how many a process has made; the order is what stays.
        keys[name] = name if own_names else f"{number:04d}/{_AUTO_NUMBER.sub('', name)}"
        found[f"model/{keys[name]}"] = variable
        known.add(id(variable))
    measured = {id(variable) for metric in getattr(model, "metrics", ()) for variable in metric.variables}
    rest = [v for v in model.variables if id(v) not in known and id(v) not in measured]
    found |= {f"model_state/{number:04d}": variable for number, variable in enumerate(rest)}
    found |= {f"optimizer/{number:04d}": variable for number, variable in enumerate(engine.optimizer.variables)}
    if engine.averages is not None:
        found |= {f"averages/{keys[name]}": shadow for name, shadow in engine.averages.shadows.items()}
    measured_now = [variable for metric in engine.metrics for variable in metric.variables]
    found |= {f"metrics/{number:04d}": variable for number, variable in enumerate(measured_now)}
    return {**found, "step": engine.step}


def assign(variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: Any, *, only: str = "") -> None:
    """Puts the arrays of the checkpoint at `where` into variables, those of a prefix only; all or nothing.

    Raises CheckpointNamesError where names or shapes differ.
    """
    wanted = {name: variable for name, variable in variables.items() if name.startswith(only)}
    stored = {name: array for name, array in arrays.items() if name.startswith(only)}
    assign_by_name(wanted, stored, f"checkpoint {where}", remedy=_REMEDY, ours="the run")


def random_state() -> dict[str, Any]:
    """Returns the state of Python's, numpy's and TensorFlow's global generators as JSON values."""
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - the generator that users draw from
    generator = _tensorflow_generator()
    return {
        "python": json.loads(json.dumps(random.getstate())),
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "tensorflow": generator.state.numpy().tolist() if generator is not None else None,
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Takes back what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    generator = _tensorflow_generator()
    if generator is not None and state["tensorflow"] is not None:
        generator.state.assign(np.array(state["tensorflow"], np.int64))


def callback_states(callbacks: Iterable[keras.callbacks.Callback]) -> list[dict[str, Any]]:
    """Returns the plain attributes (counters, best values) of callbacks, each with its class."""
    return [
        {"class": _class_name(one), "values": {k: v for k, v in vars(one).items() if isinstance(v, _PLAIN)}}
        for one in callbacks
    ]


def restore_callbacks(callbacks: Iterable[keras.callbacks.Callback], states: Sequence[Mapping[str, Any]]) -> None:
    """Gives callbacks their counters back: the first of a class those of the first of that class, and so on.

    Where a class has more or fewer callbacks than at the save, nobody can tell whose counters are whose: these begin
    anew, and a warning says so. So do those of a checkpoint of before, which has no classes, where the number differs.
    """
    here = list(callbacks)
    if states and "class" not in states[0]:
        names = [_class_name(one) for one in here] if len(states) == len(here) else []
        states = [{"class": name, "values": old} for name, old in zip_longest(names, states, fillvalue="unknown")]
    groups: dict[str, tuple[list[keras.callbacks.Callback], list[Mapping[str, Any]]]] = {}
    for one in here:
        groups.setdefault(_class_name(one), ([], []))[0].append(one)
    for state in states:
        groups.setdefault(state["class"], ([], []))[1].append(state["values"])
    for name, (present, saved) in groups.items():
        if not saved:
            continue
        if len(present) != len(saved):
            _log.warning(
                "callbacks: the checkpoint has counters of %d %s, the run has %d: %s",
                *(len(saved), name, len(present), "they begin anew" if present else "they are dropped"),
            )
            continue
        for callback, values in zip(present, saved, strict=True):
            for attribute, value in values.items():
                if isinstance(vars(callback).get(attribute), _PLAIN):
                    setattr(callback, attribute, value)


def config_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lists the settings in which a run and what is asked for differ, as ``optimizer.momentum: 0.9 -> 0.8``."""
    before, after = ({name: json.dumps(value) for name, value in flat(one).items()} for one in (old, new))
    before.pop("replicas", None)  # in checkpoints of before: a run may go on with other devices
    missing = "(not set)"
    return [
        f"{name}: {before.get(name, missing)} -> {after.get(name, missing)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name, missing) != after.get(name, missing)
    ]


def plain(value: Any) -> Any:
    """Turns a configuration into JSON values that are the same in every process."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, _PLAIN):
        return value
    if hasattr(value, "item") and np.ndim(value) == 0:
        return value.item()
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _class_name(callback: keras.callbacks.Callback) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


def _tensorflow_generator() -> tf.random.Generator | None:
    try:
        return tf.random.get_global_generator()
    except RuntimeError:  # under op determinism there is none unless the user made it
        return None


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a configuration's settings as one level: ``optimizer.momentum``."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + str(name): value}
    return found
