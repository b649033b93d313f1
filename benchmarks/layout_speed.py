"""Training steps and generation of ELECTRA, T5, BART and Llama beside transformers' models.

    python benchmarks/layout_speed.py [--only t5 bart] [--layers 4] [--width 256] [--rounds 5]

Both sides have the same random weights, imported by heedful's layouts, and the same inputs; their
outputs are compared first. A training step is the loss and its gradients without dropout. Inference
is the states of the encoder (ELECTRA), or a search for ``--new`` tokens with caches, greedy or with
``--beam``. Each system runs in a process of its own, in which the sides take turns; times are
those of the processor, so that other programs disturb them less. The peak of the resident memory is
that of a further process for each side, which trains and infers alone.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.data.imported_vocabulary import places_of
from heedful.decoding import SearchOptions, search
from heedful.inference.fusing import searched
from heedful.interop.layouts import bart, llama, t5
from heedful.interop.layouts.electra import ELECTRA
from heedful.models.bert import Bert
from heedful.models.encoders import sequences_of
from heedful.models.gpt import Gpt
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer
from reporting import machine, said, summarised, table
from resident import peak_resident, reset_peak

VOCABULARY = 8000
SIZES = {
    "layers": 4, "width": 256, "heads": 4, "rows": 16, "length": 64, "new": 32, "beam": 1,
    "rounds": 5,
}  # fmt: skip
SYSTEMS = ("electra", "t5", "bart", "llama")
SIDES = ("transformers", "heedful")


class Side(NamedTuple):
    """What is measured of a side."""

    model: Any
    loss: Callable[[], Tensor]
    infer: Callable[[], Tensor]
    """Outputs that both sides have in common."""


class Prompted:
    """A decoder with a prompt before what the search writes."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.last: Tensor | None = None

    def start(self, source: Tensor) -> Any:
        self.last = source[:, -1]
        return self.model.start(source)

    def step(self, tokens: Tensor, state: Any) -> Any:
        tokens, self.last = (tokens if self.last is None else self.last), None
        return self.model.step(tokens, state)


def electra(o: argparse.Namespace) -> tuple[Side, Side]:
    """The encoder."""
    from transformers import ElectraConfig, ElectraModel

    config = ElectraConfig(
        vocab_size=VOCABULARY, hidden_size=o.width, embedding_size=o.width // 2,
        num_hidden_layers=o.layers, num_attention_heads=o.heads, intermediate_size=4 * o.width,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0,
    )  # fmt: skip
    theirs = ElectraModel(config).eval()
    places = places_of([0, 1, 2, 3, 4], VOCABULARY)
    given = {**config.to_dict(), "architectures": ["ElectraModel"]}
    tensors = dict(theirs.state_dict())
    settings = ELECTRA.settings_of(given, "here")
    found = ELECTRA.import_tensors(tensors, settings, places, ELECTRA.shape_of(tensors, given), "")
    ours = Bert(settings, len(places)).eval()
    ours.load_state_dict({k.removeprefix("encoder."): v for k, v in found.items()})
    batch = sequences_of(torch.randint(5, VOCABULARY, (o.rows, o.length - 2)).tolist(), None)
    inputs = {"input_ids": torch.tensor(places)[batch.tokens], "token_type_ids": batch.segments}

    def their_states() -> Tensor:
        states: Tensor = theirs(**inputs).last_hidden_state
        return states

    def our_states() -> Tensor:
        states = ours(batch).states
        assert states is not None
        return states

    return (
        Side(theirs, lambda: their_states().square().mean(), their_states),
        Side(ours, lambda: our_states().square().mean(), our_states),
    )


