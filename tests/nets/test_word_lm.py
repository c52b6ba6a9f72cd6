"""The word model: counts, names, the tutorial's loss and schedule, the carried state, text, generation, commands."""

import contextlib
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.cli import main
from zoo.data.ngram import MarkovChain, NgramModel
from zoo.data.text import Vocabulary, continued_batches, text_stream, words
from zoo.nets.word_lm import RECIPES, generate, perplexity, summed_cross_entropy, word_lm
from zoo.parallel import make_strategy
from zoo.training import Trainer

TINY = {"vocab_size": 12, "hidden": 6}
NAMES = [
    "Model/embedding",
    *(f"Model/RNN/multi_rnn_cell/cell_{i}/basic_lstm_cell/{v}" for i in (0, 1) for v in ("kernel", "bias")),
    "Model/softmax_w",
    "Model/softmax_b",
]


@pytest.mark.parametrize(("size", "count"), [("small", 4_651_600), ("medium", 19_775_200)])
def test_published_counts_and_names(size, count):
    model = word_lm(size=size)
    assert model.count_params() == count
    assert model.variable_names == NAMES


@pytest.mark.slow
def test_published_count_of_large():
    assert word_lm(size="large").count_params() == 66_022_000


def test_initial_values_follow_the_tutorial():
    model = word_lm(size="medium", seed=1, **TINY)
    for name in NAMES:
        value = model.variable(name).numpy()
        assert np.abs(value).max() <= 0.05
        assert (value == 0).all() == name.endswith("bias")  # softmax_b is drawn, the cells' biases are 0


def test_schedule_and_recipes():
    rate = RECIPES["small"].schedule(10)
    assert [float(rate(step)) for step in (0, 39, 40, 50, 129)] == [1.0, 1.0, 0.5, 0.25, 0.5**9]
    assert float(RECIPES["large"].schedule(1)(14)) == pytest.approx(1 / 1.15)
    recipe = RECIPES["medium"]
    assert (recipe.steps, recipe.hidden, recipe.keep_prob, recipe.clip_norm, recipe.epochs) == (35, 650, 0.5, 5.0, 39)


def test_loss_is_summed_over_time():
    logits = tf.random.stateless_normal([2, 3, 5], [1, 2])
    labels = tf.constant([[0, 1, 2], [4, 4, 0]])
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(chances, labels.numpy()[..., None], 2)).sum((1, 2))
    np.testing.assert_allclose(summed_cross_entropy(labels, logits), expected, rtol=1e-5)


def test_dropout_stands_at_three_places():
    model = word_lm(hidden=40, vocab_size=12, keep_prob=0.5, seed=3)
    tokens = np.ones([4, 3], "int32")
    trained, quiet = (model.end_points(tokens, training=t)["outputs"].numpy() for t in (True, False))
    assert 0.3 < (trained == 0).mean() < 0.7
    assert (quiet != 0).all()
    np.testing.assert_array_equal(model(tokens), model(tokens))


def test_carried_state_equals_one_long_batch():
    model = word_lm(carry=2, seed=1, **TINY)
    plain = word_lm(seed=1, **TINY)
    for name in NAMES:
        plain.variable(name).assign(model.variable(name) * 8.0)
        model.variable(name).assign(plain.variable(name))
    tokens = np.random.default_rng(0).integers(0, 12, [2, 8]).astype("int32")
    whole = plain(tokens).numpy()
    starts, goes_on = np.ones([2], bool), np.zeros([2], bool)
    for training in (True, False):
        halves = [
            model({"tokens": tokens[:, n : n + 4], "first": f}, training=training).numpy()
            for n, f in ((0, starts), (4, goes_on))
        ]
        np.testing.assert_allclose(np.concatenate(halves, 1), whole, atol=1e-5)
    mixed = model({"tokens": tokens[:, :4], "first": np.array([True, False])}, training=False).numpy()
    np.testing.assert_allclose(mixed[0], whole[0, :4], atol=1e-5)
    assert np.abs(mixed[1] - whole[1, :4]).max() > 1e-3
    logits, state = plain((tokens[:, :4], tuple((np.zeros([2, 6], "f"),) * 2 for _ in range(2))))
    np.testing.assert_allclose(plain((tokens[:, 4:], state))[0], whole[:, 4:], atol=1e-5)
    np.testing.assert_allclose(logits, whole[:, :4], atol=1e-5)


