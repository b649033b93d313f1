"""Translating on several threads, each with batches of its own: the same as on one."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.test_inference import MODELS, TOKENISERS, sentences, transformer
from torch import nn

from heedful.attention import watch
from heedful.decoding import SearchOptions
from heedful.inference import Translator, translation_window
from heedful.models.pairs import PairModel

OPTIONS = [SearchOptions(beam=1), SearchOptions(beam=3), SearchOptions(sample=True, seed=5)]


@pytest.fixture(autouse=True)
def several_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(translation_window, "_FEWEST", 20)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


class Counted(Translator):
    """Tells in how many threads it has searched."""

    threads: set[int]

    def find(self, *args: Any, **options: Any) -> Any:
        self.threads.add(threading.get_ident())
        assert torch.is_inference_mode_enabled()
        return super().find(*args, **options)


def counted(model: PairModel) -> Counted:
    made = Counted([model], TOKENISERS, notify=lambda text: None)
    made.threads = set()
    return made


@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "beam", "sample"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_one_thread(name: str, options: SearchOptions) -> None:
    lines = [*sentences(60), "", "the cat", " "]
    several, alone = counted(MODELS[name]()), counted(MODELS[name]())
    told: list[int] = []
    ours = several.translate(lines, options=options, advance=told.append)
    assert len(several.threads) > 1
    assert sum(told) == len(lines)
    assert min(told) >= 0
    torch.set_num_threads(1)
    theirs = alone.translate(lines, options=options)
    assert len(alone.threads) == 1
    assert [one.source for one in ours] == lines
    for one, other in zip(ours, theirs, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
    same = sum(one.text == other.text for one, other in zip(ours, theirs, strict=True))
    assert same >= len(lines) - 1


def test_a_transformers_results_are_the_very_same_again_and_again() -> None:
    lines = sentences(80)
    made = counted(transformer())
    first = [(one.text, one.score) for one in made.translate(lines)]
    for _ in range(5):
        assert [(one.text, one.score) for one in made.translate(lines)] == first


def test_one_thread_where_calls_are_seen_or_alignments_wanted() -> None:
    lines, model = sentences(60), transformer()
    watched = counted(model)
    with watch(model, ["decoder.0.cross_attention"]):
        watched.translate(lines)
    aligned = counted(model)
    assert all(one.alignment is not None for one in aligned.translate(lines, alignments=True))
    hooked = counted(model)
    handle = next(part for part in model.modules() if isinstance(part, nn.Linear))
    with handle.register_forward_hook(lambda *_: None):
        hooked.translate(lines)
    few = counted(model)
    few.translate(lines[:2])
    for made in (watched, aligned, hooked, few):
        assert len(made.threads) == 1


def test_an_error_comes_out_and_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(transformer().train())
    searched = made.search
    calls: list[int] = []

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("no room")
        return searched(*args)

    monkeypatch.setattr(made, "search", failing)
    with pytest.raises(MemoryError, match="no room"):
        made.translate(sentences(60))
    assert made.model.training  # as before
    monkeypatch.undo()
    assert len(made.translate(["the cat"])) == 1