def pairs(o: argparse.Namespace) -> tuple[Side, Side]:
    """T5 or BART: the loss of targets as long as the sources, and greedy generation."""
    import transformers

    if o.system == "t5":
        config: Any = transformers.T5Config(
            vocab_size=VOCABULARY, d_model=o.width, d_kv=o.width // o.heads, d_ff=4 * o.width,
            num_layers=o.layers, num_heads=o.heads, dropout_rate=0.0, decoder_start_token_id=0,
        )  # fmt: skip
        theirs: Any = transformers.T5ForConditionalGeneration(config)
        special: list[int | None] = [None, 3, 0, 1]
    else:
        config = transformers.BartConfig(
            vocab_size=VOCABULARY, d_model=o.width, encoder_layers=o.layers,
            decoder_layers=o.layers, encoder_attention_heads=o.heads,
            decoder_attention_heads=o.heads, encoder_ffn_dim=4 * o.width,
            decoder_ffn_dim=4 * o.width, dropout=0.0, decoder_start_token_id=2,
            forced_eos_token_id=None,
        )  # fmt: skip
        theirs = transformers.BartForConditionalGeneration(config)
        special = [1, 3, None, 2]
    tensors, fields = saved(theirs), config.to_dict()
    places = places_of(special, VOCABULARY)
    if o.system == "t5":
        settings = t5.settings_of(fields, "here", tied=t5.is_tied(tensors))
        found = t5.import_tensors(tensors, settings, places, "here")
    else:
        settings = bart.settings_of(fields, "here")
        found = bart.import_tensors(tensors, settings, places, "here")
    ours = Transformer(settings, len(places), len(places))
    ours.load_state_dict(found, strict=False)
    theirs.eval()
    ours.eval()
    rows = torch.tensor([0 if place is None else place for place in places])
    rows[BEGIN] = config.decoder_start_token_id
    tokens = torch.randint(10, VOCABULARY, (o.rows, o.length))
    source = Source(tokens, torch.full((o.rows,), o.length))
    ids, real = rows[tokens], torch.ones_like(tokens)
    target = torch.cat([torch.full((o.rows, 1), BEGIN), tokens.roll(1, 0)], 1)
    inputs = {"input_ids": ids, "attention_mask": real}
    options = SearchOptions(beam=o.beam, length_penalty=0.0, forced_length=o.new)
    never = [[row] for row in {*special, config.decoder_start_token_id, 3} if row is not None]

    def their_loss() -> Tensor:
        logits = theirs(**inputs, decoder_input_ids=rows[target[:, :-1]]).logits
        return F.cross_entropy(logits.flatten(0, 1), rows[target[:, 1:]].flatten())

    def our_loss() -> Tensor:
        logits = ours.teacher_force(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

    def their_text() -> Tensor:
        found: Tensor = theirs.generate(
            **inputs, num_beams=o.beam, min_new_tokens=o.new, max_new_tokens=o.new, do_sample=False,
            bad_words_ids=never,
        )  # fmt: skip
        return found[:, 1:]

    fast = searched(ours)

    def our_text() -> Tensor:
        limits = torch.full((o.rows,), o.new)
        found = search(fast, source, rows=o.rows, options=options, max_lengths=limits)
        return rows[torch.tensor([list(row[0].tokens) for row in found])]

    return Side(theirs, their_loss, their_text), Side(ours, our_loss, our_text)


def saved(model: Any) -> dict[str, Tensor]:
    """The tensors of a model, each shared one once."""
    seen: set[int] = set()
    found = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            found[name] = tensor
    return found


def decoder(o: argparse.Namespace) -> tuple[Side, Side]:
    """Llama: grouped keys, rotary positions, gated feed-forward networks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=o.width, num_hidden_layers=o.layers,
        num_attention_heads=o.heads, num_key_value_heads=max(1, o.heads // 2),
        intermediate_size=3 * o.width, bos_token_id=1, eos_token_id=2, pad_token_id=None,
    )  # fmt: skip
    theirs: Any = LlamaForCausalLM(config).eval()
    settings = llama.settings_of(config.to_dict(), "here", begin=True)
    places = places_of([None, None, 1, 2], VOCABULARY)
    ours = Gpt(settings, len(places)).eval()
    ours.load_state_dict(
        llama.import_tensors(dict(theirs.state_dict()), settings, places, "here"), strict=True
    )
    rows = torch.tensor([0 if place is None else place for place in places])
    tokens = torch.randint(10, VOCABULARY, (o.rows, o.length))
    tokens[:, 0] = END  # a document begins
    ids = rows[torch.where(tokens == END, BEGIN, tokens)]
    options = SearchOptions(beam=o.beam, length_penalty=0.0, forced_length=o.new)

    def their_loss() -> Tensor:
        logits = theirs(input_ids=ids[:, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    def our_loss() -> Tensor:
        logits = ours.logits(ours.states(tokens[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def their_text() -> Tensor:
        found: Tensor = theirs.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=o.beam,
            min_new_tokens=o.new, max_new_tokens=o.new, do_sample=False, pad_token_id=0,
            bad_words_ids=[[1], [2]],
        )  # fmt: skip
        return found[:, o.length :]

    fast = Prompted(searched(ours))

    def our_text() -> Tensor:
        limits = torch.full((o.rows,), o.new)
        found = search(fast, tokens, rows=o.rows, options=options, max_lengths=limits)
        return rows[torch.tensor([list(row[0].tokens) for row in found])]

    return Side(theirs, their_loss, their_text), Side(ours, our_loss, our_text)


def build(o: argparse.Namespace) -> dict[str, Side]:
    """Both sides of a system."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    made = {"electra": electra, "t5": pairs, "bart": pairs, "llama": decoder}[o.system](o)
    return dict(zip(SIDES, made, strict=True))


def step(side: Side) -> None:
    """Loss and gradients."""
    side.model.zero_grad(set_to_none=True)
    side.loss().backward()


def measure(o: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of the sides of one system, which take turns."""
    sides = build(o)
    torch.testing.assert_close(sides[SIDES[1]].loss(), sides[SIDES[0]].loss(), atol=1e-4, rtol=1e-4)
    with torch.inference_mode():
        first, second = (side.infer() for side in sides.values())
    if first.is_floating_point():
        torch.testing.assert_close(second, first, atol=1e-4, rtol=1e-4)
        same = 1.0
    else:
        same = float((first == second).double().mean())
    work = {"training": o.rows * o.length, "inference": o.rows * o.new}
    if o.system == "electra":
        work["inference"] = o.rows * o.length
    speeds: dict[str, dict[str, list[float]]] = {kind: {s: [] for s in SIDES} for kind in work}
    for turn in range(o.rounds + 1):  # the first one warms up
        for name, side in sides.items():
            for kind in work:
                start = time.process_time()
                if kind == "training":
                    step(side)
                else:
                    with torch.inference_mode():
                        side.infer()
                if turn:
                    speeds[kind][name].append(work[kind] / (time.process_time() - start))
        print(f"{o.system}: round {turn}", file=sys.stderr, flush=True)
    found = {
        kind: {name: summarised(own, both[SIDES[0]]) for name, own in both.items()}
        for kind, both in speeds.items()
    }
    return {"speeds": found, "same": same}


def peak(o: argparse.Namespace) -> dict[str, Any]:
    """The peak of the resident memory of one side, in bytes."""
    side = build(o)[o.side]
    reset_peak()
    for _ in range(3):
        step(side)
        with torch.inference_mode():
            side.infer()
    return {"peak": peak_resident()}


def started(o: argparse.Namespace, **changed: str) -> dict[str, Any]:
    """The result of a process of its own."""
    given = {**vars(o), **changed}
    names = ("system", "side", *SIZES)
    own = [part for name in names if given[name] for part in (f"--{name}", str(given[name]))]
    done = subprocess.run(
        [sys.executable, __file__, *own], stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(found: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = []
    for system, own in found["systems"].items():
        for side in SIDES:
            cells = [f"{system}, {side}"]
            for kind in ("training", "inference"):
                figures = own["speeds"][kind][side]
                cells += [f"{figures['median']:,.0f}", f"{figures['ratio']:.2f}×"]
            bytes_ = own["peaks"][side]
            cells.append("–" if bytes_ is None else f"{bytes_ / 2**20:,.0f} MiB")
            lines.append([*cells, f"{own['same']:.0%}"])
    titles = ["", "training, tokens/s", "ratio", "inference, tokens/s", "ratio", "peak memory"]
    return "\n".join([table([*titles, "same output"], lines), "", said(found["machine"])])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args(arguments)
    if options.system:
        print(json.dumps(peak(options) if options.side else measure(options)))
        return 0
    systems = {}
    for system in options.only:
        systems[system] = started(options, system=system)
        peaks = {side: started(options, system=system, side=side)["peak"] for side in SIDES}
        systems[system]["peaks"] = peaks
    found = {"machine": machine(1), "systems": systems}
    print(json.dumps(found) if options.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
