"""Retraining measured: accuracy over ten splits, speed of extraction and of the cache, memory, and many classes.

    python benchmarks/transfer.py features stamps real        # fills the cache; goes on where it was interrupted
    python benchmarks/transfer.py accuracy stamps             # every trunk whose features are in the cache
    python benchmarks/transfer.py near stamps emoji_twitter   # cosines of mirror images and of different pictures
    python benchmarks/transfer.py speed | memory | classes

Data sets and the real trunk are looked for in the folder named by ZOO_TEST_DATA. Every split is dealt by zoo's own
``split_scan`` with another seed; features, end points, penalty and temperature are chosen inside the training part.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from paired import measure, write

SPLITS = 10
PICTURES = 160  # of the measurement of speed: ten batches, so that reading the first one counts little
TRUNKS = {
    "real": {"weights": "inception_v3_tfjs"},
    "embedded": {"weights": "embedded"},
    "untrained": {"weights": "none", "size": 128, "options": {"depth_multiplier": 0.25}},
}
AUTO = ("Mixed_6b", "Mixed_6e", "Mixed_7a", "Mixed_7c")


def data_folder() -> Path:
    folder = os.environ.get("ZOO_TEST_DATA")
    if not folder:
        sys.exit("set ZOO_TEST_DATA to the folder of the test data")
    return Path(folder)


def digits_folder() -> Path:
    from zoo.cli.retrain import write_digits

    return write_digits(Path(tempfile.gettempdir()) / "zoo-benchmark-digits")


def source_of(name: str) -> Path:
    return digits_folder() if name == "digits" else data_folder() / name


def make_trunk(name: str) -> Any:
    from zoo.transfer.trunk import load_trunk

    how = dict(TRUNKS[name])
    if name == "real":
        how["weights"] = str(data_folder() / how["weights"] / "model.json")
    return load_trunk(**how)


def extractor_of(trunk: Any) -> Any:
    from zoo.transfer.features import Extractor
    from zoo.transfer.reader import Reader

    return Extractor(trunk, Reader(trunk.preprocessing))


def features(dataset: str, trunk_name: str, views: int) -> None:
    """Fills the cache."""
    from zoo.data.scan import scan_images

    scan = scan_images(source_of(dataset))
    extractor = extractor_of(make_trunk(trunk_name))
    files = {p.sha256: p.path for p in scan.pictures}
    for view in range(views + 1):
        started = time.perf_counter()
        rows = extractor.features(files, AUTO, view=view)
        print(f"{dataset} {trunk_name} view {view}: {rows.computed} computed in {time.perf_counter() - started:.0f} s")


def accuracy(dataset: str, names: list[str], splits: int, views: int) -> None:
    """Mean test accuracy over ten splits, all settings on the same splits."""
    from zoo.data.scan import scan_images
    from zoo.data.split import split_scan
    from zoo.transfer.evaluation import wilson
    from zoo.transfer.head import fit_head
    from zoo.transfer.select import combinations

    scan = scan_images(source_of(dataset))
    classes = scan.labels
    files = {p.sha256: p.path for p in scan.pictures}
    keys = list(files)
    label_of = {p.sha256: classes.index(p.label) for p in scan.pictures}
    tables: dict[str, tuple[dict[str, np.ndarray], list[tuple[str, ...]]]] = {}
    raw = np.stack([raw_pixels(Path(files[key]).read_bytes()) for key in keys])
    tables["raw pixels 16 x 16"] = ({"pixels": raw}, [("pixels",)])
    for name in names:
        extractor = extractor_of(make_trunk(name))
        plain = extractor.features(files, AUTO).read(keys, AUTO)
        tables[f"{name}: classical bottleneck (Mixed_7c)"] = (plain, [("Mixed_7c",)])
        tables[f"{name}: Mixed_6e alone"] = (plain, [("Mixed_6e",)])
        tables[f"{name}: all four side by side"] = (plain, [AUTO])
        tables[f"{name}: auto"] = (plain, combinations(AUTO))
        if views:
            mirror = extractor.features(files, AUTO, view=1).read(keys, AUTO)
            both = {point: np.stack([plain[point], mirror[point]], 1) for point in AUTO}
            tables[f"{name}: auto, mirror images train too"] = (both, combinations(AUTO))
            mean = {point: (plain[point] + mirror[point]) / 2 for point in AUTO}
            tables[f"{name}: auto, mean of picture and mirror image"] = (mean, combinations(AUTO))
    found: dict[str, list[tuple[int, int, str]]] = {name: [] for name in ["majority class", *tables]}
    for seed in range(splits):
        split = split_scan(scan, seed=seed)
        where = np.array([split.sets[key] for key in keys])
        train, test = np.flatnonzero(where == "train"), np.flatnonzero(where == "test")
        labels = np.array([label_of[key] for key in keys])
        common = np.bincount(labels[train]).argmax()
        found["majority class"].append((int((labels[test] == common).sum()), len(test), ""))
        for name, (rows, candidates) in tables.items():
            train_rows = {point: values[train] for point, values in rows.items()}
            test_rows = {p: v[test] if v.ndim == 2 else v[test, 0] for p, v in rows.items()}
            head, _ = fit_head(train_rows, labels[train], classes, candidates=candidates, seed=seed)
            right = int((head.logits(test_rows).argmax(1) == labels[test]).sum())
            found[name].append((right, len(test), "+".join(head.end_points)))
            print(
                f"{dataset} split {seed} {name}: {right / len(test):.3f} {head.end_points} C {head.penalty:g}",
                flush=True,
            )
    result = []
    for name, lines in found.items():
        shares = [right / count for right, count, _ in lines]
        low, high = wilson(sum(right for right, _, _ in lines), sum(count for _, count, _ in lines))
        chosen = sorted({points for _, _, points in lines}, key=lambda p: -sum(p == q for _, _, q in lines))
        result.append(
            {
                "data": dataset,
                "setting": name,
                "mean_test_accuracy": float(np.mean(shares)),
                "standard_deviation": float(np.std(shares)),
                "pooled_low": low,
                "pooled_high": high,
                "splits": len(shares),
                "test_pictures": int(np.mean([count for _, count, _ in lines])),
                "most_chosen": chosen[0],
            }
        )
    write(f"transfer_accuracy_{dataset}", result, ("tensorflow", "keras", "scikit-learn"))


def near(datasets: list[str], names: list[str]) -> None:
    """What cosines mirror images of one picture reach at the middle end point, and different pictures."""
    from zoo.data.scan import scan_images
    from zoo.transfer.features import Scaling

    result = []
    for dataset in datasets:
        scan = scan_images(source_of(dataset))
        files = {p.sha256: p.path for p in scan.pictures}
        labels = np.array([{p.sha256: p.label for p in scan.pictures}[key] for key in files])
        for name in names:
            trunk = make_trunk(name)
            extractor, point = extractor_of(trunk), trunk.detail
            views = [extractor.features(files, AUTO, view=view).read(list(files), [point])[point] for view in (0, 1)]
            scaled = [Scaling.fit(views[0])(rows) for rows in views]
            units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in scaled]
            cosines = units[0] @ units[0].T
            np.fill_diagonal(cosines, -1)
            other = np.where(labels[:, None] != labels, cosines, -1).max(1)
            figures = {
                "threshold": trunk.near,
                "of_other_class_above": (other >= trunk.near).mean(),
                "mirror_median": np.median((units[0] * units[1]).sum(1)),
                "nearest_p99": np.quantile(cosines.max(1), 0.99),
                "other_class_p99": np.quantile(other, 0.99),
                "other_class_largest": other.max(),
            }
            rounded = {key: round(float(value), 4) for key, value in figures.items()}
            result.append({"data": dataset, "trunk": name, "end_point": point, **rounded})
    write("transfer_near", result, ("tensorflow", "numpy"))


def raw_pixels(data: bytes) -> np.ndarray:
    """The picture on a white square, 16 x 16 x 3 in [0, 1]."""
    import tensorflow as tf

    from zoo.data.images import decode
    from zoo.data.preprocessing import Preprocessing
    from zoo.transfer.reader import Reader

    tiny = Preprocessing(size=(16, 16), method="bilinear_antialias", mean=(0, 0, 0), std=(1, 1, 1))
    with tf.device("CPU"):
        return Reader(tiny).prepare(decode(data)).numpy().ravel()


def photographs(count: int, folder: Path) -> dict[str, Path]:
    """Writes JPEGs of about 500 x 375 that look like photographs: smooth noise with detail."""
    import hashlib
    import io

    from PIL import Image

    generator, found = np.random.default_rng(0), {}
    for i in range(count):
        coarse = generator.integers(0, 256, (12, 16, 3)).astype(np.uint8)
        picture = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
        picture = np.clip(picture + generator.normal(0, 12, picture.shape), 0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "JPEG", quality=90)
        path = folder / f"{i:05d}.jpg"
        path.write_bytes(stream.getvalue())
        found[hashlib.sha256(stream.getvalue()).hexdigest()] = path
    return found


def speed(pairs: int) -> None:
    """Extraction from JPEGs against the bare forward pass on random tensors; then reading from the cache."""
    import tensorflow as tf

    from zoo.transfer.features import Extractor
    from zoo.transfer.reader import Reader

    trunk = make_trunk("real")
    reader = Reader(trunk.preprocessing)
    with tempfile.TemporaryDirectory() as folder:
        files = photographs(PICTURES, Path(folder))
        runs = iter(range(10**6))
        shared = Extractor(trunk, reader, Path(folder) / "cache")
        images = tf.random.stateless_uniform([16, *trunk.size], [1, 2], -1.0, 1.0)

        def extract() -> None:
            shared.cache = Path(folder) / f"cache{next(runs)}"
            shared.features(files, ["Mixed_7c"])

        def bare() -> None:
            for _ in range(PICTURES // 16):
                shared.run(images, ("Mixed_7c",), "CPU:0")["Mixed_7c"].numpy()

        row = measure(extract, bare, pairs=pairs, warm_up=1).row()
        keys = [f"{i:064x}" for i in range(10_000)]
        shared.cache = Path(folder) / "large"
        rows = shared.features({}, ["Mixed_7c"])
        for start in range(0, len(keys), 256):
            part = keys[start : start + 256]
            rows.cache.add(part, {"Mixed_7c": np.random.default_rng(start).random((len(part), 2048), np.float32)})
        rows.cache.flush()
        started = time.perf_counter()
        again = shared.features(dict.fromkeys(keys, ""), ["Mixed_7c"])
        table = again.read(keys, ["Mixed_7c"])["Mixed_7c"]
        seconds = time.perf_counter() - started
        assert again.computed == 0
        assert table.shape == (10_000, 2048)
    write(
        "transfer_speed",
        [
            {
                "pictures": PICTURES,
                "extraction_per_s": 1e3 * PICTURES / row["ours_ms"],
                "bare_forward_per_s": 1e3 * PICTURES / row["theirs_ms"],
                "speed_ratio": 1 / row["ratio"],
                "ratio_low": 1 / row["ratio_high"],
                "ratio_high": 1 / row["ratio_low"],
                "pairs": row["pairs"],
                "cached_rows_per_s": len(keys) / seconds,
            }
        ],
    )


def peak_of(count: int) -> None:
    """Extracts ``count`` small pictures with a trunk that is a mean; prints the peak memory in MB."""
    import hashlib

    from zoo.data.images import encode_png
    from zoo.data.preprocessing import Preprocessing
    from zoo.transfer.features import Extractor
    from zoo.transfer.reader import Reader

    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for i in range(count):
            pixels = np.full((32, 32, 3), i % 251, np.uint8)
            pixels[0, 0] = [i % 256, i // 256 % 256, i // 65536]
            data = encode_png(pixels)
            path = Path(folder) / f"{i}.png"
            path.write_bytes(data)
            files[hashlib.sha256(data).hexdigest()] = path
        reader = Reader(Preprocessing(size=(128, 128), method="bilinear_antialias"))

        def trunk(images: np.ndarray) -> dict[str, np.ndarray]:
            return {"wide": np.tile(images.mean((1, 2)), (1, 683))[:, :2048]}

        extractor = Extractor(trunk, reader, Path(folder) / "cache", digest="mean")
        assert extractor.features(files, ["wide"]).computed == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory() -> None:
    """Peak memory of extracting 1,000 and 10,000 pictures, each in its own process."""
    rows = []
    for count in (1_000, 10_000):
        out = subprocess.run([sys.executable, __file__, "peak", str(count)], capture_output=True, text=True, check=True)
        rows.append({"pictures": count, "peak_mb": float(out.stdout.split()[-1])})
    for row in rows:
        row["above_first_mb"] = row["peak_mb"] - rows[0]["peak_mb"]
    write("transfer_memory", rows)


def many_classes(classes: int, each: int) -> None:
    """A folder of 2,000 classes x 5 pictures: scan, split, head; features are the pictures' own colours."""
    from zoo.data.images import encode_png
    from zoo.data.scan import scan_images
    from zoo.data.split import split_scan
    from zoo.transfer.head import fit_head

    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(classes):
            place = Path(folder) / f"class {i:04d}"
            place.mkdir()
            base = generator.integers(0, 256, (4, 4, 3))
            for j in range(each):
                noisy = np.clip(base + generator.normal(0, 10, base.shape), 0, 255).astype(np.uint8)
                (place / f"{j}.png").write_bytes(encode_png(noisy))
        times: dict[str, float] = {}

        def timed(name: str, work: Callable[[], Any]) -> Any:
            started = time.perf_counter()
            result = work()
            times[name] = time.perf_counter() - started
            return result

        scan = timed("scan_s", lambda: scan_images(folder))
        split = timed("split_s", lambda: split_scan(scan))
        names = scan.labels
        index = {name: i for i, name in enumerate(names)}
        table = np.stack([raw_pixels(Path(p.path).read_bytes()) for p in scan.pictures])
        labels = np.array([index[p.label] for p in scan.pictures])
        where = np.array([split.sets[p.sha256] for p in scan.pictures])
        train, test = where == "train", where == "test"
        head, _ = timed("head_s", lambda: fit_head({"x": table[train]}, labels[train], names))
        right = head.logits({"x": table[test]}).argmax(1) == labels[test]
    write("transfer_classes", [{"classes": classes, "pictures": len(labels), **times, "accuracy": float(right.mean())}])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fill = commands.add_parser("features")
    fill.add_argument("dataset")
    fill.add_argument("trunk", choices=TRUNKS)
    fill.add_argument("--views", type=int, default=0)
    judge = commands.add_parser("accuracy")
    judge.add_argument("dataset")
    judge.add_argument("--trunks", nargs="*", default=["real"], choices=TRUNKS)
    judge.add_argument("--splits", type=int, default=SPLITS)
    judge.add_argument("--views", type=int, default=0)
    alike = commands.add_parser("near")
    alike.add_argument("datasets", nargs="+")
    alike.add_argument("--trunks", nargs="*", default=["real", "embedded"], choices=TRUNKS)
    commands.add_parser("speed").add_argument("--pairs", type=int, default=11)
    commands.add_parser("memory")
    commands.add_parser("peak").add_argument("count", type=int)
    many = commands.add_parser("classes")
    many.add_argument("--classes", type=int, default=2_000)
    many.add_argument("--each", type=int, default=5)
    options = parser.parse_args()
    if options.command == "features":
        features(options.dataset, options.trunk, options.views)
    elif options.command == "accuracy":
        accuracy(options.dataset, options.trunks, options.splits, options.views)
    elif options.command == "near":
        near(options.datasets, options.trunks)
    elif options.command == "speed":
        speed(options.pairs)
    elif options.command == "memory":
        memory()
    elif options.command == "peak":
        peak_of(options.count)
    else:
        many_classes(options.classes, options.each)


if __name__ == "__main__":
    main()
