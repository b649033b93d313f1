"""The steps of the demo. It calls the same functions as the commands."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from heedful.basics.errors import UserError
from heedful.basics.files import write_text
from heedful.data.demo import DemoCorpus, demo_corpus, describe
from heedful.data.examples import Pair
from heedful.decoding import SearchOptions
from heedful.evaluation.metrics import bleu
from heedful.inference.translation import Translation
from heedful.runs.recipe import check_recipe
from heedful.tasks.pairs.building import load_translator
from heedful.training import train
from heedful.viewing.figures import save_figure
from heedful.viewing.heatmap import alignment_figure
from heedful.viewing.terminal import render_alignment

SIZES = {"train": 24_000, "validation": 300, "test": 500}
STEPS = 1200


def demonstrate(
    source: str, target: str, out: Path, *, seed: int, threads: int | None, device: str
) -> None:
    """Run the whole demo; the last line printed is ``BLEU=…``.

    Raises:
        UserError: a language is unknown, or ``out`` contains other files.
    """
    echo = Console(highlight=False, soft_wrap=True).print
    echo(f"1. The corpus: {describe(source, target)}", markup=False)
    corpus = demo_corpus(source, target, seed=seed, **SIZES)
    folder = _write_corpus(corpus, out)
    echo(f"   {len(corpus.train):,} pairs to train on, {len(corpus.test):,} held out. Examples:")
    for pair in corpus.train[:3]:
        echo(f"   {pair.source}  →  {pair.target}", markup=False)
    echo("2. Training a small Transformer (Ctrl-C stops; rerun the command to resume)")
    recipe = check_recipe(_recipe(source, target, seed, threads, device), "the demo's recipe")
    sys.stdout.flush()
    if not train(recipe, out / "run", data=folder):
        raise KeyboardInterrupt
    echo("3. Translating unseen sentences: new combinations of known parts")
    translator = load_translator([out / "run"], device=device)
    sources = [pair.source for pair in corpus.test]
    translations = translator.translate(sources, options=SearchOptions(beam=4), alignments=True)
    _show_samples(corpus.test, translations, echo)
    echo("4. Attention")
    _draw(_most_reordered(corpus.test, translations), out, echo)
    _show_next_steps(source, target, out, echo)
    references = [pair.target for pair in corpus.test]
    score = bleu([translation.text for translation in translations], references)
    print(f"BLEU={score:.2f}", flush=True)


def _write_corpus(corpus: DemoCorpus, out: Path) -> Path:
    if out.exists() and not (out / "corpus").exists() and any(out.iterdir()):
        raise UserError(f"{out} holds other files; choose another place with --out")
    folder = out / "corpus"
    for name, pairs in corpus._asdict().items():
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
        write_text(folder / f"{name}.tsv", text)
    return folder


def _recipe(
    source: str, target: str, seed: int, threads: int | None, device: str
) -> dict[str, Any]:
    return {
        "seed": seed,
        "data": {
            "train": "train.tsv",
            "validation": "validation.tsv",
            "test": "test.tsv",
            "source": source,
            "target": target,
            "filters": {"duplicates": False, "max_ratio": None},
        },
        "tokeniser": {"vocabulary_size": 2000},
        "model": {"layers": 2, "hidden_size": 128, "ffn_size": 256, "heads": 4, "dropout": 0.1},
        "training": {
            "max_steps": STEPS,
            "batch_tokens": 2048,
            "learning_rate": 5e-3,
            "warmup_steps": 300,
            "schedule": "cosine",
            "label_smoothing": 0.1,
            "validate_every": 400,
            "checkpoint_every": 200,
            "keep_last": 2,
            "device": device,
            **({"threads": threads} if threads else {}),
        },
        "evaluation": {"beam": 1, "validation_pairs": 100},
    }


def _show_samples(pairs: list[Pair], translations: list[Translation], echo: Any) -> None:
    right = [n for n, pair in enumerate(pairs) if translations[n].text == pair.target]
    wrong = [n for n, pair in enumerate(pairs) if translations[n].text != pair.target]
    echo(f"   {len(right)} of {len(pairs)} are identical to the reference. Examples:")
    longest = sorted(right, key=lambda n: -len(pairs[n].source))[:5]
    for n in longest[:3]:
        echo(f"     source     {pairs[n].source}", markup=False)
        echo(f"     output     {translations[n].text}", markup=False)
    if wrong:
        echo("   Others differ:")
    for n in wrong[:2]:
        echo(f"     source     {pairs[n].source}", markup=False)
        echo(f"     output     {translations[n].text}", markup=False)
        echo(f"     reference  {pairs[n].target}", markup=False)


def _most_reordered(pairs: list[Pair], translations: list[Translation]) -> Translation:
    """The correct translation of 5 to 12 source words with the most crossing alignment links."""

    def crossings(translation: Translation) -> int:
        links = translation.alignment.links if translation.alignment else []
        sources = [source for source, _ in links]
        return sum(one > other for n, one in enumerate(sources) for other in sources[n + 1 :])

    right = [
        translation
        for pair, translation in zip(pairs, translations, strict=True)
        if translation.text == pair.target and 5 <= len(pair.source.split()) <= 12
    ]
    return max(right or translations, key=crossings)


def _draw(translation: Translation, out: Path, echo: Any) -> None:
    if translation.alignment is None:
        return
    sources, targets = translation.source.split(), translation.text.split()
    soft = translation.alignment.soft
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    echo(render_alignment(soft, targets, sources, plain=plain), markup=False)
    figure = alignment_figure(soft, targets, sources, title=translation.text)
    save_figure(figure, out / "alignment.svg")
    save_figure(figure, out / "alignment.png")
    echo(f"   plotted in {out / 'alignment.svg'} and .png", markup=False)


def _show_next_steps(source: str, target: str, out: Path, echo: Any) -> None:
    run = out / "run"
    echo("5. Next steps", markup=False)
    echo(f'   echo "…" | heedful translate {run}', markup=False)
    echo(f"   heedful evaluate {run} --by-length", markup=False)
    echo(f'   heedful plot {run} "…" --heads --output heads.svg', markup=False)
    echo(
        f"   heedful train --data memory.tmx --from {source} --to {target} --out runs/mine",
        markup=False,
    )
