"""GPT-2's layout: transformers' own model and ours, with the same numbers."""

from typing import Any

import pytest
import torch
import transformers

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.imported_vocabulary import places_of
from heedful.decoding import SearchOptions, search
from heedful.interop.layouts import gpt
from heedful.models.gpt import Gpt
from interop_help import randomise

ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tie_word_embeddings": False, "n_inner": 9},
    "odd-heads": {"n_embd": 15, "n_head": 5, "activation_function": "gelu"},
    "one-head": {"n_head": 1, "layer_norm_epsilon": 1e-3, "activation_function": "silu"},
}
PLACES = {"three-lacking": [None, None, None, 39], "all": [7, 5, 38, 39]}


def config_of(name: str) -> transformers.GPT2Config:
    given = {"vocab_size": 40, "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 300}
    return transformers.GPT2Config(**given | {"bos_token_id": 39, "eos_token_id": 39} | ODD[name])


def made(name: str, special: str = "three-lacking") -> tuple[Any, Gpt, list[int | None]]:
    theirs = randomise(transformers.GPT2LMHeadModel(config_of(name)))
    settings = gpt.settings_of(theirs.config.to_dict(), "here")
    places = places_of(PLACES[special], 40)
    ours = Gpt(settings, len(places))
    ours.load_state_dict(gpt.import_tensors(saved(theirs), settings, places, "here"), strict=True)
    return theirs, ours.eval(), places


def saved(model: Any) -> dict[str, torch.Tensor]:
    """What save_pretrained would write."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


@pytest.mark.parametrize("special", PLACES)
@pytest.mark.parametrize("name", ODD)
@torch.inference_mode()
def test_logits_are_the_same_whichever_side_is_padded(name: str, special: str) -> None:
    theirs, ours, places = made(name, special)
    generator = torch.Generator().manual_seed(4)
    known = [symbol for symbol, place in enumerate(places) if place is not None]
    rows = torch.tensor([places[symbol] for symbol in known])
    table = torch.tensor([0 if place is None else place for place in places])
    for length in (1, 6, 290):
        tokens = torch.randint(4, len(places), (2, length), generator=generator)
        tokens[:, 0] = END
        logits = ours.logits(ours.states(tokens))
        for left, right in ((0, 0), (3, 0), (0, 3)):
            ids = torch.nn.functional.pad(table[tokens], (left, right), value=11)
            mask = torch.nn.functional.pad(torch.ones_like(tokens), (left, right))
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            expected = theirs(input_ids=ids, attention_mask=mask, position_ids=positions).logits
            torch.testing.assert_close(
                logits[..., known],
                expected[:, left : left + length][..., rows],
                atol=1e-5,
                rtol=1e-5,
            )
    others = sorted(set(range(len(places))) - set(known))
    assert (logits[..., others] < -9e3).all()


@pytest.mark.parametrize("name", ODD)
def test_tensors_and_fields_come_back(name: str) -> None:
    theirs, ours, places = made(name)
    back = gpt.export_tensors(dict(ours.state_dict()), ours.settings, places)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key
    written = theirs.config.to_dict()
    written["n_inner"] = written["n_inner"] or 4 * written["n_embd"]
    for key, value in gpt.config_of(ours.settings).items():
        if key != "architectures":
            assert value == written[key], key


class _Prompted:
    """Our model with a prompt before what search writes."""

    def __init__(self, model: Gpt) -> None:
        self.model = model

    def start(self, source: torch.Tensor) -> Any:
        self.last = source[:, -1]
        return self.model.start(source)

    def step(self, tokens: torch.Tensor, state: Any) -> Any:
        first = self.last is not None
        tokens, self.last = (self.last if first else tokens), None
        return self.model.step(tokens, state)


@torch.inference_mode()
def test_greedy_and_beams_are_those_of_generate() -> None:
    theirs, ours, places = made("plain")
    prompt = torch.tensor([[END, 9, 8, 30], [END, 5, 5, 6]])
    table = torch.tensor([0 if place is None else place for place in places])
    length = 7
    for beam in (1, 3):
        generated = theirs.generate(
            input_ids=table[prompt],
            attention_mask=torch.ones_like(prompt),
            num_beams=beam,
            min_new_tokens=length,
            max_new_tokens=length,
            length_penalty=0.0,
            do_sample=False,
            pad_token_id=0,
        )[:, prompt.shape[1] :]
        options = SearchOptions(beam=beam, length_penalty=0.0, forced_length=length)
        limits = torch.tensor([length] * 2)
        found = search(_Prompted(ours), prompt, rows=2, options=options, max_lengths=limits)
        tokens = [[places[token] for token in one[0].tokens] for one in found]
        assert tokens == generated.tolist()


def test_older_files_are_read() -> None:
    theirs, ours, places = made("plain")
    older = {
        key.removeprefix("transformer."): tensor
        for key, tensor in theirs.state_dict().items()
        if key != "lm_head.weight"
    }
    older["h.0.attn.bias"] = torch.ones(1, 1, 300, 300)
    again = gpt.import_tensors(older, ours.settings, places, "here")
    for key, tensor in ours.state_dict().items():
        assert torch.equal(again[key], tensor), key


WRONG = [
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = true"),
    ({"scale_attn_weights": False}, "scale_attn_weights = false"),
    ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn = true"),
    ({"add_cross_attention": True}, "add_cross_attention = true"),
    ({"embd_pdrop": 0.3}, r"embd_pdrop = 0\.3"),
    ({"n_head": 5}, "n_head = 5"),
    ({"activation_function": "tanh"}, 'activation_function = "tanh"'),
    ({"rotary_dim": 4}, "rotary_dim = 4: heedful does not know this field"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        gpt.settings_of(config_of("plain").to_dict() | changed, "here/config.json")


def test_runs_without_this_shape_are_refused() -> None:
    settings = made("plain")[1].settings
    for changed in ({"pre_norm": False}, {"positions": "rotary"}, {"bias": False}):
        name = next(iter(changed))
        with pytest.raises(UserError, match=f"model.{name} = "):
            gpt.config_of(settings.model_copy(update=changed))
