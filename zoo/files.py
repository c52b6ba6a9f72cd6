"""Files: written so that nobody ever finds half of one; what a foreign one may ask for; errors that name it.

Every writer goes through ``replacing`` (or ``write_whole``): a temporary name beside the file, fsync, rename, fsync of
the folder. Nothing else in zoo does these, locks a file, or hashes one.

Every reader parses inside ``reading(path)``, compares what a file declares with what it holds (``Limits.check``) before
it allocates, and takes zip archives and JSON through ``ZipReader`` and ``read_json``. No TensorFlow is imported here.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import lzma
import os
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

PathLike = str | os.PathLike[str]
_T = TypeVar("_T")

# What parsers raise for damaged input, ValueError and OSError aside.
_DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError, AttributeError, BufferError, EOFError, LookupError, MemoryError, RuntimeError, TypeError,
    lzma.LZMAError, struct.error, tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
)  # fmt: skip
_WORDS = 300  # characters of a parser's own message that are repeated
_BLOCK = 1 << 20  # bytes that are unpacked at a time
_FAULTS = 5  # of a value's that are listed


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much one file may ask for when it is read.

    Args:
        max_bytes: Bytes that a file may unpack to or declare, whatever it holds.
        max_ratio: Bytes that may come of one stored byte: weights and pictures compress ten times at most, and zeros
            a thousand times.
        small: Bytes that any file may ask for, however little it holds.
        max_json_bytes: Size of a JSON text.
        max_json_depth: Lists and objects inside one another in a JSON text.
        max_members: Files in an archive.
        seconds: Time for a file that is read in a child process, besides a second for each 20 MB.
    """

    max_bytes: int = 8 << 30
    max_ratio: int = 100
    small: int = 64 << 20
    max_json_bytes: int = 64 << 20
    max_json_depth: int = 100
    max_members: int = 10_000
    seconds: float = 30.0

    def check(self, declared: int, held: int, path: PathLike, what: str = "its content") -> None:
        """Compares what a file declares with what it holds, before anything is allocated.

        Args:
            declared: Bytes in memory that the file asks for.
            held: Bytes that the file has for it.
            path: The file, for the message.
            what: What asks for it, such as ``"member 'model.weights.h5'"``.

        Raises:
            ValueError: It is negative, more than ``max_bytes``, or more than ``max_ratio`` times what is held (and more
                than ``small``).
        """
        if declared < 0:
            raise ValueError(f"{path} is damaged: {what} has the size {declared:,}")
        if declared > self.max_bytes:
            raise ValueError(
                f"{path} is refused: {what} asks for {declared:,} bytes, and max_bytes={self.max_bytes:,}. If the file "
                "is yours and right, read it under zoo.files.limits(max_bytes=...)."
            )
        if declared > self.small and declared > held * self.max_ratio:
            raise ValueError(
                f"{path} is refused: {what} asks for {declared:,} bytes, and the file holds only {held:,} for it; more "
                f"than {self.max_ratio} times is not believed. If the file is yours and right, read it under "
                "zoo.files.limits(max_ratio=...)."
            )


_LIMITS: contextvars.ContextVar[Limits] = contextvars.ContextVar("zoo_limits", default=Limits())  # noqa: B039 - frozen


def current_limits() -> Limits:
    """Returns the limits that readers keep to here: ``Limits()``, or what ``limits`` has set."""
    return _LIMITS.get()


@contextlib.contextmanager
def limits(**changes: Any) -> Iterator[Limits]:
    """Changes the limits of everything that is read inside, in this thread.

    Args:
        **changes: Fields of ``Limits``, as ``max_bytes=100 << 20`` for a service that takes uploads.

    Yields:
        The limits in force.
    """
    token = _LIMITS.set(dataclasses.replace(_LIMITS.get(), **changes))
    try:
        yield _LIMITS.get()
    finally:
        _LIMITS.reset(token)


