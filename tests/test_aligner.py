"""The aligner: its chain against all alignments one by one, and links from a corpus alone."""

import itertools
import json
import math
import random
from pathlib import Path

import pytest
import torch
import typer
from torch import Tensor
from typer.testing import CliRunner

from heedful.attention import watch
from heedful.attention.hidden_markov import HiddenMarkovAttention, key_normaliser
from heedful.basics.errors import UserError
from heedful.cli import task_commands, train
from heedful.data.examples import Pair
from heedful.evaluation.alignment_error import GoldLinks, alignment_error_rate, read_links
from heedful.interop.exporting import export_hf
from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.pairs import Source
from heedful.runs.opening import open_run
from heedful.tasks.pairs.aligners import build_aligner, load_directions


def by_enumeration(scores: Tensor, attention: HiddenMarkovAttention) -> tuple[float, Tensor]:
    """Likelihood and marginals of one pair, summed over every alignment.

    Args:
        scores: ``log p(y_t | x_s)`` of real words ``[T, S]``; the last column is nowhere's.
        attention: its parameters.
    """
    targets, words = scores.shape[0], scores.shape[1] - 1
    nowhere = attention.nowhere.sigmoid().item()

    def jump(start: int, end: int) -> float:
        def weight(place: int) -> float:
            far = max(-attention.reach, min(attention.reach, place - start))
            return math.exp(attention.jumps[far + attention.reach].item())

        return weight(end) / sum(weight(place) for place in range(words))

    total, marginals = 0.0, torch.zeros_like(scores)
    for places in itertools.product(range(words), repeat=targets):
        # Where the chain is, and at each step whether the word is from there or from nowhere.
        for from_there in itertools.product([True, False], repeat=targets):
            chance, before = 1.0, None
            for step, (place, there) in enumerate(zip(places, from_there, strict=True)):
                if there:
                    arrival = jump(-1, place) if before in (None, "start") else 0.0
                    if before not in (None, "start"):
                        arrival = jump(int(before), place)
                    elif step > 0:  # after words from nowhere: on from where it would begin
                        arrival = jump(places[step - 1], place)
                    chance *= (1 - nowhere) * arrival * math.exp(scores[step, place])
                else:
                    stays = jump(-1, place) if step == 0 else float(places[step - 1] == place)
                    chance *= nowhere * stays * math.exp(scores[step, words])
                before = str(place)
            total += chance
            for step, (place, there) in enumerate(zip(places, from_there, strict=True)):
                marginals[step, place if there else words] += chance
    return math.log(total), marginals / total


