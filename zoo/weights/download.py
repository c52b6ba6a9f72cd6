"""Downloads published weights into a cache: resumed, hashed before use, and renamed only when whole."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import http.client
import json
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from zoo import files
from zoo.weights.sources import SOURCES, Source, get_source

CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True)
class _Record:
    """What is kept beside a download."""

    sha256: str


class FetchError(OSError):
    """A download did not succeed; the message says why and what to do. Nothing half-written is left in place."""


def cache_folder() -> Path:
    """Returns where downloads are kept: ``$ZOO_HOME``, or ``zoo`` in the user's cache folder."""
    home = os.environ.get("ZOO_HOME")
    if home:
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zoo"


def fetch(
    source: str | Source, *, folder: str | os.PathLike[str] | None = None, progress: bool = True, timeout: float = 30.0
) -> Path:
    """Returns the path of published weights, downloading them the first time; safe in several processes at once.

    Args:
        source: A name of ``zoo weights list``, or a ``Source``.
        folder: Cache folder; None is ``cache_folder()``.
        progress: Shows a bar on the terminal.
        timeout: Seconds to wait for the server at a time.

    Returns:
        The file; of an archive, the file inside that the source names. Its hash was checked just now.

    Raises:
        FetchError: No network, no such file, cut short, another hash than published, or the disk is full.
        ValueError: No weights of that name.
    """
    source = get_source(source) if isinstance(source, str) else source
    place = Path(folder or cache_folder()) / "weights" / source.name
    target = place / source.file_name
    with _full_disk_explained(place):
        place.mkdir(parents=True, exist_ok=True)
        with files.lock(place / "lock"):
            if not target.is_file():
                _download(source, target, progress, timeout)
            _check_again(source, target)
            if not source.member:
                return target
            return _unpacked(target, place / "unpacked", source.member)