@contextlib.contextmanager
def reading(path: PathLike, what: str = "", *, also: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turns whatever a parser raises for a damaged file into a ValueError that names the file.

    An OSError of the system stays one and gets the file's name; a ValueError that names the file stays as it is.

    Args:
        path: The file.
        what: What the file should be, such as ``"a Keras file"``, for the message.
        also: Exceptions of the library that reads, such as ``SafetensorError``.

    Raises:
        ValueError: The file is damaged, or of another kind.
        OSError: The system could not read it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None and not _names(error, path):
            raise _damaged(path, what, error) from error
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
    except ValueError as error:
        if _names(error, path):
            raise
        raise _damaged(path, what, error) from error
    except (*_DAMAGE, *also) as error:
        raise _damaged(path, what, error) from error


def _names(error: Exception, path: PathLike) -> bool:
    return os.fspath(path) in str(error)


def _damaged(path: PathLike, what: str, error: Exception) -> ValueError:
    if isinstance(error, ValueError) and str(error):
        return ValueError(f"{path} cannot be read{f' as {what}' if what else ''}: {error}")
    said = " ".join(str(error).split())[:_WORDS]
    kind = "" if isinstance(error, OSError) and said else type(error).__name__
    cause = ": ".join(text for text in (kind, said) if text)
    return ValueError(f"{path} is damaged{f', or it is not {what}' if what else ''} ({cause})")


def parse_json(text: str | bytes, path: PathLike) -> Any:
    """Parses JSON of bounded size and depth.

    Args:
        text: The JSON text; bytes are UTF-8.
        path: The file that it comes from, for messages.

    Returns:
        The value.

    Raises:
        ValueError: It is too long or too deep, or no JSON; the message names the file.
    """
    limit = current_limits()
    if len(text) > limit.max_json_bytes:
        raise ValueError(f"{path} is refused: {len(text):,} bytes of JSON, and max_json_bytes={limit.max_json_bytes:,}")
    with reading(path, "JSON"):
        value = json.loads(text)
    level, depth = [value], 0
    while level:
        if depth > limit.max_json_depth:
            raise ValueError(f"{path} is refused: its JSON is nested more than {limit.max_json_depth} deep")
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
    return value


def read_json(path: PathLike) -> Any:
    """Reads a JSON file of bounded size and depth.

    Args:
        path: The file.

    Returns:
        The value.

    Raises:
        OSError: It is not there, or cannot be read.
        ValueError: It is too long or too deep, or no JSON; the message names the file.
    """
    with Path(path).open("rb") as file:
        return parse_json(file.read(current_limits().max_json_bytes + 1), path)


def validated(kind: type[_T], value: Any, path: PathLike) -> _T:
    """Checks a value of a file against a type, and converts it, by pydantic.

    Args:
        kind: A class, such as a dataclass with types.
        value: What the file says, as JSON gives it.
        path: The file, for messages.

    Returns:
        The value as that type.

    Raises:
        ValueError: Fields are missing or of other types; the message names the file, the fields and what they were.
    """
    import pydantic

    try:
        return cast(_T, _adapter(cast(Any, kind)).validate_python(value))
    except pydantic.ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']} (received {str(fault['input'])[:80]!r})"
            for fault in error.errors(include_url=False)
        ]
        more = f" and {len(wrong) - _FAULTS} more" if len(wrong) > _FAULTS else ""
        raise ValueError(f"{path} cannot be read: {'; '.join(wrong[:_FAULTS])}{more}") from error


@functools.lru_cache(maxsize=64)
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)


def read_versioned(path: PathLike, version: int, what: str) -> dict[str, Any]:
    """Reads a JSON object that zoo wrote with its version under ``format``.

    Args:
        path: The file.
        version: The version that is read.
        what: What the file should be, such as ``"a saved split"``, for messages.

    Returns:
        The object without ``format``.

    Raises:
        OSError: It is not there, or cannot be read.
        ValueError: It is no such object, or of another version.
    """
    value = read_json(path)
    if not isinstance(value, dict) or "format" not in value:
        raise ValueError(f"{path} is not {what}: it is no JSON object with a format")
    if (found := value.pop("format")) != version:
        newer = "; update zoo" if isinstance(found, int) and found > version else ""
        raise ValueError(f"{path} is not {what} of this version: format {found!r:.80}, it reads {version}{newer}")
    return value


