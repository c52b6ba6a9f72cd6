"""Text as sequences of word numbers: vocabulary, the files of a corpus, and batches that go on where the last ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from zoo.data.stream import Stream

END: Final = "<eos>"
UNKNOWN: Final = "<unk>"
PARTS: Final = ("train", "valid", "test")


def words(text: str) -> list[str]:
    """Splits text at white space; every line ends in the word ``<eos>``.

    Args:
        text: Any text. Case and punctuation stay as they are: write spaces around marks that are to be words.

    Returns:
        The words.
    """
    return text.replace("\n", f" {END} ").split()


class Vocabulary:
    """Words and their numbers.

    Args:
        table: The words by number, each once.

    Raises:
        ValueError: No words, or a word twice.
    """

    def __init__(self, table: Sequence[str]) -> None:
        self.words = list(table)
        self.index = {word: number for number, word in enumerate(self.words)}
        if not self.words:
            raise ValueError("a vocabulary needs at least one word: the text is empty")
        if len(self.index) != len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise ValueError(f"a vocabulary has every word once, got twice: {', '.join(map(repr, twice[:5]))}")

    @classmethod
    def build(cls, text: Iterable[str], size: int | None = None) -> Vocabulary:
        """Makes the vocabulary of a text: the most frequent words first, words of equal count in alphabetical order.

        Args:
            text: Words.
            size: Largest number of words. When the text has more, the rest share ``<unk>``, which is one of them.

        Returns:
            The vocabulary.

        Raises:
            ValueError: The text is empty, or `size` is below 2.
            TypeError: A string in place of a list of words.
        """
        _refuse_string(text)
        if size is not None and size < 2:
            raise ValueError(f"size must be at least 2 (a word and {UNKNOWN}), got {size}")
        counts = Counter(text)
        if size is not None and len(counts) > size:
            counts.pop(UNKNOWN, None)
            kept = dict(_by_count(counts)[: size - 1])
            kept[UNKNOWN] = sum(counts.values()) - sum(kept.values())
            counts = Counter(kept)
        return cls([word for word, _ in _by_count(counts)])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: Iterable[str], unknown: str = "unk") -> np.ndarray:
        """Replaces words by their numbers.

        Args:
            text: Words.
            unknown: For words that are not in the vocabulary: "unk" takes ``<unk>``, or leaves the word out where
                there is none (as the PTB tutorial's reader did); "skip" leaves it out; "error" refuses.

        Returns:
            int32 [words].

        Raises:
            ValueError: Unknown words under "error", or another `unknown`.
            TypeError: A string in place of a list of words.
        """
        _refuse_string(text)
        if unknown not in ("unk", "skip", "error"):
            raise ValueError(f"unknown must be 'unk', 'skip' or 'error', got {unknown!r}")
        text = list(text)
        if unknown == "error":
            missing = sorted({word for word in text if word not in self.index})
            if missing:
                raise ValueError(
                    f"not in the vocabulary of {len(self)} words: {', '.join(map(repr, missing[:5]))}"
                    f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}; write {UNKNOWN} or other words"
                )
        other = self.index.get(UNKNOWN) if unknown == "unk" else None
        numbers = (self.index.get(word, other) for word in text)
        return np.array([number for number in numbers if number is not None], np.int32)

    def decode(self, numbers: Iterable[int]) -> str:
        """Writes numbers as text; ``<eos>`` becomes a new line.

        Args:
            numbers: Word numbers.

        Returns:
            The text.

        Raises:
            ValueError: A number that is no word's.
        """
        numbers = [int(number) for number in numbers]
        wrong = [number for number in numbers if not 0 <= number < len(self)]
        if wrong:
            raise ValueError(f"the vocabulary has the words 0..{len(self) - 1}, got {', '.join(map(str, wrong[:5]))}")
        text = " ".join(self.words[number] for number in numbers)
        return "\n".join(line.strip() for line in text.split(END))


def _refuse_string(text: Iterable[str]) -> None:
    if isinstance(text, str):
        raise TypeError(f"give a list of words, as words(text) makes it; got the string {text[:40]!r}")


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class Corpus:
    """A text in three parts, as numbers.

    Args:
        vocabulary: Of the training part.
        train: int32 [words].
        valid: int32 [words].
        test: int32 [words].
    """

    vocabulary: Vocabulary
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def load_corpus(folder: str | Path, vocab_size: int | None = 10_000) -> Corpus:
    """Reads a folder of text.

    ``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt`` (or without ``ptb.``) are the three parts; where one of
    them is there, all must be. Otherwise all ``*.txt`` files, in the order of their names, are one text, of which the
    last tenth of the lines is split between validation and test.

    Args:
        folder: The folder.
        vocab_size: Largest vocabulary, see `Vocabulary.build`; None takes every word of the training part.

    Returns:
        The corpus.

    Raises:
        FileNotFoundError: No folder, no text in it, or some of the three files without the others.
        ValueError: A part without words, or a file that is no UTF-8 text.
    """
    folder = Path(folder)
    texts = _three_files(folder) or _one_text(folder)
    split = {part: words(text) for part, text in texts.items()}
    for part, found in split.items():
        if not set(found) - {END}:
            raise ValueError(f"{folder}: the {part} part has no words, only white space; give it some text")
    vocabulary = Vocabulary.build(split["train"], vocab_size)
    return Corpus(vocabulary, *(vocabulary.encode(split[part]) for part in PARTS))


def _three_files(folder: Path) -> dict[str, str] | None:
    for prefix in ("ptb.", ""):
        paths = {part: folder / f"{prefix}{part}.txt" for part in PARTS}
        missing = [path.name for path in paths.values() if not path.is_file()]
        if not missing:
            return {part: _read(path) for part, path in paths.items()}
        if len(missing) < len(PARTS):
            found = ", ".join(path.name for path in paths.values() if path.is_file())
            raise FileNotFoundError(
                f"{folder} has {found}, but not {' and '.join(missing)}: put the missing part there, or give the files "
                "other names if all .txt files are one text to be split"
            )
    return None


def _one_text(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; give the one with ptb.train.txt and so on, or any .txt files"
        )
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no .txt files; put text there, or the files of the Penn Treebank")
    lines = "".join(text if text.endswith("\n") else text + "\n" for text in map(_read, paths)).splitlines(
        keepends=True
    )
    names = f"{paths[0].name}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}"
    if not "".join(lines).strip():
        raise ValueError(f"{folder}: there are no words in {names}: the text is empty; write some, in lines")
    held = max(len(lines) // 20, 1)
    if len(lines) < 3:
        raise ValueError(
            f"{folder}: {names} has {len(lines)} line(s), too few for a part each to train, validate and test on; give "
            "at least 3, better thousands"
        )
    return {
        "train": "".join(lines[: -2 * held]),
        "valid": "".join(lines[-2 * held : -held]),
        "test": "".join(lines[-held:]),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # a mark at the start is no part of the first word
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from error


def continued_batches(numbers: np.ndarray, batch: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a text into batches so that each row goes on where it ended in the batch before.

    The text is laid out in `batch` rows; batch n holds columns n * steps to (n + 1) * steps, and the labels are one
    word later. What does not fill a batch is dropped.

    Args:
        numbers: int [words].
        batch: Rows.
        steps: Words a row and batch.

    Returns:
        Words and next words, each int32 [batches, batch, steps].

    Raises:
        ValueError: The text is shorter than one batch, or not one row of integers.
    """
    if batch < 1 or steps < 1:
        raise ValueError(f"batch and steps must be at least 1, got {batch} and {steps}")
    numbers = np.asarray(numbers)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(
            f"a text is a vector of word numbers, as Vocabulary.encode makes it; got {numbers.dtype} of shape "
            f"{numbers.shape}"
        )
    numbers = numbers.astype(np.int32)
    columns = len(numbers) // batch
    batches = (columns - 1) // steps
    if batches < 1:
        raise ValueError(
            f"{len(numbers)} words are less than one batch: {batch} rows of {steps} words and their next words need "
            f"{batch * (steps + 1)}; use fewer rows or steps, or more text"
        )
    rows = numbers[: batch * columns].reshape(batch, columns)

    def cut(start: int) -> np.ndarray:
        part = rows[:, start : start + batches * steps]
        return np.ascontiguousarray(part.reshape(batch, batches, steps).transpose(1, 0, 2))

    return cut(0), cut(1)


def text_stream(numbers: np.ndarray, batch: int, steps: int, carry: bool = True, workers: int = 1) -> Stream:
    """Streams a text for training: every epoch is the same pass from the start.

    Args:
        numbers: int [words].
        batch: Rows, of all replicas together.
        steps: Words a row and batch.
        carry: True marks the first batch of the epoch, where a carried state begins; False marks every batch.
        workers: Under parameter servers, how many workers there are. The text is laid out in ``workers * batch`` rows;
            each worker goes through its own `batch` rows, at its own pace and over and over. Batch n is worker
            ``n % workers``'s, and an epoch is as many batches as all of them have.

    Returns:
        A stream of ``({"tokens": int32 [batch, steps], "first": bool [batch]}, labels int32 [batch, steps])``.

    Raises:
        ValueError: The text is shorter than one batch of every worker.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    tokens, labels = continued_batches(numbers, workers * batch, steps)
    tokens, labels = (part.reshape(-1, batch, steps) for part in (tokens, labels))
    first = np.zeros([len(tokens), batch], bool)
    first[: workers if carry else None] = True

    def make_dataset(epoch: int, skip: int) -> tf.data.Dataset:
        part = slice(skip, None)
        inputs = {"tokens": tokens[part], "first": first[part]}
        return tf.data.Dataset.from_tensor_slices((inputs, labels[part])).prefetch(2)

    return Stream(make_dataset, batches=len(tokens), batch_size=batch, workers=workers)