def test_replicas_own_their_rows_of_the_carried_state():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())
    tokens = np.random.default_rng(0).integers(0, 12, [4, 6]).astype("int32")
    states = []
    for scope in (strategy, tf.distribute.OneDeviceStrategy("CPU:0")):
        with scope.scope():
            model = word_lm(carry=4, seed=5, **TINY)
        step = tf.function(lambda batch, m=model: m(batch, training=True), autograph=False)
        data = tf.data.Dataset.from_tensors({"tokens": tokens, "first": np.zeros([4], bool)}).unbatch().batch(4)
        for batch in scope.experimental_distribute_dataset(data.repeat(2)):
            scope.run(step, args=(batch,))
        states.append(model.variable("Model/carried_state/train/part_3").numpy())
    assert states[0].shape == (4, 6)
    assert np.abs(states[0]).max() > 1e-5
    np.testing.assert_allclose(states[0], states[1], atol=1e-7)
    with strategy.scope(), pytest.raises(ValueError, match="3 rows does not divide by 2 replicas"):
        word_lm(carry=3, **TINY)


def test_refusals():
    model = word_lm(carry=4, **TINY)
    with pytest.raises(ValueError, match="carried state has 4 rows"):
        model({"tokens": np.zeros([3, 2], "int32"), "first": np.zeros([3], bool)})
    with pytest.raises(ValueError, match="word numbers are integers; got float32"):
        word_lm(**TINY)(np.zeros([2, 3], "float32"))
    with pytest.raises(ValueError, match="size is one of small, medium, large"):
        word_lm(size="huge")
    with pytest.raises(ValueError, match="need the option carry"):
        word_lm(**TINY)({"tokens": np.zeros([3, 2], "int32"), "first": np.zeros([3], bool)})
    with pytest.raises(ValueError, match="'first' is missing, got 'tokens'"):
        model({"tokens": np.zeros([4, 2], "int32")})
    with pytest.raises(ValueError, match=r"as bool \[rows\]; got int32"):
        model({"tokens": np.zeros([4, 2], "int32"), "first": np.zeros([4], "int32")})
    for options in ({"hidden": 0}, {"num_layers": -1}, {"vocab_size": 0}, {"carry": 0}, {"init_scale": 0.0}):
        with pytest.raises(ValueError, match=f"word_lm: {next(iter(options))} must be a positive"):
            word_lm(**{**TINY, **options})
    with pytest.raises(ValueError, match=r"word numbers are \[rows, steps\]; got shape \(3,\)"):
        word_lm(**TINY)(np.zeros([3], "int32"))
    with pytest.raises(ValueError, match=r"knows the words 0\.\.11, got 12"):
        generate(word_lm(**TINY), np.array([12]), 2)
    broken = word_lm(**TINY)
    broken.variable("softmax_b").assign(np.full([12], np.nan))
    with pytest.raises(FloatingPointError, match="not finite"):
        perplexity(broken, np.arange(100) % 12, 2, 4)


def test_vocabulary_order_and_unknown_words():
    text = words("b a a c b\nd a\n")
    assert text == ["b", "a", "a", "c", "b", "<eos>", "d", "a", "<eos>"]
    full = Vocabulary.build(text)
    assert full.words == ["a", "<eos>", "b", "c", "d"]
    np.testing.assert_array_equal(full.encode(["a", "zebra", "c"]), [0, 3])  # the tutorial's reader leaves it out
    small = Vocabulary.build(text, 4)
    assert small.words == ["a", "<eos>", "<unk>", "b"]
    np.testing.assert_array_equal(small.encode(["a", "zebra", "c"]), [0, 2, 2])
    assert full.decode([0, 1, 2]) == "a\nb"
    with pytest.raises(ValueError, match="'zebra'"):
        full.encode(["zebra"], unknown="error")
    with pytest.raises(ValueError, match="text is empty"):
        Vocabulary.build([])


def test_batches_continue_and_are_shifted_by_one():
    tokens, labels = continued_batches(np.arange(23), 2, 3)
    assert tokens.shape == labels.shape == (3, 2, 3)
    np.testing.assert_array_equal(tokens[:, 0].ravel(), np.arange(9))
    np.testing.assert_array_equal(tokens[:, 1].ravel(), np.arange(11, 20))
    np.testing.assert_array_equal(labels, tokens + 1)
    assert len(continued_batches(np.zeros(929_589, int), 20, 35)[0]) == 1327  # the tutorial's steps an epoch
    assert len(continued_batches(np.zeros(929_589, int), 20, 20)[0]) == 2323
    with pytest.raises(ValueError, match="less than one batch: 2 rows of 3 words and their next words need 8"):
        continued_batches(np.arange(7), 2, 3)
    firsts = [inputs["first"].numpy() for inputs, _ in text_stream(np.arange(23), 2, 3)(0)]
    np.testing.assert_array_equal(np.stack(firsts), [[True] * 2, [False] * 2, [False] * 2])
    skipped = [inputs["tokens"].numpy() for inputs, _ in text_stream(np.arange(23), 2, 3)(4, 2)]
    np.testing.assert_array_equal(skipped, tokens[2:])


