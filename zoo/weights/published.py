"""Weights that others have published for zoo's networks: the table, and their download into a cache.

A download is resumed, hashed before use, and renamed only when whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import http.client
import json
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from zoo import files

_KERAS = "https://storage.googleapis.com/tensorflow/keras-applications"
_TORCH = "https://download.pytorch.org/models"
CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True)
class Source:
    """One published file of weights.

    Args:
        name: Name in zoo: the network, a dot, and who published it.
        net: The network.
        family: "keras", "slim" or "torchvision".
        url: Where it is.
        digest: What its publisher checks, as "md5:..." or "sha256:..."; a shorter SHA-256 is the beginning of the
            whole. "" where nothing was published: then the SHA-256 of the first download is kept and held to.
        size: Bytes; None where it is not known for certain.
        licence: As published.
        accuracy: Top-1 and top-5 on ImageNet in per cent, single crop, as published.
        preprocessing: Name in ``zoo.data.preprocessing.PRESETS``.
        member: The file inside the archive; "" when it is none.
        num_classes: Width of the classifier; None without one.
    """

    name: str
    net: str
    family: str
    url: str
    digest: str
    size: int | None
    licence: str
    accuracy: dict[str, float] = dataclasses.field(default_factory=dict)
    preprocessing: str = ""
    member: str = ""
    num_classes: int | None = 1000

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


def _keras(net: str, stem: str, md5: str, size: int | None, accuracy: tuple[float, float], top: bool = True) -> Source:
    return Source(
        name=f"{net}.keras" if top else f"{net}.keras_notop",
        net=net,
        family="keras",
        url=f"{_KERAS}/{stem}_weights_tf_dim_ordering_tf_kernels{'' if top else '_notop'}.h5",
        digest=f"md5:{md5}",
        size=size,
        licence="Apache-2.0" if net == "inception_v3" else "BSD-3-Clause",
        accuracy={"top1": accuracy[0], "top5": accuracy[1]},
        preprocessing="inception_keras" if net == "inception_v3" else "imagenet_keras",
        num_classes=1000 if top else None,
    )


def _torch(net: str, file: str, accuracy: tuple[float, float]) -> Source:
    return Source(
        name=f"{net}.torchvision",
        net=net,
        family="torchvision",
        url=f"{_TORCH}/{file}",
        digest=f"sha256:{file.removesuffix('.pth').rpartition('-')[2]}",
        size=None,
        licence="BSD-3-Clause",
        accuracy={"top1": accuracy[0], "top5": accuracy[1]},
        preprocessing="inception_torchvision" if net == "inception_v3" else "imagenet_torchvision",
    )


SOURCES: tuple[Source, ...] = (
    _keras("inception_v3", "inception_v3/inception_v3", "9a0d58056eeedaa3f26cb7ebd46da564", 96112376, (77.9, 93.7)),
    _keras(
        "inception_v3", "inception_v3/inception_v3", "bcbd6486424b2319ff4ef7d526e38f63", 87910968, (77.9, 93.7), False
    ),
    Source(
        name="inception_v3.slim",
        net="inception_v3",
        family="slim",
        url="https://storage.googleapis.com/download.tensorflow.org/models/inception_v3_2016_08_28.tar.gz",
        digest="",
        size=100885009,
        licence="Apache-2.0",
        accuracy={"top1": 78.0, "top5": 93.9},
        preprocessing="inception",
        member="inception_v3.ckpt",
        num_classes=1001,
    ),
    _torch("inception_v3", "inception_v3_google-0cc3c7bd.pth", (77.294, 93.450)),
    _keras("densenet121", "densenet/densenet121", "9d60b8095a5708f2dcce2bca79d332c7", 33188688, (75.0, 92.3)),
    _keras("densenet121", "densenet/densenet121", "30ee3e1110167f948a6b9946edeeb738", 29084464, (75.0, 92.3), False),
    _keras("densenet169", "densenet/densenet169", "d699b8f76981ab1b30698df4c175e90b", None, (76.2, 93.2)),
    _keras("densenet169", "densenet/densenet169", "b8c4d4c20dd625c148057b9ff1c1176b", 51877672, (76.2, 93.2), False),
    _keras("densenet201", "densenet/densenet201", "1ceb130c1ea1b78c3bf6114dbdfd8807", 82524592, (77.3, 93.6)),
    _keras("densenet201", "densenet/densenet201", "c13680b51ded0fb44dff2d8f86ac8bb1", 74836368, (77.3, 93.6), False),
    _torch("densenet121", "densenet121-a639ec97.pth", (74.434, 91.972)),
    _torch("densenet161", "densenet161-8d451a50.pth", (77.138, 93.560)),
    _torch("densenet169", "densenet169-b2777c0a.pth", (75.600, 92.806)),
    _torch("densenet201", "densenet201-c1103571.pth", (76.896, 93.370)),
)

# The names of ImageNet's 1000 classes: {"0": ["n01440764", "tench"], ...}.
IMAGENET_CLASSES = Source(
    name="imagenet.classes",
    net="",
    family="keras",
    url="https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json",
    digest="md5:c2c37ea517e94d9795004a39431a14cb",
    size=None,
    licence="Apache-2.0",
)


def list_sources(pattern: str = "*") -> list[Source]:
    """Returns the published weights whose names match a glob such as ``"inception*"``."""
    return [source for source in SOURCES if fnmatchcase(source.name, pattern)]


def find_source(name: str, net: str = "") -> Source | None:
    """Returns published weights by name, or by what they are called within a network.

    Args:
        name: ``"inception_v3.keras"``; with ``net`` also ``"keras"``, or ``"imagenet"``, which means Keras' where
            there are any and torchvision's where not.
        net: Name of the network.

    Returns:
        The source, or None when no weights are called that.
    """
    wanted = {name, f"{net}.{name}"} if net else {name}
    if name == "imagenet" and net:
        wanted = {f"{net}.keras", f"{net}.torchvision"}
    return next((source for source in SOURCES if source.name in wanted), None)


def get_source(name: str) -> Source:
    """Returns published weights by name; ValueError with the nearest names when there are none."""
    source = find_source(name)
    if source is None:
        names = [source.name for source in SOURCES]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}."
        raise ValueError(f"No published weights are called {name!r}; {hint}")
    return source


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


def _append(
    response: http.client.HTTPResponse, part: Path, have: int, total: int | None, name: str, progress: bool
) -> int:
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
def _bar(name: str, have: int, total: int | None, progress: bool) -> Iterator[Callable[[int], None]]:
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

    FetchError for a member that is a link or device or leads outside, and for an archive that is damaged or huge.
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
