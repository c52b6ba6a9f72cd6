"""The inference form of a network: batch norm folded into convolutions, everything that only weights decide computed.

A batch norm by moving statistics is an affine map, y = a x + b with a = gamma / sqrt(variance + epsilon) and
b = beta - a mean. Behind a convolution x = conv(W, i) it is a convolution again, y = conv(a W, i) + b, whose bias and
ReLU TensorFlow's optimizer may make part of it. Behind a sum of convolutions (DenseNet's pieces) each takes the
factor, and one the bias. A norm in front of a convolution stays as it is.

The network is traced once and its graph rewritten, so that any scoped function can be folded, whatever its layers do.
Weights stay inputs of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.scoping import Model
from zoo.scoping.features import one_for_none
from zoo.scoping.specs import cast_to_specs

_SAME = ("Identity", "IdentityN", "StopGradient", "PreventGradient")  # output i is input i
_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
_FLOAT = tf.float32.as_datatype_enum


class Folded(tf.Module):
    """A network's inference form; ``fold`` makes it. It has weights of its own: training the model leaves it as it is.

    Args:
        model: A built model.
        end_point: Which end point it returns; None for the model's outputs.
    """

    def __init__(self, model: Model, end_point: str | None) -> None:
        super().__init__(name=f"{model.name}_folded")
        self.input_specs = model.input_specs
        self._variables = [model.variable(name) for name in model.variable_names]  # a loop in the graph may read them

        def run(inputs: Any) -> Any:
            return model.features(inputs, end_point) if end_point else model.outputs_and_end_points(inputs)[0]

        traced = tf.function(run, autograph=False).get_concrete_function(self.input_specs)
        graph = _Graph(traced)
        graph.fold_norms()
        self.folded_norms, self.norms_left = graph.folded, graph.count("FusedBatchNormV3")
        definition, weights = graph.rewritten()
        structure, outputs = traced.structured_outputs, graph.outputs
        places, captured = graph.places, graph.captured
        self.weights = {name: tf.constant(value) for name, value in weights.items()}

        def forward(inputs: Any) -> Any:
            given = dict(zip(places, tf.nest.flatten(inputs), strict=True)) | captured | self.weights
            used = {i for node in definition.node for i in node.input} | set(outputs)
            inner = _imported(definition, {n: t for n, t in given.items() if n in used}, outputs)
            return tf.nest.pack_sequence_as(structure, inner)

        self.function = tf.function(forward, input_signature=[self.input_specs], autograph=False)

    def __call__(self, inputs: Any) -> Any:
        """Runs the network.

        Args:
            inputs: A batch of network inputs, as for the model.

        Returns:
            What the model returns in inference.
        """
        one = one_for_none(inputs)
        if one is not None:
            return tf.nest.map_structure(lambda y: y[:0], self(one))
        return self.function(cast_to_specs(inputs, self.input_specs))


def fold(model: Model, *, end_point: str | None = None) -> Folded:
    """Returns the inference form of a network: batch norm folded into convolutions, dropout gone.

    In float32 the results are those of the model to 1e-5 of the largest. Training the model afterwards does not change
    it: fold again.

    Args:
        model: A built ``zoo.Model``, of a registered network or any other scoped function.
        end_point: Name of the end point to return; default the model's outputs.

    Returns:
        A function of a batch of inputs, with ``folded_norms`` and ``norms_left``, how many norms were folded away and
        how many stand in front of a convolution, and ``function``, the compiled `tf.function`.

    Raises:
        TypeError: Not a ``zoo.Model``.
        ValueError: The model is not built or has no such end point.

    Source: Jacob et al. 2017, arXiv:1712.05877, section 3.2 (folding); Huang et al. 2016, arXiv:1608.06993.
    """
    if not isinstance(model, Model):
        raise TypeError(f"zoo.fold takes a zoo.Model, got a {type(model).__name__}: zoo.Model(network) makes one")
    if not model.built:
        raise ValueError(f"zoo.fold takes a built model, got {model.name!r}: pass input_shape, or call it on a batch")
    return Folded(model, end_point)


def _imported(definition: Any, feeds: Mapping[str, tf.Tensor], outputs: Iterable[str]) -> list[tf.Tensor]:
    """Puts nodes into the function that is being traced, and returns some of their outputs (or of the fed tensors)."""
    graph = tf.compat.v1.get_default_graph()
    fed = {name: tensor if tf.is_symbolic_tensor(tensor) else graph.capture(tensor) for name, tensor in feeds.items()}
    taken = {i.removesuffix(":0") for node in definition.node for i in node.input}
    made = [o for o in outputs if o not in fed]
    names = [o if ":" in o else f"{o}:0" for o in made]
    used = {name: tensor for name, tensor in fed.items() if name in taken}
    found = dict(zip(made, tf.graph_util.import_graph_def(definition, used, names), strict=True))
    return [fed[o] if o in fed else found[o] for o in outputs]


class _Graph:
    """The nodes of a traced inference, and the values of those that only weights and constants decide.

    A tensor is called as in a GraphDef: ``node`` for output 0, else ``node:1``.
    """

    def __init__(self, traced: Any) -> None:
        definition = traced.graph.as_graph_def()
        self.nodes: dict[str, Any] = {node.name: node for node in definition.node}
        self.library, self.versions = definition.library, definition.versions
        held = len(traced.captured_inputs)
        inputs = traced.inputs[: len(traced.inputs) - held]
        self.places = [t.op.name for t in inputs]
        inside = [t.op.name for t in traced.inputs[len(inputs) :]]
        self.captured = dict(zip(inside, traced.captured_inputs, strict=True))
        self.operations = {op.name: op for op in traced.graph.get_operations()}
        self.weights: dict[str, np.ndarray] = {}  # of folded convolutions, by the names that stand as inputs
        self.folded = 0
        self._follow_identities()
        self.outputs = [self._origin(t.name.removesuffix(":0")) for t in traced.outputs]
        self._find_known()
        self._find_consumers()
        self._evaluate()

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _origin(self, tensor: str) -> str:
        """What a tensor is once identities are gone."""
        while True:
            name, _, index = tensor.partition(":")
            node = self.nodes.get(name)
            if node is None or node.op not in _SAME:
                return tensor
            tensor = [i for i in node.input if not i.startswith("^")][int(index or 0)]

    def _follow_identities(self) -> None:
        for node in self.nodes.values():
            node.attr.pop("_class", None)  # which names nodes that may go
            node.input[:] = [i if i.startswith("^") else self._origin(i) for i in node.input]

    def _find_known(self) -> None:
        """Finds the nodes that weights and constants decide; a variable that something may write is not among them."""
        readers: dict[str, set[str]] = {}
        for node in self.nodes.values():
            for i in node.input:
                readers.setdefault(i, set()).add(node.op)
        fixed = {
            name
            for name, value in self.captured.items()
            if value.dtype != tf.resource or readers.get(name, set()) <= {"ReadVariableOp"}
        }
        self.known: set[str] = set()
        for name, op in self.operations.items():  # in the order they were made: inputs first
            inputs = [i.partition(":")[0] for i in self.nodes[name].input if not i.startswith("^")]
            pure = op.type == "ReadVariableOp" or not op.op_def.is_stateful
            if (
                op.type not in ("Placeholder", "NoOp", *_SAME)
                and pure
                and all(i in self.known or i in fixed for i in inputs)
            ):
                self.known.add(name)

    def _find_consumers(self) -> None:
        """Finds the nodes that the outputs need, or that have an effect, and how often each tensor is taken."""
        effects = [n for n, op in self.operations.items() if op.op_def.is_stateful and op.type != "Placeholder"]
        waiting = [*(o.partition(":")[0] for o in self.outputs), *(n for n in effects if n not in self.known)]
        self.live: set[str] = set()
        self.uses: Counter[str] = Counter(self.outputs)
        while waiting:
            name = waiting.pop()
            if name in self.live or name in self.known:
                continue
            self.live.add(name)
            inputs = [i for i in self.nodes[name].input if not i.startswith("^")]
            self.uses.update(inputs)
            waiting.extend(i.partition(":")[0] for i in inputs)

    def _is_known(self, tensor: str) -> bool:
        return tensor.partition(":")[0] in self.known

    def _evaluate(self) -> None:
        """Computes what the living nodes take of the known ones, and the float32 weights behind a cast."""
        wanted = {i for name in self.live for i in self.nodes[name].input if not i.startswith("^")} | set(self.outputs)
        names = sorted(i for i in wanted if self._is_known(i))
        before = {n: self._wide(n) for n in names}
        names = sorted({*names, *before.values()})
        part = tf.compat.v1.GraphDef(versions=self.versions)
        needed, waiting = set(), [n.partition(":")[0] for n in names]
        while waiting:
            name = waiting.pop()
            if name in needed or name not in self.known:
                continue
            needed.add(name)
            waiting.extend(i.partition(":")[0] for i in self.nodes[name].input if not i.startswith("^"))
        for name, node in self.nodes.items():
            if name in needed:
                part.node.add().CopyFrom(node)
                part.node[-1].input[:] = [i for i in node.input if not i.startswith("^")]
        taken = {i for node in part.node for i in node.input}
        feeds = {name: value for name, value in self.captured.items() if name in taken}

        def values() -> Any:
            return _imported(part, feeds, names)

        found = tf.function(values, autograph=False)() if names else []
        self.values = dict(zip(names, found, strict=True))
        self.wide = {n: self.values[source] for n, source in before.items()}

    def _wide(self, tensor: str) -> str:
        """The float32 weights of which a known tensor is the rounded form, or the tensor itself."""
        node = self.nodes[tensor.partition(":")[0]]
        cast = node.op == "Cast" and node.attr["SrcT"].type == _FLOAT and self._is_known(node.input[0])
        return node.input[0] if cast else tensor

    def count(self, op: str) -> int:
        """How many living nodes are of that operation."""
        return sum(self.nodes[name].op == op for name in self.live)

    # ---- folding -----------------------------------------------------------------------------------------------------

    def fold_norms(self) -> None:
        """Folds each batch norm by given statistics into the convolution, or the sum of convolutions, before it."""
        for name in [n for n in self.nodes if n in self.live]:
            norm = self.nodes[name]
            if norm.op != "FusedBatchNormV3" or norm.attr["is_training"].b or norm.attr["data_format"].s != b"NHWC":
                continue
            source = self.nodes[norm.input[0].partition(":")[0]]
            terms = [i for i in source.input if not i.startswith("^")] if source.op == "AddN" else [norm.input[0]]
            alone = self.uses[norm.input[0]] == 1 and all(self.uses[t] == 1 for t in terms)
            parameters = all(self._is_known(i) for i in norm.input[1:5])
            statistics = any(self.uses[f"{name}:{i}"] for i in range(1, 6))  # somebody takes them
            if alone and parameters and not statistics and all(self._is_convolution(t) for t in terms):
                self._fold(norm, terms, source)

    def _is_convolution(self, tensor: str) -> bool:
        node = self.nodes[tensor.partition(":")[0]]
        known = node.op in _CONVOLUTIONS and self._is_known(node.input[1])
        return known and node.attr["data_format"].s in (b"", b"NHWC") and ":" not in tensor

    def _fold(self, norm: Any, terms: list[str], source: Any) -> None:
        values = [np.asarray(self.values[i], np.float64) for i in norm.input[1:5]]
        gamma, beta, mean, variance = values
        factor = gamma / np.sqrt(variance + norm.attr["epsilon"].f)
        for term in terms:
            node = self.nodes[term]
            kernel = np.asarray(self.wide[node.input[1]], np.float64)
            by = factor.reshape(kernel.shape[2:]) if node.op == "DepthwiseConv2dNative" else factor
            node.input[1] = self._weight(f"{term}/folded", kernel * by, node)
        bias = self._weight(f"{norm.name}/bias", beta - factor * mean, norm)
        name = norm.name
        last = self._node("BiasAdd", name if len(terms) == 1 else f"{name}/biased", [terms[-1], bias], norm)
        last.attr["data_format"].s = b"NHWC"
        if len(terms) > 1:
            rest = terms[0]
            if len(terms) > 2:  # the sum's own node, of one term less
                source.input[:] = terms[:-1]
                source.attr["N"].i = len(terms) - 1
                rest = source.name
            else:
                self.live.discard(source.name)
            self._node("AddV2", name, [last.name, rest], norm)
        self.folded += 1

    def _weight(self, name: str, value: np.ndarray, like: Any) -> str:
        dtype = tf.as_dtype(like.attr["T"].type).as_numpy_dtype
        self.weights[name] = value.astype(np.float32).astype(dtype)
        return name

    def _node(self, op: str, name: str, inputs: Iterable[str], like: Any) -> Any:
        node = tf.compat.v1.NodeDef(op=op, name=name, input=list(inputs))
        node.attr["T"].type = like.attr["T"].type
        self.nodes[name] = node
        self.live.add(name)
        return node

    # ---- writing -----------------------------------------------------------------------------------------------------

    def rewritten(self) -> tuple[Any, Mapping[str, Any]]:
        """The graph of what is left, and the weights that it takes, by the names that stand as its inputs."""
        definition = tf.compat.v1.GraphDef(versions=self.versions, library=self.library)
        weights: dict[str, Any] = dict(self.weights)
        constants: set[str] = set()
        starts = {*self.places, *self.captured}
        kept = self.live - starts
        for name, node in self.nodes.items():
            if name not in kept:
                continue
            copy = definition.node.add()
            copy.CopyFrom(node)
            inputs = []
            for tensor in node.input:
                if tensor.startswith("^"):
                    inputs += [tensor] if tensor[1:] in kept else []
                elif self._is_known(tensor):
                    inputs.append(self._constant(definition, tensor, constants, weights))
                else:
                    inputs.append(tensor)
            copy.input[:] = inputs
        self.outputs = [
            self._constant(definition, o, constants, weights) if self._is_known(o) else o for o in self.outputs
        ]
        return definition, weights

    def _constant(self, definition: Any, tensor: str, constants: set[str], weights: dict[str, Any]) -> str:
        """A known tensor's place: weights are fed, sizes and single numbers are constants, which shapes depend on."""
        value = self.values[tensor]
        name = tensor.replace(":", "/") + "/value"
        if value.dtype.is_floating and value.shape.rank:
            weights[name] = value
        elif name not in constants:
            constants.add(name)
            node = definition.node.add(op="Const", name=name)
            node.attr["dtype"].type = value.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value.numpy(), value.dtype, value.shape))
        return name