def test_ngram_sums_to_one_and_matches_counts():
    text = np.array([0, 1, 0, 1, 0, 2, 0, 1])
    exact = NgramModel(text, 3, 2, k=(0, 0))
    assert exact.probability(1, [0]) == pytest.approx(3 / 4)
    assert exact.probability(0) == pytest.approx(4 / 8)
    assert exact.perplexity([2, 2]) == np.inf
    smooth = NgramModel(text, 4, 3)
    for history in ([], [0], [1, 0], [3, 3], [2, 3]):
        assert sum(smooth.probability(w, history) for w in range(4)) == pytest.approx(1)
    assert smooth.probability(2, [3, 3]) == smooth.probability(2)  # backs off twice
    assert smooth.probability(3, [0]) > 0


def test_generation_follows_the_model():
    model = word_lm(seed=1, **TINY)
    model.variable("softmax_b").assign(np.where(np.arange(12) == 7, 50.0, 0.0))
    np.testing.assert_array_equal(generate(model, np.array([1]), 4), [7] * 4)
    model.variable("softmax_b").assign(np.linspace(0, 1, 12))
    drawn = generate(model, np.array([1]), 60, top_k=2, seed=3)
    assert set(drawn) == {10, 11}
    np.testing.assert_array_equal(drawn, generate(model, np.array([1]), 60, top_k=2, seed=3))
    assert len(set(generate(model, np.array([1]), 60, temperature=100.0))) > 6
    np.testing.assert_array_equal(generate(model, np.array([1]), 3, temperature=0), [11] * 3)
    with pytest.raises(ValueError, match="needs a prompt"):
        generate(model, np.array([], int), 3)


def corpus_folder(folder):
    line = "the cat sat on the mat and the dog sat on the rug"
    for part, lines in (("train", 60), ("valid", 10), ("test", 6)):
        (folder / f"ptb.{part}.txt").write_text(f" {line} \n" * lines)
    return folder


def zoo(*arguments):
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return end.value.code


def test_train_command_learns_and_generates(tmp_path, capsys):
    data, run = corpus_folder(tmp_path), tmp_path / "run"
    train = ("train", "word_lm", "--data", data, "--batch", 2, "--epochs", 4, "--out", run)
    assert zoo(*train, "--learning-rate", 0.3, "--option", "hidden=12", "--option", "init_scale=0.3") == 0
    assert capsys.readouterr().out.count("perplexity") == 5
    results = json.loads((run / "perplexity.json").read_text())
    assert results["test"] < 2
    assert results["baseline"] < 2
    assert json.loads((run / "vocabulary.json").read_text())[0] == "the"
    assert zoo("generate", run, "--prompt", "the cat", "--words", 5, "--temperature", 0) == 0
    assert capsys.readouterr().out.startswith("the cat ")
    assert zoo("generate", run, "--prompt", "unicorn") == 2
    assert "not in the vocabulary of 9 words: 'unicorn'" in capsys.readouterr().err
    assert zoo("generate", tmp_path) == 2
    assert "no model.keras" in capsys.readouterr().err
    assert zoo("train", "word_lm") == 2
    assert "needs --data DIR" in capsys.readouterr().err
    assert zoo("train", "word_lm", "--data", data, "--batch", 500, "--out", tmp_path / "none") == 2
    assert "the train part has" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "none").exists()


def test_reaches_the_entropy_of_a_markov_chain_only_with_the_carried_state():
    """A shortened benchmarks/rnn_markov.py: the small model on a text whose lowest perplexity is known."""
    chain = MarkovChain(4)
    text, test = chain.draw(20_000, 1), chain.draw(8_000, 2)
    found = {}
    for carry in (True, False):
        model = word_lm(hidden=32, vocab_size=4, carry=10, seed=0)
        rate = RECIPES["small"].schedule(300)
        trainer = Trainer(model, learning_rate=rate, loss=summed_cross_entropy, metrics=(), clip_norm=5.0,
                          steps_per_call=100)  # fmt: skip
        trainer.fit(text_stream(text, 10, 5, carry), steps=1500, progress="none")
        found[carry] = perplexity(model, test, 10, 5, carry=carry)
    assert chain.perplexity * 0.97 < found[True] < chain.perplexity * 1.06
    assert found[False] > found[True] * 1.03
    assert NgramModel(text, 4, 3).perplexity(test) < chain.perplexity * 1.06


