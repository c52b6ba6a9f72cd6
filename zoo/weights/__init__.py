"""Trained weights in and out: the ones that come with zoo, and other people's.

The names load when first used, so that ``zoo weights list`` does not import TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.weights.cards import Card as Card
    from zoo.weights.formats import WeightFile as WeightFile
    from zoo.weights.formats import open_weights as open_weights
    from zoo.weights.formats import sniff as sniff
    from zoo.weights.loading import Report as Report
    from zoo.weights.loading import WeightsMismatchError as WeightsMismatchError
    from zoo.weights.loading import load as load
    from zoo.weights.names import CheckpointNamesError as CheckpointNamesError
    from zoo.weights.published import FetchError as FetchError
    from zoo.weights.published import Source as Source
    from zoo.weights.published import cache_folder as cache_folder
    from zoo.weights.published import fetch as fetch
    from zoo.weights.published import find_source as find_source
    from zoo.weights.published import list_sources as list_sources
    from zoo.weights.published import verify as verify
    from zoo.weights.saving import card_of as card_of
    from zoo.weights.saving import save as save
    from zoo.weights.tf1 import read_tf1 as read_tf1
    from zoo.weights.tf1 import restore_tf1 as restore_tf1
    from zoo.weights.tf1 import save_tf1 as save_tf1

_NAMES = {
    name: module
    for module, names in {
        "cards": "Card",
        "formats": "WeightFile open_weights sniff",
        "loading": "Report WeightsMismatchError load",
        "names": "CheckpointNamesError",
        "published": "FetchError Source cache_folder fetch find_source list_sources verify",
        "saving": "card_of save",
        "tf1": "read_tf1 restore_tf1 save_tf1",
    }.items()
    for name in names.split()
}

__all__ = sorted(_NAMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name not in _NAMES:
        raise AttributeError(f"module 'zoo.weights' has no attribute '{name}'")
    value = getattr(import_module(f"zoo.weights.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
