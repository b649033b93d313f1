"""Word alignments of long texts: linear in the text, on request, within a limit."""

import json
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.decoding import SearchOptions
from heedful.inference import WordAlignment
from heedful.inference.alignment import join
from heedful.serving import Limits, Served
from serving_help import sentences, serving, translator

MODEL = translator(options=SearchOptions(beam=1))


def parts_of(chance: random.Random) -> tuple[list[Tensor], list[int], list[int]]:
    """Weights of consecutive parts, of which some share a word, and their first words."""
    weights: list[Tensor] = []
    targets, sources = [0], [0]
    for _ in range(chance.randint(1, 6)):
        target, source = chance.randint(0, 4), chance.randint(1, 4)
        weights.append(torch.rand(target, source) * (torch.rand(target, source) > 0.2))
        glued = bool(target) and chance.random() < 0.4
        targets.append(targets[-1] + target - glued)
        sources.append(sources[-1] + source - (glued and chance.random() < 0.5))
    return weights, targets[:-1], sources[:-1]


@pytest.mark.parametrize("threshold", [None, 0.4])
def test_parts_are_the_matrix_that_they_are_parts_of(threshold: float | None) -> None:
    torch.manual_seed(1)
    chance = random.Random(1)
    for _ in range(200):
        weights, targets, sources = parts_of(chance)
        own = [WordAlignment(one) for one in weights]
        joined = WordAlignment.joined(own, sources, targets, threshold)
        whole = WordAlignment(join(weights, sources, targets), threshold)
        torch.testing.assert_close(joined.soft, whole.soft)
        for row, dense in zip(joined.rows(), whole.soft, strict=False):
            filled = torch.zeros(len(dense))
            filled[row.first : row.first + len(row.weights)] = row.weights
            torch.testing.assert_close(filled, dense)
        assert joined.links == whole.links
        # Parts of parts, as of a text whose lines were cut in turn.
        twice = WordAlignment.joined([joined, joined], [0, 50], [0, 70], threshold)
        twofold = join([whole.soft, whole.soft], [0, 50], [0, 70])
        torch.testing.assert_close(twice.soft, twofold)
        assert twice.pharaoh() == WordAlignment(twofold, threshold).pharaoh()


def test_weights_are_linear_in_the_text() -> None:
    texts = [" ".join(sentences(count)) for count in (20, 80)]
    with serving(Served("one", MODEL, "en", "de")) as client:
        sizes = []
        for text in texts:
            found = client.post("/api/translate", json={"text": text, "alignments": True}).json()
            [one] = found["translations"]
            assert len(one["soft"]) == len(one["target_words"])
            for target, row in enumerate(one["soft"]):
                heaviest = max(range(len(row["weights"])), key=row["weights"].__getitem__)
                assert [row["first"] + heaviest, target] in one["alignment"]
            sizes.append(sum(len(row["weights"]) for row in one["soft"]))
        assert 3 < sizes[1] / sizes[0] < 6  # a matrix of all words has 16 times as many


def test_no_matrix_of_all_words_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def noted(self: WordAlignment) -> Any:
        made.append(self)
        raise AssertionError("a matrix")

    monkeypatch.setattr(WordAlignment, "soft", property(noted))
    text = " ".join(sentences(30))
    with serving(Served("one", MODEL, "en", "de")) as client:
        given = {"text": text, "alignments": True}
        [whole] = client.post("/api/translate", json=given).json()["translations"]
        lines = [
            json.loads(line)
            for line in client.post("/api/translate/stream", json=given).text.splitlines()
        ]
        assert [row for line in lines[:-1] for row in line["soft"]]
        assert sum(len(line["soft"]) for line in lines[:-1]) == len(whole["soft"])
        assert lines[-1]["done"] is True
    assert not made


def test_an_answer_has_a_limit() -> None:
    served, given = Served("one", MODEL, "en", "de"), {"text": " ".join(sentences(40))}
    with serving(served) as client:
        plain = len(client.post("/api/translate", json=given).content)
    with serving(served, limits=Limits(answer=plain)) as client:
        assert client.post("/api/translate", json=given).status_code == 200
        for more in ({"alignments": True}, {"nbest": 8}):
            answer = client.post("/api/translate", json={**given, **more})
            assert answer.status_code == 400
            assert f"more than {plain:,} bytes; send less text" in answer.json()["error"]
    with serving(served, limits=Limits(answer=500)) as client:  # seen before it is written
        answer = client.post("/api/translate", json={**given, "alignments": True})
        assert answer.status_code == 400


def test_work_has_a_limit() -> None:
    """As much as the most characters by the model's own search, here with a beam of 2, and with
    alignments."""
    own = translator(options=SearchOptions(beam=2))
    text = "the cat. " * 100
    with serving(Served("one", own, "en", "de"), limits=Limits(characters=1_000)) as client:
        for more, most in (
            ({}, None),
            ({"alignments": True}, None),
            ({"beam": 3}, None),
            ({"beam": 3, "alignments": True}, "a beam of 3 and alignments is 750"),
            ({"beam": 4}, "a beam of 4 is 750"),
            ({"nbest": 16, "alignments": True}, "a beam of 16 and alignments is 176"),
        ):
            for path in ("/api/translate", "/api/translate/stream"):
                given = {"text": text, **more}
                if path.endswith("stream") and "nbest" in more:
                    continue
                answer = client.post(path, json=given)
                assert answer.status_code == (200 if most is None else 400), more
                if most is not None:
                    assert answer.json()["error"] == f"900 characters; the maximum with {most}"
        given = {"q": text, "source": "en", "target": "de", "alternatives": 3}
        assert client.post("/translate", json=given).status_code == 400
