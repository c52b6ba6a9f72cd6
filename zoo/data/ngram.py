"""What a language model is measured by: counts of n words, and text whose lowest possible perplexity is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


class NgramModel:
    """Word probabilities from counts.

        P_1(w)     = (c(w) + k) / (N + k V)
        P_n(w | h) = (c(h w) + k_n P_{n-1}(w | h')) / (c(h) + k_n),   h' = h without its first word

    The pseudo-counts k_n are spread as the shorter history says, so that the sum over the words is 1; a history never
    seen backs off to the shorter one, and k_n = 0 is maximum likelihood.

    Args:
        numbers: int [words]: the training text.
        vocab_size: V.
        order: n; 1 counts words, 2 pairs.
        k: pseudo-counts, of order 1 a word and of higher orders a history.

    Raises:
        ValueError: No words, order below 1, negative pseudo-counts, or a word outside the vocabulary.

    Source: Jurafsky and Martin, "Speech and Language Processing", chapter 3; MacKay and Peto (1995) for the prior.
    """

    def __init__(
        self, numbers: Iterable[int], vocab_size: int, order: int = 3, k: Sequence[float] | None = None
    ) -> None:
        text = [int(number) for number in numbers]
        self.order, self.vocab_size = order, vocab_size
        if not text:
            raise ValueError("an n-gram model needs a text, got no words")
        if order < 1:
            raise ValueError(f"order must be at least 1, got {order}")
        if min(text) < 0 or max(text) >= vocab_size:
            raise ValueError(f"words must be numbers in 0..{vocab_size - 1}, got {min(text)}..{max(text)}")
        self.k = tuple(k) if k is not None else (0.1, *[5.0] * (order - 1))
        if len(self.k) != order or min(self.k) < 0:
            raise ValueError(f"k must be {order} numbers that are not negative, got {self.k}")
        self.total = len(text)
        # The shortest of the shifted texts, whose last word has all others before it, ends each row of histories.
        self.counts: list[Mapping[tuple[int, ...], int]] = [
            Counter(zip(*(text[i:] for i in range(n)), strict=False)) for n in range(1, order + 1)
        ]
        self.histories: list[Mapping[tuple[int, ...], int]] = [
            Counter(zip(*(text[i:-1] for i in range(n)), strict=False)) for n in range(1, order)
        ]

    def probability(self, word: int, history: Sequence[int] = ()) -> float:
        """Returns the probability of a word after a history.

        Args:
            word: its number.
            history: the words before it, the nearest last; only the last n - 1 count.

        Returns:
            P(word | history).
        """
        value = (self.counts[0].get((word,), 0) + self.k[0]) / (self.total + self.k[0] * self.vocab_size)
        for n in range(1, min(self.order, len(history) + 1)):
            context = tuple(history[-n:])
            seen = self.histories[n - 1].get(context, 0)
            if seen + self.k[n]:
                value = (
                    (self.counts[n].get((*context, word), 0) + self.k[n] * value) / (seen + self.k[n])
                    if seen
                    else value
                )
        return value

    def perplexity(self, numbers: Iterable[int]) -> float:
        """Returns exp of the mean negative log probability of a text's words, each after those before it.

        Args:
            numbers: int [words].

        Returns:
            The perplexity; infinite when a word has probability 0.

        Raises:
            ValueError: No words.
        """
        text = [int(number) for number in numbers]
        if not text:
            raise ValueError("perplexity needs a text, got no words")
        reach = self.order - 1
        values = [self.probability(word, text[max(0, i - reach) : i]) for i, word in enumerate(text)]
        with np.errstate(divide="ignore"):
            return float(np.exp(-np.mean(np.log(values))))


class MarkovChain:
    """A random chain of order 2: the next word depends on the last two.

    Args:
        words: Number of words.
        concentration: Of the Dirichlet distribution the rows are drawn from; small makes the text predictable.
        seed: The same seed gives the same chain.

    Raises:
        ValueError: Fewer than two words, or a concentration that is not positive.

    Source: Shannon, "A mathematical theory of communication" (1948), section 7, for the entropy of a chain.
    """

    def __init__(self, words: int, concentration: float = 0.2, seed: int = 0) -> None:
        if words < 2 or concentration <= 0:
            raise ValueError(f"a chain has at least 2 words and a positive concentration, got {words}, {concentration}")
        self.words = words
        rows = np.random.default_rng(seed).dirichlet(np.full(words, concentration), [words, words])
        self.rows = 0.99 * rows + 0.01 / words  # [last but one, last, next]; every word can follow

    def draw(self, length: int, seed: int = 0) -> np.ndarray:
        """Draws a text: int32 [length]."""
        limits = np.cumsum(self.rows, axis=2)
        chances = np.random.default_rng(seed).random(length)
        text = np.zeros(length, np.int32)
        a = b = 0
        for n, chance in enumerate(chances):
            a, b = b, min(int(np.searchsorted(limits[a, b], chance)), self.words - 1)
            text[n] = b
        return text

    @property
    def pairs(self) -> np.ndarray:
        """How often each pair of words stands in a long text: [words, words], sum 1."""
        pairs = np.full([self.words, self.words], self.words**-2.0)
        for _ in range(10_000):
            moved = np.einsum("ab,abc->bc", pairs, self.rows)
            if np.abs(moved - pairs).max() < 1e-15:
                break
            pairs = moved
        return moved

    @property
    def perplexity(self) -> float:
        """``exp`` of the entropy a word, given all words before it: the lowest possible perplexity."""
        return float(np.exp(_entropy(self.pairs, self.rows)))

    def perplexity_without_carry(self, steps: int) -> float:
        """The lowest possible perplexity when every `steps` words the past is forgotten but for the last word."""
        pairs = self.pairs
        following = np.einsum("ab,abc->bc", pairs, self.rows)
        forgetful = _entropy(pairs.sum(0), following / following.sum(1, keepdims=True))
        return float(np.exp((forgetful + (steps - 1) * np.log(self.perplexity)) / steps))


def _entropy(weights: np.ndarray, rows: np.ndarray) -> float:
    """Mean entropy of the rows."""
    return float(-(weights[..., None] * rows * np.log(rows)).sum())
