"""Marian's layout: transformers' own model and ours, with the same numbers."""

import itertools
from typing import Any

import pytest
import torch
import transformers

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.imported_vocabulary import places_of
from heedful.decoding import Hypothesis, SearchOptions, search
from heedful.interop.layouts import marian
from heedful.interop.layouts.marian import MarianSymbols
from heedful.models.pairs import Source
from heedful.models.transformer import Transformer
from interop_help import randomise

ODD: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled-swish": {"scale_embedding": True, "activation_function": "swish"},
    "deep-encoder": {"encoder_layers": 3, "decoder_layers": 1, "decoder_ffn_dim": 9},
    "odd-heads": {"d_model": 18, "encoder_attention_heads": 1, "decoder_attention_heads": 9},
    "separate": {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
    "untied": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "activation_function": "gelu_new",
    },
    "own-start": {"decoder_start_token_id": 7, "activation_function": "relu"},
}


def config_of(name: str) -> transformers.MarianConfig:
    given = {
        "vocab_size": 40,
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 7,
        "decoder_ffn_dim": 7,
        "max_position_embeddings": 300,
        "pad_token_id": 29,
        "decoder_start_token_id": 29,
        "dropout": 0.25,
    }
    return transformers.MarianConfig(**given | ODD[name])


def made(name: str) -> tuple[Any, Transformer, MarianSymbols]:
    config = config_of(name)
    torch.manual_seed(3)
    theirs = randomise(transformers.MarianMTModel(config))
    pad, start = config.pad_token_id, config.decoder_start_token_id
    special = [None if pad == start else pad, 1, start, 0]
    places = MarianSymbols(
        places_of(special, config.vocab_size), places_of(special, config.decoder_vocab_size)
    )
    settings = marian.settings_of(config.to_dict(), "here")
    ours = Transformer(settings, len(places.source), len(places.target))
    tensors = marian.import_tensors(saved(theirs), settings, places, "here")
    ours.load_state_dict(tensors, strict=False)
    assert set(tensors) | {"source_embedding.weight"} >= set(ours.state_dict())
    return theirs, ours.eval(), places


def saved(model: Any) -> dict[str, torch.Tensor]:
    """What save_pretrained would write."""
    dropped = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name not in dropped and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


def source_batch(lengths: list[int], places: MarianSymbols, pad: int) -> tuple[Source, Any, Any]:
    """The same rows in our numbers and in theirs, theirs padded on the left or right."""
    generator = torch.Generator().manual_seed(5)
    width = max(lengths)
    ours = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        ours[row, :length] = torch.randint(4, 30, (length,), generator=generator)
        ours[row, length - 1] = END
    table = torch.tensor([pad if place is None else place for place in places.source])
    real = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Source(ours, torch.tensor(lengths)), table[ours].masked_fill(~real, pad), real.long()


@pytest.mark.parametrize("name", ODD)
@torch.inference_mode()
def test_logits_are_the_same(name: str) -> None:
    theirs, ours, places = made(name)
    source, ids, mask = source_batch([5, 9, 280], places, theirs.config.pad_token_id)
    target = torch.cat([torch.full((3, 1), BEGIN), torch.randint(4, 30, (3, 11))], 1)
    table = torch.tensor([0 if place is None else place for place in places.target])
    expected = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=table[target]).logits
    logits = ours.teacher_force(source, target)
    known = [symbol for symbol, place in enumerate(places.target) if place is not None]
    torch.testing.assert_close(
        logits[..., known], expected[..., table[known]], atol=1e-5, rtol=1e-5
    )
    others = sorted(set(range(len(places.target))) - set(known))
    assert (logits[..., others] < -9e3).all()


@pytest.mark.parametrize("name", ODD)
def test_tensors_and_fields_come_back(name: str) -> None:
    theirs, ours, places = made(name)
    given = dict(ours.state_dict())
    back = marian.export_tensors(given, ours.settings, places)
    expected = saved(theirs)
    assert set(back) == set(expected)
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key
    fields = marian.config_of(ours.settings)
    written = theirs.config.to_dict()
    silu = {"swish": "silu"}
    for key, value in fields.items():
        if key != "architectures":
            assert value == silu.get(written[key], written[key]), key


