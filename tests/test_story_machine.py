"""Machines that read a story word by word: the order of the steps, padding, training, the trace."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

import heedful
from heedful.basics.symbols import END
from heedful.inference import Trace
from heedful.models import StorySettings, build_story_model
from heedful.models.story_machine import packed
from heedful.tasks.spec import Opening, spec_of_run

STORY = torch.tensor([[[7, 8, 9], [10, 11, 0]], [[12, 13, 0], [0, 0, 0]]])
QUESTION = torch.tensor([[14, 15], [16, 0]])
MACHINES: dict[str, dict[str, Any]] = {
    "dnc": {"kind": "differentiable-neural-computer", "slots": 6, "slot_size": 5, "read_heads": 2},
    "ntm": {"kind": "neural-turing-machine", "slots": 6, "slot_size": 5},
    "lstm": {"kind": "recurrent-sequence", "layers": 1},
}


def made(machine: dict[str, Any]) -> Any:
    torch.manual_seed(3)
    given = {"kind": "story-machine", "embedding_size": 6}
    settings = StorySettings.model_validate({**given, "machine": {"hidden_size": 7, **machine}})
    return build_story_model(settings, 30, [4, 5, 6]).double().eval()


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_the_answer_is_the_machines_output_after_the_last_word(machine: dict[str, Any]) -> None:
    model = made(machine)
    found = model(STORY, QUESTION).logits
    for row, words in enumerate([[7, 8, 9, 10, 11, 14, 15, END], [12, 13, 16, END]]):
        steps = model.machine(model.table(torch.tensor([words])))
        torch.testing.assert_close(found[row], steps[0, -1])
    found.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()


def test_words_keep_their_order() -> None:
    tokens, lengths = packed(STORY, QUESTION)
    assert tokens.tolist() == [[7, 8, 9, 10, 11, 14, 15, END], [12, 13, 16, END, 0, 0, 0, 0]]
    assert lengths.tolist() == [8, 4]


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(ValidationError, match="abacus"):
        StorySettings.model_validate({"kind": "story-machine", "machine": {"kind": "abacus"}})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A machine that has learned where Mary is."""
    place = tmp_path_factory.mktemp("machine")
    rows = [
        {
            "story": [f"John went to the {other}.", f"Mary went to the {where}."],
            "question": "Where is Mary?",
            "answer": where,
        }
        for where in ("hall", "garden", "office")
        for other in ("hall", "garden", "office")
    ]
    recipe: dict[str, Any] = {
        "task": "answer",
        "model": {
            "kind": "story-machine",
            "embedding_size": 16,
            "machine": {**MACHINES["dnc"], "hidden_size": 16},
        },
        "training": {
            "max_steps": 60,
            "learning_rate": 0.02,
            "warmup_steps": 5,
            "batch_tokens": 400,
            "precision": "float32",
            "checkpoint_every": 60,
            "device": "cpu",
            "threads": 1,
        },
    }
    assert heedful.train(recipe, place / "run", data={"train": rows * 6, "test": rows})
    return place / "run"


def test_it_learns_and_its_trace_has_words_as_steps(run: Any) -> None:
    opened, spec = spec_of_run(run)
    assert spec.evaluate(opened, None, None, Opening(device="cpu")).figures["accuracy"].value == 100
    story = ["John went to the hall.", "Mary went to the office."]
    asked = {"story": story, "question": "Where is Mary?"}
    predictor = heedful.load(run, device="cpu")
    [answer] = predictor.predict([asked])
    assert (answer.answer, answer.hops) == ("office", [])
    trace: Trace = predictor.trace(spec.input_type()(**asked))
    told = "john went to the hall . mary went to the office . where is mary ? </s>"
    labels = told.split(" ")
    assert trace.axes["steps"].labels == labels
    one = trace["machine.reading"]
    assert one.weights.shape == (2, len(labels), 6)  # heads, steps, slots
