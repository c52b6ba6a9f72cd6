"""The baseline of a language model: counts of n words, with add-k and back-off."""

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
