"""The stage of features: pictures read in parallel, run through the trunk in batches, pooled and kept in the cache."""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.data import pluralize
from zoo.data.images import ImageError
from zoo.nets.retrained import ROOT_SHIFT, pooled
from zoo.transfer.bottlenecks import BottleneckCache
from zoo.transfer.reader import Reader
from zoo.transfer.scan import Scanned
from zoo.transfer.select import combinations
from zoo.transfer.settings import Job
from zoo.transfer.trunk import Trunk, load_trunk
from zoo.weights.published import cache_folder

Progress = Callable[[int, int], None]
Pooled = dict[str, np.ndarray]  # end point -> float32 [N, C]


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Where the features come from.

    Args:
        trunk: The trained network.
        reader: How pictures are read for it.
        candidates: The combinations of end points that a head may read.
    """

    trunk: Trunk
    reader: Reader
    candidates: list[tuple[str, ...]]

    @property
    def end_points(self) -> list[str]:
        """The end points to be pooled, once each."""
        return list(dict.fromkeys([*itertools.chain(*self.candidates), self.trunk.detail]))


@dataclasses.dataclass(frozen=True)
class Extracted:
    """The features of all pictures, in the cache; ``extractor`` makes those of further views."""

    extractor: "Extractor"
    rows: "Rows"


def load_backbone(job: Job) -> Backbone:
    """Loads the trunk and says what a head may read of it.

    Raises:
        ValueError: ``bottleneck`` names no end point of the trunk; the message lists them.
    """
    chosen = job.settings
    trunk = load_trunk(chosen.net, chosen.weights, size=chosen.size, options=chosen.net_options, seed=chosen.seed)
    reader = Reader(trunk.preprocessing, chosen.background, chosen.orient, chosen.fit)
    if chosen.bottleneck == "auto":
        return Backbone(trunk, reader, combinations(trunk.offered()))
    names = tuple(trunk.bottleneck if name == "final" else name for name in chosen.bottleneck.split("+"))
    if any(name not in trunk.end_points for name in names) or len(set(names)) < len(names):
        raise ValueError(
            f"--bottleneck is auto, final, or different end points joined by '+', of {', '.join(trunk.end_points)}. "
            f"Received: {chosen.bottleneck!r}"
        )
    return Backbone(trunk, reader, [names])


def extract(job: Job, backbone: Backbone, scanned: Scanned) -> Extracted:
    """Sees to it that the features of all pictures are in the cache."""
    trunk, files = backbone.trunk, scanned.files
    about = f"{trunk.net}, {trunk.source}, {trunk.model.count_params():,} parameters"
    job.tell(f"trunk: {about}, pictures of {trunk.size[0]} x {trunk.size[1]}")
    extractor = Extractor(trunk, backbone.reader, job.cache, batch_size=job.batch_size, workers=job.workers)
    rows = extractor.features(files, backbone.end_points, progress=functools.partial(job.progress, "bottlenecks"))
    job.tell(f"bottlenecks: {pluralize(len(files), 'picture')}, {len(files) - rows.computed} found in the cache")
    return Extracted(extractor, rows)


def with_views(job: Job, extracted: Extracted, keys: Sequence[str], scanned: Scanned, names: Sequence[str]) -> Pooled:
    """Returns the end points' features of pictures: [N, C], or [N, 1 + views, C] with those of their views."""
    plain = extracted.rows.read(keys, names)
    if not job.settings.views:
        return plain
    files = {key: scanned.files[key] for key in keys}
    all_views = {name: [plain[name]] for name in names}
    for view in range(1, job.settings.views + 1):
        report = functools.partial(job.progress, f"view {view}")
        rows = extracted.extractor.features(files, names, view=view, progress=report).read(keys, names)
        for name in names:
            all_views[name].append(rows[name])
    return {name: np.stack(rows, 1) for name, rows in all_views.items()}


