"""TFRecords of JPEGs: reading speed against a bare tf.data pipeline, and peak memory against the size of the data.

    python benchmarks/tfrecord.py speed|memory [--pairs 15] [--images 4000]

speed writes results/tfrecord_speed.csv: seconds an epoch of decoded batches of 32, ours with checks, orientation and
exact pixels against interleave, shuffle, parse, decode_jpeg, batch, prefetch on the same files. Goal: at least 0.95 x
the peer's images per second, which is a ratio of times of at most 1.053. TensorFlow takes about 0.1 s to make our
pipeline ready, once an epoch and whatever its length, so a set of a few hundred pictures shows that and not reading.
memory writes results/tfrecord_memory.csv: peak resident memory of a process that reads all of 0.2 GB and of 2 GB.
Goal: within 50 MB of each other. The pictures are made here and deleted afterwards.
"""

import argparse
import io
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from paired import measure, median, write
from PIL import Image

BATCH = 32


def jpegs(count: int, detail: float, quality: int) -> list[bytes]:
    """Makes pictures of 500 x 375: coloured waves with noise; more noise makes larger files."""
    y, x = np.mgrid[:375, :500].astype(np.float32)
    pictures = []
    for number in range(count):
        rng = np.random.default_rng(number)
        waves = [np.sin(x * rng.uniform(0.01, 0.1) + y * rng.uniform(0.01, 0.1) + rng.uniform(0, 6)) for _ in range(3)]
        levels = 127.5 + 90 * np.stack(waves, -1) + detail * rng.normal(size=(375, 500, 3))
        stream = io.BytesIO()
        Image.fromarray(np.uint8(np.clip(levels, 0, 255))).save(stream, "JPEG", quality=quality)
        pictures.append(stream.getvalue())
    return pictures


def build_set(folder: Path, images: int) -> Path:
    """Writes a folder of pictures in two classes and packs it."""
    from zoo.data import tfrecord
    from zoo.data.scan import scan_images

    different = jpegs(min(images, 150), 12, 88)
    for number in range(images):
        path = folder / "set" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(different[number % len(different)])
    tfrecord.build(scan_images(folder / "set"), folder / "records", shards=8)
    return folder / "records"


def bare(records: Path) -> Any:
    """The peer: what the tf.data guide recommends, and nothing else."""
    import tensorflow as tf

    keys = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    }

    def parse(record: Any) -> Any:
        values = tf.io.parse_single_example(record, keys)
        return tf.io.decode_jpeg(values["image/encoded"], channels=3), values["image/class/label"]

    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, records.glob("train-*"))))
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    return data.shuffle(1000).map(parse, tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def drain(data: Any) -> int:
    """Iterates to the end."""
    return sum(int(labels.shape[0]) for _, labels in data)


def speed(images: int, pairs: int) -> list[dict[str, Any]]:
    from zoo.data import tfrecord

    with tempfile.TemporaryDirectory() as folder:
        records = build_set(Path(folder), images)
        stream = tfrecord.image_stream(records, batch_size=BATCH)
        ours, theirs = stream(0), bare(records)
        pair = measure(lambda: drain(ours), lambda: drain(theirs), pairs=pairs, warm_up=1)
    row = pair.row()
    rates = {"ours_per_s": images / median(pair.ours), "theirs_per_s": images / median(pair.theirs)}
    return [{"what": "an epoch of JPEG records", "images": images, **row, **rates, "speed_ratio": 1 / row["ratio"]}]


def write_records(folder: Path, gigabytes: float) -> int:
    """Writes records of about 150 KB, as other tools do, until they have the size."""
    import tensorflow as tf

    pictures = jpegs(40, 60, 96)
    count = int(gigabytes * 1e9 / np.mean([len(p) for p in pictures]))
    for shard in range(8):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-00008")) as writer:
            for number in range(shard, count, 8):
                example = tf.train.Example()
                example.features.feature["image/encoded"].bytes_list.value.append(pictures[number % 40])
                example.features.feature["image/class/label"].int64_list.value.append(number % 2)
                writer.write(example.SerializeToString())
    return count


def peak(folder: Path) -> None:
    """Reads and decodes all records of a folder; prints the peak of resident memory in MB and the number of records."""
    from zoo.data import tfrecord

    stream = tfrecord.image_stream(folder, batch_size=BATCH, label_offset=0, num_classes=2)
    count = drain(stream(0))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, count)


def memory(runs: int) -> list[dict[str, Any]]:
    rows = []
    for gigabytes in (0.2, 2.0):
        with tempfile.TemporaryDirectory() as folder:
            count = write_records(Path(folder), gigabytes)
            peaks = []
            for _ in range(runs):
                command = [sys.executable, __file__, "peak", "--folder", folder]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                if int(said[-1]) != count:
                    raise RuntimeError(f"{said[-1]} of {count} records were read")
                peaks.append(float(said[-2]))
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
        rows.append({"gigabytes": size / 1e9, "records": count, "peak_mb": median(peaks), "runs": runs})
    for row in rows:
        row["above_smallest_mb"] = row["peak_mb"] - rows[0]["peak_mb"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["speed", "memory", "peak"])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if args.part == "peak":
        peak(args.folder)
    elif args.part == "memory":
        write("tfrecord_memory", memory(args.runs))
    else:
        write("tfrecord_speed", speed(args.images, args.pairs))


if __name__ == "__main__":
    main()
