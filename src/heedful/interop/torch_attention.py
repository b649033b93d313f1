"""``nn.MultiheadAttention`` of a model, replaced by this library's ``MultiHeadAttention``."""

from torch import Tensor, nn

from heedful.attention import MultiHeadAttention, watch
from heedful.attention.masks import from_torch
from heedful.interop.attention_adapters import (
    AttentionAdapter,
    AttentionPlace,
    ReplacedParts,
    register_attention_adapter,
)


class TorchAttention(nn.Module):
    """A :class:`~heedful.attention.MultiHeadAttention` that is called as ``nn.MultiheadAttention``.

    Masks have PyTorch's meaning, true = masked. A query that may attend to nothing gets zeros, and
    not NaN.

    Args:
        attention: the module.
        batch_first: whether inputs are ``[B, L, D]`` or ``[L, B, D]``.
    """

    # nn.TransformerEncoderLayer reads these to decide whether it computes the attention itself.
    in_proj_weight = None
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(self, attention: MultiHeadAttention, *, batch_first: bool) -> None:
        super().__init__()
        self.attention, self.batch_first = attention, batch_first
        self.num_heads, self.head_dim = attention.heads, attention.head_dim
        self.embed_dim = attention.query_projection.in_features

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights if they are needed; as ``nn.MultiheadAttention``.

        Weights are those before dropout.

        Raises:
            ValueError: ``is_causal`` without ``attn_mask``, or nested tensors.
        """
        if query.is_nested:
            raise ValueError("nested tensors are not supported; pass padded ones with a mask")
        if is_causal and attn_mask is None:
            raise ValueError("is_causal says that attn_mask is causal: pass attn_mask as well")
        batched = query.dim() == 3
        inputs = query, key, value
        if not batched:
            inputs = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        elif not self.batch_first:
            inputs = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        mask = from_torch(attn_mask, key_padding_mask, heads=self.num_heads)
        weights = None
        if need_weights:
            with watch(self.attention, keep_gradients=True) as seen:
                result = self.attention(*inputs, mask=mask)
            weights = seen[""][-1]
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = self.attention(*inputs, mask=mask)
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights


def _replace(module: nn.Module, name: str, parts: ReplacedParts) -> nn.Module:
    assert isinstance(module, nn.MultiheadAttention)
    place = AttentionPlace(name, module.num_heads, module.head_dim)
    attention = MultiHeadAttention.from_torch(module, **parts.build(lambda: place))
    return TorchAttention(attention, batch_first=module.batch_first).train(module.training)


def _finish(model: nn.Module) -> None:
    for part in model.modules():
        # It would pass nested tensors to layers that it believes to be its own.
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False


register_attention_adapter(
    AttentionAdapter(
        "nn.MultiheadAttention",
        lambda module: isinstance(module, nn.MultiheadAttention),
        _replace,
        _finish,
    )
)
