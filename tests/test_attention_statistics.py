"""Entropy, sharpness and coverage: by hand on known weights, and against traces."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from scipy.spatial.distance import jensenshannon
from torch import Tensor
from typer.testing import CliRunner

from heedful.basics.errors import UserError
from heedful.cli import evaluate
from heedful.evaluation.attention_statistics import HeadStatistics, _Sums, attention_statistics
from heedful.evaluation.head_distances import head_distances
from heedful.inference import Translator
from heedful.inference.trace import Trace
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.pairs import PairModel
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.training import train
from test_inference import sentences, transformer, translator
from test_training import write_corpus


def measured(weights: Tensor, queries: list[int], keys: list[int], **of: bool) -> HeadStatistics:
    """Statistics of the first head of one batch."""
    sums = _Sums(weights.shape[1])
    sums.add(
        weights,
        torch.tensor(queries),
        torch.tensor(keys),
        causal=of.get("causal", False),
        covering=of.get("covering", False),
    )
    return sums.statistics("module", ("target", "source"))[0]


def test_known_weights_by_hand() -> None:
    # Two target steps over two source tokens and END; the third row and fourth column are padding.
    weights = torch.tensor(
        [[[[0.5, 0.25, 0.25, 9.0], [1.0, 0.0, 0.0, 9.0], [9.0, 9.0, 9.0, math.nan]]]]
    )
    found = measured(weights, [2], [3], covering=True)
    entropy = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    assert found.rows == 2
    assert found.entropy == pytest.approx(entropy / 2)
    assert found.relative_entropy == pytest.approx(entropy / math.log(3) / 2)
    assert found.sharpness == pytest.approx(0.75)
    assert found.mass == pytest.approx(1.0)
    assert found.covered == pytest.approx(0.5)  # 1.5 and 0.25; END's own does not count
    assert found.coverage_error == pytest.approx((0.5 + 0.75) / 2)


def test_heads_agree_as_far_as_their_weights_overlap() -> None:
    rows = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    other = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 2.0]])  # normalized: the last is 1
    sums = _Sums(3)
    sums.add(
        torch.stack([rows, other, rows])[None],
        torch.tensor([2]),
        torch.tensor([3]),
        causal=False,
        covering=False,
    )
    found = [each.agreement for each in sums.statistics("module", ("target", "source"))]
    # Head 1 and 2 share 0.75 and 0 of their weight; head 1 and 3 are equal.
    assert found == pytest.approx([(0.375 + 1) / 2, 0.375, (0.375 + 1) / 2])
    one_head = measured(torch.full((1, 1, 2, 2), 0.5), [2], [2])
    assert one_head.agreement is None


def test_distances_of_heads_are_those_of_scipy() -> None:
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    queries, keys = [4, 2], [5, 3]
    sums = _Sums(3)
    sums.add(weights, torch.tensor(queries), torch.tensor(keys), causal=False, covering=False)
    found = [each.distance for each in sums.statistics("module", ("target", "source"))]
    right = [
        [
            jensenshannon(
                weights[row, head, query, : keys[row]].numpy(),
                weights[row, other, query, : keys[row]].numpy(),
                base=2,
            )
            for other in range(3)
            if other != head
            for row in range(2)
            for query in range(queries[row])
        ]
        for head in range(3)
    ]
    assert found == pytest.approx([sum(own) / len(own) for own in right], rel=1e-10)
    assert measured(torch.full((1, 1, 2, 2), 0.5), [2], [2]).distance is None


def test_distances_of_the_heads_of_all_layers() -> None:
    generator = torch.Generator().manual_seed(4)
    own, across, again = (
        torch.rand(heads, 3, 4, generator=generator).softmax(-1) for heads in (2, 2, 1)
    )
    axes = {"query": list("abc"), "key": list("klmn"), "four": list("wxyz")}
    trace = Trace.of(
        axes,
        {
            "first": ("query", "key", own),
            "other": ("query", "four", across),
            "last": ("query", "key", again),
        },
    )
    found = head_distances(trace)
    assert (found.heads, found.maps) == (["1.1", "1.2", "2.1"], ["first", "last"])
    weights = torch.cat([own, again]).double().numpy()
    right = jensenshannon(weights[:, None], weights[None], base=2, axis=-1).mean(-1)
    torch.testing.assert_close(found.matrix, torch.from_numpy(right), rtol=1e-9, atol=1e-7)
    assert head_distances(trace, "other").maps == ["other"]
    assert bool((found.matrix.diagonal() == 0).all())
    alone = Trace.of(axes, {"one": ("query", "key", again)})
    with pytest.raises(UserError, match="needs two heads"):
        head_distances(alone)
    with pytest.raises(UserError, match="no attention"):
        head_distances(Trace({}, [], [], []))


def test_later_tokens_are_not_allowed_and_a_single_key_is_no_choice() -> None:
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    weights[0, 0] = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])
    found = measured(weights, [3], [3], causal=True)
    assert found.entropy == pytest.approx((math.log(2) + math.log(3)) / 3)
    assert found.relative_entropy == pytest.approx(1.0)  # even wherever there is a choice
    alone = measured(torch.ones(2, 1, 1, 1), [1, 1], [1, 1], causal=True)
    assert (alone.entropy, alone.relative_entropy, alone.sharpness) == (0.0, None, 1.0)
    assert alone.covered is None


def test_weights_that_do_not_sum_to_one_are_measured_as_shares() -> None:
    even = measured(torch.full((1, 1, 1, 2), 0.1), [1], [2], covering=True)
    assert even.entropy == pytest.approx(math.log(2))
    assert (even.sharpness, even.mass) == (pytest.approx(0.5), pytest.approx(0.2))
    assert even.coverage_error == pytest.approx(0.9)
    none = measured(torch.zeros(1, 1, 1, 2), [1], [2])
    assert (none.entropy, none.sharpness, none.mass) == (0.0, 0.0, 0.0)


def recurrent() -> PairModel:
    return RecurrentEncoderDecoder(RecurrentSettings(embedding_size=24, hidden_size=24), 380, 380)


def convolutional() -> PairModel:
    settings = ConvolutionalSettings(
        embedding_size=24, hidden_size=24, encoder_layers=2, decoder_layers=2
    )
    return ConvolutionalEncoderDecoder(settings, 380, 380)


def naive(model: Translator, pairs: list[tuple[str, str]]) -> dict[tuple[str, int], list[float]]:
    """Entropy, relative entropy, sharpness, covered and error, a number at a time from traces."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for source, target in pairs:
        for one in model.trace(source, target).maps:
            own = one.query_axis == one.key_axis == "target"
            for head, matrix in enumerate(one.weights.double().tolist()):
                of = found.setdefault((one.name, head + 1), [[], [], [], [], []])
                for place, row in enumerate(matrix):
                    shares = row[: place + 1] if own else row
                    entropy = -sum(p * math.log(p) for p in shares if p > 0)
                    of[0].append(entropy)
                    if len(shares) > 1:
                        of[1].append(entropy / math.log(len(shares)))
                    of[2].append(max(shares))
                if (one.query_axis, one.key_axis) == ("target", "source"):
                    for column in list(zip(*matrix, strict=True))[:-1]:
                        of[3].append(float(sum(column) >= 0.5))
                        of[4].append(abs(sum(column) - 1))
    return {key: [sum(e) / len(e) if e else -1 for e in of] for key, of in found.items()}


