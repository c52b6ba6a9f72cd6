"""`multi_gpu`: any registered network as the same model, placed for several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from zoo.parallel.places import Where, check_devices, choose_devices
from zoo.parallel.strategies import mirrored
from zoo.parallel.towers import Share, Towers
from zoo.registry import Net, get_net
from zoo.scoping import Model


class CallingTowers(Towers):
    """Towers that a model runs on by itself, in plain calls and in Keras' `fit`; see `Towers`."""

    def call(self, model: Model, inputs: Any, training: Any) -> Any:
        """Runs each part of a batch on its tower, and joins what comes out.

        The backward pass runs on the towers too, and adds up their gradients of the weights. It has no derivative:
        tapes do not see what the towers' threads do, and NotImplementedError says so of a second derivative, one in
        forward mode, or the first one twice. Fewer examples than towers, as far as known, run on one device.
        """
        flat = [tf.convert_to_tensor(part) for part in tf.nest.flatten(inputs)]
        if flat[0].shape[0] is not None and flat[0].shape[0] < self.count:
            return model.outputs_and_end_points(inputs, training)[0]
        weights = [variable.value for variable in model.trainable_variables]
        structure: list[Any] = []  # of the outputs, filled in by the forward pass

        @tf.custom_gradient
        def joined(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            parts = list(tensors[: len(flat)])
            used: list[bool] = []  # the tapes are, which keep nothing then
            seen: list[tuple[tf.GradientTape, list[tf.Tensor], list[tf.Tensor], Any]] = []

            def forward(share: Share) -> tuple[Any, ...]:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    floats = [part for part in share.batch if part.dtype.is_floating]
                    tape.watch([*floats, *weights])
                    outputs = model.outputs_and_end_points(tf.nest.pack_sequence_as(inputs, share.batch), training)[0]
                    structure[:] = [outputs]
                    found = [part[: share.size] for part in tf.nest.flatten(outputs)]
                return tape, floats, found, share.size

            seen = self.run(forward, parts)
            results = [tf.concat(list(column), 0) for column in zip(*[found for _, _, found, _ in seen], strict=True)]

            def backward(*upstream: tf.Tensor) -> list[Any]:
                if used:
                    _refuse_second()
                used.append(True)
                sizes = [size for *_, size in seen]
                split = [tf.split(gradient, sizes) for gradient in upstream]

                def of_tower(share: Share) -> tuple[list[Any], list[Any]]:
                    tape, floats, found, _ = seen[share.index]
                    down = [gradients[share.index] for gradients in split]
                    both = tape.gradient(found, [*floats, *weights], down)
                    return both[: len(floats)], both[len(floats) :]

                of_inputs, of_weights = zip(*self.run(of_tower, parts), strict=True)
                joined_inputs = [_rows(column, sizes) for column in zip(*of_inputs, strict=True)]
                by_input = iter(joined_inputs)
                first = [next(by_input) if part.dtype.is_floating else None for part in parts]
                return [*first, *(_total(column) for column in zip(*of_weights, strict=True))]

            return results, lambda *upstream: _once(backward, [*tensors, *upstream], upstream)

        outputs = joined(*flat, *(tf.convert_to_tensor(weight) for weight in weights))
        return tf.nest.pack_sequence_as(structure[0], outputs)


def _rows(parts: Sequence[Any], sizes: Sequence[Any]) -> Any:
    if any(part is None for part in parts):
        return None
    return tf.concat([tf.convert_to_tensor(part)[:size] for part, size in zip(parts, sizes, strict=True)], 0)


def _once(backward: Callable[..., list[Any]], sources: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor]) -> list[Any]:
    """The gradients, whose own derivative for any of the sources is refused; without this it would be left out."""
    found = backward(*upstream)
    dense = [i for i, gradient in enumerate(found) if gradient is not None]

    @tf.custom_gradient
    def known(*_: tf.Tensor) -> tuple[list[Any], Callable[..., Any]]:
        return [found[i] for i in dense], _refuse_second

    for i, gradient in zip(dense, known(*sources), strict=True):
        found[i] = gradient
    return found


def _refuse_second(*_: Any) -> Any:
    raise NotImplementedError(
        "a model on towers has first derivatives only, once, in reverse mode: for others set model.towers = None (one "
        "device) or let zoo.training.Trainer place it, whose towers take the loss's derivatives inside"
    )


def _total(parts: Sequence[Any]) -> Any:
    found = [tf.convert_to_tensor(part) for part in parts if part is not None]
    return tf.add_n(found) if found else None


def multi_gpu(
    network: str | Net,
    num_gpus: int | None = None,
    *,
    strategy: str = "towers",
    devices: Sequence[str] | None = None,
    strict: bool = False,
    batch_norm: str = "mean",
    variables: Where = "cpu",
    reduction: str = "auto",
    **options: Any,
) -> Model:
    """Builds a registered network for several GPUs: the same model, with the same variables, names and count.

    It is ready for `zoo.training.Trainer` (which takes up its devices), Keras' `fit`, and plain calls; a batch is the
    global one. Its files load on a machine without a GPU.

    Args:
        network: Name from `zoo.list_nets()`, or the network itself.
        num_gpus: How many GPUs; default all. With fewer there than asked for, it runs on what is there, and a warning
            gives both numbers; logical CPUs stand in where there is no GPU at all.
        strategy: ``towers`` (one copy of the variables, in-graph replication) or ``mirrored`` (a copy on each GPU).
        devices: Names in place of a number.
        strict: Refuse to run on fewer GPUs than asked for.
        batch_norm: For towers ``first``, ``mean`` or ``sync``, see `Towers`; for mirrored ``mean``, or tell the trainer
            ``sync_batch_norm=True``.
        variables: Where towers keep variables, see `Towers`.
        reduction: How mirrored gradients meet, see `make_strategy`.
        **options: Of the network and its builder: ``num_classes``, ``weights``, ``seed``, ...

    Returns:
        A built `zoo.Model`.

    Raises:
        ValueError: An unknown network, strategy or device, or an option that the strategy has not.
        MissingDeviceError: Fewer GPUs than asked for, under `strict`.
    """
    net = network if isinstance(network, Net) else get_net(network)
    if devices is not None and num_gpus is not None:
        raise ValueError(f"give devices or their number, not both; got {list(devices)} and num_gpus={num_gpus}")
    if strategy not in ("towers", "mirrored"):
        raise ValueError(f"multi_gpu places a model by towers or mirrored, got {strategy!r}")
    chosen = check_devices(devices) if devices is not None else choose_devices(num_gpus, strict=strict)
    if strategy == "mirrored":
        if batch_norm != "mean":
            raise ValueError(
                f"mirrored replicas agree by 'mean'; for {batch_norm!r} take towers, or the trainer's option"
            )
        with mirrored(chosen, reduction).scope():
            return net(**options)
    towers = CallingTowers(chosen, variables=variables, batch_norm=batch_norm)
    with towers.scope():
        model = net(**options)
    model.towers = towers
    return model