def test_xla_bfloat16_and_keras_fit():
    tokens = np.random.default_rng(0).integers(0, 12, [8, 5]).astype("int32")
    model = word_lm(seed=1, init_scale=1.0, **TINY)
    expected = model(tokens).numpy()
    compiled = tf.function(lambda x: model(x), jit_compile=True, autograph=False)(tokens)
    np.testing.assert_allclose(compiled, expected, atol=1e-5)
    low = word_lm(seed=1, init_scale=1.0, dtype="mixed_bfloat16", **TINY)
    assert low(tokens).dtype == tf.float32
    assert low.end_points(tokens)["outputs"].dtype == tf.bfloat16
    np.testing.assert_allclose(low(tokens), expected, atol=0.1)
    model.compile(keras.optimizers.Adam(0.05), loss=summed_cross_entropy, jit_compile=False)
    losses = model.fit(tokens, np.roll(tokens, -1, 1), epochs=25, verbose=0).history["loss"]
    assert losses[-1] < losses[0] * 0.5


@pytest.mark.parametrize("dtype", ["float64", "float16", "mixed_bfloat16"])
def test_the_state_has_the_type_of_the_weights(dtype):
    model = word_lm(carry=2, dtype=dtype, **TINY)
    model({"tokens": np.ones([2, 3], "int32"), "first": np.ones([2], bool)}, training=True)
    state = model.variable("Model/carried_state/train/part_3")
    assert state.dtype == model.variable("Model/softmax_w").dtype
    assert np.abs(state.numpy()).max() > 0


def test_gradients_end_at_the_batch():
    """Truncated back-propagation: the carried state is a constant of the step."""
    model = word_lm(carry=2, seed=1, init_scale=1.0, **TINY)
    batch = {"tokens": np.ones([2, 3], "int32"), "first": np.zeros([2], bool)}
    model(batch, training=True)
    carried = [model.variable(f"Model/carried_state/train/part_{n}").numpy() for n in range(4)]
    plain = word_lm(seed=1, init_scale=1.0, **TINY)
    for name in NAMES:
        plain.variable(name).assign(model.variable(name))
    state = tuple((tf.constant(carried[n]), tf.constant(carried[n + 1])) for n in (0, 2))
    gradients = []
    for run in (lambda: model(batch, training=True), lambda: plain((batch["tokens"], state), training=True)[0]):
        source = model if not gradients else plain
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run() ** 2)
        gradients.append(tape.gradient(loss, [source.variable(n).value for n in NAMES]))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(a), tf.convert_to_tensor(b), atol=1e-4)


def test_state_travels_in_checkpoints_and_resume_is_exact(tmp_path):
    numbers = np.random.default_rng(1).integers(0, 12, 400)
    stream = text_stream(numbers, 4, 6)

    def train(folder, steps, model=None):
        model = model or word_lm(carry=4, seed=9, keep_prob=0.7, **TINY)
        trainer = Trainer(model, learning_rate=1.0, loss=summed_cross_entropy, metrics=(), clip_norm=5.0)
        trainer.fit(stream, steps=steps, folder=folder, progress="none", background_save=False)
        return [model.variable(name).numpy() for name in model.variable_names]

    whole = train(tmp_path / "whole", 9)
    train(tmp_path / "parts", 5)
    resumed = train(tmp_path / "parts", 9)
    for a, b in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("place", "carry", "batch", "more", "message"),
    [
        ("towers", 6, 6, {}, "6 rows does not divide by 4 replicas"),
        ("mirrored", 4, 8, {}, "carries a state of 4 rows, so a batch has as many; the data has 8"),
        (None, 4, 3, {}, "the data has 3"),
        (None, 4, 4, {"workers": 2}, "laid out for 2 workers behind parameter servers, and the strategy has none"),
    ],
)
def test_batches_that_do_not_fit_the_state_are_refused_before_anything_is_written(
    tmp_path, place, carry, batch, more, message
):
    strategy = make_strategy(place or "single")
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = word_lm(carry=carry, **TINY)
        trainer = Trainer(model, strategy=strategy, loss=summed_cross_entropy, metrics=())
    with pytest.raises(ValueError, match=message):
        trainer.fit(text_stream(np.arange(99) % 12, batch, 3, **more), steps=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_carried_state_is_not_split_into_parts(tmp_path):
    model = word_lm(carry=4, **TINY)
    trainer = Trainer(model, loss=summed_cross_entropy, metrics=(), accumulate=2)
    with pytest.raises(ValueError, match="takes part in each pass: take accumulate=1, not 2"):
        trainer.fit(text_stream(np.arange(99) % 12, 4, 3), steps=1, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
