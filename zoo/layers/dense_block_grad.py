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
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from zoo.layers import shared_norm
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
