"""The list of networks: what each is, how it is found by name, and how it becomes a model.

An index says which module has which network, so that listing them imports no TensorFlow, and making one imports only
its own module.

``@register_net(NetSpec(...))`` turns a scoped function into a ``Net``. Called without a tensor a ``Net`` builds the
Keras model; called with one it is the scoped function, applied where it stands, so that networks compose.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import inspect
import json
import numbers
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, get_origin, overload

if TYPE_CHECKING:
    from zoo.scoping import Model, NetSpec

Network: TypeAlias = Callable[..., Any]

# Options of a builder that are not options of the network.
_BUILDER_OPTIONS = ("weights", "name", "input_shape", "seed", "dtype")


class TensorLike(Protocol):
    """Anything with a shape and a dtype: a ``tf.Tensor``, a variable, a NumPy array."""

    @property
    def shape(self) -> Any:
        """The sizes of the axes."""

    @property
    def dtype(self) -> Any:
        """The type of the elements."""


class Net:
    """A registered network: its scoped function, its metadata, and the builder of its Keras model.

    Args:
        network: The scoped function, ``network(inputs, *, is_training=False, **options)``.
        spec: What is published about it.
    """

    def __init__(self, network: Network, spec: NetSpec) -> None:
        from zoo.scoping import describe

        self.network = network
        self.spec = replace(spec, builder=self)
        describe(network, self.spec)
        self.__name__ = spec.name
        self.__doc__ = network.__doc__
        self.__wrapped__ = network  # inspect.signature and help() show the network's own arguments

    def __repr__(self) -> str:
        return f"<zoo network {self.spec.name}>"

    @overload
    def __call__(
        self,
        num_classes: int | None = ...,
        *,
        weights: str | None = ...,
        name: str | None = ...,
        input_shape: Any = ...,
        seed: int | None = ...,
        **options: Any,
    ) -> Model: ...

    @overload
    def __call__(
        self, inputs: TensorLike | Sequence[TensorLike] | Mapping[str, TensorLike], *args: Any, **options: Any
    ) -> tuple[Any, dict[str, Any]]: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Builds the Keras model or, given inputs first, applies the scoped function to them.

        Args:
            *args: Nothing, or the network's own positional options (``num_classes``), to build a model; inputs first
                to apply the function.
            **options: The network's options. A builder also takes ``weights`` (None: new weights; the name of
                weights that come with zoo or are published, or a path in any format of ``zoo.weights``), ``name``,
                ``input_shape``, ``seed`` and ``dtype`` (a Keras policy).

        Returns:
            A built ``zoo.Model``, or what the network returns: ``(outputs, end_points)``.

        Raises:
            ValueError: An option that the network does not have, or weights that do not fit.
            TypeError: A symbolic Keras tensor as the inputs.
        """
        if args and not isinstance(args[0], numbers.Integral | str | type(None)):
            if type(args[0]).__name__ == "KerasTensor":
                name = self.spec.name
                raise TypeError(f"{name}: a symbolic Keras input needs the model: write zoo.{name}(...)(inputs).")
            return self.network(*args, **options)
        return self._build(*args, **options)

    def options(self) -> dict[str, Any]:
        """Returns the options a builder takes, with their defaults."""
        parameters = list(inspect.signature(self.network).parameters.values())[1:]
        named = {p.name: p.default for p in parameters if p.kind != p.VAR_KEYWORD and p.name != "is_training"}
        return named | dict.fromkeys(_BUILDER_OPTIONS)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError for an option that the network does not have, naming the nearest, or of another type."""
        parameters = inspect.signature(self.network).parameters
        known = self.options()
        for option, value in self.spec.own_options(options).items():
            if option not in known and not any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
                advice = self._instead(option, known)
                if advice:
                    raise ValueError(f"{self.spec.name} has no option {option!r}: {advice}.")
                raise ValueError(_unknown(f"{self.spec.name} has no option", option, known, "its options are"))
            if option in parameters and (wanted := _misfit(parameters[option].annotation, value)):
                raise ValueError(f"{self.spec.name} takes {option} as {wanted}. Received: {value!r}")

    def _instead(self, option: str, known: Mapping[str, Any]) -> str:
        """What to write for an option that Keras' applications have; "" for any other."""
        headless = ", ".join(f"{name}={value!r}" for name, value in (self.spec.headless or {}).items())
        return {
            "include_top": f"{headless} leaves the classifier out"
            if headless
            else "the network has a classifier always",
            "classes": "write num_classes" if "num_classes" in known else "",
            "pooling": "model.bottleneck(images) gives the pooled features",
            "input_tensor": f"build the model and call it: zoo.{self.spec.name}(...)(inputs)",
            "classifier_activation": "networks return logits; tf.nn.softmax makes probabilities of them",
        }.get(option, "")

    def _build(self, *args: Any, **options: Any) -> Model:
        positional = dict(zip(self.options(), args, strict=False))  # the rest have their defaults
        if len(args) > len(positional) or positional.keys() & options.keys():
            raise TypeError(f"{self.spec.name}: {args} with {sorted(options)} gives an option twice, or too many.")
        options = self.spec.own_options(positional | options)
        self.check_options(options)
        weights, name, input_shape, seed, dtype = (options.pop(option, None) for option in _BUILDER_OPTIONS)
        from zoo.scoping import Model
        from zoo.weights import loading

        file = None
        if weights is not None:
            file, options = loading.open_for(self.spec, weights, options, self.options())
        if input_shape is None:
            input_shape = loading.input_shape(file) or self.spec.input_shape(options)
        model = Model(
            self.network, name=name or self.spec.name, input_shape=input_shape, seed=seed, dtype=dtype, **options
        )
        if weights is not None:
            loading.load_for(model, self.spec.name, weights, file)
        loading.complete_card(model, self.spec.name, self.spec.preprocessing, input_shape)
        return model