def signed_root(x: np.ndarray) -> np.ndarray:
    """Returns ``sign(x) (sqrt(|x| + e) - sqrt(e))`` with e = ROOT_SHIFT, as the network ``retrained`` does."""
    return np.sign(x) * (np.sqrt(np.abs(x) + ROOT_SHIFT) - np.sqrt(ROOT_SHIFT))


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What brings one end point's features to the scale that the head expects: ``(signed_root(x) - shift) * scale``.

    Args:
        shift: [C], the mean over the training pictures.
        scale: [C], so that rows have a mean squared norm of 1.
    """

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, features: np.ndarray) -> "Scaling":
        """Measures the training pictures' features [N, C]."""
        rooted = signed_root(features.astype(np.float64))
        shift, deviation = rooted.mean(0), rooted.std(0)
        scale = 1.0 / (deviation + 0.02 * deviation.mean() + 1e-9)
        norm = np.sqrt(np.square((rooted - shift) * scale).sum(1).mean())
        return cls(shift.astype(np.float32), (scale / max(norm, 1e-6)).astype(np.float32))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Scales features [..., C] -> float32 [..., C]."""
        return ((signed_root(features) - self.shift) * self.scale).astype(np.float32)


def default_cache() -> Path:
    """Returns the folder of all bottleneck caches: ``bottlenecks`` in zoo's cache folder (``$ZOO_HOME``)."""
    return cache_folder() / "bottlenecks"


