"""The tensors of a dense block: its forward pass, and the backward pass that keeps each feature map once.

Layer l of a block computes z_l = conv(relu(norm([x, f_1, ..., f_(l-1)]))) and f_l = conv(relu(norm(z_l))). Written
with concatenation, the copies grow with the square of the depth. Here

  * maps live in *pieces* of some hundred channels: the block's input, then groups of consecutive maps. A convolution
    of a concatenation is the sum of the convolutions of its pieces, so a full piece is never copied again;
  * the statistics of a map are measured once and serve every later layer (see ``shared_norm``);
  * the backward pass recomputes normalisation and ReLU, of one layer and one piece at a time.

``recompute.after`` keeps that order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import tensorflow as tf

from zoo.layers import shared_norm
from zoo.layers.gradients import with_gradient
from zoo.layers.recompute import after
from zoo.layers.shared_norm import Moments


class Layer(NamedTuple):
    """The weights of one layer; without a bottleneck the last three are None.

    Args:
        gamma: [C], scale of the norm over all earlier maps.
        beta: [C], its offset.
        kernel: [1, 1, C, B], or [3, 3, C, k] without a bottleneck.
        gamma2: [B], scale of the norm of the bottleneck's output.
        beta2: [B], its offset.
        kernel2: [3, 3, B, k].
    """

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor
    gamma2: tf.Tensor | None = None
    beta2: tf.Tensor | None = None
    kernel2: tf.Tensor | None = None


class Maps(NamedTuple):
    """A stack of feature maps in pieces.

    Args:
        pieces: Maps [N, H, W, C_i]; their concatenation is the stack.
        moments: Mean and biased variance [C_i] of each piece; empty if no layer uses the batch's statistics.
    """

    pieces: tuple[tf.Tensor, ...]
    moments: tuple[Moments, ...]


class Forward(NamedTuple):
    """What a forward pass makes: the block's maps, and the bottlenecks' outputs with their statistics by layer."""

    maps: Maps
    bottlenecks: dict[int, tf.Tensor]
    bottleneck_moments: dict[int, Moments]


class Primitives(NamedTuple):
    """The operations on statistics: kernels without a gradient, kernels with one, or composed of plain operations."""

    moments: Callable[..., Moments]
    normalise: Callable[..., tf.Tensor]


PLAIN = Primitives(shared_norm.moments, shared_norm.normalise)
DIFFERENTIABLE = Primitives(shared_norm.differentiable_moments, shared_norm.differentiable_normalise)
COMPOSED = Primitives(shared_norm.composed_moments, shared_norm.composed_normalise)


def conv(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Returns the convolution of stride 1 that keeps height and width, computed in the map's type."""
    return tf.nn.conv2d(x, tf.cast(kernel, x.dtype), 1, "SAME")