def verify(folder: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Hashes every downloaded file again.

    Args:
        folder: Cache folder; None is ``cache_folder()``.

    Returns:
        Name of the source to "ok", or to what is wrong; sources that were never fetched are left out.
    """
    results = {}
    for source in SOURCES:
        target = Path(folder or cache_folder()) / "weights" / source.name / source.file_name
        if target.is_file():
            try:
                _check_again(source, target)
                results[source.name] = "ok"
            except FetchError as error:
                results[source.name] = str(error)
    return results


def _download(source: Source, target: Path, progress: bool, timeout: float) -> None:
    """Downloads to ``.part``, goes on where an earlier try stopped, checks the hash and renames."""
    part = target.with_name(target.name + ".part")
    resumed = part.is_file() and part.stat().st_size > 0
    _receive(source, part, progress, timeout)
    wrong = _wrong_hash(source, part)
    if wrong and resumed:  # the earlier part may be of another version: once more from the start
        part.unlink()
        _receive(source, part, progress, timeout)
        wrong = _wrong_hash(source, part)
    if wrong:
        part.unlink()
        raise FetchError(f"{source.url} is not the published file, and was deleted: {wrong}")
    record = {"url": source.url, "sha256": files.hash_of(part), "size": part.stat().st_size}
    files.write_whole(target.with_name(target.name + ".json"), json.dumps(record, indent=1))
    part.with_suffix(".etag").unlink(missing_ok=True)
    files.put(part, target)


def _receive(source: Source, part: Path, progress: bool, timeout: float) -> None:
    """Asks for what is missing of a ``.part`` file and appends it."""
    have = part.stat().st_size if part.is_file() else 0
    etag = part.with_suffix(".etag")
    request = urllib.request.Request(source.url, headers={"User-Agent": "scoped-zoo"})
    if have and (source.digest or etag.is_file()):
        request.add_header("Range", f"bytes={have}-")
        if etag.is_file():
            request.add_header("If-Range", etag.read_text(encoding="utf-8"))
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if response.status != 206 or not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                have = 0
            validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
            if validator:
                files.write_whole(etag, validator)
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else source.size
            have = _append(response, part, have, total, source.name, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is missing any more, or the file has changed: the hash tells
            return
        raise FetchError(
            f"The server answers {error.code} {error.reason} for {source.url}; the file may have moved: download it by "
            "hand and give its path"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        reason = getattr(error, "reason", None) or error
        raise FetchError(
            f"No answer from {source.url} ({reason}): check the network, or copy the file to {part.with_suffix('')}"
        ) from error
    if total is not None and have != total:
        raise FetchError(
            f"{source.url} was cut short: {have:,} of {total:,} bytes came. They are kept: run it again to go on"
        )


def _append(response: Any, part: Path, have: int, total: int | None, name: str, progress: bool) -> int:
    with part.open("r+b" if have else "wb") as file, _bar(name, have, total, progress) as advance:
        file.seek(have)
        file.truncate()
        while chunk := response.read(CHUNK):
            file.write(chunk)
            have += len(chunk)
            advance(len(chunk))
        file.flush()
    return have


@contextlib.contextmanager
def _bar(name: str, have: int, total: int | None, progress: bool) -> Iterator[Any]:
    """A progress bar on the error stream when it is a terminal; gives the function that moves it."""
    if not progress or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, completed=have)
        yield lambda count: bar.advance(task, count)


def _check_again(source: Source, target: Path) -> None:
    """Holds a file in the cache to its publisher's hash, and to the SHA-256 of its first download."""
    manifest = target.with_name(target.name + ".json")
    wrong = _wrong_hash(source, target)
    if not wrong and manifest.is_file():
        known = files.validated(_Record, files.read_json(manifest), manifest).sha256
        found = files.hash_of(target)
        wrong = "" if found == known else f"its SHA-256 is {found}, at its download it was {known}"
    if wrong:
        raise FetchError(f"{target} was damaged or changed: {wrong}. Delete it and fetch it again")


def _wrong_hash(source: Source, path: Path) -> str:
    """What is wrong with a file's size or published hash; "" when nothing is."""
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        return f"it has {size:,} bytes, published are {source.size:,}"
    if not source.digest:
        return ""
    kind, _, published = source.digest.partition(":")
    found = files.hash_of(path, kind)
    return "" if found.startswith(published) else f"its {kind} is {found}, published is {published}"


def _unpacked(archive: Path, folder: Path, member: str) -> Path:
    """Unpacks a tar archive beside itself the first time; only plain files and folders below it are taken."""
    if not (folder / member).is_file():
        with files.replacing_folder(folder) as temporary:
            unpack(archive, temporary)
            if not (temporary / member).is_file():
                held = sorted(path.name for path in temporary.rglob("*") if path.is_file())
                raise FetchError(f"{archive} does not hold {member}; it holds {', '.join(held[:5])}")
    return folder / member


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a tar archive of plain files; anything that could write elsewhere is refused before a byte is written.

    Args:
        archive: A ``.tar``, ``.tar.gz``, ... file.
        folder: Where to; made when it is not there.

    Raises:
        FetchError: A member is a link or device, or has a path that leads outside; or the archive is damaged or huge.
    """
    try:
        with files.reading(archive, "a tar archive"), tarfile.open(archive) as tar:
            members, total = [], 0
            for member in tar:
                members.append(member)
                total += member.size
                files.current_limits().check(total, archive.stat().st_size, archive, "what it unpacks to")
                path = PurePosixPath(member.name)
                if (
                    path.is_absolute()
                    or ".." in path.parts
                    or "\\" in member.name
                    or not (member.isreg() or member.isdir())
                ):
                    raise FetchError(
                        f"{archive} is refused: its member {member.name!r} is a link or leads outside its folder"
                    )
            for member in members:
                to = folder / member.name
                if member.isdir():
                    to.mkdir(parents=True, exist_ok=True)
                    continue
                to.parent.mkdir(parents=True, exist_ok=True)
                stored = tar.extractfile(member)
                with to.open("wb") as file:
                    shutil.copyfileobj(stored, file)  # type: ignore[arg-type]
    except ValueError as error:
        raise FetchError(str(error)) from error


@contextlib.contextmanager
def _full_disk_explained(place: Path) -> Iterator[None]:
    """Turns a full disk into a clear error, and gives back the space of the unfinished download."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        for part in place.glob("*.part"):
            part.unlink(missing_ok=True)
        raise FetchError(
            f"The disk with {place} is full; the unfinished download was removed. Make room, or set ZOO_HOME to "
            "another disk"
        ) from error
