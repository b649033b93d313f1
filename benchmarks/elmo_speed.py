"""A training step of ELMo's pre-training, compared with a plain PyTorch network of the same sizes.

    python benchmarks/elmo_speed.py [--rounds 7] [--threads 1]

The plain network has ``torch.nn.Conv1d`` over every word, padded to the longest of the batch, and
``torch.nn.LSTM`` with projections over packed sequences in each direction. A step is forward, the
cross-entropy of both directions over 10,000 words, backward and Adam. A batch has 32 rows of 25
words, drawn by Zipf's law from 20,000 words of 1 to 12 characters. Both take turns; the figures are
medians in milliseconds of processor time, and the least, median and largest ratio.
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
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.models.elmo import Elmo, ElmoSettings
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.tasks.bidirectional.training import BidirectionalTask, WordOutput
from heedful.tasks.texts.rows import RowBatch
from reporting import machine, said

ROWS, WORDS, KNOWN, LISTED = 32, 25, 20_000, 10_000
SPACE, SYMBOLS, LONGEST = 4, 260, 12


class Plain(nn.Module):
    """Words from characters, and two LSTM layers in each direction, without dropout."""

    def __init__(self, settings: ElmoSettings) -> None:
        super().__init__()
        size, width = settings.character_size, settings.projection_size
        self.characters = nn.Embedding(SYMBOLS + 2, size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, number, kernel, padding=kernel - 1)
            for kernel, number in settings.filters
        )
        found = sum(number for _, number in settings.filters)
        self.transforms = nn.ModuleList(nn.Linear(found, found) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(found, found) for _ in range(2))
        self.projection = nn.Linear(found, width)
        self.lstms = nn.ModuleList(
            nn.LSTM(width, settings.hidden_size, batch_first=True, proj_size=width)
            for _ in range(4)
        )
        self.output = nn.Linear(width, LISTED + 2)

    def forward(self, characters: Tensor, labels: Tensor) -> Tensor:
        """The loss of ``characters [B, W, C]`` with classes ``[B, W]``; all rows have W words."""
        x = self.characters(characters.flatten(0, 1)).mT
        y = torch.cat([F.relu(each(x)).amax(2) for each in self.convolutions], 1)
        for transform, gate in zip(self.transforms, self.gates, strict=True):
            share = torch.sigmoid(gate(y))
            y = share * F.relu(transform(y)) + (1 - share) * y
        words = self.projection(y).unflatten(0, labels.shape)
        lengths = torch.full((len(labels),), labels.shape[1])
        tops = []
        for turned, layers in ((False, self.lstms[:2]), (True, self.lstms[2:])):
            hidden = words.flip(1) if turned else words
            for place, lstm in enumerate(layers):
                packed = pack_padded_sequence(hidden, lengths, batch_first=True)
                states = pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]
                hidden = hidden + states if place else states
            tops.append(hidden.flip(1) if turned else hidden)
        ahead = self.output(tops[0][:, :-1]).flatten(0, 1), labels[:, 1:].flatten()
        back = self.output(tops[1][:, 1:]).flatten(0, 1), labels[:, :-1].flatten()
        return F.cross_entropy(*ahead) + F.cross_entropy(*back)


def texts() -> tuple[list[list[list[int]]], Tensor]:
    """The characters of each row's words, and the words' numbers ``[B, W]``."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, LONGEST + 1, (KNOWN,), generator=generator).tolist()
    known = [torch.randint(5, SYMBOLS, (n,), generator=generator).tolist() for n in sizes]
    shares = 1 / torch.arange(1, KNOWN + 1)
    drawn = torch.multinomial(shares, ROWS * WORDS, replacement=True, generator=generator)
    numbers = drawn.view(ROWS, WORDS)
    return [[known[number] for number in row] for row in numbers.tolist()], numbers


def steps(settings: ElmoSettings) -> tuple[Callable[[], object], ...]:
    """A training step of each."""
    rows, numbers = texts()
    classes = (numbers + 2).clamp(max=LISTED + 1)
    model = HeadedEncoder(
        Elmo(settings, SYMBOLS, [SPACE]),
        {"bidirectional": WordOutput(settings.projection_size, LISTED + 2, 0.0)},
    )
    plain = Plain(settings)
    lines = [[token for word in row for token in (*word, SPACE)][:-1] for row in rows]
    batch = labelled(sequences_of(lines), rows, classes)
    longest = max(len(word) for row in rows for word in row)
    padded = [[[1, *word, 2] + [0] * (longest - len(word)) for word in row] for row in rows]
    ends = torch.zeros(ROWS, 1, dtype=torch.long)
    boundary = torch.tensor([1, 3, 2] + [0] * (longest - 1)).expand(ROWS, 1, -1)
    characters = torch.cat([boundary, torch.tensor(padded), boundary], 1)
    goals = torch.cat([ends, classes, ends], 1)
    task = BidirectionalTask(model.train(), [], None, device=torch.device("cpu"))  # type: ignore[arg-type]
    optimisers = [torch.optim.Adam(each.parameters(), lr=1e-4) for each in (model, plain)]

    def ours() -> None:
        optimisers[0].zero_grad()
        (task.loss(batch).total / batch.weight).backward()
        optimisers[0].step()

    def theirs() -> None:
        optimisers[1].zero_grad()
        plain(characters, goals).backward()
        optimisers[1].step()

    return ours, theirs


def labelled(rows: Sequences, words: list[list[list[int]]], classes: Tensor) -> RowBatch:
    """A batch with the class of each word at its first character."""
    labels = torch.zeros_like(rows.tokens)
    for row, (own, goals) in enumerate(zip(words, classes.tolist(), strict=True)):
        place = 1
        for word, goal in zip(own, goals, strict=True):
            labels[row, place] = goal
            place += len(word) + 1
    return RowBatch(rows, labels, int((labels > 0).sum()))


def milliseconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return 1000 * (time.process_time() - start)


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    runs = steps(ElmoSettings(dropout=0.0))
    rounds = [[milliseconds(run) for run in runs] for _ in range(options.rounds + 1)][1:]
    ours, theirs = zip(*rounds, strict=True)
    ratios = [slow / fast for fast, slow in rounds]
    found = {
        "machine": machine(options.threads),
        "ours": round(statistics.median(ours), 1),
        "plain": round(statistics.median(theirs), 1),
        "plain / ours": [round(f(ratios), 2) for f in (min, statistics.median, max)],
    }
    print(said(machine(options.threads)), file=sys.stderr)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