@pytest.mark.parametrize(("targets", "words"), [(1, 1), (3, 2), (2, 4), (4, 3)])
def test_the_chain_is_the_sum_over_all_alignments(targets: int, words: int) -> None:
    torch.manual_seed(targets)
    attention = HiddenMarkovAttention(reach=2)
    with torch.no_grad():
        attention.jumps.normal_()
    scores = torch.randn(targets, words + 1)
    expected, marginals = by_enumeration(scores, attention)
    # Padding on both sides, and BEGIN's row, which is no part of it.
    whole = torch.randn(1, targets + 3, words + 3)
    whole[0, 1 : targets + 1, : words + 1] = scores
    with watch(attention) as seen:
        likelihood, _ = attention(whole, torch.tensor([words + 1]), torch.tensor([targets + 1]))
    assert likelihood.item() == pytest.approx(expected, rel=1e-4)
    weights = seen[""][0][0, 0]
    torch.testing.assert_close(
        weights[1 : targets + 1, : words + 1], marginals, atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(weights.sum(1), torch.ones(targets + 3))
    assert weights[0, words] == weights[-1, words] == 1
    alone, nothing = attention(whole, torch.tensor([words + 1]), torch.tensor([targets + 1]))
    assert nothing is None
    assert torch.equal(alone, likelihood)


def test_the_marginals_are_the_gradient_of_the_likelihood() -> None:
    torch.manual_seed(1)
    attention = HiddenMarkovAttention(reach=5).double()
    scores = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([6, 4, 2]), torch.tensor([7, 3, 5])
    with watch(attention, rows=[2]) as some, watch(attention) as seen:
        likelihood, _ = attention(scores, *lengths)
    (gradient,) = torch.autograd.grad(likelihood.sum(), scores)
    real = (torch.arange(7) < lengths[1][:, None]) & (torch.arange(7) > 0)
    weights = seen[""][0][:, 0]
    torch.testing.assert_close(
        weights[real].double(), gradient[real], atol=1e-5, rtol=1e-4, check_dtype=False
    )
    assert not gradient[~real].any()
    torch.testing.assert_close(some[""][0][:, 0, 0], weights[:, 2])


def test_far_from_likely_words_do_not_underflow() -> None:
    attention = HiddenMarkovAttention(reach=5)
    scores = torch.full((1, 60, 40), -200.0)
    scores[0, :, 7] = -90.0
    likelihood, _ = attention(scores, torch.tensor([40]), torch.tensor([60]))
    assert torch.isfinite(likelihood).all()
    # A source of its end alone: everything is from nowhere.
    with watch(attention) as seen:
        likelihood, _ = attention(scores[:, :3], torch.tensor([1]), torch.tensor([3]))
    assert torch.isfinite(likelihood).all()
    assert torch.isfinite(seen[""][0]).all()


def test_scores_are_a_distribution_over_the_vocabulary() -> None:
    torch.manual_seed(1)
    keys, table, bias = torch.randn(2, 3, 5), torch.randn(11, 5), torch.randn(11)
    scores = keys @ table.T + bias - key_normaliser(keys, table, bias)[:, :, None]
    torch.testing.assert_close(scores.exp().sum(2), torch.ones(2, 3))


def test_padding_and_order_of_a_batch_change_nothing() -> None:
    torch.manual_seed(1)
    model = WordAligner(AlignerSettings(hidden_size=8), 30, 40).eval()
    source = torch.randint(4, 30, (2, 6))
    target = torch.randint(4, 40, (2, 5))
    source[1, 2], source[0, 5] = 3, 3
    source[1, 3:] = 0
    target[:, 0] = 2
    target[1, 3:] = 0
    both = model.log_likelihood(Source(source, torch.tensor([6, 3])), target)
    alone = model.log_likelihood(Source(source[1:, :3], torch.tensor([3])), target[1:, :3])
    torch.testing.assert_close(alone, both[1:])
    with pytest.raises(UserError, match="does not translate"):
        model.start(Source(source, torch.tensor([6, 3])))


# The command line

WORDS = {f"w{a}{b}": f"{b}o{a}" for a in "aeiou" for b in "kmt"}


def corpus(count: int, seed: int) -> tuple[list[tuple[str, str]], list[list[tuple[int, int]]]]:
    """Sentences whose words are translated, neighbours exchanged at random, fillers put in."""
    chance = random.Random(seed)
    rows, links = [], []
    for _ in range(count):
        source = chance.sample(list(WORDS), chance.randint(3, 6))
        order = list(range(len(source)))
        place = chance.randrange(len(source) - 1)
        order[place], order[place + 1] = order[place + 1], order[place]
        rows.append((" ".join(source), " ".join(WORDS[source[i]] for i in order)))
        links.append([(i, j) for j, i in enumerate(order)])
    return rows, links


def heedful(*arguments: object) -> str:
    app = typer.Typer()
    for command in (task_commands, train):
        command.register(app)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aligner")
    rows, _ = corpus(300, 1)
    (folder / "c.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    languages = ("--from", "en", "--to", "es")
    small = ("--set", "training.max_steps=150", "--set", "model.hidden_size=16", "--device", "cpu")
    command = ("train", "--task", "align", "--data", folder / "c.tsv", *languages, *small)
    heedful(*command, "--set", "training.log_every=150", "--out", folder / "run")
    return folder


def test_a_corpus_alone_gives_an_aligner_of_both_directions(folder: Path) -> None:
    recipes = [open_run(folder / "run" / name).recipe for name in ("forward", "reverse")]
    assert [(one.data.source, one.data.target) for one in recipes] == [("en", "es"), ("es", "en")]
    assert [one.data.reversed for one in recipes] == [False, True]
    assert all(one.task == "alignment" for one in recipes)
    assert open_run(folder / "run" / "forward").facts["data"]["train_pairs"] == 300
    _, links = corpus(300, 1)
    gold = [GoldLinks(frozenset(each), frozenset(each)) for each in links]
    found = read_links(heedful("align", folder / "run", folder / "c.tsv").split("\n")[:-1])
    assert alignment_error_rate(gold, found).precision > 0.9
    one = heedful("align", folder / "run" / "forward", folder / "c.tsv").split("\n")[:-1]
    assert alignment_error_rate(gold, read_links(one)).precision > 0.8


def test_weights_of_both_directions_are_their_geometric_mean(folder: Path) -> None:
    pairs = [Pair(*row) for row in corpus(20, 2)[0]]
    runs = load_directions([folder / "run" / name for name in ("forward", "reverse")])
    first, second, both = (
        build_aligner(some, None).weights(pairs) for some in (runs[:1], runs[1:], runs)
    )
    for one, other, mean in zip(first, second, both, strict=True):
        assert mean.keys() == one.keys() & other.keys()
        assert all(mean[link] ** 2 == pytest.approx(one[link] * other[link]) for link in mean)


def test_the_rule_of_both_is_chosen_and_links_guide_another_model(folder: Path) -> None:
    _, links = corpus(300, 1)
    lines = "".join(" ".join(f"{i}-{j}" for i, j in each) + "\n" for each in links)
    (folder / "gold").write_text(lines)
    choose = ("--choose-rule", folder / "gold", "--pairs", 50)
    table = heedful("align", folder / "run", folder / "c.tsv", *choose)
    assert "joined by" in table
    kept = json.loads((folder / "run" / "forward" / "alignment.json").read_text())
    assert kept["joined"]["figures"]["f1"] > 0.9
    heedful("align", folder / "run", folder / "c.tsv", "--output", folder / "links")
    out = folder / "guided"
    data = ("--data", folder / "c.tsv", "--from", "en", "--to", "es", "--out", out)
    more = ("training.max_steps=2", "training.guided_alignment.weight=0.5")
    options = [
        part for each in (f"data.links={folder / 'links'}", *more) for part in ("--set", each)
    ]
    heedful("train", *data, "--device", "cpu", *options)
    assert open_run(out).recipe.data.links == str(folder / "links")


def test_the_aligner_learns_from_links_too(folder: Path) -> None:
    heedful("align", folder / "run", folder / "c.tsv", "--output", folder / "silver")
    options = ("--set", f"data.links={folder / 'silver'}", "--set", "training.max_steps=3")
    data = ("--data", folder / "c.tsv", "--from", "en", "--to", "es", "--device", "cpu")
    out = folder / "twice"
    heedful("train", "--task", "align", *data, *options, "--out", out)
    records = (out / "reverse" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(records[-1])["guided_alignment"] > 0


def test_what_an_aligner_cannot_do_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    data = ("--data", folder / "c.tsv", "--from", "en", "--to", "es")
    (tmp_path / "text").write_text("wak\n")
    for arguments, says in (
        (("translate", folder / "run" / "forward", tmp_path / "text"), "does not translate"),
        (("train", "x.toml", "--task", "align", "--out", tmp_path / "a"), "leave out the recipe"),
        (("train", "--task", "align", "--out", tmp_path / "a"), "give a recipe, or a corpus"),
        (("train", "--task", "align", *data, "--out", folder / "run" / "forward"), "is a run"),
        (("train", *data, "--set", "task=alignment", "--out", tmp_path / "b"), "needs model.kind"),
        (("align", folder, folder / "c.tsv"), "is not a run"),
    ):
        with pytest.raises(UserError, match=says):
            heedful(*arguments)
    with pytest.raises(UserError, match="is an aligner, which has no Hugging Face layout"):
        export_hf(folder / "run", tmp_path / "hf")
