"""Options of commands that train on many devices: ``@sharing_options`` adds them and gives the command a `Sharing`."""

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

import typer

from zoo.cli._app import choice, explain
from zoo.cli._options import BATCH_NORMS, REDUCTIONS, STRATEGIES
from zoo.cli._records import with_options

_PANEL = "Many devices"
PEER_TIMEOUT = 60.0


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, **more)


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "strategy": (
        Annotated[
            str,
            choice(*STRATEGIES, rich_help_panel=_PANEL, help="How devices share each batch; see 'zoo launch' for two."),
        ],
        "single",
    ),
    "num_gpus": (
        Annotated[int | None, _option(min=1, help="GPUs to use; all that --devices leaves by default.")],
        None,
    ),
    "strict_gpus": (Annotated[bool, _option("--strict-gpus", help="Refuse to run on fewer than asked for.")], False),
    "batch_norm": (
        Annotated[str, choice(*BATCH_NORMS, rich_help_panel=_PANEL, help="Over devices; first: with towers.")],
        "mean",
    ),
    "reduction": (
        Annotated[str, choice(*REDUCTIONS, rich_help_panel=_PANEL, help="How mirrored gradients meet.")],
        "auto",
    ),
    "asynchronous": (
        Annotated[bool, _option("--asynchronous", help="Each tower applies its own gradients: for study.")],
        False,
    ),
    "show_placement": (Annotated[bool, _option("--show-placement", help="Print where variables live.")], False),
    "peer_timeout": (
        Annotated[float, _option(min=1.0, help="Seconds after which a worker ends whose peer is gone.")],
        PEER_TIMEOUT,
    ),
}


@dataclass
class Sharing:
    """How a command's devices share the work, as its options say; the fields are those options."""

    strategy: str
    num_gpus: int | None
    strict_gpus: bool
    batch_norm: str
    reduction: str
    asynchronous: bool
    show_placement: bool
    peer_timeout: float
    _watchdog: Any = field(default=None, init=False)
    _cluster: Any = field(default=None, init=False)

    def serve(self) -> bool:
        """Serves, to the job's end, where this process is a worker or a parameter server of --strategy ps."""
        from zoo.parallel import cluster

        return self.strategy == "ps" and cluster.serve(self.peer_timeout)

    def join(self) -> None:
        """Joins the cluster, if there is one: TensorFlow wants that before all else."""
        from zoo.parallel import cluster

        if self.strategy in ("multiworker", "ps"):
            self._watchdog = cluster.watch(self.strategy, self.peer_timeout)
            self._cluster = self.make()

    def make(self) -> Any:
        """Makes the strategy, or gives that of the cluster joined before; None for one device."""
        from zoo.parallel import make_strategy

        if self._cluster is not None:
            return self._cluster
        if self.strict_gpus and self.num_gpus is None:
            raise ValueError("--strict-gpus refuses fewer GPUs than --num-gpus: give both, or neither")
        if self.peer_timeout != PEER_TIMEOUT and self.strategy not in ("multiworker", "ps"):
            raise ValueError(
                f"--peer-timeout is for multiworker and ps, and --strategy is {self.strategy}: leave it out"
            )
        if self.batch_norm != "mean" and self.strategy in ("single", "ps"):
            raise ValueError(f"--batch-norm {self.batch_norm} needs devices that take a step together")
        return make_strategy(
            self.strategy,
            num_gpus=self.num_gpus,
            strict=self.strict_gpus,
            batch_norm="mean" if self.sync_batch_norm else self.batch_norm,
            synchronous=not self.asynchronous,
            reduction=self.reduction,
        )

    @property
    def sync_batch_norm(self) -> bool:
        """Whether replicas of tf.distribute take the statistics of the whole batch."""
        return self.batch_norm == "sync" and self.strategy in ("mirrored", "multiworker")

    @property
    def writes(self) -> bool:
        """Whether this process writes the files."""
        from zoo.parallel.strategies import is_chief

        return self.strategy not in ("multiworker", "ps") or is_chief()

    def scope(self, place: Any) -> Any:
        """Context in which the model is made."""
        return contextlib.nullcontext() if place is None else place.scope()

    def show(self, variables: Any) -> None:
        """Prints where variables live, if that was asked for."""
        if self.show_placement:
            from zoo.parallel import placement

            typer.echo(placement(variables))

    def done(self) -> None:
        """Ends the watch over the other workers, who may leave now."""
        if self._watchdog is not None:
            self._watchdog.stop()


# TensorFlow's errors in the workers that are left.
_GONE = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")


def _as_chief(command: Callable[[], Any], sharing: Sharing) -> NoReturn:
    """Runs a command and ends the process: TensorFlow's threads would wait at its end for workers that are gone."""
    status = 0
    try:
        sharing.join()
        command()
    except typer.Exit as left:
        status = left.exit_code
    except (Exception, SystemExit) as error:
        if os.environ.get("ZOO_TRACEBACK"):
            traceback.print_exc()
        said, status = explain(error)
        typer.echo(said, err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def sharing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which takes a `Sharing` as its argument ``sharing``.

    In a process that only serves the others (``ps``), the command itself does not run.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        sharing = Sharing(**{name: arguments.pop(name) for name in _OPTIONS})
        if sharing.serve():
            return None
        if sharing.strategy == "ps":
            _as_chief(lambda: command(**arguments, sharing=sharing), sharing)
        sharing.join()
        try:
            return command(**arguments, sharing=sharing)
        except Exception as error:
            if sharing.strategy == "multiworker" and type(error).__name__ in _GONE:
                raise ConnectionError(
                    "another worker is gone; start all tasks again with the same command: they go on from the newest "
                    f"checkpoint. TensorFlow says: {error}"
                ) from error
            raise

    return with_options(run, command, "sharing", _OPTIONS, replaced="sharing")