@pytest.mark.parametrize("make", [transformer, recurrent, convolutional])
def test_a_corpus_is_as_its_traces_say(make: Any) -> None:
    torch.manual_seed(1)
    model = translator(make())
    texts = sentences(14)
    pairs = list(pairwise(texts))
    seen: list[int] = []
    found = attention_statistics(
        model, [one for one, _ in pairs], [two for _, two in pairs], advance=seen.append
    )
    expected = naive(model, pairs)
    assert [(each.module, each.head) for each in found] == list(expected)
    assert sum(seen) == len(pairs)
    for each in found:
        numbers = [each.entropy, each.relative_entropy, each.sharpness]
        numbers += [each.covered, each.coverage_error]
        values = [-1 if number is None else number for number in numbers]
        assert values == pytest.approx(expected[each.module, each.head], abs=1e-5)
        assert each.mass == pytest.approx(1, abs=1e-5)


def test_empty_and_too_long_pairs_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    model = translator(transformer())
    texts = sentences(4)
    whole = attention_statistics(model, texts, texts)
    longer = [*texts, "", " ".join(sentences(200)), texts[0]]
    targets = [*texts, texts[0], texts[0], " "]
    again = attention_statistics(model, longer, targets)
    assert [each.rows for each in again] == [each.rows for each in whole]
    for one, two in zip(whole, again, strict=True):
        assert one.entropy == pytest.approx(two.entropy, abs=1e-6)


def test_the_command_has_it_in_json_and_as_a_table(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "validation", "test")):
        write_corpus(tmp_path / f"{part}.tsv", 60 if part == "train" else 3, seed)
    names = ("train", "validation", "test")
    tables: dict[str, Any] = {
        "data": {name: f"{name}.tsv" for name in names} | {"filters": {"duplicates": False}},
        "tokeniser": {"vocabulary_size": 360},
        "training": {
            "max_steps": 30,
            "batch_tokens": 200,
            "warmup_steps": 2,
            "learning_rate": 0.01,
        },
        "evaluation": {"beam": 1, "samples": 0, "validation_pairs": 1},
    }
    models = {
        "watched": {"layers": 1, "hidden_size": 16, "ffn_size": 16, "heads": 2},
        "none": {"kind": "recurrent", "attention": "none", "embedding_size": 8, "hidden_size": 8},
    }
    for name, model in models.items():
        assert train(tables | {"model": model}, tmp_path / name, data=tmp_path)
    quick = ["--bootstrap", 0, "--metrics", "bleu", "--sentences", 0, "--attention"]
    plain = run("evaluate", tmp_path / "watched", *quick)
    assert "attention while writing the references" in plain
    found = json.loads(run("evaluate", tmp_path / "watched", *quick, "--json"))["attention"]
    modules = ["encoder.0.self_attention", "decoder.0.self_attention", "decoder.0.cross_attention"]
    assert [(each["module"], each["head"]) for each in found] == [
        (module, head) for module in modules for head in (1, 2)
    ]
    assert found[0]["covered"] is None
    assert 0 <= found[-1]["covered"] <= 1
    none = json.loads(run("evaluate", tmp_path / "none", *quick, "--json"))
    assert none["attention"] == []
    with pytest.raises(UserError, match="--attention needs a run"):
        run("evaluate", "--hypotheses", "x", "--references", "y", "--attention")


def run(*arguments: object) -> str:
    app = typer.Typer()
    evaluate.register(app)
    app.callback()(lambda: None)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout
