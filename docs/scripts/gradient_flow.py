"""How far back gradients reach: draws docs/images/gradient-flow.svg, and measures its page's table.

python docs/scripts/gradient_flow.py [--updates 1000] [--seeds 1 2 3]

Each model copies strings of random symbols. At the start, and after a short training, the loss of
one target symbol at a time is differentiated by the embedding of each source symbol. Takes about
ten minutes on one core.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import BEGIN, END
from heedful.models import PairModel, PairSettings, Source, build_model
from heedful.models.recurrent import RecurrentSettings
from heedful.models.transformer import TransformerSettings
from heedful.viewing.figures import new_figure, save_figure

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "gradient-flow.md", DOCS / "images" / "gradient-flow.svg"
FIRST, SYMBOLS = END + 1, 20
VOCABULARY = FIRST + SYMBOLS
LENGTH, WIDTH, ROWS = 40, 64, 32
MEASURED = 64
SHOWN = (0, 5, 10, 20, 30, 39)
"""Distances that have a column of the table."""
TABLE = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.S)


def _recurrent(cell: str, attention: str) -> RecurrentSettings:
    # One direction, so that there is one way from a symbol to the fixed vector.
    return RecurrentSettings.model_validate(
        {
            "cell": cell,
            "attention": attention,
            "embedding_size": WIDTH,
            "hidden_size": WIDTH,
            "bidirectional": False,
            "dropout": 0.0,
        }
    )


MODELS: dict[str, tuple[PairSettings, str, str]] = {
    "no attention, tanh": (_recurrent("rnn", "none"), "#d55e00", ":"),
    "no attention, GRU": (_recurrent("gru", "none"), "#d55e00", "-"),
    "attention (Bahdanau), GRU": (_recurrent("gru", "bahdanau"), "#0072b2", "-"),
    "self-attention (Transformer)": (
        TransformerSettings(
            layers=2,
            hidden_size=WIDTH,
            ffn_size=2 * WIDTH,
            heads=4,
            dropout=0.0,
            pre_norm=True,
            tied_embeddings="none",
        ),
        "#009e73",
        "-",
    ),
}
"""Name → settings, colour (of Okabe and Ito's palette) and line."""


@dataclass
class Flow:
    """Mean norms for one model and seed, before or after training."""

    last: Tensor
    """Of the last symbol's loss by each input, nearest first ``[LENGTH]``."""
    needed: Tensor
    """Of each symbol's loss by the input that it copies, the one nearest to the end first."""
    loss: float
    """A target symbol's, in nats."""


def strings(rows: int, length: int, random: torch.Generator) -> tuple[Source, Tensor, Tensor]:
    """Sources, what the decoder is fed, and what it is to write ``[rows, length + 1]``."""
    symbols = torch.randint(FIRST, VOCABULARY, (rows, length), generator=random)
    ended = torch.cat([symbols, torch.full((rows, 1), END)], 1)
    fed = torch.cat([torch.full((rows, 1), BEGIN), symbols], 1)
    return Source(ended, torch.full((rows,), length + 1)), fed, ended


def measured_strings() -> tuple[Source, Tensor, Tensor]:
    """The strings that every model is measured on."""
    return strings(MEASURED, LENGTH, torch.Generator().manual_seed(0))


def train(model: PairModel, updates: int, seed: int) -> None:
    """Learn to copy strings of 1 to LENGTH symbols, by Adam."""
    random = torch.Generator().manual_seed(1000 + seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / 50) * (1 - step / updates)
    )
    for _ in range(updates):
        length = int(torch.randint(1, LENGTH + 1, (), generator=random))
        optimiser.zero_grad()
        source, fed, goal = strings(ROWS, length, random)
        logits = model.teacher_force(source, fed)
        F.cross_entropy(logits.transpose(1, 2), goal).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def measure(model: PairModel) -> Flow:
    """Norms over the same strings for all models, in double precision.

    A norm is times that of the embedding, so that tables of different scales can be compared, and
    over that of the loss's gradient by the logits, so that a model which is hardly ever wrong can
    be compared with one that mostly is.
    """
    source, fed, goal = measured_strings()
    model.double()
    kept: list[Tensor] = []
    handle = model.get_submodule("source_embedding").register_forward_hook(
        lambda module, given, embedded: kept.append(embedded)
    )
    logits = model.teacher_force(source, fed)
    handle.remove()
    by_symbol = F.cross_entropy(logits.transpose(1, 2), goal, reduction="none")
    wrong = (logits.detach().softmax(-1) - F.one_hot(goal, VOCABULARY)).norm(dim=-1)
    scale = kept[0].detach().norm(dim=-1)[:, :LENGTH]
    needed = torch.empty(LENGTH)
    for place in range(LENGTH):
        (gradient,) = torch.autograd.grad(by_symbol[:, place].sum(), kept[0], retain_graph=True)
        norms = gradient.norm(dim=-1)[:, :LENGTH] * scale / wrong[:, place : place + 1]
        needed[LENGTH - 1 - place] = norms.mean(0)[place]
    model.float()
    return Flow(norms.mean(0).flip(0), needed, by_symbol[:, :LENGTH].mean().item())