class BoundedStream:
    """A stream of unpacked bytes that ends in an error where it gives more than its file is believed to hold.

    Args:
        stream: What unpacks, such as ``gzip.open(path)``.
        path: The packed file.
    """

    def __init__(self, stream: Any, path: PathLike) -> None:
        self._stream, self._path = stream, path
        self._held, self._count = os.path.getsize(path), 0

    def read(self, size: int = -1) -> bytes:
        """Returns the next ``size`` bytes, or all for -1; fewer at the end.

        Raises:
            ValueError: So much is not believed of a file of this size, see ``Limits``.
        """
        parts, left = [], size
        while left and (block := self._stream.read(min(left, _BLOCK) if left > 0 else _BLOCK)):
            parts.append(block)
            left -= len(block) if left > 0 else 0
            self._count += len(block)
            current_limits().check(self._count, self._held, self._path, "what it unpacks to")
        return b"".join(parts)


class ZipReader:
    """A zip archive whose members are read whole, and only when their declared size is believed.

    Args:
        path: The archive.

    Raises:
        OSError: It is not there, or cannot be read.
        ValueError: It is no zip archive or damaged, has too many members or one name twice, or unpacks to too much.
    """

    def __init__(self, path: PathLike) -> None:
        self.path, limit = path, current_limits()
        held = os.path.getsize(path)
        with reading(path, "a zip archive"):
            self._archive = zipfile.ZipFile(path)
        try:
            members = self._archive.infolist()
            self.sizes = {member.filename: member.file_size for member in members}
            if len(members) > limit.max_members:
                raise ValueError(f"{path} is refused: {len(members):,} members, and max_members={limit.max_members:,}")
            if len(self.sizes) < len(members):
                raise ValueError(f"{path} is refused: it has two members of one name")
            limit.check(sum(self.sizes.values()), held, path, "all its members together")
        except BaseException:
            self.close()
            raise

    def read(self, name: str) -> bytes:
        """Returns a member's bytes, whose checksum was compared.

        Raises:
            ValueError: There is no such member, it is damaged or encrypted, or asks for too much.
        """
        with reading(self.path, "a zip archive of this kind"):
            member = self._archive.getinfo(name)
            current_limits().check(member.file_size, member.compress_size, self.path, f"member {name!r}")
            content = self._archive.read(member)
            if len(content) != member.file_size:
                raise ValueError(f"member {name!r} holds {len(content):,} bytes and declares {member.file_size:,}")
        return content

    def close(self) -> None:
        """Closes the archive."""
        self._archive.close()

    def __enter__(self) -> ZipReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_NUMBERS = itertools.count()
_UNFINISHED = re.compile(r"\..+\.(\d+)-\d+\.unfinished(\.[\w.-]+)?")


def temporary_name(path: PathLike, ending: str = "") -> Path:
    """Returns a hidden name beside a file to write it under; no other process or thread gets the same.

    Args:
        path: The file.
        ending: What the name must end with, for libraries that go by it.
    """
    path = Path(path)
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_NUMBERS)}.unfinished{ending}")


