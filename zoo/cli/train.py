"""``zoo train``: trains a network and leaves everything in a run folder, from which it can go on at any step."""

from collections.abc import Collection
from typing import Annotated, Any

import typer

from zoo.cli._app import App
from zoo.cli._devices import device_options
from zoo.cli._options import NetOptions, check_numbers, parse_options
from zoo.cli._quiet import import_tensorflow
from zoo.cli._records import configurable, given_options, set_options, with_records
from zoo.cli._sharing import Sharing, sharing_options
from zoo.cli._train_data import Data
from zoo.cli._train_options import DECIDED, Job, Learning, Run, Watching
from zoo.cli._train_pictures import train_pictures
from zoo.cli._train_words import check_options, train_words

app = App()


def _decided(net: str, **_: Any) -> Collection[str]:
    """The options whose defaults the network decides."""
    import_tensorflow()
    from zoo.registry import get_net

    return DECIDED if get_net(net).spec.data == "text" else ()


@app.example(
    "zoo train lenet5 --epochs 5 --out runs/lenet5",
    "zoo train cifarnet --data cifar10 --data-dir DIR --batch 128",
    "zoo train word_lm --data TEXTS --option size=small",
)
@configurable(unset=_decided)
@device_options
@sharing_options
@with_records
def train(
    context: typer.Context,
    net: Annotated[str, typer.Argument(help="A network from 'zoo list' for pictures, or word_lm.")],
    data: Data,
    learning: Learning,
    run: Run,
    watching: Watching,
    option: NetOptions = None,
    *,
    sharing: Sharing,
) -> None:
    """Train a network and leave everything in a run folder.

    That is the model, its weights with a card, metrics, TensorBoard's events and curves.

    A run that was killed, or stopped with Ctrl-C, goes on at the next step when the same command is given again.
    """
    options = parse_options(option)
    check_numbers(context.params)
    from zoo.registry import get_net

    network = get_net(net)
    given, chosen = frozenset(given_options(context)), frozenset(set_options(context))
    job = Job(network, options, data, learning, run, watching, sharing, context, given, chosen)
    words = network.spec.data == "text"
    if words:
        check_options(job)
    network.check_options(options)
    (train_words if words else train_pictures)(job)
