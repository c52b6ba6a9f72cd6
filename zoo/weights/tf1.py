"""TF1's name-based checkpoints: read V1 and V2, write V2, restore by name with maps and patterns."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from zoo import files
from zoo.weights.names import (
    CheckpointNamesError,
    HasVariables,
    Variable,
    Variables,
    assign,
    closest,
    mismatch,
    named_variables,
    select_names,
)

NameMap: TypeAlias = Mapping[str, "str | Variable"] | Sequence[tuple[str, str]]

AVERAGE_SUFFIX = "/ExponentialMovingAverage"
_TABLE_MAGIC = bytes.fromhex("57fb808b247547db")  # the last 8 bytes of every table file, V1's and V2's index
# What an optimizer or a training loop adds to a checkpoint: never "unexpected" when weights are restored.
TRAINING_NAMES = re.compile(
    r"(^|/)(global_step|beta[12]_power|save_counter)$"
    r"|/(Momentum|RMSProp|Adam|Adagrad|Adadelta|Ftrl|Linear)(_\d+)?$|/(ExponentialMovingAverage|local_step|biased)$"
)


_REMEDY = (
    "choose names with include= / exclude=, rename them with name_map=, or allow the gap with ignore_missing=True / "
    "ignore_unexpected=True"
)


class TF1Checkpoint(Mapping[str, np.ndarray]):
    """A TF1 checkpoint as a read-only mapping of name to array; a tensor is read when it is asked for.

    Args:
        path: V1 file, V2 prefix, one of a V2 checkpoint's files, or a folder with a `checkpoint` file.

    Attributes:
        path: what TensorFlow opens: the V1 file (or its shards' prefix) or the V2 prefix.
        format: ``"v1"`` or ``"v2"``.
        shapes: name to shape.
        dtypes: name to numpy data type.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: the file is no TF1 checkpoint, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.format = _resolve(os.fspath(path))
        try:
            self._reader = tf.train.load_checkpoint(self.path)
            dtypes = self._reader.get_variable_to_dtype_map()
            shapes = self._reader.get_variable_to_shape_map()
            self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}
            self.dtypes = {name: np.dtype(dtypes[name].as_numpy_dtype) for name in self.shapes}
        except (tf.errors.OpError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path} looks like a {self.format.upper()} checkpoint but cannot be read ({_first_line(error)}); "
                "the file is damaged or cut, take another copy"
            ) from error
        self._compare_with_files()

    def _compare_with_files(self) -> None:
        """Refuses tensors that are larger than the files that hold them, before one is read."""
        limit, shards = files.current_limits(), [self.path]
        if not os.path.isfile(self.path):
            v2 = self.format == "v2"
            shards = glob.glob(f"{glob.escape(self.path)}.data-?????-of-?????" if v2 else self.path)
        held = sum(os.path.getsize(shard) for shard in shards)
        numeric = {name: dtype.itemsize for name, dtype in self.dtypes.items() if dtype.kind != "O"}
        sizes = {name: math.prod(self.shapes[name]) * itemsize for name, itemsize in numeric.items()}
        limit.check(sum(sizes.values()), held, self.path, "its tensors together")
        for name, size in sizes.items():
            if self.format == "v2" and size > held:
                raise ValueError(
                    f"'{name}' in checkpoint {self.path} declares {size:,} bytes of {held:,}: it is damaged"
                )

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.shapes:
            raise KeyError(f"'{name}' is not in checkpoint {self.path}{closest(name, self.shapes)}")
        try:
            return np.asarray(self._reader.get_tensor(name))
        except (
            tf.errors.OpError,
            ArithmeticError,
            LookupError,
            MemoryError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise ValueError(
                f"'{name}' in checkpoint {self.path} cannot be read ({_first_line(error)}); the file is damaged"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes


def tf1_format(path: str | os.PathLike[str]) -> str | None:
    """Says which TF1 checkpoint a path is, by its content and not by its name.

    Args:
        path: V1 file, V2 prefix, one of a V2 checkpoint's files, or a folder with a `checkpoint` file.

    Returns:
        ``"v1"``, ``"v2"``, or None when it is neither.
    """
    try:
        return _resolve(os.fspath(path))[1]
    except (ValueError, OSError):
        return None


def read_tf1(path: str | os.PathLike[str]) -> TF1Checkpoint:
    """Opens a TF1 checkpoint, V1 or V2; arrays are read lazily.

    Args:
        path: V1 file (``inception_v3.ckpt``), V2 prefix (``model.ckpt-1000``), one of a V2 checkpoint's files, or a
            folder, which means its newest checkpoint.

    Returns:
        A mapping of name to array.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: the file is no TF1 checkpoint, or is damaged.
    """
    return TF1Checkpoint(path)


def save_tf1(
    source: HasVariables | Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    *,
    step: int | None = None,
    name_map: NameMap | None = None,
) -> str:
    """Writes a TF1 checkpoint in V2 format that `tf.compat.v1.train.Saver` restores.

    The folder's `checkpoint` file names it as the newest, as Saver's does: the folder can be given in its place.

    Args:
        source: a built model, or a mapping of name to variable or array.
        path: prefix of the files to write; an existing checkpoint of that name is replaced.
        step: written as `global_step` (int64) and appended to the prefix (``model.ckpt-1000``); None does neither.
        name_map: model name to checkpoint name, as a dict, or as (regex, replacement) pairs that are applied in turn.
            A dict may also run as `tf.compat.v1.train.Saver`'s does, checkpoint name to variable (or its name): which
            way, the names say.

    Returns:
        The prefix written.

    Raises:
        ValueError: nothing to save, a map matches nothing, or two variables get one name; or the prefix is the name of
            the `checkpoint` file itself.
    """
    prefix = os.fspath(path)
    if os.path.basename(prefix) in ("", "checkpoint"):
        raise ValueError(f"path is the prefix of the files to write, such as DIR/model.ckpt. Received: {prefix!r}")
    variables = named_variables(source)
    if not variables:
        raise ValueError("nothing to save: the mapping is empty")
    renamed = _rename(variables, name_map)
    values = {renamed[name]: tf.convert_to_tensor(_value(variable)) for name, variable in variables.items()}
    if len(values) < len(variables):
        raise ValueError(
            f"name_map gives {len(variables)} variables only {len(values)} different names; make it unique"
        )
    if step is not None:
        prefix = f"{prefix}-{step}"
        values["global_step"] = tf.constant(step, tf.int64)
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    temporary = os.fspath(files.temporary_name(prefix))
    endings = [".data-00000-of-00001", ".index"]
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=list(values.values()),
            )
        # Without its index a checkpoint is not there; a crash between the two renames never mixes old and new.
        Path(prefix + ".index").unlink(missing_ok=True)
        for ending in endings:
            files.put(temporary + ending, prefix + ending)
    finally:
        for left in glob.glob(glob.escape(temporary) + "*"):
            files.remove(left)
    _name_newest(prefix)
    return prefix


def _name_newest(prefix: str) -> None:
    """Writes the `checkpoint` file: relative names, so that the folder can be moved; those listed stay, if there."""
    folder, newest = os.path.split(os.path.abspath(prefix))
    state = tf.train.get_checkpoint_state(folder)
    listed = [] if state is None else [os.path.relpath(path, folder) for path in state.all_model_checkpoint_paths]
    others = [name for name in listed if name != newest and tf1_format(os.path.join(folder, name))]
    found = tf.compat.v1.train.generate_checkpoint_state_proto(folder, newest, [*others, newest])
    files.write_whole(os.path.join(folder, "checkpoint"), str(found))


def restore_tf1(
    model: HasVariables,
    path: str | os.PathLike[str] | Mapping[str, np.ndarray],
    *,
    name_map: NameMap | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    averages: bool = False,
    ignore_missing: bool = False,
    ignore_unexpected: bool = False,
) -> list[str]:
    """Restores a model's variables from a TF1 checkpoint by name; all or nothing.

    Args:
        model: a built model, or a mapping of name to variable.
        path: a checkpoint (see `read_tf1`), or an opened one, or any mapping of name to array.
        name_map: model name to checkpoint name, as a dict, or as (regex, replacement) pairs that are applied in turn.
            A dict may also run as `tf.compat.v1.train.Saver`'s does, checkpoint name to variable (or its name): which
            way, the names say.
        include: patterns of the model's names to restore; None means all. Each must match something.
        exclude: patterns of the model's names to leave alone. Each must match something.
        averages: take ``<name>/ExponentialMovingAverage`` where the checkpoint has it.
        ignore_missing: leave variables alone that the checkpoint lacks.
        ignore_unexpected: accept names that only the checkpoint has; optimizer slots, averages and the global step
            are always accepted. With `include` or `exclude` nothing is unexpected.

    Returns:
        The model's names that were restored.

    Raises:
        CheckpointNamesError: names, shapes or types do not fit; nothing was changed.
        ValueError: a pattern or map matches nothing, or the file is damaged.
    """
    values = path if isinstance(path, Mapping) else read_tf1(path)
    where = f"checkpoint {getattr(values, 'path', 'given as a mapping')}"
    variables = named_variables(model)
    chosen = list(variables) if include is None else select_names(variables, include)
    if exclude is not None:
        left_out = set(select_names(chosen, exclude))
        chosen = [name for name in chosen if name not in left_out]
    renamed = _rename(variables, name_map, values)
    sources = {name: renamed[name] for name in chosen}
    if averages:
        found = {name: source + AVERAGE_SUFFIX for name, source in sources.items() if source + AVERAGE_SUFFIX in values}
        if not found:
            raise ValueError(f"{where} holds no averages (names ending in {AVERAGE_SUFFIX}); set averages=False")
        sources |= found
    missing = [
        name if name == source else f"{source} (for {name})" for name, source in sources.items() if source not in values
    ]
    present = {name: source for name, source in sources.items() if source in values}
    mismatched = [
        text
        for name, source in present.items()
        if (text := mismatch(name, variables[name], *_shape_and_type(values, source)))
    ]
    unexpected: list[str] = []
    if include is None and exclude is None:
        used = {*sources.values(), *renamed.values()}
        unexpected = [name for name in values if name not in used and not TRAINING_NAMES.search(name)]
    if mismatched or (missing and not ignore_missing) or (unexpected and not ignore_unexpected):
        raise CheckpointNamesError(where, missing, unexpected, mismatched, _REMEDY)
    if not present:
        raise CheckpointNamesError(where, missing, list(values), [], _REMEDY)
    arrays = {name: values[source] for name, source in present.items()}
    assign({name: variables[name] for name in present}, arrays, where, remedy=_REMEDY)
    return list(present)


def _resolve(path: str) -> tuple[str, str]:
    """Finds what TensorFlow has to open for a path, and its format."""
    if os.path.isdir(path):
        newest = tf.train.latest_checkpoint(path)
        if newest is None:
            raise FileNotFoundError(f"folder {path} has no `checkpoint` file that names a checkpoint; give its prefix")
        return _resolve(newest)
    prefix = re.sub(r"\.(index|data-\d{5}-of-\d{5})$", "", path)
    if os.path.isfile(prefix + ".index"):
        if not glob.glob(glob.escape(prefix) + ".data-?????-of-?????"):
            raise FileNotFoundError(f"{prefix}.index is there but its .data-00000-of-00001 file is not; copy both")
        return prefix, "v2"
    if os.path.isfile(path):
        return path, _v1_or_raise(path)
    shards = sorted(glob.glob(glob.escape(path) + "-?????-of-?????"))
    if shards:
        return path + "-?????-of-?????", _v1_or_raise(shards[0])
    raise FileNotFoundError(f"no checkpoint at {path}; give a V1 file, the prefix of a V2 checkpoint, or its folder")


def _v1_or_raise(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - len(_TABLE_MAGIC)))
        if file.read() != _TABLE_MAGIC:
            raise ValueError(f"{path} is not a TF1 checkpoint, or its end is cut off (it does not end as one)")
    return "v1"


