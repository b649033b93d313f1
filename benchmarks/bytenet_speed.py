"""Training and greedy search of ByteNet, compared with a plain PyTorch network of the same weights.

    python benchmarks/bytenet_speed.py [--rounds 7] [--threads 1] [--width 192] [--layers 5]

The plain network is ``torch.nn.Conv1d`` and ``torch.nn.LayerNorm`` with channels first, as a
ByteNet is usually written. A training step is forward, cross-entropy with label smoothing,
backward and Adam, on a batch of 64 pairs of 24 tokens and 4,000 symbols. A search writes 24 tokens
for 50 sources; the plain one computes the decoder for the whole text at each step. Both take turns;
the figures are medians in milliseconds, and the least, median and largest ratio.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import BEGIN, END
from heedful.decoding import SearchOptions, search
from heedful.layers.dilated import DilatedBlock
from heedful.models.bytenet import ByteNet, ByteNetSettings
from heedful.models.pairs import Source
from reporting import machine, said

ROWS, LENGTH, SYMBOLS = 64, 24, 4000
SOURCES = 50


class ChannelNorm(nn.LayerNorm):
    """Layer normalization of channels ``[B, C, L]``."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden.transpose(1, 2)).transpose(1, 2)


class PlainBlock(nn.Module):
    """A rectified block over channels ``[B, W, L]``."""

    def __init__(self, block: DilatedBlock, causal: bool) -> None:
        super().__init__()
        wide, narrow, kernel = block.enter.in_features, block.narrow, block.kernel
        self.left = block.reach if causal else block.reach // 2
        self.right = block.reach - self.left
        self.norms = nn.ModuleList([ChannelNorm(wide), ChannelNorm(narrow), ChannelNorm(narrow)])
        self.enter, self.leave = nn.Conv1d(wide, narrow, 1), nn.Conv1d(narrow, wide, 1)
        self.convolution = nn.Conv1d(narrow, narrow, kernel, dilation=block.dilation)
        own = (block.first_norm, block.second_norm, block.third_norm)
        for norm, theirs in zip(self.norms, own, strict=True):
            norm.load_state_dict(theirs.state_dict())
        for layer, linear in ((self.enter, block.enter), (self.leave, block.leave)):
            layer.weight.data.copy_(linear.weight.unsqueeze(2))
            layer.bias.data.copy_(linear.bias)
        windows = block.convolution.weight.unflatten(1, (kernel, narrow))
        self.convolution.weight.data.copy_(windows.transpose(1, 2))
        self.convolution.bias.data.copy_(block.convolution.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = F.relu(self.norms[1](self.enter(F.relu(self.norms[0](hidden)))))
        convolved = self.convolution(F.pad(inner, (self.left, self.right)))
        result: Tensor = hidden + self.leave(F.relu(self.norms[2](convolved)))
        return result


class PlainByteNet(nn.Module):
    """The weights of a ByteNet in a plain network; all sources of a batch have one length."""

    def __init__(self, model: ByteNet) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(
            model.target_embedding.weight.detach().clone(), freeze=False
        )
        encoder, decoder = (
            [PlainBlock(block, causal) for block in blocks if isinstance(block, DilatedBlock)]
            for causal, blocks in enumerate((model.encoder, model.decoder))
        )
        self.encoder, self.decoder = nn.Sequential(*encoder), nn.Sequential(*decoder)
        width = model.settings.hidden_size
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.from_source = nn.Linear(width, width, bias=False)
        self.from_target, self.last = nn.Linear(width, width), nn.Linear(width, width)
        for part, theirs in (
            (self.norm, model.encoder_norm),
            (self.last_norm, model.readout.norm),
            (self.last, model.readout.linear),
            (self.from_source, model.from_source),
            (self.from_target, model.from_target),
        ):
            part.load_state_dict(theirs.state_dict())

    def encode(self, source: Tensor) -> Tensor:
        """``[B, S] -> [B, S, W]``"""
        hidden = self.encoder(self.embedding(source).transpose(1, 2)).transpose(1, 2)
        result: Tensor = self.from_source(self.norm(hidden))
        return result

    def decode(self, read: Tensor, target_in: Tensor) -> Tensor:
        """Logits ``[B, T, V]``, T at most S."""
        entered = self.from_target(self.embedding(target_in)) + read[:, : target_in.shape[1]]
        hidden = self.decoder(entered.transpose(1, 2)).transpose(1, 2)
        states = F.relu(self.last_norm(self.last(hidden)))
        return F.linear(states, self.embedding.weight)

    def write(self, source: Tensor, length: int) -> Tensor:
        """``length`` tokens for each source, greedily, without END."""
        read, tokens = self.encode(source), torch.full((len(source), 1), BEGIN)
        for _ in range(length):
            logits = self.decode(read, tokens)[:, -1]
            logits[:, END] = -torch.inf
            tokens = torch.cat([tokens, logits.argmax(1, keepdim=True)], 1)
        return tokens[:, 1:]


def both(width: int, layers: int) -> tuple[ByteNet, PlainByteNet]:
    """The network and its plain form."""
    settings = ByteNetSettings(
        hidden_size=width,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=0.0,
        length_ratio=1.0,
        tied_embeddings="all",
    )
    model = ByteNet(settings, SYMBOLS, SYMBOLS)
    return model, PlainByteNet(model)


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def training_steps(model: ByteNet, plain: PlainByteNet) -> tuple[Callable[[], object], ...]:
    """A training step of each."""
    source = torch.randint(4, SYMBOLS, (ROWS, LENGTH))
    target = torch.randint(4, SYMBOLS, (ROWS, LENGTH))
    real = torch.ones_like(target, dtype=torch.bool)
    sources = Source(source, torch.full((ROWS,), LENGTH))
    optimisers = [torch.optim.Adam(each.parameters(), lr=1e-4) for each in (model, plain)]

    def ours() -> None:
        optimisers[0].zero_grad()
        total, _ = model.losses(sources, target, target, real, 0.1)
        (total / target.numel()).backward()
        optimisers[0].step()

    def theirs() -> None:
        optimisers[1].zero_grad()
        logits = plain.decode(plain.encode(source), target)
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1).backward()
        optimisers[1].step()

    return ours, theirs


