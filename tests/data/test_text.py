"""Folders of text: the three files of a corpus go together."""

import numpy as np
import pytest

from zoo.data.text import Vocabulary, continued_batches, load_corpus, text_stream


@pytest.mark.parametrize("prefix", ["ptb.", ""])
@pytest.mark.parametrize(("there", "missing"), [(["train", "test"], "valid"), (["train", "valid"], "test")])
def test_a_missing_part_is_named(tmp_path, prefix, there, missing):
    for part in there:
        (tmp_path / f"{prefix}{part}.txt").write_text("a b c\n" * 20)
    with pytest.raises(FileNotFoundError, match=rf"but not {prefix}{missing}\.txt: put the missing part there"):
        load_corpus(tmp_path)
    (tmp_path / f"{prefix}{missing}.txt").write_text("a b\n")
    assert len(load_corpus(tmp_path).train) == 80


def test_corpus_of_any_text(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \.txt files"):
        load_corpus(tmp_path)
    (tmp_path / "b.txt").write_text("x y\n" * 30)
    (tmp_path / "a.txt").write_text("z y\n" * 70)
    corpus = load_corpus(tmp_path)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [90 * 3, 5 * 3, 5 * 3]
    assert corpus.vocabulary.words == ["<eos>", "y", "z", "x"]
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        load_corpus(tmp_path)
    other = tmp_path / "parts"
    other.mkdir()
    for part, text in (("train", "a b\n"), ("valid", ""), ("test", "a\n")):
        (other / f"{part}.txt").write_text(text)
    with pytest.raises(ValueError, match="valid part has no words"):
        load_corpus(other)


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_bytes("\ufeffthe cat\r\nthe dog\r\n".encode())
    assert load_corpus(tmp_path).vocabulary.words == ["<eos>", "the", "cat", "dog"]
    other = tmp_path / "any"
    other.mkdir()
    for name in "ab":
        (other / f"{name}.txt").write_bytes("\ufeffx y\n".encode() * 1 + b"x y\n" * 40)
    assert load_corpus(other).vocabulary.words == ["<eos>", "x", "y"]


def test_each_worker_has_rows_of_its_own():
    stream = text_stream(np.arange(100), 2, 3, workers=3)
    tokens, labels = continued_batches(np.arange(100), 6, 3)
    batches = list(stream(0))
    assert stream.batches == len(batches) == 3 * len(tokens)
    for number, (inputs, following) in enumerate(batches):
        part, worker = divmod(number, 3)
        np.testing.assert_array_equal(inputs["tokens"], tokens[part, 2 * worker : 2 * worker + 2])
        np.testing.assert_array_equal(following, labels[part, 2 * worker : 2 * worker + 2])
        np.testing.assert_array_equal(inputs["first"], [part == 0] * 2)
    np.testing.assert_array_equal(next(iter(stream(0, 4)))[0]["tokens"], batches[4][0]["tokens"])
    with pytest.raises(ValueError, match="6 rows of 20 words"):
        text_stream(np.arange(100), 2, 20, workers=3)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        text_stream(np.arange(100), 2, 3, workers=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no words in a.txt: the text is empty"),
        (" \n\n \n", "no words in a.txt: the text is empty"),
        ("one line only", r"a.txt has 1 line\(s\), too few for a part each"),
        ("a b\n" * 30 + "\n" * 10, "the valid part has no words, only white space"),
    ],
)
def test_text_without_words(tmp_path, content, message):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path)


def test_numbers_and_words_that_are_none():
    vocabulary = Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match=r"has the words 0\.\.1, got 3, -1"):
        vocabulary.decode([0, 3, -1])
    with pytest.raises(TypeError, match="give a list of words"):
        vocabulary.encode("a b")
    with pytest.raises(TypeError, match="give a list of words"):
        Vocabulary.build("a b")
    with pytest.raises(ValueError, match=r"vector of word numbers.*float64"):
        continued_batches(np.ones(100), 2, 3)
    with pytest.raises(ValueError, match=r"of shape \(10, 10\)"):
        continued_batches(np.ones([10, 10], int), 2, 3)