def _rename(variables: Variables, name_map: NameMap | None, stored: Iterable[str] | None = None) -> dict[str, str]:
    """Maps each model name to its checkpoint name; a map or rule that changes nothing is an error."""
    if isinstance(name_map, Mapping):
        directed = _from_model(variables, name_map, stored)
        return {name: directed.get(name, name) for name in variables}
    renamed = {name: name for name in variables}
    for pattern, replacement in name_map or ():
        if not any(re.search(pattern, name) for name in renamed.values()):
            raise ValueError(f"name_map's regex '{pattern}' matches none of the {len(renamed)} names")
        renamed = {name: re.sub(pattern, replacement, old) for name, old in renamed.items()}
    return renamed


def _from_model(
    variables: Variables, name_map: Mapping[str, str | Variable], stored: Iterable[str] | None
) -> dict[str, str]:
    """A dict of names as model name to checkpoint name, whichever way round it was given.

    Where both ways round fit the model (names are swapped), the one that fits the checkpoint counts, else this one.
    """
    names = {id(held): name for name, variable in variables.items() for held in (variable, _value(variable))}
    pairs = [(key, value if isinstance(value, str) else names.get(id(value))) for key, value in name_map.items()]
    turned = {name: key for key, name in pairs if name is not None}
    from_model = all(key in variables and isinstance(value, str) for key, value in name_map.items())
    from_file = len(turned) == len(pairs) and turned.keys() <= variables.keys()
    if from_model and from_file and stored is not None:
        kept = set(stored)
        from_model = kept.issuperset(turned) or not kept.issuperset(turned.values())
    if from_model:
        return {key: str(name) for key, name in pairs}
    if from_file:
        return turned
    foreign = next((key for key, name in pairs if name is None), None)
    if foreign is not None:
        raise ValueError(f"name_map['{foreign}'] is neither a name nor one of the variables of the model; give one")
    if turned.keys() <= variables.keys():
        raise ValueError("name_map gives one variable two names of the checkpoint; give each variable one")
    wrong = next(key for key in name_map if key not in variables)
    raise ValueError(
        f"name_map has '{wrong}', which is no variable of the model{closest(wrong, variables)}; write model name to "
        "checkpoint name, or as for a Saver checkpoint name to variable"
    )


def _shape_and_type(values: Mapping[str, np.ndarray], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """What a tensor is, of a checkpoint without reading it."""
    if isinstance(values, TF1Checkpoint):
        return values.shapes[name], values.dtypes[name]
    return np.shape(values[name]), np.asarray(values[name]).dtype


def _value(variable: Variable) -> tf.Tensor | tf.Variable:
    return variable.value if hasattr(variable, "value") and not callable(variable.value) else variable


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
