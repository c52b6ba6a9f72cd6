"""Trained weights in and out: the ones that come with zoo, and other people's."""

from zoo.weights.cards import Card
from zoo.weights.fetch import FetchError, cache_folder, fetch, verify
from zoo.weights.files import WeightFile, open_weights, sniff
from zoo.weights.loading import Report, WeightsMismatchError, load
from zoo.weights.saving import card_of, save
from zoo.weights.sources import Source, find_source, list_sources

__all__ = [
    "Card",
    "FetchError",
    "Report",
    "Source",
    "WeightFile",
    "WeightsMismatchError",
    "cache_folder",
    "card_of",
    "fetch",
    "find_source",
    "list_sources",
    "load",
    "open_weights",
    "save",
    "sniff",
    "verify",
]
