"""Text drawn from a known Markov chain: its entropy is the lowest perplexity that any model can reach."""

from __future__ import annotations

import numpy as np


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