def searches(model: ByteNet, plain: PlainByteNet) -> tuple[Callable[[], object], ...]:
    """A greedy search of each."""
    tokens = torch.randint(4, SYMBOLS, (SOURCES, LENGTH))
    source = Source(tokens, torch.full((SOURCES,), LENGTH))
    lengths = torch.full((SOURCES,), LENGTH)

    @torch.inference_mode()
    def ours() -> None:
        options = SearchOptions(beam=1, forced_length=LENGTH)
        search(model, source, rows=SOURCES, options=options, max_lengths=lengths)

    @torch.inference_mode()
    def theirs() -> None:
        plain.write(tokens, LENGTH)

    return ours, theirs


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, value in {"rounds": 7, "threads": 1, "width": 192, "layers": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model, plain = both(options.width, options.layers)
    found: dict[str, object] = {"machine": machine(options.threads)}
    for name, runs in (
        ("training step", training_steps(model.train(), plain.train())),
        ("search", searches(model.eval(), plain.eval())),
    ):
        rounds = [[milliseconds(run) for run in runs] for _ in range(options.rounds + 1)][1:]
        ours, theirs = zip(*rounds, strict=True)
        ratios = [slow / fast for fast, slow in rounds]
        found[name] = {
            "ours": round(statistics.median(ours), 1),
            "plain": round(statistics.median(theirs), 1),
            "plain / ours": [round(f(ratios), 2) for f in (min, statistics.median, max)],
        }
    print(said(machine(options.threads)), file=sys.stderr)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
