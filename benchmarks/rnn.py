"""The word model's training step against Keras' LSTM, PyTorch's, and the matrix products alone; memory; profile.

    python benchmarks/rnn.py speed small|medium [--rounds 15] [--dtype bfloat16] [--torch]
    python benchmarks/rnn.py where small|medium
    python benchmarks/rnn.py memory

``speed`` writes results/rnn_speed_SIZE[_DTYPE].csv: one row a peer, words per second, and the ratio of the times with
its 95 % interval. All contenders train in turn in one process on the same words: embedding, two layers, softmax over
10,000 words, gradient clipped by global norm, plain gradient descent, state carried. zoo's is the whole step of
`zoo.training.Trainer`; the peers' are compiled custom steps. Goals: small 1.3 x Keras; medium 1.0 x Keras and 0.9 of
the bound; 1.3 x Keras in bfloat16 where the CPU has it.

``where`` writes results/rnn_where_SIZE.csv: milliseconds a step by kind of op, from TensorFlow's profiler.
``memory`` writes results/rnn_memory.csv: what TensorFlow's allocator gives out at most during one training step of a
layer of 512 units on 256 rows, against the steps T, for the plain loop and the fast path, a process each.
"""

import argparse
import collections
import glob
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from paired import Paired, write

VOCABULARY, ROWS = 10_000, 20


def words(recipe: Any) -> Iterator[tuple[Any, Any]]:
    """Batches of random words, again and again."""
    from zoo.data.text import text_stream

    numbers = np.random.default_rng(0).integers(0, VOCABULARY, ROWS * (recipe.steps * 8 + 1))
    return iter(text_stream(numbers, ROWS, recipe.steps)(0).repeat())


def zoo_step(size: str, dtype: str) -> Callable[[], Any]:
    from zoo.data.text import text_stream
    from zoo.nets.word_lm import RECIPES, summed_cross_entropy, word_lm
    from zoo.training import Trainer

    recipe = RECIPES[size]
    model = word_lm(size=size, carry=ROWS, seed=0, dtype="mixed_bfloat16" if dtype == "bfloat16" else None)
    trainer = Trainer(
        model,
        learning_rate=recipe.schedule(10**6),
        loss=summed_cross_entropy,
        metrics=(),
        clip_norm=recipe.clip_norm,
    )
    numbers = np.zeros(ROWS * (recipe.steps + 1), np.int32)
    engine = trainer.build(text_stream(numbers, ROWS, recipe.steps).element_spec)
    batches = words(recipe)
    return lambda: float(engine.train(batches, 1).losses[0, 0])


def keras_step(size: str, dtype: str) -> Callable[[], Any]:
    import keras
    import tensorflow as tf

    from zoo.nets.word_lm import RECIPES

    recipe = RECIPES[size]
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    hidden, rate = recipe.hidden, 1 - recipe.keep_prob
    tokens = keras.Input([recipe.steps], batch_size=ROWS, dtype="int32")
    starts = [keras.Input([hidden], batch_size=ROWS) for _ in range(4)]
    net, ends = keras.layers.Dropout(rate)(keras.layers.Embedding(VOCABULARY, hidden)(tokens)), []
    for number in range(2):
        lstm = keras.layers.LSTM(hidden, return_sequences=True, return_state=True)
        net, *state = lstm(net, initial_state=starts[2 * number : 2 * number + 2])
        net = keras.layers.Dropout(rate)(net)
        ends += state
    logits = keras.layers.Dense(VOCABULARY, dtype="float32" if dtype == "float32" else None)(net)
    model = keras.Model([tokens, *starts], [logits, *ends])
    keras.config.set_dtype_policy("float32")
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=recipe.clip_norm)
    optimizer.build(model.trainable_variables)
    carried = [tf.Variable(tf.zeros([ROWS, hidden])) for _ in range(4)]
    batches = words(recipe)

    @tf.function(jit_compile=False)
    def step(iterator: Any) -> Any:
        inputs, labels = next(iterator)
        with tf.GradientTape() as tape:
            logits, *state = model([inputs["tokens"], *carried], training=True)
            costs = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits, tf.float32))
            loss = tf.reduce_sum(costs) / ROWS
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        for variable, value in zip(carried, state, strict=True):
            variable.assign(tf.cast(value, tf.float32))
        return loss

    return lambda: step(batches).numpy()


