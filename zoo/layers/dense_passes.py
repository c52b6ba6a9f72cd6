"""A dense block and what stands between blocks as passes over tensors, and what each memory level keeps of them.

Layer l of a block is ``dense_layer``: z_l = conv(relu(norm([x, f_1, ..., f_(l-1)]))) and f_l = conv(relu(norm(z_l))).
All levels run it forwards. ``memory="store"`` lets TensorFlow differentiate it and keep what that needs, where with
concatenation the copies grow with the square of the depth. The other levels have a backward pass of their own, which
keeps each feature map once:

  * maps live in *pieces* of some hundred channels: the block's input, then groups of consecutive maps. A convolution
    of a concatenation is the sum of the convolutions of its pieces, so a full piece is never copied again;
  * the statistics of a map are measured once and serve every later layer (see ``shared_norm``);
  * the backward pass recomputes normalisation and ReLU, of one layer and one piece at a time; ``recompute.after``
    keeps that order.

Between blocks, average pooling and a 1 x 1 convolution are both linear and do not mix what the other one does: they
commute. Pooling first gives the paper's transition at a quarter of its multiplications.

All weights go in as tensors, so that their gradients leave through ordinary differentiation: the passes work in a
tape, in ``tf.gradients``, under XLA and in a replica alike. Nothing in here writes to a variable, so computing a part
again changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import tensorflow as tf

from zoo.layers import shared_norm
from zoo.layers.gradients import with_gradient
from zoo.layers.recompute import after
from zoo.layers.shared_norm import Moments

Tensors = Sequence[tf.Tensor]
Normed = tuple[tf.Tensor, tf.Tensor, Moments]  # scale, offset and statistics of a norm, for one piece


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
    gamma: tf.Tensor, beta: tf.Tensor, pieces: Tensors, given: Moments | None, moments: Sequence[Moments]
) -> list[Normed]:
    """Returns a norm's share of each piece, by the pieces' own moments or those given [C] in their place."""
    widths = [int(x.shape[-1]) for x in pieces]  # int: TF1's behavior has Dimensions
    if given is not None:
        moments = list(zip(*(tf.split(v, widths) for v in given), strict=True))
    return list(zip(tf.split(gamma, widths), tf.split(beta, widths), moments, strict=True))


def part_of(kernel: tf.Tensor, pieces: Tensors, i: int) -> tf.Tensor:
    """Returns the part of a kernel [h, w, C, B] that meets the i-th of the pieces."""
    start = sum(int(x.shape[-1]) for x in pieces[:i])
    return kernel[:, :, start : start + int(pieces[i].shape[-1])]


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The settings of a pass over tensors.

    Args:
        epsilon: Added to the variances.
        dropout_rate: Part of the values dropped after each convolution.
        seed: int32 [2]; the masks are functions of it, so they are drawn again rather than kept.
        primitives: ``DIFFERENTIABLE`` if the forward pass is differentiated by TensorFlow.
    """

    epsilon: float
    dropout_rate: float = 0.0
    seed: tf.Tensor | None = None
    primitives: Primitives = PLAIN

    def activate(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, moments: Moments) -> tf.Tensor:
        """Returns relu(norm(x))."""
        return tf.nn.relu(self.primitives.normalise(x, gamma, beta, *moments, self.epsilon))

    def activations(self, pieces: Tensors, norms: Sequence[Normed], token: Tensors = ()) -> list[tf.Tensor]:
        """Returns relu(norm(x)) of each piece, once the token is there."""
        held = norms if not token else [(after(token, gamma)[0], beta, moments) for gamma, beta, moments in norms]
        return [self.activate(x, *norm) for x, norm in zip(pieces, held, strict=True)]

    def drop(self, x: tf.Tensor, which: int, token: Tensors = ()) -> tf.Tensor:
        """Returns x after dropout by the mask of that number."""
        if not self.dropout_rate:
            return x
        seed = after(token, tf.random.experimental.stateless_fold_in(self.seed, which))[0]
        return dropped(x, self.dropout_rate, seed)


