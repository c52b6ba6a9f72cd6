"""HDF5 files that others wrote, read in a child process: one that crashes libhdf5 ends the child and not its caller.

``read_h5`` starts ``python -m zoo.hdf5`` (h5py and NumPy, no TensorFlow). The child looks at everything that the file
declares before it reads a value, follows no link and no data outside the file, keeps to limits of time and memory, and
hands over plain arrays. ``clean_copy`` writes them again for libraries that open HDF5 themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from zoo.files import Limits, PathLike, ZipReader, current_limits, limits, read_json, reading

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MEMBER = "model.weights.h5"  # the HDF5 file inside a .keras archive
_KINDS = "fiubcSV"  # NumPy's letters of the types that weights have; V2 is bfloat16
_ERROR = (1 << 64) - 1  # in place of a data set's length: a message follows
_OVERHEAD = 1 << 30  # bytes of address space that the child may use besides the data
_RATE = 20 << 20  # bytes a second that any disk reads
_OBJECTS_PER_MEMBER = 10  # groups and data sets that a file may have, as a multiple of an archive's members


@dataclasses.dataclass
class H5Content:
    """What an HDF5 file holds.

    Args:
        path: The file.
        arrays: Full name of a data set to its values, in the file's order.
        attrs: Full name of every group and data set to its attributes; "" is the root.
    """

    path: str
    arrays: dict[str, np.ndarray]
    attrs: dict[str, dict[str, Any]]

    def names(self, key: str, group: str = "") -> list[str] | None:
        """A list of names in a group's attribute, which Keras splits when it is long; None when there is none."""
        found = self.attrs.get(group, {})
        parts = [found[key]] if key in found else []
        while f"{key}{len(parts)}" in found:
            parts.append(found[f"{key}{len(parts)}"])
        if not parts:
            return None
        items = [item for part in parts for item in np.asarray(part).reshape(-1).tolist()]
        return [item.decode() if isinstance(item, bytes) else str(item) for item in items]

    def text(self, key: str) -> str | None:
        """A text in an attribute of the root; None when there is none."""
        value = self.attrs[""].get(key)
        return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else None


def read_h5(path: PathLike) -> H5Content:
    """Reads an HDF5 file, or the one inside a ``.keras`` archive, in a child process.

    Args:
        path: The file.

    Returns:
        All its data sets and attributes.

    Raises:
        OSError: It is not there, or cannot be read.
        ValueError: It is damaged, leads to other files, declares more than it holds or than ``zoo.files.Limits`` allow,
            or reading it crashed or took too long. The message names the file.
    """
    where, limit = os.path.abspath(path), current_limits()
    with open(where, "rb"):  # a missing file is said by the system
        pass
    seconds = limit.seconds + os.path.getsize(where) / _RATE
    command = [sys.executable, "-m", "zoo.hdf5", where, json.dumps(dataclasses.asdict(limit)), str(seconds)]
    folders = dict.fromkeys([str(Path(__file__).parents[1]), *(os.path.abspath(p) for p in sys.path if p)])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OPENBLAS_NUM_THREADS": "1"}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, **streams, stderr=errors, cwd="/", env=environment) as child,
    ):
        started = time.monotonic()
        timer = threading.Timer(seconds, child.kill)
        timer.start()
        try:
            with reading(path, "an HDF5 file"):
                content = _receive(child.stdout, os.fspath(path), limit)  # type: ignore[arg-type]
        except _Ended:
            code, late = child.wait(), time.monotonic() - started >= seconds
            errors.seek(0)
            said = errors.read(4000).decode(errors="replace").strip()
            raise ValueError(_how_it_ended(path, code, seconds if late else 0, said)) from None
        finally:
            timer.cancel()
            child.kill()
    return content


@contextlib.contextmanager
def clean_copy(path: PathLike) -> Iterator[str]:
    """Gives a copy of an HDF5 file that zoo wrote from what ``read_h5`` found, for a library that opens it itself.

    Args:
        path: A ``.weights.h5``, ``.h5`` or ``.keras`` file (of which the weights are taken), or the ``.weights.json``
            that lists the parts of weights.

    Yields:
        The copy, under the same name (``.weights.h5`` for ``.keras``); removed at the end.

    Raises:
        OSError: The file is not there, or cannot be read.
        ValueError: As ``read_h5``.
    """
    name = os.path.basename(os.fspath(path)).removesuffix(".keras")
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        copy = Path(folder) / name
        if name.endswith(".json"):
            index = read_json(path)
            with reading(path, "an index of Keras' weights"):
                parts = {part for value in index["weight_map"].values() for part in np.atleast_1d(value).tolist()}
            for part in sorted(parts):
                if not isinstance(part, str) or os.path.basename(part) != part:
                    raise ValueError(f"{path} names the part {part!r}, which is no file beside it")
                write_h5(read_h5(Path(path).parent / part), Path(folder) / part)
            copy.write_text(json.dumps(index), encoding="utf-8")
        else:
            copy = copy if name.endswith((".h5", ".hdf5")) else copy.with_name(f"{name}.weights.h5")
            write_h5(read_h5(path), copy)
        yield str(copy)


