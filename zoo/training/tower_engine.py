"""The compiled steps over towers: all devices in one graph, one copy of the variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.parallel.gradients import scale_gradient, sum_gradients
from zoo.parallel.towers import Share, Towers
from zoo.training.batch import batch_size
from zoo.training.step import Engine


class TowerEngine(Engine):
    """Steps in which each tower takes its part of the batch; arguments besides `towers` as for `Engine`."""

    def __init__(self, *args: Any, towers: Towers, **options: Any) -> None:
        self.towers = towers
        if options.get("jit_compile"):
            raise ValueError("XLA compiles for one device at a time: jit_compile goes with mirrored, not with towers")
        if options.get("accumulate", 1) > 1 and not towers.synchronous:
            raise ValueError("asynchronous towers apply what they have: they go with accumulate=1 only")
        super().__init__(*args, **options)

    def _everywhere(self, batch: Any, observe: bool = False) -> tuple[Any, ...]:
        size = batch_size(batch)
        divisor = tf.cast(size, tf.float32)
        if self.accumulate > 1:
            examples, regularization, sets, inside = self._accumulated(batch, size, divisor, 1)
            sets = [sets]
        else:
            examples, regularization, sets, inside = self._by_tower(batch, divisor, 1, observe)
        with self.towers.on_variables():
            total = tf.add_n([self._apply(gradients, 1) for gradients in sets])
        seen = (*inside, self._seen_gradients(sets[0])) if observe else ()
        return (tf.reduce_sum(examples) / tf.cast(divisor, examples.dtype), regularization, total), examples, seen

    def _gradients(
        self, batch: Any, divisor: tf.Tensor, shares: Any, observe: bool = False, size: Any = None
    ) -> tuple[Any, ...]:
        """A part of an accumulated batch, over all towers."""
        examples, regularization, sets, inside = self._by_tower(batch, divisor, shares, observe)
        return examples, regularization, sets[0], inside

    def _by_tower(self, batch: Any, divisor: tf.Tensor, shares: Any, observe: bool) -> tuple[Any, ...]:
        """The batch's examples, regularization, gradients (one set, or of each tower), and tower 0 seen from inside."""
        one = super()._gradients
        scaled = not self.towers.synchronous

        def tower(share: Share) -> tuple[Any, ...]:
            # regularization's gradient once: with tower 0, or with each tower that updates alone
            part = shares if share.index == 0 or scaled else None
            examples, regularization, gradients, inside = one(
                share.batch, divisor, part, observe and share.index == 0, share.size
            )
            if scaled:  # the mean of the tower's own examples, and not its part of the batch's
                gradients = [scale_gradient(g, 1 / tf.maximum(share.weight, 1e-9)) for g in gradients]
            return examples, regularization, gradients, inside

        examples, regularization, sets, inside = zip(*self.towers.run(tower, batch), strict=True)
        with self.towers.on_variables():
            joined = [sum_gradients(sets)] if self.towers.synchronous else list(sets)
            return tf.concat(examples, 0), regularization[0], joined, inside[0]

    def _test_parts(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        found = self.towers.run(lambda share: self._test_replica(share.batch, share.size), batch)
        totals, counts = zip(*found, strict=True)
        return tf.add_n(list(totals)), tf.add_n(list(counts))
