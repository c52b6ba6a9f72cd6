"""Pictures to TFRecord files: original bytes, shuffled over all files, with a manifest."""

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import tensorflow as tf

from zoo import files
from zoo.data.images import SUFFIXES, graph_bytes, sniff
from zoo.data.scan import Picture, Scan
from zoo.data.split import SETS, split_scan
from zoo.data.tfrecord.manifest import NAME, Manifest, Shard

LAYOUTS = ("slim", "inception")
SHARD_BYTES = 128 << 20  # aimed at when no number of shards is given


def shard_name(name: str, index: int, count: int) -> str:
    """Returns the name of a file, as ``train-00000-of-00004.tfrecord``."""
    return f"{name}-{index:05d}-of-{count:05d}.tfrecord"


def make_example(data: bytes, picture: Picture, label: int, layout: str) -> bytes:
    """Packs a picture as a ``tf.train.Example``.

    Args:
        data: Encoded picture.
        picture: What the scan knows about it.
        label: The label to store, offset included.
        layout: "slim": image/encoded, format, height, width, class/label. "inception": those and colorspace,
            channels, filename, class/text, as the old Inception tools had them.

    Returns:
        The record; the same bytes for the same input.
    """
    texts = {"image/encoded": data, "image/format": (sniff(data[:32]) or "").lower().encode()}
    numbers = {"image/height": picture.height, "image/width": picture.width, "image/class/label": label}
    if layout == "inception":
        texts |= {"image/filename": Path(picture.name).name.encode(), "image/class/text": picture.label.encode()}
        texts |= {"image/format": texts["image/format"].upper(), "image/colorspace": b"RGB"}
        numbers["image/channels"] = 3
    features = {key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for key, text in texts.items()}
    for key, number in numbers.items():
        features[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def build(  # noqa: PLR0913 - a user's options
    scan: Scan,
    out: str | os.PathLike[str],
    *,
    shards: int | None = None,
    layout: str = "slim",
    label_offset: int | None = None,
    validation: float = 0.0,
    test: float = 0.0,
    seed: int = 0,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Writes the pictures of a scan as sharded TFRecord files and a manifest.

    Files hold the original bytes; about 150 bytes a picture come on top, which is below 2 % for pictures of 8 KB and
    more. A picture whose bytes TensorFlow would decode to other pixels is stored as PNG (``Manifest.converted``).

    Args:
        scan: The pictures; run ``scan.check`` first.
        out: Folder, made when missing. Files that are not zoo's are left alone.
        shards: Number of files of the largest set; one for each 128 MB by default. Other sets get their share.
        layout: "slim" or "inception", see ``make_example``.
        label_offset: Stored label minus index of the class; 0 for "slim", 1 for "inception" (0 is background there).
        validation: Share of a validation set; folders called train and validation are kept as they are.
        test: Share of a test set.
        seed: Of the split and of the order in which the pictures are written.
        workers: Files written at the same time; one a CPU by default.
        overwrite: Replace what an earlier build wrote to ``out``.
        progress: Called with (pictures written, pictures in all).

    Returns:
        The manifest, as written.

    Raises:
        FileExistsError: ``out`` has records already.
        ValueError: ``out`` holds pictures; there are none to write, an unknown layout, more files than pictures, or a
            picture that changed since the scan.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if not scan.pictures:
        raise ValueError("there are no pictures to write")
    folder = Path(out)
    old = check_folder(folder, scan.root, overwrite)
    sets = _sets(scan, validation, test, seed)
    offset = label_offset if label_offset is not None else int(layout == "inception")
    index = {label: number + offset for number, label in enumerate(scan.labels)}
    total = sum(map(len, sets.values()))
    counter, done = threading.Lock(), [0]

    def report() -> None:
        with counter:
            done[0] += 1
            if progress and (done[0] % 64 == 0 or done[0] == total):
                progress(done[0], total)

    manifest = Manifest(
        {},
        layout=layout,
        class_names=scan.labels,
        label_offset=offset,
        background=scan.background,
        orient=scan.orient,
        input_bytes=sum(picture.bytes for picture in scan.pictures),
        converted=sum(not picture.same_in_graph for picture in scan.pictures),
        fingerprint=scan.fingerprint,
        seed=seed,
    )
    jobs: list[tuple[str, Path, list[Picture]]] = []
    for name, pictures in sets.items():
        order = np.random.default_rng([seed, SETS.index(name)]).permutation(len(pictures))
        count = _shard_count(pictures, max(map(len, sets.values())), shards, manifest.input_bytes)
        parts = np.array_split(order, count)
        jobs += [
            (name, folder / shard_name(name, number, count), [pictures[i] for i in part])
            for number, part in enumerate(parts)
        ]
        labels = [index[picture.label] for picture in pictures]
        manifest.labels[name] = (min(labels), max(labels))
    with files.replacing_all([path for _, path, _ in jobs]) as unfinished:
        with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
            written = pool.map(
                lambda job, place: _write_shard(place, job[1].name, job[2], index, scan, layout, report),
                jobs,
                unfinished,
            )
            for (name, _, _), shard in zip(jobs, written, strict=True):
                manifest.sets.setdefault(name, []).append(shard)
        for path in sorted(old, key=lambda path: path.name != NAME):  # the manifest first: it lists the others
            path.unlink()
    manifest.save(folder)
    return manifest


def check_folder(out: str | os.PathLike[str], pictures: str | os.PathLike[str], overwrite: bool) -> list[Path]:
    """Looks at the folder that records are to be written to, before any work is done.

    Returns:
        The files of an earlier build.

    Raises:
        FileExistsError: There is one, and `overwrite` is False.
        ValueError: Pictures lie in ``out``: whoever trains on that folder would read the records in their place.
        NotADirectoryError: ``out`` is a file.
    """
    folder, source = Path(out), Path(pictures).resolve()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; records need a folder")
    picture = next((p for p in sorted(folder.glob("*/*")) if p.suffix.lower() in SUFFIXES), None)
    if picture or (source.is_dir() and source in (folder.resolve(), *folder.resolve().parents)):
        raise ValueError(
            f"{folder} {f'holds pictures ({picture.relative_to(folder)})' if picture else 'belongs to the pictures'}: "
            "records there would be read in their place; give another folder"
        )
    old = [p for p in folder.glob("*") if p.name == NAME or any(p.match(f"{n}-*-of-*.tfrecord") for n in SETS)]
    if old and not overwrite:
        raise FileExistsError(f"{folder} has records already ({old[0].name}); give another folder or overwrite")
    if folder.is_dir():
        files.remove_unfinished(folder)
    return old


def _sets(scan: Scan, validation: float, test: float, seed: int) -> dict[str, list[Picture]]:
    """Returns set -> pictures; sets without pictures are left out."""
    if validation or test:
        split = split_scan(scan, validation=validation, test=test, seed=seed)
        names = [split.sets[picture.sha256] for picture in scan.pictures]
    else:
        names = [picture.subset or "train" for picture in scan.pictures]
    sets: dict[str, list[Picture]] = {name: [] for name in SETS if name in names}
    for name, picture in zip(names, scan.pictures, strict=True):
        sets[name].append(picture)
    return sets


def _shard_count(pictures: Sequence[Picture], largest: int, shards: int | None, input_bytes: int) -> int:
    if shards is None:
        return min(len(pictures), max(1, math.ceil(sum(p.bytes for p in pictures) / SHARD_BYTES)))
    if not 1 <= shards <= largest:
        raise ValueError(f"{shards} files for {largest} pictures: each file needs a picture, so take 1 to {largest}")
    return max(1, math.ceil(shards * len(pictures) / largest))


def _write_shard(
    path: Path,
    name: str,
    pictures: Sequence[Picture],
    index: dict[str, int],
    scan: Scan,
    layout: str,
    report: Callable[[], None],
) -> Shard:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for picture in pictures:
            data = Path(picture.path).read_bytes()
            if sha256(data).hexdigest() != picture.sha256:
                raise ValueError(f"{picture.path} changed since the scan; scan again")
            if not picture.same_in_graph:
                data = graph_bytes(data, background=scan.background, orient=scan.orient)
            writer.write(make_example(data, picture, index[picture.label], layout))
            report()
    return Shard(name, len(pictures), path.stat().st_size, files.hash_of(path))
