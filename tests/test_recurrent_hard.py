"""Attention that is drawn, from a recipe to a translation: exact, repeatable, and able to learn."""

import json
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heedful.attention import watch
from heedful.basics.symbols import BEGIN, END
from heedful.data.batching import Batch
from heedful.models import Source, build_model
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.tasks.commands import train_from_command
from heedful.tasks.pairs.building import load_translator
from heedful.training.reinforce import Reinforce, rewarded_modules
from heedful.training.terms import TeacherForced

HARD = ("hard-reinforce", "hard-gumbel")
WORDS = {"one": "eins", "two": "zwei", "red": "rot", "dog": "Hund", "sees": "sieht", "cat": "Katze"}
RECIPE = """
seed = 3
[data]
train = "train.tsv"
validation = "validation.tsv"
source = "en"
target = "de"
[data.filters]
duplicates = false
[tokeniser]
vocabulary_size = 360
[model]
kind = "recurrent"
embedding_size = 12
hidden_size = 12
[training]
batch_tokens = 200
warmup_steps = 2
log_every = 1
validate_every = 8
checkpoint_every = 2
threads = 1
[evaluation]
beam = 2
validation_pairs = 4
samples = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("hard"), random.Random(1)
    for name, pairs in (("train", 120), ("validation", 12)):
        rows = [[rng.choice(list(WORDS)) for _ in range(rng.randint(2, 6))] for _ in range(pairs)]
        lines = [" ".join(row) + "\t" + " ".join(WORDS[word] for word in row) for row in rows]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def train(folder: Path, out: str, attention: str, steps: int) -> Path:
    overrides = [f"model.attention={attention}", f"training.max_steps={steps}"]
    given = {"given": {}, "start_from": None}
    recipe = str(folder / "recipe.toml")
    assert train_from_command(recipe, folder / out, [str(folder)], overrides=overrides, **given)
    return folder / out


def kept(run: Path, step: int, file: str) -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / f"{file}.safetensors")


@pytest.mark.parametrize("attention", HARD)
def test_a_run_in_two_parts_is_the_run_in_one(folder: Path, attention: str) -> None:
    whole = train(folder, f"{attention}-whole", attention, 6)
    parts = train(folder, f"{attention}-parts", attention, 3)
    parts = train(folder, f"{attention}-parts", attention, 6)
    for file in ("model", "training"):
        one, other = kept(whole, 6, file), kept(parts, 6, file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one), file
    baseline = [name for name in kept(whole, 6, "training") if name.startswith("task.")]
    assert bool(baseline) == (attention == "hard-reinforce")


def test_the_parts_of_the_loss_are_in_the_record(folder: Path) -> None:
    run = train(folder, "record", "hard-reinforce", 3)
    record = (run / "metrics.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, record) if line["kind"] == "train"]
    assert len(lines) == 3
    for line in lines:
        assert {"loss", "reinforce", "entropy", "baseline"} <= line.keys()
    assert lines[0]["baseline"] == pytest.approx(-lines[0]["loss"], rel=1e-5)
    assert lines[1]["baseline"] == pytest.approx(-lines[0]["loss"], rel=1e-5)
    assert 0 < lines[0]["entropy"] < 5


@pytest.mark.parametrize("attention", HARD)
def test_translating_and_its_alignment_draw_nothing(folder: Path, attention: str) -> None:
    run = train(folder, f"{attention}-used", attention, 2)
    translator = load_translator([run], device="cpu")
    texts = ["one red dog sees two cat", "red"]
    first, again = (translator.translate(texts, alignments=True) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert one.text == other.text
        assert one.alignment is not None
        assert other.alignment is not None
        assert torch.equal(one.alignment.soft, other.alignment.soft)
    weights = translator.trace(texts[0], "eins rot Hund")["decoder.attention"].weights
    assert ((weights == 0) | (weights == 1)).all()
    assert (weights.sum(-1) == 1).all()


def small(attention: str) -> RecurrentEncoderDecoder:
    settings = RecurrentSettings(
        embedding_size=32,
        hidden_size=32,
        attention=attention,
        dropout=0.0,
        tied_embeddings="output",
    )
    return build_model(settings, 12, 12)


def turned(rows: int) -> Batch:
    """Random digits; the target is the source backwards."""
    digits = torch.randint(4, 12, (rows, 5))
    end, begin = torch.full((rows, 1), END), torch.full((rows, 1), BEGIN)
    source, out = torch.cat([digits, end], 1), torch.cat([digits.flip(1), end], 1)
    lengths = torch.full((rows,), 6)
    return Batch(source, lengths, torch.cat([begin, digits.flip(1)], 1), out, lengths, 6 * rows)


def force(model: RecurrentEncoderDecoder, batch: Batch) -> Tensor:
    return model.teacher_force(Source(batch.source, batch.source_lengths), batch.target_in)


@pytest.mark.parametrize("attention", HARD)
def test_the_same_seed_draws_the_same(attention: str) -> None:
    torch.manual_seed(1)
    model, batch, found = small(attention), turned(8), []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        with watch(model) as seen:
            force(model, batch)
        found.append(torch.cat(seen["decoder.attention"], -2))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.allclose(found[0].sum(-1), torch.ones(()))


def test_reward_alone_teaches_where_to_look() -> None:
    torch.manual_seed(5)
    model = small("hard-reinforce")
    term = Reinforce(rewarded_modules(model))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        batch = turned(32)
        with watch(model, term.modules, keep_gradients=True) as seen:
            logits = force(model, batch).transpose(1, 2)
        surprise = F.cross_entropy(logits, batch.target_out, reduction="none")
        loss = (
            surprise.sum()
            + term.loss(TeacherForced(batch.target_out, seen, surprise.detach())).total
        )
        optimiser.zero_grad()
        (loss / batch.weight).backward()
        optimiser.step()
    model.eval()
    batch = turned(200)
    with torch.no_grad(), watch(model) as seen:
        right = force(model, batch).argmax(-1) == batch.target_out
    assert right.double().mean() > 0.9
    looked_at = torch.cat(seen["decoder.attention"], -2)[:, 0, :5].argmax(-1)
    assert (looked_at - torch.arange(4, -1, -1)).abs().le(1).double().mean() > 0.7
