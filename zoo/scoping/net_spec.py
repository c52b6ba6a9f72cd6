"""What a network says about itself: `NetSpec`, which its models carry as `model.spec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Options = Mapping[str, Any]
KEEP: Final = "dropout_keep_prob"
Task = Literal["classify", "tag", "model words"]
DataKind = Literal["pictures", "sequences", "text"]


@dataclass(frozen=True)
class Parts:
    """Which scopes of a network are its heads; the defaults are the names that networks without a `NetSpec` use.

    Args:
      heads: Names of scopes (or variables) of the classifier.
      aux_heads: Names of scopes of auxiliary classifiers.
    """

    heads: Sequence[str] = ("logits", "Logits")
    aux_heads: Sequence[str] = ("AuxLogits",)

    def part_of(self, name: str) -> str:
        """Says from a variable's full name whether it belongs to the "trunk", to an "aux" head or to the "head"."""
        scopes = set(name.split("/"))
        if not scopes.isdisjoint(self.aux_heads):
            return "aux"
        return "trunk" if scopes.isdisjoint(self.heads) else "head"


USUAL_PARTS = Parts()


@dataclass(frozen=True, kw_only=True)
class NetSpec:
    """What is known about a network, and how others handle it.

    Args:
      name: The name to create it by, such as ``"lenet5"``.
      paper: Authors, title and year, with the identifier or address where it can be read.
      input_size: Height, width and channels of the images; for other inputs, the shape of one example.
      num_classes: Default number of classes; None for a network without a classifier.
      published_params: Counts with the default options, as published where they are: ``"trainable"`` and ``"total"``.
      gmacs: Multiply-accumulate operations of the convolutions and dense layers for one example, in 10^9.
      preprocessing: How pictures become inputs, a `zoo.data.preprocessing.Preprocessing`; None where inputs are no
        pictures.
      variants: Other published settings: pairs of options and their ``published_params``.
      inputs: Input of the model for given options, where it is not ``input_size``: a function from the options
        (a dict) to a shape without batch or a structure of ``tf.TensorSpec``.
      computing: Options that change what is computed but no variable's name or shape, such as an activation: weights
        that come with zoo are refused by a model with others.
      heads: Names of the classifier's scopes, or a function from the options to them: what weights of other classes
        leave fresh. Empty where the output layer belongs to the network.
      aux_heads: Names of the scopes of auxiliary classifiers.
      headless: Options that leave all heads out, so that the network ends at its features for inputs of any size that
        it takes; None when it cannot.
      last_map: Name of the last end point that is a map to be pooled: what stands behind it is pooled already. Empty
        where that is the last end point [N, H, W, C].
      worth_reading: End points that a new head may read, pooled, where it is known which are worth it.
      pooled: End points that hold the pooled features, before dropout; the first that a model has counts.
      task: "classify" names an example, "tag" names each of its steps, "model words" says which word comes next.
      data: What an example is: "pictures", "sequences" of features or numbers, or "text", which is read on and on.
      loss: What training makes small: the name of one of the trainer's or Keras' losses, or a function (labels,
        outputs) of its own.
      metric: What its evaluation is measured by: "accuracy" or "perplexity".
      aux_weights: Auxiliary outputs by end point, and the weight of the loss of each beside the main output's.
      dropout: Name of the option that says how much is dropped in training: a rate if it ends so, else the share that
        is kept; empty for a network that drops nothing. Builders know all of them as ``dropout_keep_prob`` too.
      preset_of: Name of the network of which this is a published form, with other defaults; empty for its own.
      elsewhere: What others call the same network: names by "keras" (in ``keras.applications``), "torchvision" and
        "slim".
      builder: The registered ``Net``; set by ``register_net``.
    """

    name: str
    paper: str
    input_size: tuple[int | None, ...]
    num_classes: int | None
    published_params: Mapping[str, int] = field(default_factory=dict)
    gmacs: float | None = None
    preprocessing: Any = None
    variants: Sequence[tuple[Options, Mapping[str, int]]] = ()
    inputs: Callable[[Options], Any] | None = None
    computing: Sequence[str] = ()
    heads: Sequence[str] | Callable[[Options], Sequence[str]] = Parts.heads
    aux_heads: Sequence[str] = Parts.aux_heads
    headless: Options | None = None
    last_map: str = ""
    worth_reading: Sequence[str] = ()
    pooled: Sequence[str] = ("global_pool", "AvgPool_1a")
    task: Task = "classify"
    data: DataKind = "pictures"
    loss: str | Callable[..., Any] = "softmax_cross_entropy"
    metric: Literal["accuracy", "perplexity"] = "accuracy"
    aux_weights: Mapping[str, float] = field(default_factory=dict)
    dropout: str = ""
    preset_of: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    builder: Any = field(default=None, repr=False, compare=False)

    def input_shape(self, options: Options | None = None) -> Any:
        """Returns the input of the model built with these options: a shape without batch, or a structure of specs."""
        return self.inputs(options or {}) if self.inputs else self.input_size

    def own_options(self, options: Options) -> dict[str, Any]:
        """Returns the options under the network's own names: ``dropout_keep_prob`` is what all networks understand.

        Raises:
          ValueError: Both names of one option are given.
        """
        own = dict(options)
        if KEEP not in own or self.dropout in ("", KEEP):
            return own
        if self.dropout in own:
            raise ValueError(f"{self.name}: {KEEP} and {self.dropout} are one option; give one of them.")
        kept = own.pop(KEEP)
        rate = self.dropout.endswith("rate") and kept is not None
        return {**own, self.dropout: 1 - kept if rate else kept}

    def parts(self, options: Options | None = None) -> Parts:
        """Returns which scopes are heads in the network with these options."""
        return Parts(self.heads(options or {}) if callable(self.heads) else self.heads, self.aux_heads)


_SPECS: dict[Any, NetSpec] = {}


def describe(network: Callable[..., Any], spec: NetSpec) -> None:
    """Says what is known about a scoped function; its models carry it as `model.spec`."""
    _SPECS[network] = spec


def description_of(network: Callable[..., Any]) -> NetSpec | None:
    """Returns the `NetSpec` of a scoped function or of a registered `Net`; None where nothing is known."""
    function = inspect.unwrap(network)
    return _SPECS.get(function) if isinstance(function, Hashable) else None


def parts_of(model: Any) -> Parts:
    """Returns which scopes are heads in a model; by the usual names where its network says nothing."""
    spec = getattr(model, "spec", None)
    return spec.parts(model.options) if isinstance(spec, NetSpec) else USUAL_PARTS
