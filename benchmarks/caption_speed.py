"""Training images and captions per second of "Show, attend and tell", beside plain PyTorch.

    python benchmarks/caption_speed.py [--rounds 5] [--side 96] [--train-images 32] [--images 64]

heedful's captioner of the size of ``flickr8k-soft``, and a plain loop with the same weights:
``nn.Conv2d`` and ``nn.GroupNorm``, then an LSTM cell and additive attention in each step, as the
paper's equations are usually written. Training: images with five captions each, forward and
backward. Captions: a beam of 3 over a batch of images, 20 steps. One thread; the sides take turns
in one process, and times are those of the processor, so that other programs disturb them less.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import BEGIN, PAD
from heedful.decoding import SearchOptions
from heedful.models import CaptionSettings, ImageShape, Scenes, build_caption_model
from heedful.tasks.captioning.predictor import find_captions
from reporting import machine, said, summarised, table

SIDES = ("plain PyTorch", "heedful")
VOCABULARY, LENGTH, CAPTIONS, STEPS, BEAM = 2600, 13, 5, 20, 3


def build(side: int) -> Any:
    """The captioner of flickr8k-soft, without dropout."""
    table = {
        "kind": "recurrent",
        "attention": "bahdanau",
        "context_gate": True,
        "embedding_size": 256,
        "hidden_size": 384,
        "max_length": STEPS,
        "dropout": 0.0,
        "encoder": {"widths": [64, 128, 192], "blocks": 2, "stem": "large"},
    }
    settings = CaptionSettings.model_validate(table)
    return build_caption_model(settings, ImageShape(side, side, 3), VOCABULARY)


class Plain:
    """The plain loop, with the weights of a captioner."""

    def __init__(self, model: Any) -> None:
        self.model, decoder = model, model.decoder
        self.weights = [decoder.stack.weights(kind, 0) for kind in ("ih", "hh")]
        self.score, self.gate = decoder.attention.score, decoder.context_gate
        self.readout = decoder.readout

    def begin(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Cells ``[A, K, F]``, their keys, and the first state."""
        maps = self.model.look.network((images.float() / 127.5 - 1).permute(0, 3, 1, 2))
        cells = self.model.norm(maps.flatten(2).transpose(1, 2))
        state = torch.tanh(self.model.initial(cells.mean(1)))
        h, c = state.chunk(2, 1)
        return cells, self.score.key_projection(cells), h, c

    def step(
        self, word: Tensor, cells: Tensor, keys: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and the next state."""
        embedded = self.model.target_embedding(word)
        query = self.score.query_projection(h)
        energies = torch.tanh(query.unsqueeze(1) + keys) @ self.score.v
        context = (energies.softmax(1).unsqueeze(1) @ cells).squeeze(1)
        context = torch.sigmoid(self.gate(h)) * context
        (weight, bias), (inner, inner_bias) = self.weights
        given = torch.cat([embedded, context], 1)
        h, c = torch.lstm_cell(given, (h, c), weight, inner, bias, inner_bias)
        return self.model.output(self.readout(h, embedded, context)), h, c

    def teacher_force(self, images: Tensor, target: Tensor) -> Tensor:
        """Logits ``[B, T, V]`` of five captions for each image."""
        parts = [part.repeat_interleave(CAPTIONS, 0) for part in self.begin(images)]
        cells, keys, h, c = parts
        found = []
        for place in range(target.shape[1]):
            logits, h, c = self.step(target[:, place], cells, keys, h, c)
            found.append(logits)
        return torch.stack(found, 1)

    def search(self, images: Tensor) -> Tensor:
        """The best of the beam, ``[A, T]``, without an end."""
        rows = len(images)
        cells, keys, h, c = (part.repeat_interleave(BEAM, 0) for part in self.begin(images))
        scores = torch.full((rows, BEAM), -torch.inf)
        scores[:, 0] = 0
        tokens = torch.full((rows * BEAM, 1), BEGIN)
        for _ in range(STEPS):
            logits, h, c = self.step(tokens[:, -1], cells, keys, h, c)
            total = scores.view(-1, 1) + logits.log_softmax(1)
            scores, best = total.view(rows, -1).topk(BEAM)
            source = (best // VOCABULARY + torch.arange(rows)[:, None] * BEAM).flatten()
            h, c = h[source], c[source]
            tokens = torch.cat([tokens[source], (best % VOCABULARY).view(-1, 1)], 1)
        return tokens.view(rows, BEAM, -1)[:, 0, 1:]


def timed(call: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Images and captions per second of both sides."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = build(options.side)
    plain = Plain(model)
    shape = (options.train_images, options.side, options.side, 3)
    images = torch.randint(256, shape, dtype=torch.uint8)
    many = torch.randint(256, (options.images, *shape[1:]), dtype=torch.uint8)
    target = torch.randint(8, VOCABULARY, (options.train_images * CAPTIONS, LENGTH + 1))
    target[:, 0] = BEGIN
    owners = torch.arange(options.train_images).repeat_interleave(CAPTIONS)

    def ours() -> Tensor:
        return model.teacher_force(Scenes(images, owners), target[:, :-1])

    def theirs() -> Tensor:
        return plain.teacher_force(images, target[:, :-1])

    def train(logits_of: Callable[[], Tensor]) -> None:
        model.train()
        model.zero_grad(set_to_none=True)
        logits = logits_of()
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD).backward()

    def caption(search: Callable[[], object]) -> None:
        model.eval()
        with torch.inference_mode():
            search()

    torch.testing.assert_close(ours(), theirs(), rtol=1e-3, atol=1e-4)
    found: dict[str, Any] = {"machine": machine(1)}
    for what, count, calls in (
        ("training", options.train_images, (lambda: train(theirs), lambda: train(ours))),
        (
            "captions",
            options.images,
            (
                lambda: caption(lambda: plain.search(many)),
                lambda: caption(lambda: find_captions(model, many, SearchOptions(beam=BEAM))),
            ),
        ),
    ):
        speeds: dict[str, list[float]] = {side: [] for side in SIDES}
        for turn in range(options.rounds + 1):  # the first one warms up
            for side, call in zip(SIDES, calls, strict=True):
                seconds = timed(call)
                if turn:
                    speeds[side].append(count / seconds)
            print(f"{what}, round {turn}", file=sys.stderr, flush=True)
        found[what] = {side: summarised(own, speeds[SIDES[0]]) for side, own in speeds.items()}
    return found


def report(found: dict[str, Any]) -> str:
    """The speeds as a table."""
    rows = [
        [f"{what}, {side}", *(f"{own[key]:.1f}" for key in ("median", "lowest", "highest")),
         f"{own['ratio']:.2f}×"]
        for what in ("training", "captions")
        for side, own in found[what].items()
    ]  # fmt: skip
    titles = ["images per second", "median", "lowest", "highest", "ratio"]
    return "\n".join([table(titles, rows), "", said(found["machine"])])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {"rounds": 5, "side": 96, "train-images": 32, "images": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