class Theirs:
    """transformers' model as what our search takes, in our numbers."""

    def __init__(self, model: Any, places: MarianSymbols) -> None:
        self.model = model
        self.table = torch.tensor([0 if place is None else place for place in places.target])
        self.missing = torch.tensor([place is None for place in places.target])

    def start(self, source: tuple[torch.Tensor, torch.Tensor]) -> "Written":
        return Written(*source, torch.zeros(len(source[0]), 0, dtype=torch.long))

    def step(self, tokens: torch.Tensor, state: "Written") -> tuple[torch.Tensor, "Written"]:
        written = torch.cat([state.written, self.table[tokens][:, None]], 1)
        logits = self.model(
            input_ids=state.ids, attention_mask=state.mask, decoder_input_ids=written
        ).logits[:, -1]
        ours = logits[:, self.table].masked_fill(self.missing, -1e4)
        return ours, Written(state.ids, state.mask, written)


class Written:
    def __init__(self, ids: torch.Tensor, mask: torch.Tensor, written: torch.Tensor) -> None:
        self.ids, self.mask, self.written = ids, mask, written

    def select(self, rows: torch.Tensor) -> "Written":
        return Written(self.ids[rows], self.mask[rows], self.written[rows])


def same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for one, other in itertools.zip_longest(ours, theirs):
        assert [list(found.tokens) for found in one] == [list(found.tokens) for found in other]
        for found, expected in zip(one, other, strict=True):
            assert found.score == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize("name", ["plain", "separate", "scaled-swish"])
@torch.inference_mode()
def test_beams_are_the_same_with_one_search(name: str) -> None:
    theirs, ours, places = made(name)
    source, ids, mask = source_batch([5, 9, 3], places, theirs.config.pad_token_id)
    options = SearchOptions(beam=4, nbest=4, length_penalty=0.0)
    limits = torch.tensor([12, 12, 12])
    found = search(ours, source, rows=3, options=options, max_lengths=limits)
    expected = search(
        Theirs(theirs, places), (ids, mask), rows=3, options=options, max_lengths=limits
    )
    same(found, expected)


@pytest.mark.parametrize("name", ["plain", "deep-encoder"])
@torch.inference_mode()
def test_beams_are_those_of_generate(name: str) -> None:
    """All outputs equally long, so that both searches stop at the same step."""
    theirs, ours, places = made(name)
    source, ids, mask = source_batch([5, 9, 3], places, theirs.config.pad_token_id)
    length, beam = 7, 4
    generated = theirs.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=beam,
        num_return_sequences=beam,
        length_penalty=0.0,
        min_new_tokens=length,
        max_new_tokens=length,
        forced_eos_token_id=None,
        bad_words_ids=[[29], [1]],
        return_dict_in_generate=True,
        output_scores=True,
    )
    options = SearchOptions(beam=beam, nbest=beam, length_penalty=0.0, forced_length=length)
    found = search(ours, source, rows=3, options=options, max_lengths=torch.tensor([length] * 3))
    tokens = [[places.target[token] for token in one.tokens] for row in found for one in row]
    assert tokens == generated.sequences[:, 1:].tolist()
    scores = torch.tensor([one.score for row in found for one in row])
    torch.testing.assert_close(scores, generated.sequences_scores, atol=1e-4, rtol=1e-5)