_NETS: dict[str, Net] = {}
_INDEX = Path(__file__).with_name("nets") / "index.json"


def register_net(spec: NetSpec) -> Callable[[Network], Net]:
    """Registers the decorated scoped function under ``spec.name`` and turns it into a ``Net``.

    Args:
        spec: What is published about the network.

    Returns:
        A decorator from the function to its ``Net``.

    Raises:
        ValueError: The name is taken by another function.
    """
    from zoo.scoping import register_function

    def decorate(network: Network) -> Net:
        taken = _NETS.get(spec.name)
        if taken and _place(taken.network) != _place(network):
            raise ValueError(
                f"A network is registered once: {spec.name!r} is {_place(taken.network)} already, "
                f"and {_place(network)} wants the same name; give it another."
            )
        net = _NETS[spec.name] = Net(register_function(spec.name)(network), spec)
        return net

    return decorate


def list_nets(pattern: str = "*") -> list[str]:
    """Returns the names of the registered networks that match, in natural order; imports none of them.

    Args:
        pattern: A glob such as ``"dense*"``; every network by default.

    Returns:
        The names, so ordered that ``densenet40`` comes before ``densenet121``. Empty when none matches.
    """
    return sorted(fnmatch.filter({*index(), *_NETS}, pattern), key=_digits_as_numbers)


def get_net(name: str) -> Net:
    """Returns the registered ``Net`` of this name; imports its module.

    Args:
        name: A name from ``list_nets()``.

    Returns:
        The ``Net``: call it to build the model.

    Raises:
        ValueError: No network has this name; the message lists the nearest.
    """
    if name not in _NETS and name in index():
        import_module(index()[name]["module"])
    if name not in _NETS:
        raise ValueError(_unknown("There is no network", name, {**index(), **_NETS}, "there are"))
    return _NETS[name]


@functools.cache
def index() -> dict[str, dict[str, Any]]:
    """Returns what ``zoo list`` says of zoo's own networks, by name: ``module`` and some of the spec."""
    return dict(json.loads(_INDEX.read_text()))


def made_index() -> dict[str, dict[str, Any]]:
    """Imports every module of ``zoo.nets`` and returns what the index has to say of them."""
    nets = import_module("zoo.nets")
    for module in pkgutil.iter_modules(nets.__path__, "zoo.nets."):
        import_module(module.name)
    own = {name: net for name, net in _NETS.items() if net.network.__module__.startswith("zoo.nets.")}
    return {
        name: {
            "module": own[name].network.__module__,
            "input_size": list(own[name].spec.input_size),
            **{key: getattr(own[name].spec, key) for key in ("num_classes", "task", "data", "gmacs", "paper")},
            "published_params": dict(own[name].spec.published_params),
        }
        for name in sorted(own, key=_digits_as_numbers)
    }


def write_index() -> None:
    """Writes the index anew, after a network of zoo's own was added or changed (``make index``)."""
    _INDEX.write_text(json.dumps(made_index(), indent=1) + "\n")


def _digits_as_numbers(name: str) -> list[Any]:
    """``densenet40`` before ``densenet121``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def create(name: str, **options: Any) -> Model:
    """Builds the network of this name as a Keras model.

    Args:
        name: A name from ``list_nets()``.
        **options: The network's options, and the builder's (see ``Net``).

    Returns:
        A built ``zoo.Model``.

    Raises:
        ValueError: No network has this name, or the network lacks one of the options.
    """
    return get_net(name)._build(**options)


_PLAIN: dict[str, tuple[Any, str]] = {
    "int": (numbers.Integral, "a whole number"),
    "float": (numbers.Real, "a number"),
    "bool": (bool, "True or False"),
    "str": (str, "a text"),
    "None": (type(None), "None"),
}


def _misfit(annotation: Any, value: Any) -> str:
    """What an option must be when a plain value is of another type; "" for what fits, and for tensors and objects."""
    plain = isinstance(annotation, type) and not get_origin(annotation)  # to Python 3.10 `Sequence[int]` is a type too
    names = (annotation.__name__ if plain else str(annotation)).split(" | ")
    if names[0].endswith("Sequence[int]"):
        fits = isinstance(value, list | tuple) and not any(_misfit("int", item) for item in value)
        return "" if fits or not isinstance(value, str | int | float | list | tuple) else "whole numbers, as (6, 12)"
    if not set(names) <= _PLAIN.keys() or not isinstance(value, str | int | float | list | tuple | dict | None):
        return ""
    kinds = [_PLAIN[name][0] for name in names if name == "bool" or not isinstance(value, bool)]
    return "" if isinstance(value, tuple(kinds)) else " or ".join(_PLAIN[name][1] for name in names)


def _place(network: Network) -> str:
    return f"{network.__module__}.{network.__qualname__}"


def _unknown(rule: str, name: str, known: Mapping[str, Any], all_are: str) -> str:
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if nearest:
        return f"{rule} {name!r}; did you mean {' or '.join(map(repr, nearest))}?"
    return f"{rule} {name!r}; {all_are} {', '.join(sorted(known))}."
