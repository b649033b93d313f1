"""Outputs with a given beginning, against every output there is, and through real models."""

import pytest
import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.decoding import ForcedPrefix, SearchOptions, search
from heedful.inference.batches import source_of, target_in_of
from test_decoding import Table
from test_inference import MODELS, sentences, transformer, translator

V = 7  # three ordinary tokens
LIMIT = 4


@pytest.mark.parametrize("beginning", [[], [4], [6, 5]])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("allowed", [None, [4, 6]])
def test_search_finds_the_best_outputs_that_begin_so(
    beginning: list[int], exponent: float, allowed: list[int] | None
) -> None:
    table = Table(7, V, sources=2)
    given = torch.tensor([beginning, beginning]).long()
    mask = None
    if allowed is not None:
        mask = torch.zeros(V, dtype=torch.bool)
        mask[allowed] = True
    continued = ForcedPrefix(table, given, mask)
    room = LIMIT - len(beginning)
    # With exponent 0 a score is the sum of its tokens', so that the beginning changes no order.
    found = search(
        continued,
        torch.arange(2),
        rows=2,
        options=SearchOptions(beam=200, nbest=3, length_penalty=exponent),
        max_lengths=torch.tensor([room, room]),
    )
    size = len(beginning)
    for source in range(2):
        possible = [
            (total, tokens)
            for _, total, tokens in table.enumerate(source, LIMIT, 0.0)
            if list(tokens[:size]) == beginning
            and (allowed is None or (len(tokens) > size and tokens[size] in allowed))
        ]
        before = float(continued.log_probabilities[source].sum())
        share = float(continued.allowed_log_probability[source])
        totals = {tokens[size:]: total for total, tokens in possible}
        for one in found[source]:
            assert before + share + one.log_probability == pytest.approx(
                totals[one.tokens], abs=1e-5
            )
        scores = sorted(
            (
                (total - before - share) / ((5 + len(tokens) - size + 1) / 6) ** exponent
                for total, tokens in possible
            ),
            reverse=True,
        )
        assert [one.score for one in found[source]] == pytest.approx(scores[:3], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_going_on_from_ones_own_tokens_gives_the_same_output(name: str) -> None:
    model = MODELS[name]()
    ours = translator(model)
    greedy = SearchOptions(beam=1)
    sources = [ours.tokenisers.source.encode(text) for text in sentences(3)]
    with ours.ready():
        source, found, _ = ours.search(sources, greedy, range(3))
        shortest = min(len(one[0].tokens) for one in found)
        assert shortest > 3
        for cut in range(shortest):
            begun = torch.tensor([one[0].tokens[:cut] for one in found]).view(3, cut).long()
            continued = ForcedPrefix(model, begun)
            limits = ours.output_limits(source) - cut
            again = search(continued, source, rows=3, options=greedy, max_lengths=limits)
            for row, (one, other) in enumerate(zip(found, again, strict=True)):
                assert other[0].tokens == one[0].tokens[cut:]
                steps = [*continued.log_probabilities[row].tolist()]
                steps += other[0].token_log_probabilities
                assert steps == pytest.approx(list(one[0].token_log_probabilities), abs=1e-4)


def test_a_translation_begins_as_asked_and_has_its_own_probability() -> None:
    model = transformer()
    ours = translator(model)
    text = "the small dog sat on the mat."
    options = SearchOptions(beam=3, nbest=3)
    found = ours.continue_from(text, "a tree on ", options=options)
    assert all(one.text.startswith("a tree on ") for one in (found, *found.alternatives))
    assert all(one.text[len("a tree on ") :][:1].strip() for one in (found, *found.alternatives))
    beginning = ours.tokenisers.target.encode("a tree on")
    pieces = list(ours.tokenisers.target.pieces(beginning))
    assert list(found.tokens[: len(pieces)]) == pieces
    names = {ours.tokenisers.target.pieces([i])[0]: i for i in range(3, 380)}
    written = [names[piece] for piece in found.tokens]
    source = source_of([ours.tokenisers.source.encode(text)], torch.device("cpu"))
    with ours.ready():
        logits = model.teacher_force(source, target_in_of([written], torch.device("cpu")))[0]
    chosen = logits.log_softmax(1).gather(1, torch.tensor([[i] for i in (*written, END)]))
    assert found.log_probability == pytest.approx(float(chosen.sum()), abs=1e-4)
    assert list(found.token_scores) == pytest.approx(chosen.flatten().tolist()[:-1], abs=1e-4)


def test_alternatives_are_different_words_with_the_models_own_probabilities() -> None:
    ours = translator()
    text = "the small dog sat on the mat."
    found = ours.alternatives(text, "a tree ", count=4)
    words = [one.word for one in found]
    assert len(set(words)) == len(words) == 4
    assert all(one.text.split()[:2] == ["a", "tree"] for one in found)
    assert all(one.text.split()[2:3] == [one.word] for one in found)
    assert [one.probability for one in found] == sorted(
        (one.probability for one in found), reverse=True
    )
    best = found[0]
    going_on = ours.continue_from(text, "a tree ", options=SearchOptions(beam=1))
    first = going_on.token_scores[len(ours.tokenisers.target.encode("a tree"))]
    assert best.probability == pytest.approx(float(torch.tensor(first).exp()), rel=1e-4)
    assert ours.alternatives(text, "", count=1)[0].word


def test_what_cannot_be_gone_on_from_is_said() -> None:
    ours = translator(transformer(max_length=12))
    with pytest.raises(UserError, match="empty"):
        ours.continue_from(" ", "a")
    with pytest.raises(UserError, match="more than the model's 11"):
        ours.continue_from("dog " * 30, "a")
    with pytest.raises(UserError, match="the beginning has"):
        ours.continue_from("dog", "a " * 30)
    with pytest.raises(UserError, match="sampling is not available"):
        ours.continue_from("dog", "a", options=SearchOptions(sample=True))
    with pytest.raises(UserError, match="at least 1"):
        ours.alternatives("dog", "a", 0)