def write_h5(content: H5Content, path: PathLike) -> None:
    """Writes what ``read_h5`` found to a new file."""
    import h5py

    with h5py.File(path, "w", libver="latest") as file:
        for name, attrs in content.attrs.items():
            if name in content.arrays:
                item = file.create_dataset(name, data=content.arrays[name])
            else:
                item = file.require_group(name) if name else file
            for key, value in attrs.items():
                item.attrs[key] = value


# ---- the parent's side of the pipe ----------------------------------------------------------------------------------


class _Ended(Exception):  # noqa: N818 - never seen outside
    """The child ended before it had said everything."""


def _how_it_ended(path: PathLike, code: int, late: float, said: str) -> str:
    if late:
        return f"{path} is refused: reading it took more than {late:.0f} seconds (zoo.files.limits(seconds=...))"
    if code < 0:
        return f"{path} is damaged: libhdf5 crashed on it (signal {-code}), in a process of its own"
    return f"{path} could not be read: the process that reads HDF5 ended with {code}: {said[-300:] or 'no message'}"


def _receive(stream: IO[bytes], path: str, limit: Limits) -> H5Content:
    """Reads what ``_send`` writes; the child is not believed: sizes are checked once more."""
    size = _length(stream, path, limit)
    if size > limit.max_json_bytes:
        raise ValueError(f"its names and attributes take {size:,} bytes, and max_json_bytes={limit.max_json_bytes:,}")
    header = json.loads(_exactly(stream, size))
    arrays: dict[str, np.ndarray] = {}
    total = 0
    for name, dtype, shape in header["sets"]:
        kind = np.dtype(dtype)
        size = _length(stream, path, limit)
        total += size
        limit.check(total, total, path)
        if kind.hasobject or size != math.prod(shape) * kind.itemsize:
            raise ValueError(f"data set {name!r} came as {size:,} bytes for {dtype} of shape {shape}")
        arrays[name] = np.empty(shape, kind)
        if size:
            _fill(stream, arrays[name].reshape(-1).view(np.uint8).data)
    attrs = {name: {key: _decoded(value) for key, value in found.items()} for name, found in header["attrs"].items()}
    return H5Content(path, arrays, attrs)


def _length(stream: IO[bytes], path: str, limit: Limits) -> int:
    size = struct.unpack("<Q", _exactly(stream, 8))[0]
    if size == _ERROR:
        said = _exactly(stream, min(struct.unpack("<Q", _exactly(stream, 8))[0], limit.max_json_bytes))
        raise ValueError(said.decode(errors="replace"))
    return int(size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise _Ended
    return found


def _fill(stream: IO[bytes], target: memoryview) -> None:
    while target:
        count = stream.readinto(target)  # type: ignore[attr-defined]
        if not count:
            raise _Ended
        target = target[count:]


def _encoded(value: Any) -> Any:
    """An attribute's value in JSON; raises TypeError for what Keras writes none of."""
    if isinstance(value, str):
        return ["text", value.encode("utf-8").decode("utf-8")]  # surrogates, which are no text, raise
    if isinstance(value, bytes):
        return ["bytes", value.decode("latin-1")]
    array = np.asarray(value)
    if array.dtype.hasobject:
        items = array.reshape(-1).tolist()
        if not all(isinstance(item, str | bytes) for item in items):
            raise TypeError(f"an attribute of type {array.dtype}")
        return ["texts", array.shape, [_encoded(item) for item in items]]
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"an attribute of type {array.dtype}")
    return ["array", array.dtype.str, array.shape, array.tobytes().decode("latin-1")]


def _decoded(value: Any) -> Any:
    kind, *rest = value
    if kind == "text":
        return rest[0]
    if kind == "bytes":
        return rest[0].encode("latin-1")
    if kind == "texts":
        items = np.empty(len(rest[1]), object)
        items[:] = [_decoded(item) for item in rest[1]]
        return items.reshape(rest[0])
    dtype, shape, content = rest
    return np.frombuffer(content.encode("latin-1"), np.dtype(dtype)).reshape(shape).copy()[()]


# ---- the child ------------------------------------------------------------------------------------------------------


def _main() -> None:
    """What ``python -m zoo.hdf5 PATH LIMITS SECONDS`` does: everything in the file, to the standard output."""
    path, limit, seconds = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
    out = sys.stdout.buffer
    with limits(**limit):
        try:
            import h5py

            with reading(path, "an HDF5 file"):
                source, size = _source(path)
                _bound_this_process(size, seconds)
                with h5py.File(source, "r") as file:
                    _send(file, path, size, out)
        except (OSError, ValueError) as error:
            said = str(error).encode(errors="replace")
            out.write(struct.pack("<QQ", _ERROR, len(said)) + said)
    out.flush()


