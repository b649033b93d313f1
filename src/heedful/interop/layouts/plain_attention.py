"""The attention that files of other libraries can express: softmax of scaled dot products."""

from collections.abc import Collection, Iterable

from heedful.attention.settings import AttentionSettings
from heedful.basics.errors import UserError

_PLAIN = {
    "kind": "standard",
    "score": "scaled-dot",
    "normalizer": "softmax",
    "mask": "none",
    "latent_size": "0",
    "join": "projection",
    "query_key_norm": "none",
    "mixing": "none",
    "gate": "none",
    "bias": "all",
}


def refuse_mechanisms(
    layers: Iterable[AttentionSettings],
    heads: int,
    dropout: float,
    *,
    score: str = "scaled-dot",
    bias: str = "all",
    head_size: int | None = None,
    supported: Collection[str] = (),
) -> None:
    """Raise UserError if a layer has other attention than the model's table ``[model]`` says.

    Args:
        layers: the settings of the layers of one part of the model.
        heads: ``model.heads``, or that of the decoder.
        dropout: ``model.attention_dropout``.
        score: the score of the layout.
        bias: which projections have a bias in the layout.
        head_size: the width of heads; None if it follows from the width of states.
        supported: settings of which the layout supports other values, too.
    """
    needed = _PLAIN | {"score": score, "bias": bias}
    for one in layers:
        for key, plain in needed.items():
            own = getattr(one, key)
            own = "scaled-dot" if key == "score" and own is None else own
            if key not in supported and own is not None and str(own) != plain:
                raise UserError(
                    f"model.attention.{key} = '{own}': exports support {plain} only; train with "
                    f"--set model.attention.{key}={plain}"
                )
        usuals = {"heads": heads, "key_value_heads": heads, "dropout": dropout}
        for key, usual in {**usuals, "head_size": head_size}.items():
            own = getattr(one, key)
            if key not in supported and own not in (None, usual):
                raise UserError(
                    f"model.attention.{key} = {own}: exports support {usual} in all layers only, "
                    "as the table [model] says"
                )
        if "positions" in supported:
            continue
        if one.positions is not None and one.positions.name != "none":
            raise UserError(
                f"model.attention.positions = '{one.positions}': exports support positions that "
                "are added to embeddings only"
            )
