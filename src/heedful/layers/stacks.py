"""The layers of a model: what activation checkpointing repeats and FSDP2 shards one by one."""

from torch import nn


def stacked_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a model by name: composed modules in a ``ModuleList``, outermost first.

    A member without submodules, such as a linear map or an embedding table, is not a layer; nor is
    a member without ``forward``. Layers inside a layer belong to it.

    Example:
        >>> layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))
        >>> list(stacked_layers(nn.ModuleDict({"encoder": layers})))
        ['encoder.0', 'encoder.1']
    """
    found: dict[str, nn.Module] = {}
    for name, part in model.named_modules():
        if not isinstance(part, nn.ModuleList) or any(name.startswith(f"{one}.") for one in found):
            continue
        for number, layer in part.named_children():
            is_called = type(layer).forward is not nn.Module.forward
            if is_called and any(True for _ in layer.children()):
                found[f"{name}.{number}" if name else number] = layer
    return found


def layer_methods(layer: nn.Module) -> tuple[str, ...]:
    """The methods by which models call a layer: its class's ``layer_methods``, or ``forward``."""
    methods: tuple[str, ...] = getattr(layer, "layer_methods", ("forward",))
    return methods


def parts_called_apart(layer: nn.Module) -> dict[str, tuple[str, ...]]:
    """Submodules of a layer that models call themselves, and the methods that they are called by.

    The class of a layer lists them as ``parts_called_apart``. An example is the attention to the
    source in a decoder layer: the model projects the source once, before it calls the layers.
    """
    parts: dict[str, tuple[str, ...]] = getattr(layer, "parts_called_apart", {})
    return parts


def is_sharded_alone(layer: nn.Module) -> bool:
    """Whether FSDP2 may hold a layer's weights apart from those of the rest of the model.

    The class of a layer sets ``sharded_alone = False`` if models read its weights between calls.
    """
    return bool(getattr(layer, "sharded_alone", True))