def _source(path: str) -> tuple[Any, int]:
    """What h5py opens, and how many bytes it has."""
    with open(path, "rb") as file:
        if file.read(len(SIGNATURE)) == SIGNATURE or not zipfile.is_zipfile(path):
            return path, os.path.getsize(path)
    with ZipReader(path) as archive:
        content = archive.read(MEMBER)
    return io.BytesIO(content), len(content)


def _bound_this_process(size: int, seconds: float) -> None:
    """Limits address space, time and dumps of this process."""
    import resource

    limit = current_limits()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = used + _OVERHEAD + 2 * min(limit.max_bytes, max(limit.small, size * limit.max_ratio))
    for what, value in (
        (resource.RLIMIT_AS, most),
        (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _send(file: Any, path: str, size: int, out: IO[bytes]) -> None:
    """Writes the names and attributes as JSON, then each data set's length and bytes."""
    import h5py

    attrs: dict[str, dict[str, Any]] = {}
    sets: list[Any] = []
    declared = held = 0
    for name, item in _walk(file, path):
        attrs[name] = _attributes(item, name, path)
        if isinstance(item, h5py.Dataset):
            nbytes, stored = _believed(item, name, path, size)
            declared, held = declared + nbytes, held + stored
            sets.append(item)
    if held > size:
        raise ValueError(f"{path} is damaged: its data sets claim {held:,} bytes of a file of {size:,}")
    current_limits().check(declared, held, path, "all its data sets together")
    listed = [[item.name.strip("/"), item.dtype.str, item.shape] for item in sets]
    header = json.dumps({"attrs": attrs, "sets": listed}).encode()
    out.write(struct.pack("<Q", len(header)) + header)
    for item in sets:
        array = np.ascontiguousarray(item[()])
        out.write(struct.pack("<Q", array.nbytes))
        if array.nbytes:
            out.write(array.reshape(-1).view(np.uint8).data)


def _walk(file: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every group and data set by its full name; an object that is linked twice, and every other link, is refused."""
    import h5py

    most = _OBJECTS_PER_MEMBER * current_limits().max_members
    depth = current_limits().max_json_depth
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", file)]
    while waiting:
        name, item = waiting.pop()
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            raise ValueError(f"{path}: {name} is a second link to the same data, which zoo does not follow")
        seen.add(address)
        if len(seen) > most or name.count("/") > depth:
            raise ValueError(f"{path} is refused: more than {most:,} groups and data sets, or more than {depth} deep")
        yield name, item
        if isinstance(item, h5py.Group):
            inside = []
            for key in item:
                full = f"{name}/{key}" if name else key
                if not isinstance(item.get(key, getlink=True), h5py.HardLink):
                    raise ValueError(f"{path}: {full} is a link, which zoo does not follow")
                child = item[key]
                if not isinstance(child, h5py.Group | h5py.Dataset):
                    raise ValueError(f"{path}: {full} is neither a group nor a data set")
                inside.append((full, child))
            waiting += reversed(inside)


def _attributes(item: Any, name: str, path: str) -> dict[str, Any]:
    import h5py

    found: dict[str, Any] = {}
    for key in item.attrs:
        stored = h5py.h5a.open(item.id, key.encode())
        most = current_limits().max_json_bytes
        if math.prod(stored.shape or ()) * stored.dtype.itemsize > most:
            raise ValueError(f"{path} is refused: attribute {key!r} of {name!r} is larger than {most:,} bytes")
        value = item.attrs[key]
        if not isinstance(value, h5py.Empty):
            found[key] = _encoded(value)
    return found


def _believed(item: Any, name: str, path: str, size: int) -> tuple[int, int]:
    """The bytes that a data set declares and those stored for it, when they go together and lie in the file."""
    if item.external or item.is_virtual:
        raise ValueError(f"{path}: {name} keeps its data in another file, which zoo does not open")
    if item.shape is None or item.dtype.kind not in _KINDS or item.dtype.fields:
        raise ValueError(f"{path}: {name} is of type {item.dtype}, which no weights have")
    declared, stored = math.prod(item.shape) * item.dtype.itemsize, item.id.get_storage_size()
    filtered = item.chunks is not None and item.id.get_create_plist().get_nfilters()
    if stored > size or (declared > stored and not (filtered and stored)):
        raise ValueError(
            f"{path} is refused: {name} declares {declared:,} bytes (shape {list(item.shape)}), of which the file "
            f"holds {min(stored, size):,}: it was cut, or never written"
        )
    limit = current_limits()
    limit.check(declared, stored, path, f"data set {name!r}")
    if item.chunks is not None:
        limit.check(math.prod(item.chunks) * item.dtype.itemsize, stored, path, f"a part of data set {name!r}")
    return declared, stored


if __name__ == "__main__":
    _main()
