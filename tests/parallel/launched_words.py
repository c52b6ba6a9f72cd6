"""The carried state behind parameter servers: the losses of steps with a rate of 0, and what they must be.

Usage: python launched_words.py FILE
"""

import os
import sys

import numpy as np

VOCABULARY, ROWS, STEPS, WORKERS, TAKEN = 7, 3, 4, 2, 24


def main(out):
    from zoo.parallel import cluster, make_strategy

    if cluster.serve(30):
        return
    cluster.watch("ps", 60)
    strategy = make_strategy("ps")
    from zoo.data.text import text_stream
    from zoo.nets.word_lm import summed_cross_entropy, word_lm
    from zoo.training import Trainer
    from zoo.training.feed import Feed
    from zoo.training.step import TASK

    numbers = np.random.default_rng(0).integers(0, VOCABULARY, WORKERS * ROWS * (3 * STEPS + 1))
    stream = text_stream(numbers, ROWS, STEPS, workers=WORKERS)
    options = {"vocab_size": VOCABULARY, "hidden": 5, "init_scale": 2.0, "seed": 1}
    with strategy.scope():
        model = word_lm(carry=ROWS, **options)
    settings = {"loss": summed_cross_entropy, "metrics": (), "learning_rate": 0.0}
    trainer = Trainer(model, strategy=strategy, **settings)
    feed = Feed(stream, strategy)
    engine = trainer.build(feed.element_spec)
    feed.open()
    found = engine.train(feed.iterator, TAKEN).losses.numpy()[:, TASK]

    plain = word_lm(**options)
    for name in plain.variable_names:
        plain.variable(name).assign(model.variable(name))
    expected = {True: np.zeros([WORKERS, 3]), False: np.zeros([WORKERS, 3])}
    for carried, losses in expected.items():
        states = [tuple((np.zeros([ROWS, 5], "f"),) * 2 for _ in range(2))] * WORKERS
        for number, (inputs, labels) in enumerate(stream(0)):
            worker, batch = number % WORKERS, number // WORKERS
            logits, state = plain((inputs["tokens"], states[worker]))
            losses[worker, batch] = np.mean(summed_cross_entropy(labels, logits))
            states[worker] = state if carried else states[worker]
    kept = [model.variable(f"Model/carried_state/train/part_{n}").numpy() for n in range(4)]
    wrong = ""
    for workers in (1, 3):
        try:
            trainer.fit(text_stream(numbers, ROWS, STEPS, workers=workers), steps=1, progress="none")
        except ValueError as error:
            wrong += str(error)
    np.savez(out, found=found, carried=expected[True], fresh=expected[False], kept=kept, wrong=wrong)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