def conv_kernel_grad(x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of ``conv`` for the kernel, in the kernel's type."""
    dkernel = tf.raw_ops.Conv2DBackpropFilter(
        input=x, filter_sizes=kernel.shape.as_list(), out_backprop=dy, strides=[1, 1, 1, 1], padding="SAME"
    )
    return tf.cast(dkernel, kernel.dtype)


def conv_input_grad(x: tf.Tensor, kernel: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of ``conv`` for the map x, of which only the shape is used."""
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=tf.shape(x), filter=tf.cast(kernel, dy.dtype), out_backprop=dy, strides=[1, 1, 1, 1], padding="SAME"
    )


def relu_grad(dy: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Returns dy where y is positive, else 0."""
    return tf.raw_ops.ReluGrad(gradients=dy, features=y)


def dropped(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Drops a part of the values by a mask that depends on the seed alone; linear in x, so also its own gradient."""
    drawn = tf.random.stateless_uniform(tf.shape(x), seed, alg="philox")
    return x * tf.cast(drawn >= rate, x.dtype) * tf.constant(1 / (1 - rate), x.dtype)


def norms_of(
    gamma: tf.Tensor, beta: tf.Tensor, pieces: Sequence[tf.Tensor], given: Moments | None, moments: Sequence[Moments]
) -> list[tuple[tf.Tensor, tf.Tensor, Moments]]:
    """Returns scale, offset and statistics of a norm for each of the pieces that it covers.

    Args:
        gamma: [C], over all the pieces' channels.
        beta: [C].
        pieces: [N, H, W, C_i].
        given: Statistics [C] to use in place of the pieces' own, or None.
        moments: The pieces' own.
    """
    widths = [int(x.shape[-1]) for x in pieces]  # int: TF1's behavior has Dimensions
    if given is not None:
        moments = list(zip(*(tf.split(v, widths) for v in given), strict=False))
    return list(zip(tf.split(gamma, widths), tf.split(beta, widths), moments, strict=False))


def part_of(kernel: tf.Tensor, pieces: Sequence[tf.Tensor], i: int) -> tf.Tensor:
    """Returns the part of a kernel [h, w, C, B] that meets the i-th of the pieces."""
    start = sum(int(x.shape[-1]) for x in pieces[:i])
    return kernel[:, :, start : start + int(pieces[i].shape[-1])]


@dataclass(frozen=True)
class Block:
    """A dense block's passes over tensors.

    Args:
        layers: Its layers' weights.
        growth_rate: Maps a layer adds.
        group: Layers whose maps share a piece.
        epsilon: Added to the variances.
        dropout_rate: Part of the values dropped after each convolution.
        seed: int32 [2]; the masks are functions of it, so they are drawn again rather than kept.
        measured: Whether maps are measured for the batch's statistics.
        given: Statistics to normalise by in place of the batch's, by layer and norm (1 or 2) in it.
        primitives: ``DIFFERENTIABLE`` if the forward pass is differentiated by TensorFlow.
    """

    layers: Sequence[Layer]
    growth_rate: int
    group: int
    epsilon: float
    dropout_rate: float = 0.0
    seed: tf.Tensor | None = None
    measured: bool = True
    given: Mapping[tuple[int, int], Moments] = field(default_factory=dict)
    primitives: Primitives = PLAIN

    def forward(self, x: tf.Tensor) -> Forward:
        """Computes the block's maps from its input x [N, H, W, C]."""
        pieces, moments = [x], [self.primitives.moments(x)] if self.measured else []
        maps: list[tf.Tensor] = []  # of the piece that is growing
        map_moments: list[Moments] = []
        bottlenecks, bottleneck_moments = {}, {}
        token: list[tf.Tensor] = []
        for index, layer in enumerate(self.layers):
            inputs = pieces + ([tf.concat(maps, -1)] if maps else [])
            norms = self._norms(index, inputs, moments + ([_join(map_moments)] if map_moments else []))
            y, _ = self._first(index, inputs, norms, token)
            if layer.kernel2 is not None:
                bottlenecks[index] = y
                bottleneck_moments[index] = self.given.get((index, 2)) or self.primitives.moments(y)
                y = conv(self._activate(y, layer.gamma2, layer.beta2, bottleneck_moments[index]), layer.kernel2)
                y = self._drop(y, 2 * index + 1)
            maps.append(y)
            if self.measured:
                map_moments.append(self.primitives.moments(y))
            token = [y]
            if len(maps) == self.group or index == len(self.layers) - 1:
                pieces.append(tf.concat(maps, -1))
                if self.measured:
                    moments.append(_join(map_moments))
                maps, map_moments = [], []
        return Forward(Maps(tuple(pieces), tuple(moments)), bottlenecks, bottleneck_moments)

    def backward(
        self, forward: Forward, dpieces: Sequence[tf.Tensor], dmoments: Sequence[Moments]
    ) -> tuple[tf.Tensor, list[Layer]]:
        """Returns the gradients for the input and the layers; what ``forward`` left out is computed again.

        Args:
            forward: The forward pass; its ``bottlenecks`` may be empty.
            dpieces: Gradients of the pieces.
            dmoments: Gradients of their statistics; empty if they were not measured.
        """
        pieces, moments = forward.maps
        dmaps: list[tf.Tensor] = list(dpieces)
        dmoments = list(dmoments)
        dlayers: list[Layer] = []
        token: list[tf.Tensor] = []
        for index in reversed(range(len(self.layers))):
            layer, (full, growing) = self.layers[index], divmod(index, self.group)
            # The map this layer made is the last one left of its piece, and nobody else adds to its gradient.
            dmaps[full + 1], dy = tf.split(dmaps[full + 1], [growing * self.growth_rate, self.growth_rate], -1)
            piece = after([*token, dy], pieces[full + 1])[0]
            if self.measured:
                start = growing * self.growth_rate
                y = piece[..., start : start + self.growth_rate]
                own = [v[start : start + self.growth_rate] for v in (moments[full + 1][0], *dmoments[full + 1])]
                dy = shared_norm.add_statistics_grad(dy, y, *own)

            inputs = [*pieces[: full + 1], *([piece[..., : growing * self.growth_rate]] if growing else [])]
            norms = self._norms(
                index, inputs, [tuple(v[: int(x.shape[-1])] for v in m) for x, m in zip(inputs, moments, strict=False)]
            )
            activations: list[tf.Tensor] = []
            second: list[tf.Tensor] = []
            if layer.kernel2 is not None:
                z = forward.bottlenecks.get(index)
                if z is None:
                    z, activations = self._first(index, inputs, norms, [*token, dy])
                dy, second = self._second_grad(index, z, forward.bottleneck_moments[index], dy, token)
                token = [*token, *second]
            dy = self._drop(dy, 2 * index, token)

            first = []
            for i, (x, (gamma, beta, statistics)) in enumerate(zip(inputs, norms, strict=False)):
                gamma = after([*token, dy], gamma)[0]  # noqa: PLW2901
                a = activations[i] if activations else self._activate(x, gamma, beta, statistics)
                kernel = part_of(layer.kernel, inputs, i)
                dkernel = conv_kernel_grad(a, kernel, dy)
                da = relu_grad(conv_input_grad(a, kernel, dy), a)
                dx, dgamma, dbeta = shared_norm.normalise_grad(da, x, gamma, *statistics, self.epsilon)
                if tf.executing_eagerly():
                    dmaps[i] = dmaps[i] + dx
                else:  # without the dependency Grappler makes one AddN of all the block's sums, and keeps their terms
                    with tf.control_dependencies([dkernel]):
                        dmaps[i] = dmaps[i] + dx
                first.append((dgamma, dbeta, dkernel))
                if self.measured and (index, 1) not in self.given:
                    here = shared_norm.statistics_grad(gamma, dgamma, dbeta, statistics[1], self.epsilon)
                    dmoments[i] = (_add_prefix(dmoments[i][0], here[0]), _add_prefix(dmoments[i][1], here[1]))
                token = [dkernel, dbeta]
            dgamma, dbeta, dkernel = (
                tf.concat(parts, axis) for parts, axis in zip(zip(*first, strict=False), (0, 0, 2), strict=False)
            )
            dlayers.append(Layer(dgamma, dbeta, dkernel, *second))
        dx = dmaps[0]
        if self.measured:
            dx = shared_norm.add_statistics_grad(dx, pieces[0], moments[0][0], *dmoments[0])
        return dx, dlayers[::-1]

    def _norms(
        self, index: int, inputs: Sequence[tf.Tensor], moments: Sequence[Moments]
    ) -> list[tuple[tf.Tensor, tf.Tensor, Moments]]:
        layer = self.layers[index]
        return norms_of(layer.gamma, layer.beta, inputs, self.given.get((index, 1)), moments)

    def _first(
        self,
        index: int,
        inputs: Sequence[tf.Tensor],
        norms: Sequence[tuple[tf.Tensor, tf.Tensor, Moments]],
        token: Sequence[tf.Tensor],
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """A layer's first convolution, and the activations that it takes."""
        activations, sums = [], []
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(inputs, norms, strict=False)):
            activations.append(self._activate(x, after(token, gamma)[0], beta, statistics))
            sums.append(conv(activations[-1], part_of(self.layers[index].kernel, inputs, i)))
        return self._drop(tf.add_n(sums) if len(sums) > 1 else sums[0], 2 * index, token), activations

    def _second_grad(
        self, index: int, z: tf.Tensor, moments: Moments, dy: tf.Tensor, token: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The gradients of a bottleneck layer's second half: for z, and for its scale, offset and kernel."""
        _, _, _, gamma, beta, kernel = self.layers[index]
        dy = self._drop(dy, 2 * index + 1, token)
        gamma = after([*token, dy], gamma)[0]
        a = self._activate(z, gamma, beta, moments)
        dkernel = conv_kernel_grad(a, kernel, dy)
        da = relu_grad(conv_input_grad(a, kernel, dy), a)
        norm_grad = shared_norm.normalise_grad if (index, 2) in self.given else shared_norm.batch_norm_grad
        dz, dgamma, dbeta = norm_grad(da, z, gamma, *moments, self.epsilon)
        return dz, [dgamma, dbeta, dkernel]

    def _activate(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, moments: Moments) -> tf.Tensor:
        return tf.nn.relu(self.primitives.normalise(x, gamma, beta, *moments, self.epsilon))

    def _drop(self, x: tf.Tensor, which: int, token: Sequence[tf.Tensor] = ()) -> tf.Tensor:
        if not self.dropout_rate:
            return x
        seed = after(token, tf.random.experimental.stateless_fold_in(self.seed, which))[0]
        return dropped(x, self.dropout_rate, seed)


def _join(moments: Sequence[Moments]) -> Moments:
    means, variances = zip(*moments, strict=False)
    return tf.concat(means, 0), tf.concat(variances, 0)


def _add_prefix(total: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Adds a vector to the first values of a longer one."""
    return total + tf.pad(part, [[0, int(total.shape[0]) - int(part.shape[0])]])


@dataclass(frozen=True)
class Pooled:
    """The passes over tensors of norm, ReLU, convolution and pooling.

    Args:
        gamma: [C], scale over all the pieces' channels.
        beta: [C], offset.
        kernel: [1, 1, C, D]; None for no convolution.
        pool: "AVG" (2 x 2, stride 2) or "MAX" (3 x 3, stride 2).
        padding: Of the pooling: "VALID", "SAME", or pairs for each axis.
        epsilon: Added to the variances.
        dropout_rate: Part of the values dropped after the convolution; it then stands before the pooling.
        seed: int32 [2], decides the mask.
        given: Statistics to normalise by in place of the batch's.
        primitives: ``DIFFERENTIABLE`` if the forward pass is differentiated by TensorFlow.
    """

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor | None
    pool: str
    padding: str | Sequence[Sequence[int]]
    epsilon: float
    dropout_rate: float = 0.0
    seed: tf.Tensor | None = None
    given: Moments | None = None
    primitives: Primitives = PLAIN

    def forward(self, maps: Maps) -> tf.Tensor:
        """Computes the pooled map [N, H', W', D]."""
        sums: list[tf.Tensor] = []
        norms = norms_of(self.gamma, self.beta, maps.pieces, self.given, maps.moments)
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=False)):
            a = tf.nn.relu(self.primitives.normalise(x, *after(sums[-1:], gamma), beta, *statistics, self.epsilon))
            a = a if self.dropout_rate else self._pool(a)
            sums.append(a if self.kernel is None else conv(a, part_of(self.kernel, maps.pieces, i)))
        y = tf.add_n(sums) if len(sums) > 1 else sums[0]
        return self._pool(dropped(y, self.dropout_rate, self.seed)) if self.dropout_rate else y

    def backward(
        self, maps: Maps, y: tf.Tensor, dy: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[Moments], list[tf.Tensor]]:
        """Returns the gradients of the pieces, of their statistics, and of gamma, beta and the kernel.

        Args:
            maps: The input.
            y: The output.
            dy: Its gradient.
        """
        if self.dropout_rate:
            (height, width), channels = maps.pieces[0].shape.as_list()[1:3], int(dy.shape[-1])
            shape = [tf.shape(dy)[0], *tf.unstack(tf.shape(maps.pieces[0])[1:3]), channels]
            dy = self._pool_grad(tf.ensure_shape(tf.zeros(shape, dy.dtype), [None, height, width, channels]), y, dy)
            dy = dropped(dy, self.dropout_rate, self.seed)
        token: list[tf.Tensor] = [dy]
        dpieces, dmoments, weights = [], [], []
        norms = norms_of(self.gamma, self.beta, maps.pieces, self.given, maps.moments)
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=False)):
            gamma = after(token, gamma)[0]  # noqa: PLW2901
            a = tf.nn.relu(shared_norm.normalise(x, gamma, beta, *statistics, self.epsilon))
            pooled, da, dkernel = a, dy, []
            if self.kernel is not None:
                pooled = a if self.dropout_rate else self._pool(a)
                kernel = part_of(self.kernel, maps.pieces, i)
                dkernel = [conv_kernel_grad(pooled, kernel, dy)]
                da = conv_input_grad(pooled, kernel, dy)
            if not self.dropout_rate:
                da = self._pool_grad(a, y, da)
            dx, dgamma, dbeta = shared_norm.normalise_grad(relu_grad(da, a), x, gamma, *statistics, self.epsilon)
            dpieces.append(dx)
            dmoments.append(shared_norm.statistics_grad(gamma, dgamma, dbeta, statistics[1], self.epsilon))
            weights.append([dgamma, dbeta, *dkernel])
            token = [*dkernel, dbeta]
        return (
            dpieces,
            dmoments,
            [tf.concat(parts, axis) for parts, axis in zip(zip(*weights, strict=False), (0, 0, 2), strict=False)],
        )

    def _pool(self, a: tf.Tensor) -> tf.Tensor:
        if self.pool == "AVG":
            return tf.nn.avg_pool2d(a, 2, 2, self.padding)
        padded, padding, _ = self._padded(a)
        return tf.nn.max_pool2d(padded, 3, 2, padding)

    def _pool_grad(self, a: tf.Tensor, y: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        """The gradient for the map a, from that of its pooled map y."""
        if self.pool == "AVG":
            return tf.raw_ops.AvgPoolGrad(
                orig_input_shape=tf.shape(a), grad=dy, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=self.padding
            )
        padded, padding, corner = self._padded(a)
        gradient = tf.raw_ops.MaxPoolGrad(
            orig_input=padded, orig_output=y, grad=dy, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=padding
        )
        return gradient if corner is None else tf.ensure_shape(tf.slice(gradient, corner, tf.shape(a)), a.shape)

    def _padded(self, a: tf.Tensor) -> tuple[tf.Tensor, str, list[int] | None]:
        """The map with explicit padding laid around it, since XLA pools with none, and where the map begins in it.

        Zeros are right: the map is a ReLU's, so no value is lower, and a gradient that falls on a tie at 0 is dropped.
        """
        if isinstance(self.padding, str):
            return a, self.padding, None
        return tf.pad(a, self.padding), "VALID", [before for before, _ in self.padding]


Tensors = Sequence[tf.Tensor]


def run_block(block: Block, inputs: tf.Tensor, memory: str) -> Forward:
    """Computes a block's maps.

    Args:
        block: The block, with plain primitives.
        inputs: [N, H, W, C].
        memory: "store", "recompute" or "minimal".

    Returns:
        The maps and the statistics of the bottlenecks by layer.
    """
    if memory == "store":
        return replace(block, primitives=DIFFERENTIABLE).forward(inputs)
    arity = sum(weight is not None for weight in block.layers[0])

    def of(weights: Tensors, primitives: Primitives = PLAIN) -> Block:
        layers = [Layer(*weights[i : i + arity]) for i in range(0, len(weights), arity)]
        return replace(block, layers=layers, primitives=primitives)

    def without_bottlenecks(found: Forward) -> Forward:
        measured = {i: m for i, m in found.bottleneck_moments.items() if (i, 2) not in block.given}
        return Forward(found.maps, {}, measured)

    structure: list[Forward] = []  # of the outputs, filled in by the forward pass

    def forward(x: tf.Tensor, *weights: tf.Tensor) -> tuple[Forward, Forward]:
        found = of(weights).forward(x)
        structure[:] = [without_bottlenecks(found)]
        return structure[0], found if memory == "recompute" else found._replace(bottlenecks={})

    def backward(tensors: Tensors, kept: Forward, doutputs: Tensors) -> Tensors:
        dmaps = tf.nest.pack_sequence_as(structure[0], doutputs).maps
        dx, dlayers = of(tensors[1:]).backward(kept, dmaps.pieces, dmaps.moments)
        return [dx, *_tensors(dlayers)]

    def plain(x: tf.Tensor, *weights: tf.Tensor) -> Forward:
        return without_bottlenecks(of(weights, COMPOSED).forward(x))

    return with_gradient(forward, backward, plain, inputs, *_tensors(block.layers))


def run_pooled(pooled: Pooled, inputs: Maps, memory: str) -> tf.Tensor:
    """Computes norm, ReLU, convolution and pooling of maps.

    Args:
        pooled: The operation, with plain primitives.
        inputs: The maps and their statistics.
        memory: "store", or one of the levels that compute again.

    Returns:
        [N, H', W', D].
    """
    if memory == "store":
        return replace(pooled, primitives=DIFFERENTIABLE).forward(inputs)
    weights = [w for w in (pooled.gamma, pooled.beta, pooled.kernel) if w is not None]

    def of(tensors: Tensors, primitives: Primitives = PLAIN) -> tuple[Pooled, Maps]:
        given = dict(zip(("gamma", "beta", "kernel"), tensors[: len(weights)], strict=False))  # there may be no kernel
        maps = tf.nest.pack_sequence_as(inputs, tensors[len(weights) :])
        return replace(pooled, primitives=primitives, **given), maps

    def forward(*tensors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        plain_primitives, maps = of(tensors)
        y = plain_primitives.forward(maps)
        return y, y

    def backward(tensors: Tensors, y: tf.Tensor, doutputs: Tensors) -> Tensors:
        plain_primitives, maps = of(tensors)
        dpieces, dmoments, dweights = plain_primitives.backward(maps, y, doutputs[0])
        if pooled.given is not None:  # then the maps' own statistics were not used
            dmoments = tf.nest.map_structure(tf.zeros_like, list(maps.moments))
        return [*dweights, *dpieces, *tf.nest.flatten(dmoments)]

    def plain(*tensors: tf.Tensor) -> tf.Tensor:
        composed, maps = of(tensors, COMPOSED)
        return composed.forward(maps)

    return with_gradient(forward, backward, plain, *weights, *tf.nest.flatten(inputs))


def _tensors(layers: Sequence[Layer]) -> list[tf.Tensor]:
    return [weight for layer in layers for weight in layer if weight is not None]