class Extractor:
    """Gives pooled features of pictures, from the cache where they are there.

    Args:
        trunk: The trained network, or any callable from a batch of images to a dict of pooled features [N, C].
        reader: How pictures are read.
        cache: Folder of the caches.
        digest: Hash of what ``trunk`` computes; needed with a plain callable.
        batch_size: Pictures at a time; smaller batches are filled up, so that a picture's features never depend on
            its company.
        workers: Threads that read pictures; one a CPU by default.
        devices: Devices that share the batches; all GPUs by default, or the CPUs where there is none.
    """

    def __init__(
        self,
        trunk: Trunk | Callable[[np.ndarray], Mapping[str, Any]],
        reader: Reader,
        cache: str | Path | None = None,
        *,
        digest: str = "",
        batch_size: int = 16,
        workers: int | None = None,
        devices: Sequence[str] | None = None,
    ) -> None:
        self.digest = trunk.digest if isinstance(trunk, Trunk) else digest
        if not self.digest:
            raise ValueError("A callable needs digest=, the hash of its weights: features are cached under it.")
        self.trunk, self.reader, self.batch_size = trunk, reader, batch_size
        self.cache = Path(cache) if cache is not None else default_cache()
        self.workers = workers or os.cpu_count() or 1
        found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        self.devices = list(devices or [device.name for device in found])
        self._models: dict[str, Any] = {}
        self._functions: dict[tuple[str, ...], Callable[[tf.Tensor], Mapping[str, Any]]] = {}

    def features(
        self,
        files: Mapping[str, str | Path],
        end_points: Sequence[str],
        *,
        view: int = 0,
        progress: Progress | None = None,
    ) -> "Rows":
        """Makes sure that all features are in the cache.

        Args:
            files: Content hash (SHA-256, hexadecimal) -> file.
            end_points: Names of the end points.
            view: Number of the view, see ``Reader.view``.
            progress: Called with (pictures done, pictures to do).

        Returns:
            The features, read from the disk when asked for.

        Raises:
            OSError: A file is gone.
            ValueError: A file changed since it was hashed, or the trunk gave numbers that are not finite.
        """
        cache = BottleneckCache(self.cache, self.settings(view))
        missing = cache.missing(files, end_points)
        done = 0
        if progress:
            progress(0, len(missing))
        for keys, rows in self._on_devices(self._batches(missing, files, view), tuple(end_points)):
            for name, values in rows.items():
                if not np.isfinite(values).all():
                    bad = keys[int(np.flatnonzero(~np.isfinite(values).all(1))[0])]
                    raise ValueError(f"The trunk gives numbers that are not finite at {name} for {files[bad]}.")
            cache.add(keys, rows)
            done += len(keys)
            if progress:
                progress(done, len(missing))
        cache.flush()
        return Rows(cache, len(missing))

    def settings(self, view: int) -> dict[str, Any]:
        """What the features depend on besides the picture."""
        return {"weights": self.digest, "reader": self.reader.to_dict(), "view": view, "batch_size": self.batch_size}

    def _on_devices(
        self, batches: Iterator[tuple[list[str], np.ndarray]], end_points: tuple[str, ...]
    ) -> Iterator[tuple[list[str], Pooled]]:
        """Yields keys and features of batches in order; every device has a batch at a time."""

        def run(images: np.ndarray, device: str) -> Pooled:
            lack = self.batch_size - len(images)
            filled = np.concatenate([images, np.zeros((lack, *images.shape[1:]), np.float32)]) if lack else images
            found = self.run(filled, end_points, device)
            return {name: np.asarray(found[name], np.float32)[: len(images)] for name in end_points}

        if isinstance(self.trunk, Trunk):  # traced one after the other, before there are threads
            for device in self.devices:
                self._function(self.trunk, end_points, device)
        with ThreadPoolExecutor(len(self.devices)) as pool:
            waiting: deque[tuple[list[str], Future[Pooled]]] = deque()
            for number, (keys, images) in enumerate(batches):
                device = self.devices[number % len(self.devices)]
                waiting.append((keys, pool.submit(run, images, device)))
                if len(waiting) == len(self.devices):
                    done, future = waiting.popleft()
                    yield done, future.result()
            for done, future in waiting:
                yield done, future.result()

    def run(self, images: np.ndarray | tf.Tensor, end_points: tuple[str, ...], device: str) -> Mapping[str, Any]:
        """Runs one batch of ``batch_size`` pictures through the trunk on a device: end point -> [N, C]."""
        if not isinstance(self.trunk, Trunk):
            return self.trunk(np.asarray(images))
        return self._function(self.trunk, end_points, device)(tf.convert_to_tensor(images))

    def _function(self, trunk: Trunk, end_points: tuple[str, ...], device: str) -> Callable[..., Mapping[str, Any]]:
        """Returns the traced trunk with variables of its own on the device."""
        key = (device, *end_points)
        if key not in self._functions:
            if device not in self._models:
                self._models[device] = trunk.copy_on(device) if self._models else trunk.model
            model = self._models[device]

            @tf.function
            def pool(batch: tf.Tensor) -> dict[str, tf.Tensor]:
                with tf.device(device):
                    points = model.end_points(batch)
                    return {name: pooled(points[name]) for name in end_points}

            shape = tf.TensorSpec([self.batch_size, *trunk.size], tf.float32)
            self._functions[key] = pool.get_concrete_function(shape)
        return self._functions[key]

    def _batches(
        self, keys: Sequence[str], files: Mapping[str, str | Path], view: int
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields keys and prepared pictures, reading a few batches ahead."""

        def read(key: str) -> np.ndarray:
            data = Path(files[key]).read_bytes()
            if hashlib.sha256(data).hexdigest() != key:
                raise ValueError(f"{files[key]} changed while this run was reading it; run again.")
            try:
                return self.reader.view(data, view, key)
            except ImageError as error:
                raise ValueError(f"{files[key]}: {error}") from error

        with ThreadPoolExecutor(self.workers) as pool:
            waiting: list[tuple[str, Future[np.ndarray]]] = []
            rest = iter(keys)
            while True:
                ahead = 3 * self.batch_size - len(waiting)
                waiting += [(key, pool.submit(read, key)) for key in itertools.islice(rest, ahead)]
                if not waiting:
                    return
                batch, waiting = waiting[: self.batch_size], waiting[self.batch_size :]
                yield [key for key, _ in batch], np.stack([future.result() for _, future in batch])


class Rows:
    """Pooled in the cache.

    Args:
        cache: The cache.
        computed: How many pictures had to go through the trunk.
    """

    def __init__(self, cache: BottleneckCache, computed: int) -> None:
        self.cache = cache
        self.computed = computed

    def read(self, keys: Sequence[str], end_points: Sequence[str]) -> Pooled:
        """Returns end point -> float32 [len(keys), C]."""
        return {name: self.cache.read(keys, name) for name in end_points}