def torch_step(size: str, dtype: str) -> Callable[[], Any]:
    import torch

    from zoo.nets.word_lm import RECIPES

    recipe = RECIPES[size]
    torch.set_num_threads(2)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, recipe.hidden)
            self.drop = torch.nn.Dropout(1 - recipe.keep_prob)
            self.lstm = torch.nn.LSTM(recipe.hidden, recipe.hidden, 2, batch_first=True, dropout=1 - recipe.keep_prob)
            self.softmax = torch.nn.Linear(recipe.hidden, VOCABULARY)

        def forward(self, tokens: Any, state: Any) -> Any:
            net, state = self.lstm(self.drop(self.embedding(tokens)), state)
            return self.softmax(self.drop(net)), state

    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), 1.0)
    carried = [torch.zeros(2, ROWS, recipe.hidden) for _ in range(2)]
    batches = words(recipe)

    def step() -> float:
        inputs, labels = next(batches)
        tokens, following = (torch.from_numpy(x.numpy()).long() for x in (inputs["tokens"], labels))
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits, state = network(tokens, tuple(carried))
        cost = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten(), reduction="sum")
        optimizer.zero_grad()
        (cost / ROWS).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.clip_norm)
        optimizer.step()
        carried[:] = [part.detach() for part in state]
        return float(cost.detach())

    return step


def products_step(size: str, dtype: str) -> Callable[[], Any]:
    """The matrix products of a training step and nothing else: the bound.

    Of each layer the inputs, the steps forward and back (on a kernel turned beforehand, which is faster), the kernel's
    and the inputs' gradient; of the softmax its logits, its matrix' gradient and the outputs'.
    """
    import tensorflow as tf

    from zoo.nets.word_lm import RECIPES

    recipe = RECIPES[size]
    hidden, steps = recipe.hidden, recipe.steps
    draw = lambda *shape: tf.cast(tf.random.stateless_uniform(shape, [1, 2]), dtype)  # noqa: E731
    outputs, d_logits = draw(steps * ROWS, hidden), draw(steps * ROWS, VOCABULARY)
    rows, d_gates = draw(steps * ROWS, 2 * hidden), draw(steps * ROWS, 4 * hidden)
    softmax, input_kernel, kernel = draw(hidden, VOCABULARY), draw(hidden, 4 * hidden), draw(hidden, 4 * hidden)
    states, changes = draw(2, steps, ROWS, hidden), draw(2, steps, ROWS, 4 * hidden)
    turned = draw(4 * hidden, hidden)

    @tf.function
    def products() -> Any:
        made = [tf.matmul(outputs, input_kernel)]
        for layer in range(2):
            for inputs, matrix in ((states[layer], kernel), (changes[layer], turned)):
                for x in tf.unstack(inputs):
                    with tf.control_dependencies([made[-1]]):  # a step waits for the one before
                        made.append(tf.matmul(x, matrix))
            with tf.control_dependencies([made[-1]]):
                made.append(tf.matmul(rows, d_gates, transpose_a=True))
                made.append(tf.matmul(d_gates, input_kernel, transpose_b=True))
                if layer == 0:
                    made.append(tf.matmul(outputs, input_kernel))
        with tf.control_dependencies([made[-1]]):
            made.append(tf.matmul(outputs, softmax))
            made.append(tf.matmul(outputs, d_logits, transpose_a=True))
            made.append(tf.matmul(d_logits, softmax, transpose_b=True))
        return tf.stack([tf.cast(m[0, 0], tf.float32) for m in made])

    return lambda: products().numpy()


