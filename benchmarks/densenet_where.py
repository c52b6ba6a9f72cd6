"""Where the memory of a DenseNet-121 training step is at its peak, what the allocator adds, and where the time goes.

    python benchmarks/densenet_where.py [--batches 8,24] [--memory recompute,minimal]
    python benchmarks/densenet_where.py --time

The first writes results/densenet_where.csv. TensorFlow's profiler records every allocation of the third step: the
bytes that a tensor asked for and those of the chunk that it got (the allocator splits a chunk only when it is at least
twice as large as asked for). Rows, in MiB at the step's peak: all tensors; the parts of it by the operation that made
them; the chunks; ``slope`` is per image, from the smallest to the largest batch. A process for each. The second writes
results/densenet_where_time.csv: milliseconds of a step of the largest batch by kind of operation, summed over threads,
with level recompute.
"""

import argparse
import collections
import glob
import json
import subprocess
import sys
import tempfile
from typing import Any

from paired import write

PARTS = (  # of the operation's name, its last part without the number
    ("weight gradients", ("Conv2DBackpropFilter", "AssignSubVariableOp", "FusedBatchNormGradV3/1")),
    ("maps and bottlenecks", ("Conv2D", "concat", "AddN", "MaxPool2d")),
    ("gradients of maps", ("Conv2DBackpropInput", "add", "split", "FusedBatchNormGradV3", "ReluGrad", "Tile")),
    ("normalised again", ("FusedBatchNormV3", "Relu")),
)


def peak(events: list[tuple[int, str, dict[str, Any]]], size: str) -> tuple[float, dict[str, float]]:
    """Returns the most that was alive at once, in MiB, and what it consisted of; `size` names the bytes to count."""
    alive: dict[int, tuple[int, str]] = {}
    now, most, at = 0, 0, -1
    for turn in range(2):  # find the peak, then stop there
        alive.clear()
        now = 0
        for number, (_, kind, stats) in enumerate(events):
            if kind == "MemoryAllocation":
                alive[stats["addr"]] = (stats[size], stats.get("tf_op", ""))
                now += stats[size]
            else:
                now -= alive.pop(stats["addr"], (0, ""))[0]
            if turn == 0 and now > most:
                most, at = now, number
            if turn == 1 and number == at:
                break
    parts: collections.Counter[str] = collections.Counter()
    for bytes_, name in alive.values():
        parts[part_of(name)] += bytes_ / 2**20
    return most / 2**20, dict(parts)


def part_of(name: str) -> str:
    """Returns which part of the table an operation belongs to."""
    if name.startswith("gradient_tape") and name.endswith("Filter"):
        return "weight gradients"
    kind = name.rsplit("/", 1)[-1].rsplit("_", 1)
    kind = kind[0] if len(kind) > 1 and kind[1].isdigit() else "_".join(kind)
    return next((part for part, kinds in PARTS if kind in kinds), "others")


def profiled_step(memory: str, batch: int) -> Any:
    """Trains two steps, and returns what the profiler saw of the third."""
    import keras
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    import zoo

    model = zoo.densenet121(memory=memory)
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    images = tf.random.stateless_normal([batch, 224, 224, 3], [0, 1])
    labels = tf.range(batch)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for _ in range(2):
        float(step())
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        float(step())
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        with open(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[0], "rb") as file:
            space.ParseFromString(file.read())
    return space


def one_step(memory: str, batch: int) -> None:
    """Prints, as JSON, the peak of a step in requested bytes by part, and in chunks."""
    events = []
    for plane in profiled_step(memory, batch).planes:
        for line in plane.lines:
            for event in line.events:
                kind = plane.event_metadata[event.metadata_id].name
                if kind in ("MemoryAllocation", "MemoryDeallocation"):
                    events.append((line.timestamp_ns * 1000 + event.offset_ps, kind, _stats(plane, event)))
    events.sort(key=lambda event: event[0])
    tensors, parts = peak(events, "requested_bytes")
    print(json.dumps({"all tensors": tensors, **parts, "chunks": peak(events, "allocation_bytes")[0]}))


def times(batch: int) -> list[dict[str, Any]]:
    """Returns the kinds of operations that take longest, with their milliseconds and number."""
    spent: collections.Counter[str] = collections.Counter()
    runs: collections.Counter[str] = collections.Counter()
    for plane in profiled_step("recompute", batch).planes:
        for event in (event for line in plane.lines for event in line.events):
            scope, colon, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
            if colon and scope[-1:] not in ("", ":") and kind.lstrip("_").isalnum() and not scope.startswith("Thread"):
                spent[kind] += event.duration_ps / 1e9
                runs[kind] += 1
    return [{"batch": batch, "op": kind, "ms": ms, "calls": runs[kind]} for kind, ms in spent.most_common(15)]


def _stats(plane: Any, event: Any) -> dict[str, Any]:
    found = {}
    for stat in event.stats:
        value = getattr(stat, stat.WhichOneof("value"))
        if stat.WhichOneof("value") == "ref_value":
            value = plane.stat_metadata[value].name
        found[plane.stat_metadata[stat.metadata_id].name] = value
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", default="8,24")
    parser.add_argument("--memory", default="recompute,minimal")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--one-step", nargs=2, metavar=("LEVEL", "BATCH"))
    given = parser.parse_args()
    if given.one_step:
        one_step(given.one_step[0], int(given.one_step[1]))
        return
    batches = sorted(int(batch) for batch in given.batches.split(","))
    if given.time:
        write("densenet_where_time", times(batches[-1]))
        return
    rows = []
    for memory in given.memory.split(","):
        found = {}
        for batch in batches:
            command = [sys.executable, __file__, "--one-step", memory, str(batch)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[batch] = json.loads(done.stdout.splitlines()[-1])
        for part in dict.fromkeys(part for batch in batches for part in found[batch]):
            sizes = [found[batch].get(part, 0.0) for batch in batches]
            columns = {f"mib_at_{batch}": size for batch, size in zip(batches, sizes, strict=True)}
            slope = (sizes[-1] - sizes[0]) / max(batches[-1] - batches[0], 1)
            rows.append({"memory": memory, "part": part, **columns, "slope": slope})
    write("densenet_where", rows)


if __name__ == "__main__":
    main()