def remove_unfinished(folder: PathLike) -> None:
    """Deletes what processes that are no more left under temporary names in a folder."""
    for path in Path(folder).glob(".*.unfinished*"):
        found = _UNFINISHED.fullmatch(path.name)
        if found and not _lives(int(found[1])):
            remove(path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def remove(path: PathLike) -> None:
    """Deletes a file or a folder with all that is in it; nothing where there is none, or it cannot be deleted."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def sync(path: PathLike) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(temporary: PathLike, path: PathLike) -> None:
    """Renames a file that was written under a temporary name to its own; it survives a power cut."""
    sync(temporary)
    os.replace(temporary, path)
    sync(Path(path).parent)


@contextlib.contextmanager
def replacing(path: PathLike, ending: str = "") -> Iterator[Path]:
    """Gives a temporary name to write a file under, and renames it at the end.

    At every moment the file is absent, the old one, or the new one whole. When the body fails, nothing is left.

    Args:
        path: The file; its folder is made.
        ending: What the temporary name must end with, for libraries that go by it.

    Yields:
        The temporary name.
    """
    with replacing_all([path], ending) as (temporary,):
        yield temporary


@contextlib.contextmanager
def replacing_all(paths: Sequence[PathLike], ending: str = "") -> Iterator[list[Path]]:
    """As ``replacing``, for files that belong together: none is renamed before all are written.

    Args:
        paths: The files.
        ending: What the temporary names must end with.

    Yields:
        The temporary names, in the same order.
    """
    temporary = [temporary_name(path, ending) for path in paths]
    try:
        for path in paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        for source, path in zip(temporary, paths, strict=True):
            put(source, path)
    except BaseException:
        for source in temporary:
            remove(source)
        raise


def write_whole(path: PathLike, content: str | bytes) -> None:
    """Writes a file whole or not at all, and flushes it to the disk.

    Args:
        path: The file; its folder is made, and a file that is there is replaced.
        content: The bytes, or a text, which is stored as UTF-8.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing_folder(path: PathLike) -> Iterator[Path]:
    """Gives a temporary folder to fill, and puts it in the place of another at the end.

    Two renames do that: a process that is killed between them leaves the old folder under a temporary name.

    Args:
        path: The folder; one that is there is replaced.

    Yields:
        The temporary folder, which is there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = temporary_name(path), temporary_name(path)
    try:
        temporary.mkdir()
        yield temporary
        for folder, _, names in os.walk(temporary, topdown=False):
            for name in names:
                sync(os.path.join(folder, name))
            sync(folder)
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        if old.exists() and not path.exists():
            os.replace(old, path)
        remove(temporary)
        raise
    remove(old)


def lock(path: PathLike, busy: str | None = None) -> TextIO:
    """Locks a file, which is made, for this process; the lock goes when it is closed or the process ends, however.

    Args:
        path: The file.
        busy: What to say when another process holds it; None waits for it.

    Returns:
        The open file; use it in ``with``, or close it.

    Raises:
        BlockingIOError: Another process holds it, and `busy` is given.
    """
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as it is locked
    try:
        fcntl.flock(file, fcntl.LOCK_EX if busy is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise BlockingIOError(busy) from error
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def locked(path: PathLike, busy: str | None = None) -> Iterator[None]:
    """Holds the lock on a file, see ``lock``, and deletes the file at the end, so that nothing is left of it."""
    while True:
        file = lock(path, busy)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                break
        file.close()  # the one before deleted it while this one waited
    with file:
        try:
            yield
        finally:
            remove(path)


def hash_of(path: PathLike, kind: str = "sha256") -> str:
    """Returns a file's hash in hexadecimal.

    Args:
        path: The file.
        kind: A name that ``hashlib`` knows.
    """
    digest = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def refuse_existing(option: str, paths: Sequence[PathLike], overwrite: bool) -> None:
    """Raises where an output would be written over something, before any work is done.

    Args:
        option: What named the outputs, as ``"--out"``.
        paths: The files that would be written.
        overwrite: Whether files that are there may be replaced.

    Raises:
        FileExistsError: A file is there, and `overwrite` is False.
        ValueError: A folder or a device is there, or two outputs are one file.
    """
    places = [Path(path) for path in paths]
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError(f"{option} two outputs have one name, {os.fspath(places[0])!r}; give each its own")
    for place in places:
        if place.exists() and not place.is_file():
            raise ValueError(f"{option} {place} is no file, but {'a folder' if place.is_dir() else 'a device'}")
        if place.exists() and not overwrite:
            raise FileExistsError(f"{option} {place} is there already; give another name, or --overwrite to replace it")
        above = next(folder for folder in place.absolute().parents if folder.exists())
        if not above.is_dir():
            raise NotADirectoryError(f"{option} {place}: {above} is no folder")
        if not os.access(above, os.W_OK):
            raise PermissionError(f"{option} {place}: {above} cannot be written")
        remove_unfinished(above)
