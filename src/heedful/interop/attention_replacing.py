"""The attention of an existing model, replaced by that of this library."""

import difflib
from collections.abc import Callable, Iterable

from torch import nn

# Each registers its adapter.
from heedful.attention.masks import Mask
from heedful.attention.normalizers import Normalizer
from heedful.attention.positions.base import RelativePositions
from heedful.attention.scores import Score
from heedful.interop import torch_attention, transformers_attention
from heedful.interop.attention_adapters import (
    AttentionAdapter,
    AttentionPlace,
    ReplacedParts,
    adapter_kinds,
    adapter_of,
)

__all__ = ["replace_attention", "torch_attention", "transformers_attention"]


def replace_attention(
    model: nn.Module,
    *,
    score: Score | Callable[[AttentionPlace], Score] | None = None,
    normalize: Normalizer | Callable[[AttentionPlace], Normalizer] | None = None,
    positions: RelativePositions | Callable[[AttentionPlace], RelativePositions] | None = None,
    mask: Mask | None = None,
    names: Iterable[str] | None = None,
) -> nn.Module:
    """Replace the attention of a PyTorch or Hugging Face model, in place; weights are kept.

    Without other arguments the results are equal, :func:`heedful.watch` shows the weights, and a
    query that may attend to nothing gets zeros. Adapters exist for ``nn.MultiheadAttention`` (also
    in ``nn.Transformer`` and its layers) and for models of transformers that use its attention
    interface (BERT, GPT-2, ViT, Llama, T5, …), whose caches and generation work as before.
    :func:`heedful.interop.attention_adapters.register_attention_adapter` adds others.

    A part is copied for each attention. A part that depends on the heads is a function, such as
    ``lambda place: Additive(place.head_dim, place.head_dim, hidden_dim=64)``. New parameters must
    be trained, so create the optimiser afterwards.

    Args:
        model: the model.
        score: a score instead of the scaled dot product.
        normalize: a normalizer instead of the softmax.
        positions: relative positions; not for models of transformers.
        mask: combined with the masks of the model; not for models of transformers.
        names: names of the attention modules in ``model.named_modules()``; all by default.

    Returns:
        The model, or its replacement if it is an attention module itself.

    Raises:
        ValueError: the model has no attention that an adapter matches, a name is not that of one,
            or a part cannot be used in this model.

    Example:
        >>> import torch
        >>> from heedful import watch
        >>> from heedful.attention import normalizers
        >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> layer = replace_attention(layer, normalize=normalizers.Sparsemax())
        >>> with watch(layer) as seen:
        ...     states = layer(torch.zeros(1, 3, 8))
        >>> seen["self_attn.attention"][0].shape
        torch.Size([1, 2, 3, 3])
    """
    found = _attentions(model)
    if not found:
        kinds = "; ".join(adapter_kinds())
        raise ValueError(
            f"{type(model).__name__} has no attention that can be replaced; adapters exist for: "
            f"{kinds}; register_attention_adapter adds one"
        )
    wanted = list(found) if names is None else list(names)
    for name in wanted:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.0)[0]
            raise ValueError(f"'{name}' is no attention of the model; did you mean '{near}'?")
    parts = ReplacedParts(score, normalize, positions, mask)
    places = _places(model)
    for name in wanted:
        old, adapter = found[name]
        new = adapter.replace(old, name, parts)
        if old is model:
            model = new
        for owner, attribute in places[id(old)]:
            setattr(owner, attribute, new)
    for adapter in {found[name][1] for name in wanted}:
        if adapter.finish is not None:
            adapter.finish(model)
    return model


def _attentions(model: nn.Module) -> dict[str, tuple[nn.Module, AttentionAdapter]]:
    """The outermost modules with an adapter, each with its adapter."""
    found: dict[str, tuple[nn.Module, AttentionAdapter]] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}." if outer else "") for outer in found)
        adapter = None if inside else adapter_of(module)
        if adapter is not None:
            found[name] = module, adapter
    return found


def _places(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Where each module is: it may be shared by several modules."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for owner in model.modules():
        for attribute, part in owner._modules.items():
            if part is not None:
                found.setdefault(id(part), []).append((owner, attribute))
    return {id(model): [], **found}