def search_as_generate(
    model: Transformer, source: Source, beam: int, limit: int
) -> list[tuple[float, list[int]]]:
    """Beam search over our model by the rule of ``generate``, for one source, plainly.

    What has ended leaves the beam to others; the search is over when as many have ended as the beam
    is wide, and none alive is better than the worst of them.
    """
    state = model.start(source)
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    tokens = torch.tensor([BEGIN])
    for step in range(1, limit + 1):
        logits, state = model.step(tokens, state)
        steps = logits.log_softmax(1)
        steps[:, :END] = -torch.inf
        total = steps + torch.tensor([score for score, _ in live])[:, None]
        best, index = total.flatten().topk(2 * beam)
        rows, chosen = (index // total.shape[1]).tolist(), (index % total.shape[1]).tolist()
        going: list[tuple[int, float, list[int]]] = []
        for rank, (score, row, token) in enumerate(zip(best.tolist(), rows, chosen, strict=True)):
            written = [*live[row][1], token]
            if token == END or step == limit:
                ended += [(score, written)] if rank < beam else []
            elif len(going) < beam:
                going.append((row, score, written))
        ended = sorted(ended, reverse=True)[:beam]
        if not going or (len(ended) == beam and going[0][1] <= ended[-1][0]):
            break
        live = [(score, written) for _, score, written in going]
        state = state.select(torch.tensor([row for row, *_ in going]))
        tokens = torch.tensor([written[-1] for *_, written in going])
    return ended


@pytest.mark.parametrize("name", ["plain", "scaled-swish", "separate"])
@torch.inference_mode()
def test_beams_of_any_length_are_those_of_generate_by_its_rule(name: str) -> None:
    theirs, ours, places = made(name)
    assert ours.bias is not None
    beam, limit = 4, 10
    lengths: set[int] = set()
    for length in (3, 5, 9, 14):
        theirs.final_logits_bias[0, 0] += 1.0  # so that outputs end, and sooner each time
        ours.bias[END] += 1.0
        source, ids, mask = source_batch([length], places, theirs.config.pad_token_id)
        generated = theirs.generate(
            input_ids=ids,
            attention_mask=mask,
            num_beams=beam,
            num_return_sequences=beam,
            length_penalty=0.0,
            max_new_tokens=limit,
            forced_eos_token_id=None,
            bad_words_ids=[[29], [1]],
            return_dict_in_generate=True,
            output_scores=True,
        )
        found = search_as_generate(ours, source, beam, limit)
        expected = [
            row[: row.index(0) + 1] if 0 in row else row
            for row in generated.sequences[:, 1:].tolist()
        ]
        assert [[places.target[token] for token in tokens] for _, tokens in found] == expected
        scores = torch.tensor([score for score, _ in found])
        torch.testing.assert_close(scores, generated.sequences_scores, atol=1e-4, rtol=1e-5)
        lengths |= {len(tokens) for tokens in expected}
    assert len(lengths) > 1


@torch.inference_mode()
def test_greedy_outputs_are_those_of_generate() -> None:
    theirs, ours, places = made("scaled-swish")
    source, ids, mask = source_batch([5, 9, 3, 12], places, theirs.config.pad_token_id)
    generated = theirs.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=1,
        max_new_tokens=12,
        bad_words_ids=[[29], [1]],
    ).tolist()
    options = SearchOptions(beam=1, length_penalty=0.0)
    found = search(ours, source, rows=4, options=options, max_lengths=torch.tensor([12] * 4))
    for row, theirs_row in zip(found, generated, strict=True):
        expected = [token for token in theirs_row[1:] if token != 29]
        assert [places.target[token] for token in row[0].tokens] + [0] == expected


WRONG = [
    ({"d_model": 11}, "d_model = 11"),
    ({"d_model": "wide"}, 'd_model = "wide"'),
    ({"encoder_attention_heads": 5}, "encoder_attention_heads = 5"),
    ({"activation_function": "quick_gelu"}, 'activation_function = "quick_gelu"'),
    ({"normalize_before": True}, "normalize_before = true"),
    ({"encoder_layerdrop": 0.1}, r"encoder_layerdrop = 0\.1"),
    ({"dropout": 1.5}, r"dropout = 1\.5"),
    ({"static_position_embeddings": False}, "static_position_embeddings = false"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    ({"wings": 2}, "wings = 2: heedful does not know this field"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG)
def test_a_field_without_counterpart_stops_with_its_name(
    changed: dict[str, Any], message: str
) -> None:
    config = config_of("plain").to_dict()
    with pytest.raises(UserError, match=message):
        marian.settings_of(config | changed, "here/config.json")


def test_tensors_that_do_not_fit_are_one_line() -> None:
    theirs, ours, places = made("plain")
    given = saved(theirs)
    settings = ours.settings
    name = "model.encoder.layers.0.fc1.weight"
    positions = {"model.encoder.embed_positions.weight": torch.ones(300, 12)}
    wrong = [
        (given | {name: torch.ones(8, 12)}, r"fc1.weight' has shape \[8, 12\], but config.json"),
        ({key: given[key] for key in given if key != name}, "fc1.weight' is missing"),
        (given | {"model.extra": torch.ones(1)}, "'model.extra' is not in the layout"),
        (given | positions, "are not sinusoids"),
        (given | {"lm_head.weight": given["model.shared.weight"] + 1}, "differ, but config.json"),
        (given | {name: given[name].long()}, "is int64"),
    ]
    for tensors, message in wrong:
        with pytest.raises(UserError, match=message):
            marian.import_tensors(tensors, settings, places, "here")
    everything = dict(theirs.state_dict())  # ties and positions written out, as older files have it
    again = marian.import_tensors(everything, settings, places, "here")
    assert torch.equal(again["target_embedding.weight"], ours.target_embedding.weight)


def test_runs_without_this_shape_are_refused() -> None:
    settings = made("plain")[1].settings
    tables = settings.as_tables()
    for changed in ({"pre_norm": True}, {"positions": "learned"}):
        other = type(settings).model_validate(tables | changed)
        with pytest.raises(UserError, match=r"model\."):
            marian.config_of(other)
