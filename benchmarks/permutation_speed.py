"""Training steps of XLNet beside a plain PyTorch loop of the same network and transformers.

    python benchmarks/permutation_speed.py [--size tiny] [--rounds 7] [--rows 32] [--length 128]

A step is the loss of permutation language modelling over random rows and its gradients, with one of
six tokens predicted and dropout of 0.1. The plain loop has the same weights: matrix products,
additions, the shift of the paper's appendix B, ``softmax`` and ``F.dropout``, for N queries of
the query stream, and without the last states of the content stream, which no query reads. One
thread; the sides take turns in one process, and times are those of the processor, so that other
programs disturb them less. transformers' model computes all L queries in both streams.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.layers.dropout import Dropout
from heedful.layers.two_streams import StreamHeads
from heedful.models.encoders import Sequences
from heedful.models.xlnet import PermutationHead, Predicted, XLNet, XLNetSettings
from reporting import machine, said, summarised, table

VOCABULARY, ONE_IN = 8000, 6
SIDES = ("plain PyTorch", "heedful", "transformers")


class Plain:
    """The plain loop, with the weights of an XLNet."""

    def __init__(self, model: XLNet, head: PermutationHead, dropout: float) -> None:
        self.model, self.head, self.dropout = model, head, dropout

    def loss(self, batch: Sequences, order: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        """The mean of −log p of the predicted tokens; all rows have the same length."""
        model, length = self.model, batch.tokens.shape[1]
        h = self.drop(F.embedding(batch.tokens, model.tokens.weight))
        g = self.drop(model.query_start.expand(*places.shape, -1))
        distance = torch.arange(length - 1, -length, -1.0)
        angles = distance[:, None] / 10000 ** (torch.arange(0, model.dim, 2) / model.dim)
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        unseen = (order[:, None] > order[:, :, None])[:, None]
        own = order.gather(1, places)
        unseen_g = (order[:, None] >= own[:, :, None])[:, None]
        index = length - 1 - places[:, :, None] + torch.arange(length)
        for number, layer in enumerate(model.layers):
            part = layer.attention
            key, value = self.split(h, part.key_projection), self.split(h, part.value_projection)
            by_place = part.positions.projection @ waves.T  # [H, d, 2 L − 1]
            query = self.split(g, part.query_projection)
            bias = (query + part.positions.position_bias[:, None]) @ by_place
            bias = bias.gather(3, index[:, None].expand(-1, bias.shape[1], -1, -1))
            g = self.block(layer, g, query, key, value, bias, unseen_g)
            if number + 1 < len(model.layers):
                query = self.split(h, part.query_projection)
                bias = (query + part.positions.position_bias[:, None]) @ by_place
                bias = bias.flatten(2)[..., length - 1 : -1].unflatten(2, (length, -1))
                h = self.block(layer, h, query, key, value, bias[..., :length], unseen)
        logits = F.linear(self.drop(g).flatten(0, 1), model.tokens.weight, self.head.bias)
        return F.cross_entropy(logits, labels.flatten())

    def split(self, states: Tensor, projection: Any) -> Tensor:
        """``[B, L, D] -> [B, H, L, d]``."""
        heads = self.model.settings.heads
        return projection(states).unflatten(-1, (heads, -1)).transpose(1, 2)

    def drop(self, states: Tensor) -> Tensor:
        """Dropout."""
        return F.dropout(states, self.dropout)

    def block(
        self, layer: Any, x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor,
        unseen: Tensor,
    ) -> Tensor:  # fmt: skip
        """A layer for one stream."""
        part = layer.attention
        scores = (query + part.positions.content_bias[:, None]) @ key.mT + bias
        scores = (scores * query.shape[-1] ** -0.5).masked_fill(unseen, -1e30)
        context = self.drop(scores.softmax(-1)) @ value
        joined = part.output_projection(context.transpose(1, 2).flatten(2))
        x = layer.around_attention.norm(x + self.drop(joined))
        inner = self.drop(F.gelu(layer.feed_forward.expand(x)))
        x_after = x + self.drop(layer.feed_forward.contract(inner))
        result: Tensor = layer.around_feed_forward.norm(x_after)
        return result


def theirs(settings: XLNetSettings, batch: Sequences, order: Tensor, places: Tensor) -> Any:
    """A step of transformers' model with weights of its own; None if it is not installed."""
    try:
        from transformers import XLNetConfig, XLNetLMHeadModel
    except ImportError:
        return None
    config = XLNetConfig(
        vocab_size=VOCABULARY, d_model=settings.hidden_size, n_layer=settings.layers,
        n_head=settings.heads, d_inner=settings.ffn_size, mem_len=None,
    )  # fmt: skip
    model = XLNetLMHeadModel(config).train()
    unseen = (order[:, None] > order[:, :, None]) | (
        (order[:, None] == order[:, :, None]) & (order >= 0)[:, None]
    )
    mapping = F.one_hot(places, batch.tokens.shape[1]).float()

    def loss() -> Tensor:
        given = {"perm_mask": unseen.float(), "target_mapping": mapping, "use_mems": False}
        logits = model(batch.tokens, **given).logits
        return F.cross_entropy(logits.flatten(0, 1), batch.tokens.gather(1, places).flatten())

    return model, loss


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of all sides."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    settings = XLNetSettings(size=options.size, dropout=0.0, attention_dropout=0.0)
    xlnet = XLNet(settings, VOCABULARY)
    head = PermutationHead(xlnet)
    rows, length = options.rows, options.length
    lengths = torch.full((rows,), length)
    tokens = torch.randint(8, VOCABULARY, (rows, length))
    batch = Sequences(tokens, lengths, torch.zeros_like(tokens))
    drawn = np.random.default_rng(1)
    chosen = np.stack([drawn.permutation(length)[: length // ONE_IN] for _ in range(rows)])
    places = torch.from_numpy(chosen)
    turns = torch.arange(length // ONE_IN).expand_as(places)
    order = torch.full_like(tokens, -1).scatter(1, places, turns)
    labels = tokens.gather(1, places)

    def ours() -> Tensor:
        query = xlnet.streams(batch, Predicted(order, places), query_only=True).query
        assert query is not None
        return F.cross_entropy(head(query.flatten(0, 1)), labels.flatten())

    plain = Plain(xlnet, head, 0.0)
    torch.testing.assert_close(ours(), plain.loss(batch, order, places, labels))
    for part in xlnet.modules():
        if isinstance(part, Dropout):
            part.share = 0.1
        if isinstance(part, StreamHeads):
            part.dropout = 0.1
    plain.dropout = 0.1
    steps: dict[str, tuple[Any, Callable[[], Tensor]]] = {
        SIDES[0]: (xlnet, lambda: plain.loss(batch, order, places, labels)),
        SIDES[1]: (xlnet, ours),
    }
    other = theirs(settings, batch, order, places)
    if other is not None:
        steps[SIDES[2]] = other
    speeds: dict[str, list[float]] = {side: [] for side in steps}
    for turn in range(options.rounds + 1):  # the first one warms up
        for side, (model, loss) in steps.items():
            start = time.process_time()
            for _ in range(options.steps):
                model.zero_grad(set_to_none=True)
                loss().backward()
            if turn:
                seconds = time.process_time() - start
                speeds[side].append(options.steps * rows * length / seconds)
        print(f"round {turn}", file=sys.stderr, flush=True)
    found = {side: summarised(own, speeds[SIDES[0]]) for side, own in speeds.items()}
    return {"machine": machine(1), "speeds": found}


def report(found: dict[str, Any]) -> str:
    """The speeds as a table."""
    rows = [
        [side, *(f"{own[key]:,.0f}" for key in ("median", "lowest", "highest")),
         f"{own['ratio']:.2f}×"]
        for side, own in found["speeds"].items()
    ]  # fmt: skip
    titles = ["tokens per second", "median", "lowest", "highest", "ratio"]
    return "\n".join([table(titles, rows), "", said(found["machine"])])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=["tiny", "mini", "base"], default="tiny")
    for name, value in {"rounds": 7, "steps": 3, "rows": 32, "length": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
