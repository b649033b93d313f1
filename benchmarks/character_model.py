"""Character model on tinyshakespeare: validation loss, and training time compared with
transformers.

    python benchmarks/character_model.py INPUT.txt --out FOLDER [--threads 1] [--rounds 5]

Trains the recipe ``tinyshakespeare-characters`` and scores the whole validation text. Training time
is measured in alternating runs of ``--steps`` steps of heedful and of ``GPT2LMHeadModel`` (same
sizes, batches and optimiser, plain loop); the figure is the median ratio of seconds per step. Rerun
the command to resume.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch

from heedful.basics.files import write_json, write_text
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
from heedful.training.train import train
from reporting import machine, said, summarised

RECIPE = "tinyshakespeare-characters"
LAYERS, DIM, HEADS, CONTEXT, ROWS = 4, 128, 4, 64, 12


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, print the results as JSON and write them to ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--max-steps", type=int, default=2000)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    out: Path = options.out
    train_text = cut_text(options.text, out)
    found = {"machine": machine(options.threads), "steps": options.steps}
    found |= {"time": times(out, train_text, options)} if options.rounds else {}
    recipe = settings(options, [f"training.max_steps={options.max_steps}"])
    if not train(recipe, out / "run", data=out):
        return 130
    found["validation"] = validation(out / "run")
    write_json(out / "character_model.json", found)
    print(said(found["machine"]), file=sys.stderr)
    print(json.dumps(found))
    return 0


def cut_text(path: Path, out: Path) -> str:
    """Write the first nine tenths of a text to ``train.txt``, the rest to ``validation.txt``.

    Returns:
        The text of ``train.txt``.
    """
    text = path.read_text(encoding="utf-8")
    cut = int(0.9 * len(text))
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", text[:cut]), ("validation", text[cut:])):
        if not (out / f"{name}.txt").exists():
            write_text(out / f"{name}.txt", part)
    return text[:cut]


def settings(options: argparse.Namespace, more: list[str]) -> dict[str, object]:
    """The recipe's tables."""
    tables = read_recipe(find_recipe(RECIPE))
    return with_overrides(tables, [f"training.threads={options.threads}", *more])


def validation(run: Path) -> dict[str, float]:
    """The figures of the selected checkpoint on the whole validation text."""
    figures: dict[str, float] = open_run(run).chosen().state["validation"]
    return figures


def times(out: Path, text: str, options: argparse.Namespace) -> dict[str, object]:
    """Seconds per step of both, measured in turns, and their ratio."""
    ours, theirs = [], []
    for turn in range(options.rounds):
        theirs.append(peer_seconds(text, options.steps))
        ours.append(our_seconds(out, options))
        print(f"turn {turn + 1}: ours {ours[-1]:.4f}, GPT-2 {theirs[-1]:.4f} s", file=sys.stderr)
    return {"gpt2": summarised(theirs, None), "ours": summarised(ours, theirs)}


def our_seconds(out: Path, options: argparse.Namespace) -> float:
    """Seconds per step of the recipe, without preparation and validation."""
    folder = out / "timed"
    shutil.rmtree(folder, ignore_errors=True)
    more = [f"training.max_steps={options.steps}", "data.validation=[]", "training.log_every=10"]
    train(check_recipe(settings(options, more), RECIPE), folder, data=out)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return float(json.loads(lines[-1])["seconds"]) / options.steps


def peer_seconds(text: str, steps: int) -> float:
    """Seconds per step of transformers' model in a plain loop."""
    from transformers import GPT2Config, GPT2LMHeadModel

    symbols = sorted(set(text))
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    stream = torch.tensor([numbers[symbol] for symbol in text])
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=len(symbols),
        n_positions=CONTEXT,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), fused=True)
    draw = np.random.default_rng(1)
    began = time.perf_counter()
    for _ in range(steps):
        starts = draw.integers(0, len(stream) - CONTEXT - 1, ROWS)
        read = torch.stack([stream[start : start + CONTEXT] for start in starts])
        wanted = torch.stack([stream[start + 1 : start + CONTEXT + 1] for start in starts])
        logits = model(read).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    sys.exit(main())