def flows(settings: PairSettings, updates: int, seed: int) -> tuple[Flow, Flow]:
    """At the start, and after so many updates."""
    torch.manual_seed(seed)
    model = build_model(settings, VOCABULARY, VOCABULARY)
    before = measure(model)
    train(model, updates, seed)
    return before, measure(model)


def mean_loss(seeds: list[tuple[Flow, Flow]], when: int) -> float:
    return sum(flow[when].loss for flow in seeds) / len(seeds)


def _panels() -> Iterator[tuple[int, str, str]]:
    """When (0: at the start), which curve, and its title."""
    for when, said in enumerate(("at the start", "trained")):
        yield when, "last", f"{said}: the last symbol's loss, by every input"
        yield when, "needed", f"{said}: each symbol's loss, by the input that it copies"


def draw(found: dict[str, list[tuple[Flow, Flow]]], path: Path) -> None:
    """Four panels; a line is the geometric mean of the seeds, a band from least to greatest."""
    figure = new_figure(10, 7.4)
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for ax, (when, curve, title) in zip(axes.flat, _panels(), strict=True):
        for name, seeds in found.items():
            _, colour, line = MODELS[name]
            values = torch.stack([getattr(flow[when], curve) for flow in seeds]).clamp(min=1e-30)
            ax.fill_between(range(LENGTH), values.amin(0), values.amax(0), color=colour, alpha=0.15)
            middle = values.log().mean(0).exp()
            label = f"{name}: {mean_loss(seeds, 0):.2f} → {mean_loss(seeds, 1):.2f}"
            ax.plot(range(LENGTH), middle, color=colour, linestyle=line, label=label)
        ax.set_title(title, fontsize=10)
        ax.set_yscale("log")
        ax.grid(alpha=0.25)
    for ax in axes[:, 0]:
        ax.set_ylabel("‖∂ loss / ∂ embedding‖ · ‖embedding‖ / ‖∂ loss / ∂ logits‖", fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("symbols between the input and the end of the source")
    axes[0, 0].legend(fontsize=8, loc="lower left", title="loss of a target symbol, before → after")
    figure.tight_layout()
    save_figure(figure, path)


def table(found: dict[str, list[tuple[Flow, Flow]]]) -> str:
    """Markdown: a row for each model, moment and curve; geometric means of the seeds."""
    lines = [
        f"| model | | loss | by | {' | '.join(map(str, SHOWN))} |",
        f"| --- | --- | --- | --- |{' --- |' * len(SHOWN)}",
    ]
    for name, seeds in found.items():
        for when, said in enumerate(("at the start", "trained")):
            for curve in ("last", "needed"):
                values = torch.stack([getattr(flow[when], curve) for flow in seeds])
                middle = values.clamp(min=1e-30).log().mean(0).exp()
                cells = " | ".join(f"{middle[distance]:.1e}" for distance in SHOWN)
                by = "every input" if curve == "last" else "the input copied"
                lines.append(f"| {name} | {said} | {mean_loss(seeds, when):.2f} | {by} | {cells} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=1000, help="of training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found: dict[str, list[tuple[Flow, Flow]]] = {}
    began, done, total = time.monotonic(), 0, len(MODELS) * len(options.seeds)
    for name, (settings, _, _) in MODELS.items():
        for seed in options.seeds:
            found.setdefault(name, []).append(flows(settings, options.updates, seed))
            done += 1
            spent = time.monotonic() - began
            left = spent / done * (total - done)
            after = found[name][-1][1].loss
            print(f"{name}, seed {seed}: loss {after:.3f}; {left:.0f} s left", file=sys.stderr)
    draw(found, options.picture)
    print(table(found))
    if options.picture == PICTURE and PAGE.exists():
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(TABLE.sub(lambda _: table(found), page), encoding="utf-8")


if __name__ == "__main__":
    main()