def speed(size: str, dtype: str, rounds: int, with_torch: bool) -> None:
    from zoo.nets.word_lm import RECIPES

    makers = {"zoo": zoo_step, "keras": keras_step, "products alone": products_step}
    if with_torch:
        makers["torch"] = torch_step
    contenders = {name: make(size, dtype) for name, make in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-2, rounds):
        for name in contenders if number % 2 else reversed(contenders):
            started = time.perf_counter()
            contenders[name]()
            if number >= 0:
                times[name].append(time.perf_counter() - started)
    count = ROWS * RECIPES[size].steps
    rows = []
    for name in list(contenders)[1:]:
        row = Paired(times["zoo"], times[name]).row()
        rates = {"zoo_words_s": 1e3 * count / row["ours_ms"], "peer_words_s": 1e3 * count / row["theirs_ms"]}
        speedups = {"speedup": 1 / row["ratio"], "low": 1 / row["ratio_high"], "high": 1 / row["ratio_low"]}
        rows.append({"size": size, "dtype": dtype, "peer": name, **rates, **speedups, "pairs": row["pairs"]})
    packages = ("tensorflow", "keras", "torch") if with_torch else ("tensorflow", "keras")
    write(f"rnn_speed_{size}" + ("" if dtype == "float32" else f"_{dtype}"), rows, packages)


def where(size: str, calls: int = 5) -> None:
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    step = zoo_step(size, "float32")
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(calls):
            step()
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        with open(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[0], "rb") as file:
            space.ParseFromString(file.read())
    spent: collections.Counter[str] = collections.Counter()
    runs: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        for event in itertools.chain.from_iterable(line.events for line in plane.lines):
            name = plane.event_metadata[event.metadata_id].name
            scope, colon, kind = name.rpartition(":")
            if colon and scope[-1:] not in ("", ":") and kind.lstrip("_").isalnum() and not scope.startswith("Thread"):
                spent[kind] += event.duration_ps / 1e9 / calls
                runs[kind] += 1
    rows = [{"size": size, "op": kind, "ms": ms, "calls": runs[kind] // calls} for kind, ms in spent.most_common(15)]
    write(f"rnn_where_{size}", rows)


def memory() -> None:
    rows = []
    for path in ("plain", "fast"):
        for steps in (16, 32, 64, 128, 256):
            done = subprocess.run(
                [sys.executable, __file__, "one-step", path, str(steps)], capture_output=True, text=True, check=True
            )
            rows.append({"path": path, "steps": steps, "mib": float(done.stdout.split()[-1])})
    for row in rows:
        first = next(r for r in rows if r["path"] == row["path"])
        grown = row["steps"] - first["steps"]
        row["mib_per_step"] = (row["mib"] - first["mib"]) / grown if grown else ""
    write("rnn_memory", rows)


def one_step(path: str, steps: int) -> None:
    """Prints how much memory TensorFlow's allocator gives out at most during a training step, in MiB."""
    import tensorflow as tf

    from zoo import rnn, scoping

    def network(inputs: Any, *, is_training: bool = False) -> Any:
        return rnn.dynamic_rnn(rnn.BasicLSTMCell(512), inputs, fast_path=path == "fast")[0]

    model = scoping.Model(network, input_shape=(None, 512))

    @tf.function(autograph=False)
    def step(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs, training=True) ** 2)
        return [tf.reduce_sum(g) for g in tape.gradient(loss, model.trainable_variables)]

    step(tf.zeros([256, 2, 512]))
    inputs = tf.random.uniform([256, steps, 512])
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    tf.config.experimental.reset_memory_stats("CPU:0")
    step(inputs)
    print((tf.config.experimental.get_memory_info("CPU:0")["peak"] - before) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "where", "memory", "one-step"))
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--torch", action="store_true", help="PyTorch's nn.LSTM too")
    given = parser.parse_args()
    if given.what == "speed":
        speed(given.arguments[0], given.dtype, given.rounds, given.torch)
    elif given.what == "where":
        where(given.arguments[0])
    elif given.what == "memory":
        memory()
    else:
        one_step(given.arguments[0], int(given.arguments[1]))


if __name__ == "__main__":
    main()
