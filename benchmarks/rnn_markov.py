"""The word model on a text whose lowest possible perplexity is known, with and without the carried state.

    python benchmarks/rnn_markov.py [--epochs 10] [--words 100000]

Writes results/rnn_markov.csv. The text is a random Markov chain of order 2 on 8 words, cut into windows of 5 words;
the model is word_lm small (200 units), its recipe shortened. Goal: within 3 % of the chain's perplexity. Without the
carried state the first word of each window is read without its past; the bound of that row is what is then possible.
With ``--bfloat16`` it writes results/rnn_markov_bfloat16.csv instead: float32 and mixed bfloat16, both with the
carried state, whose perplexities must be the same.
"""

import argparse
import time

import keras
import numpy as np
from paired import write

from zoo.data.ngram import MarkovChain, NgramModel
from zoo.data.text import text_stream
from zoo.nets.word_lm import RECIPES, perplexity, summed_cross_entropy, word_lm
from zoo.training import Trainer

WORDS, STEPS, BATCH = 8, 5, 20


def train(text: np.ndarray, epochs: int, carry: bool, dtype: str) -> keras.Model:
    keras.utils.set_random_seed(0)
    recipe = RECIPES["small"]
    stream = text_stream(text, BATCH, STEPS, carry)
    flat = epochs // 2
    per_epoch = stream.batches

    def rate(step):  # the recipe's: full for some epochs, then halved after each
        epoch = keras.ops.cast(step // per_epoch, "float32")
        return 0.5 ** keras.ops.maximum(epoch + 1 - flat, 0)

    model = word_lm(size="small", vocab_size=WORDS, carry=BATCH, seed=0, dtype=dtype)
    trainer = Trainer(model, learning_rate=rate, loss=summed_cross_entropy, metrics=(), clip_norm=recipe.clip_norm,
                      steps_per_call=50)  # fmt: skip
    trainer.fit(stream, epochs=epochs, progress="none")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--words", type=int, default=100_000)
    parser.add_argument("--bfloat16", action="store_true")
    given = parser.parse_args()
    chain = MarkovChain(WORDS)
    text, test = chain.draw(given.words, 1), chain.draw(40_000, 2)
    trigram = NgramModel(text, WORDS, 3).perplexity(test)
    rows = []
    other = (True, "mixed_bfloat16") if given.bfloat16 else (False, "float32")
    for carry, dtype in ((True, "float32"), other):
        started = time.perf_counter()
        model = train(text, given.epochs, carry, dtype)
        seconds = time.perf_counter() - started
        found = perplexity(model, test, BATCH, STEPS, carry=carry)
        bound = chain.perplexity if carry else chain.perplexity_without_carry(STEPS)
        rows.append(
            {
                "carry": carry,
                "dtype": dtype,
                "perplexity": found,
                "bound": bound,
                "ratio_to_bound": found / bound,
                "ratio_to_chain": found / chain.perplexity,
                "trigram": trigram,
                "seconds": seconds,
            }
        )
    write("rnn_markov_bfloat16" if given.bfloat16 else "rnn_markov", rows)


if __name__ == "__main__":
    main()