@dataclass(frozen=True)
class Block(Passes):
    """A dense block's passes over tensors.

    Args:
        layers: Its layers' weights.
        growth_rate: Maps a layer adds.
        group: Layers whose maps share a piece.
        measured: Whether maps are measured for the batch's statistics.
        given: Statistics to normalise by in place of the batch's, by layer and norm (1 or 2) in it.
    """

    layers: Sequence[Layer]
    growth_rate: int
    group: int
    measured: bool = True
    given: Mapping[tuple[int, int], Moments] = field(default_factory=dict)

    def forward(self, x: tf.Tensor) -> Forward:
        """Computes the block's maps from its input x [N, H, W, C]."""
        pieces, moments = [x], [self.primitives.moments(x)] if self.measured else []
        maps: list[tf.Tensor] = []  # of the piece that is growing
        map_moments: list[Moments] = []
        bottlenecks, bottleneck_moments = {}, {}
        token: list[tf.Tensor] = []
        for index in range(len(self.layers)):
            inputs = [*pieces, tf.concat(maps, -1)] if maps else pieces
            norms = self._norms(index, inputs, [*moments, joined(map_moments)] if map_moments else moments)
            y, z, measured = dense_layer(self, index, inputs, norms, token)
            if z is not None and measured is not None:
                bottlenecks[index], bottleneck_moments[index] = z, measured
            maps.append(y)
            if self.measured:
                map_moments.append(self.primitives.moments(y))
            token = [] if tf.executing_eagerly() else [y]
            if len(maps) == self.group or index == len(self.layers) - 1:
                pieces.append(tf.concat(maps, -1))
                if self.measured:
                    moments.append(joined(map_moments))
                maps, map_moments = [], []
        return Forward(Maps(tuple(pieces), tuple(moments)), bottlenecks, bottleneck_moments)

    def backward(
        self, forward: Forward, dpieces: Tensors, dmoments: Sequence[Moments]
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
            norms = self._norms(index, inputs, _prefixes(moments, inputs) if self.measured else [])
            activations: list[tf.Tensor] = []
            second: list[tf.Tensor] = []
            if layer.kernel2 is not None:
                z = forward.bottlenecks.get(index)
                if z is None:
                    activations = self.activations(inputs, norms, [*token, dy])
                    z = self.drop(conv_sum(activations, layer.kernel), 2 * index, [*token, dy])
                dy, second = self._second_grad(index, z, forward.bottleneck_moments[index], dy, token)
                token = [*token, *second]
            dy = self.drop(dy, 2 * index, token)

            first = []
            for i, (x, (gamma, beta, statistics)) in enumerate(zip(inputs, norms, strict=True)):
                gamma = after([*token, dy], gamma)[0]  # noqa: PLW2901
                a = activations[i] if activations else self.activate(x, gamma, beta, statistics)
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
            dlayers.append(Layer(*_joined_weights(first), *second))
        dx = dmaps[0]
        if self.measured:
            dx = shared_norm.add_statistics_grad(dx, pieces[0], moments[0][0], *dmoments[0])
        return dx, dlayers[::-1]

    def _norms(
        self, index: int, inputs: Tensors, moments: Sequence[Moments]
    ) -> list[tuple[tf.Tensor, tf.Tensor, Moments]]:
        layer = self.layers[index]
        return norms_of(layer.gamma, layer.beta, inputs, self.given.get((index, 1)), moments)

    def _second_grad(
        self, index: int, z: tf.Tensor, moments: Moments, dy: tf.Tensor, token: Tensors
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The gradients of a bottleneck layer's second half: for z, and for its scale, offset and kernel."""
        _, _, _, gamma, beta, kernel = self.layers[index]
        dy = self.drop(dy, 2 * index + 1, token)
        gamma = after([*token, dy], gamma)[0]
        a = self.activate(z, gamma, beta, moments)
        dkernel = conv_kernel_grad(a, kernel, dy)
        da = relu_grad(conv_input_grad(a, kernel, dy), a)
        norm_grad = shared_norm.normalise_grad if (index, 2) in self.given else shared_norm.batch_norm_grad
        dz, dgamma, dbeta = norm_grad(da, z, gamma, *moments, self.epsilon)
        return dz, [dgamma, dbeta, dkernel]


def conv_sum(activations: Tensors, kernel: tf.Tensor) -> tf.Tensor:
    """Returns the convolution of a concatenation, as the sum of those of its pieces."""
    sums = [conv(a, part_of(kernel, activations, i)) for i, a in enumerate(activations)]
    return tf.add_n(sums) if len(sums) > 1 else sums[0]


def dense_layer(
    block: Block, index: int, inputs: Tensors, norms: Sequence[Normed], token: Tensors = ()
) -> tuple[tf.Tensor, tf.Tensor | None, Moments | None]:
    """A layer of the paper (equation 2 and "Bottleneck layers"): its maps [N, H, W, k], and z with its statistics.

    ``inputs`` are all maps before it and ``norms`` the first norm's share of each; without a bottleneck there is no z.
    """
    layer = block.layers[index]
    z = conv_sum(block.activations(inputs, norms, token), layer.kernel)  # norm, ReLU, 1 x 1 convolution
    z = block.drop(z, 2 * index, token)
    if layer.kernel2 is None:
        return z, None, None
    moments = block.given.get((index, 2)) or block.primitives.moments(z)
    y = conv(block.activate(z, layer.gamma2, layer.beta2, moments), layer.kernel2)  # norm, ReLU, 3 x 3 convolution
    return block.drop(y, 2 * index + 1), z, moments


def _prefixes(moments: Sequence[Moments], pieces: Tensors) -> list[Moments]:
    """The statistics of pieces that were perhaps narrower than they are in the end."""
    widths = [int(x.shape[-1]) for x in pieces]
    return [(mean[:c], variance[:c]) for c, (mean, variance) in zip(widths, moments[: len(pieces)], strict=True)]


def _joined_weights(grads: Sequence[Tensors]) -> list[tf.Tensor]:
    """The gradients of scale, offset and kernel, if there is one, from those of their parts for each piece."""
    return [tf.concat(parts, 2 if i == 2 else 0) for i, parts in enumerate(zip(*grads, strict=True))]


def joined(moments: Sequence[Moments]) -> Moments:
    """Returns the statistics of a stack from those of its pieces."""
    means, variances = zip(*moments, strict=True)
    return tf.concat(means, 0), tf.concat(variances, 0)


def _add_prefix(total: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Adds a vector to the first values of a longer one."""
    return total + tf.pad(part, [[0, int(total.shape[0]) - int(part.shape[0])]])


@dataclass(frozen=True)
class Pooled(Passes):
    """The passes over tensors of norm, ReLU, convolution and pooling; dropout stands before the pooling.

    Args:
        gamma: [C], scale over all the pieces' channels.
        beta: [C], offset.
        kernel: [1, 1, C, D]; None for no convolution.
        pool: "AVG" (2 x 2, stride 2) or "MAX" (3 x 3, stride 2).
        padding: Of the pooling: "VALID", "SAME", or pairs for each axis.
        given: Statistics to normalise by in place of the batch's.
    """

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor | None
    pool: str
    padding: str | Sequence[Sequence[int]]
    given: Moments | None = None

    def forward(self, maps: Maps) -> tf.Tensor:
        """Computes the pooled map [N, H', W', D]."""
        sums: list[tf.Tensor] = []
        norms = norms_of(self.gamma, self.beta, maps.pieces, self.given, maps.moments)
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=True)):
            a = self.activate(x, after(sums[-1:], gamma)[0], beta, statistics)
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
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=True)):
            gamma = after(token, gamma)[0]  # noqa: PLW2901
            a = self.activate(x, gamma, beta, statistics)
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
        return dpieces, dmoments, _joined_weights(weights)

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


def run_block(block: Block, inputs: tf.Tensor, memory: str) -> Forward:
    """Computes a block's maps, and the statistics of its bottlenecks, at a level of memory."""
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
    """Computes norm, ReLU, convolution and pooling of maps, [N, H', W', D], at a level of memory."""
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
