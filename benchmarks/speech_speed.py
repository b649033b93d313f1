"""Training frames and seconds of sound per second of "Listen, attend and spell", beside PyTorch.

    python benchmarks/speech_speed.py [--rounds 5] [--sounds 16] [--seconds 4]

heedful's recogniser of the size of the recipe ``an4`` (without CTC, with content attention), and a
plain loop with the same weights: ``nn.LSTM`` over packed sequences, then an LSTM cell and additive
attention in each step, as the papers' equations are usually written. Training: sounds with 12
characters a second, forward and backward. Recognition: a beam of 5, from features. Features:
log-mel bands of 16 kHz, from samples. One thread; the sides take turns in one process, and times
are those of the processor, so that other programs disturb them less.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.basics.symbols import BEGIN, PAD
from heedful.data.readers.sounds import Sound
from heedful.data.sound_features import SoundFeatures
from heedful.decoding import SearchOptions
from heedful.models import Sounds, SpeechSettings, build_speech_model
from heedful.tasks.transcription.predictor import find_texts
from reporting import machine, said, summarised, table

SIDES = ("plain PyTorch", "heedful")
VOCABULARY, FEATURES, RATE, BEAM = 32, 80, 100, 5
_CHARACTERS = 12
"""Of a second of speech."""


def build(steps: int) -> Any:
    """The recogniser, without dropout."""
    table = {
        "kind": "recurrent",
        "encoder_size": 192,
        "encoder_layers": 3,
        "pyramid_layers": 2,
        "embedding_size": 64,
        "hidden_size": 192,
        "max_length": steps,
        "dropout": 0.0,
    }
    return build_speech_model(SpeechSettings.model_validate(table), FEATURES, VOCABULARY)


class Plain:
    """The plain loop, with the weights of a recogniser."""

    def __init__(self, model: Any) -> None:
        self.model, decoder = model, model.decoder
        self.networks = [one.network for one in model.encoder.networks]
        self.weights = [decoder.stack.weights(kind, 0) for kind in ("ih", "hh")]
        self.score, self.readout = decoder.attention.score, decoder.readout

    def begin(self, sounds: Sounds) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Annotations ``[B, S, A]``, their keys, which exist, and the first state."""
        vectors, lengths = sounds
        for place, network in enumerate(self.networks):
            if place:
                vectors = F.pad(vectors, (0, 0, 0, vectors.shape[1] % 2))
                vectors = vectors.reshape(len(vectors), -1, 2 * vectors.shape[2])
                lengths = (lengths + 1) // 2
            packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
            outputs, _ = network(packed)
            vectors, _ = pad_packed_sequence(outputs, batch_first=True)
        there = torch.arange(vectors.shape[1]) < lengths[:, None]
        zeros = vectors.new_zeros(len(vectors), self.model.settings.hidden_size)
        return vectors, self.score.key_projection(vectors), there, zeros, zeros

    def step(
        self, token: Tensor, vectors: Tensor, keys: Tensor, there: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and the next state."""
        embedded = self.model.target_embedding(token)
        query = self.score.query_projection(h)
        energies = torch.tanh(query.unsqueeze(1) + keys) @ self.score.v
        weights = energies.masked_fill(~there, -torch.inf).softmax(1)
        context = (weights.unsqueeze(1) @ vectors).squeeze(1)
        (weight, bias), (inner, inner_bias) = self.weights
        given = torch.cat([embedded, context], 1)
        h, c = torch.lstm_cell(given, (h, c), weight, inner, bias, inner_bias)
        return self.model.output(self.readout(h, embedded, context)), h, c

    def teacher_force(self, sounds: Sounds, target: Tensor) -> Tensor:
        """Logits ``[B, L, V]``."""
        vectors, keys, there, h, c = self.begin(sounds)
        found = []
        for place in range(target.shape[1]):
            logits, h, c = self.step(target[:, place], vectors, keys, there, h, c)
            found.append(logits)
        return torch.stack(found, 1)

    def search(self, sounds: Sounds, steps: int) -> Tensor:
        """The best of the beam, ``[B, L]``, without an end."""
        rows = len(sounds.lengths)
        begun = [part.repeat_interleave(BEAM, 0) for part in self.begin(sounds)]
        vectors, keys, there, h, c = begun
        scores = torch.full((rows, BEAM), -torch.inf)
        scores[:, 0] = 0
        tokens = torch.full((rows * BEAM, 1), BEGIN)
        for _ in range(steps):
            logits, h, c = self.step(tokens[:, -1], vectors, keys, there, h, c)
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
    """Seconds of sound per second, of both sides and of the features."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    steps = _CHARACTERS * options.seconds
    model = build(steps)
    plain, count = Plain(model), options.sounds
    frames = torch.randn(count, RATE * options.seconds, FEATURES)
    lengths = torch.linspace(RATE * options.seconds / 2, RATE * options.seconds, count).long()
    sounds = Sounds(frames, lengths)
    target = torch.randint(8, VOCABULARY, (count, steps))
    target[:, 0] = BEGIN
    seconds = float(lengths.sum()) / RATE

    def train(logits_of: Callable[[], Tensor]) -> None:
        model.train()
        model.zero_grad(set_to_none=True)
        logits = logits_of()
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()

    def recognise(search: Callable[[], object]) -> None:
        model.eval()
        with torch.inference_mode():
            search()

    def ours() -> Tensor:
        logits: Tensor = model.teacher_force(sounds, target)
        return logits

    def theirs() -> Tensor:
        return plain.teacher_force(sounds, target)

    # No end is drawn: both sides make the same number of steps.
    search = SearchOptions(beam=BEAM, forced_length=steps)
    torch.testing.assert_close(ours(), theirs(), rtol=1e-3, atol=1e-4)
    found: dict[str, Any] = {"machine": machine(1)}
    kinds = {
        "training": (lambda: train(theirs), lambda: train(ours)),
        "recognition": (
            lambda: recognise(lambda: plain.search(sounds, steps)),
            lambda: recognise(lambda: find_texts(model, model.listen(sounds), search)),
        ),
    }
    for what, calls in kinds.items():
        speeds: dict[str, list[float]] = {side: [] for side in SIDES}
        for turn in range(options.rounds + 1):  # the first one warms up
            for side, call in zip(SIDES, calls, strict=True):
                spent = timed(call)
                if turn:
                    speeds[side].append(seconds / spent)
            print(f"{what}, round {turn}", file=sys.stderr, flush=True)
        found[what] = {side: summarised(own, speeds[SIDES[0]]) for side, own in speeds.items()}
    found["features"] = _features(options.rounds)
    found["peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _features(rounds: int) -> dict[str, Any]:
    """Seconds of sound per second of the features."""
    samples = np.random.default_rng(1).standard_normal(16_000 * 30).astype(np.float32)
    features, sound = SoundFeatures(), Sound(samples, 16_000)
    features.of(sound)
    found = [30 / timed(lambda: features.of(sound)) for _ in range(rounds)]
    return {"log-mel": summarised(found, found)}


def report(found: dict[str, Any]) -> str:
    """The speeds as a table."""
    rows = [
        [f"{what}, {side}", *(f"{own[key]:.1f}" for key in ("median", "lowest", "highest")),
         f"{own['ratio']:.2f}×"]
        for what in ("training", "recognition", "features")
        for side, own in found[what].items()
    ]  # fmt: skip
    titles = ["seconds of sound per second", "median", "lowest", "highest", "ratio"]
    memory = f"peak memory of the whole process: {found['peak memory, MiB']:,.0f} MiB"
    return "\n".join([table(titles, rows), "", memory, said(found["machine"])])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {"rounds": 5, "sounds": 16, "seconds": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    found = measure(options)
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
