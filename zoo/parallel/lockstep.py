"""Functions that run in turn, one a tower, and meet where they exchange values.

Statistics over all towers (batch norm under `sync`, in the forward and in the backward pass) need values of towers that
are not built yet. So each tower's function has a thread of its own; one runs at a time, in the order of the towers; who
reaches a meeting waits until all have come. The operations of a graph are therefore made in the same order every time.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from zoo.scoping import as_tower, current_frame, in_graph, variable_scope

POLICIES = ("first", "mean", "sync")


class _Abandoned(Exception):  # noqa: N818 - never leaves this module
    """Another tower failed: this one is of no use any more."""


class Lockstep:
    """One run of the towers; `batch_norm` as for `Towers`.

    `weights` are the towers' shares of the batch, scalars that sum to 1; `present` is for each tower 1, or 0 when it
    stands in for an empty share, and None when none does.
    """

    def __init__(
        self, count: int, batch_norm: str, weights: Sequence[Any], present: Sequence[Any] | None = None
    ) -> None:
        self.count, self.batch_norm = count, batch_norm
        self.weights, self.present = list(weights), present
        self._changed = threading.Condition()
        self._turn = 0
        self._failure: BaseException | None = None
        self._over = False
        self._finished = [False] * count
        self._brought: list[Any] = [None] * count
        self._reduced: Any = None
        self._made: list[Any] = []

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs one function a tower and returns what they return; raises the first error of any."""
        graph = tf.compat.v1.get_default_graph()
        if not tf.executing_eagerly():
            graph.switch_to_thread_local()
        results: list[Any] = [None] * self.count
        surroundings = _Surroundings(graph)
        threads = []
        for index, function in enumerate(functions):
            inherited = contextvars.copy_context()

            def work(index: int = index, function: Callable[[], Any] = function, inherited: Any = inherited) -> None:
                try:
                    self._wait(index)
                    results[index] = inherited.run(self._one, index, function, surroundings)
                except _Abandoned:
                    pass
                except BaseException as error:  # handed to the caller's thread
                    self._fail(error)
                finally:
                    self._finished[index] = True
                    self._pass_on(index)

            threads.append(threading.Thread(target=work, name=f"tower_{index}", daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._over = True
        if self._failure is not None:
            raise self._failure
        surroundings.leave()
        return results

    def meet(self, index: int, value: Any, reduce: Callable[[list[Any]], Any]) -> Any:
        """Waits for all towers; `reduce` makes one value of what they brought, and each gets it.

        Raises:
            RuntimeError: a tower ended without coming: the towers' functions differ. Or all have ended.
        """
        if self._over:
            raise RuntimeError(
                "gradients of statistics over all towers (batch_norm='sync') were taken after the towers had ended, "
                "where they cannot meet: take them in the function that the towers run"
            )
        self._brought[index] = value
        if index == self.count - 1:
            if any(self._finished):
                raise RuntimeError("the towers met a different number of times: their functions must be the same")
            self._reduced = reduce(list(self._brought))
        self._pass_on(index)
        self._wait(index)
        if any(self._finished[index:]):
            raise RuntimeError("the towers met a different number of times: their functions must be the same")
        return self._reduced

    def share(self, number: int, make: Callable[[], Any]) -> Any:
        """Returns the `number`-th shared value of this run, made by the tower that first asks: tower 0."""
        if number == len(self._made):
            self._made.append(make())
        return self._made[number]

    def _one(self, index: int, function: Callable[[], Any], surroundings: _Surroundings) -> Any:
        with surroundings.entered(index), as_tower(_Tower(self, index)):
            return function()

    def _wait(self, index: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == index or self._failure is not None)
            if self._failure is not None:
                raise _Abandoned

    def _pass_on(self, index: int) -> None:
        with self._changed:
            following = [(index + step) % self.count for step in range(1, self.count + 1)]
            self._turn = next((i for i in following if not self._finished[i]), -1)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


class _Tower:
    """What `zoo.scoping.replicas` gives to layers inside a tower."""

    def __init__(self, lockstep: Lockstep, index: int) -> None:
        self._lockstep, self.index = lockstep, index
        self.count, self.leads = lockstep.count, index == 0
        self.synchronized = lockstep.batch_norm == "sync"
        self.present = None if lockstep.present is None else lockstep.present[index]
        self._asked = 0

    def sum(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sums over the towers, without a gradient."""

        def reduce(brought: list[list[tf.Tensor]]) -> list[tf.Tensor]:
            return [tf.stop_gradient(tf.add_n(list(parts))) for parts in zip(*brought, strict=True)]

        return list(self._lockstep.meet(self.index, list(values), reduce))

    def statistics(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
        """Returns to tower 0 what moving statistics move towards, by the policy; to the others None."""
        found = list(values)
        if self._lockstep.batch_norm == "mean":
            weight = tf.cast(self._lockstep.weights[self.index], found[0].dtype)
            found = self.sum([value * weight for value in found])
        return found if self.leads else None

    def once(self, make: Callable[[], Any]) -> Any:
        """Returns what tower 0 made at its same request."""
        self._asked += 1
        return self._lockstep.share(self._asked - 1, make)


class _Surroundings:
    """What a tower's thread takes over from the thread that runs the towers: graph, name scope, variable scope."""

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = None if tf.executing_eagerly() else graph
        self._names = graph.get_name_scope() if self.graph is not None else ""
        self._scoped = current_frame() is not None or in_graph()
        if self._scoped:
            self._scope = tf.compat.v1.get_variable_scope()
            self._counts = dict(_scope_store().variable_scopes_count)

    @contextlib.contextmanager
    def entered(self, index: int) -> Iterator[None]:
        """Stands where the towers were started: in the scope ``tower_<index>/``, sharing variables from tower 1 on."""
        with contextlib.ExitStack() as stack:
            if self.graph is not None:
                stack.enter_context(self.graph.as_default())
            if self._scoped:
                _scope_store().variable_scopes_count.update(self._counts)
                reuse = True if index else None
                stack.enter_context(variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False))
            above = f"{self._names}/" if self._names else ""
            stack.enter_context(tf.name_scope(f"{above}tower_{index}/"))
            yield
            if self._scoped and index == 0:
                self._left = dict(_scope_store().variable_scopes_count)

    def leave(self) -> None:
        """Lets default names go on after the towers as after one of them."""
        if self._scoped:
            _scope_store().variable_scopes_count.update(self._left)


def _scope_store() -> Any:
    """TensorFlow's counters of default scope names, a set for each thread."""
    tf.compat.v1.get_variable_scope()  # makes it where there is none
    return tf.compat.v1.get_collection_ref(("__varscope",))[0]
