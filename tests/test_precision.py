"""Int8 and bfloat16 for searching: the map itself, copies of every model, and what is refused."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.basics.device import (
    autocast,
    check_precision,
    has_fast_bfloat16,
)
from heedful.basics.errors import UserError
from heedful.inference import Translator
from heedful.layers import bfloat16_linear
from heedful.layers.bfloat16_linear import Bfloat16Linear, bfloat16_copy
from heedful.layers.int8_linear import LARGEST_WEIGHT, Int8Linear, int8_copy, largest_input
from heedful.models import PairModel
from heedful.models.aligner import AlignerSettings, WordAligner
from heedful.models.bytenet import ByteNet, ByteNetSettings
from heedful.models.bytenet_language import ByteNetLanguageModel, ByteNetLanguageSettings
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.language import LanguageModel
from heedful.models.pairs import Source
from heedful.models.recurrent import RecurrentEncoderDecoder
from heedful.models.recurrent_language import RecurrentLanguageModel, RecurrentLanguageSettings
from heedful.models.recurrent_settings import RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings
from tolerance import quantised

CPU = torch.device("cpu")
SOURCE = Source(torch.tensor([[7, 9, 3, 0], [5, 6, 8, 3]]), torch.tensor([3, 4]))
TARGET = torch.tensor([[2, 8, 9, 11], [2, 7, 6, 5]])


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)


def linear(inputs: int = 50, outputs: int = 37, *, bias: bool = True) -> tuple[nn.Linear, Tensor]:
    """A map, and rows for it whose sizes differ by powers of ten."""
    rows = torch.randn(6, inputs) * 10.0 ** torch.arange(-3, 3).unsqueeze(1)
    return nn.Linear(inputs, outputs, bias=bias), rows


@torch.inference_mode()
def test_the_map_is_its_definition() -> None:
    plain, rows = linear()
    weight, x = plain.weight.double(), rows.double()
    t = weight.abs().amax(1, keepdim=True) / LARGEST_WEIGHT
    s = x.abs().amax(1, keepdim=True) / largest_input()
    expected = (x / s).round() @ (weight / t).round().T * s * t.T + plain.bias.double()
    found = Int8Linear(plain.weight, plain.bias)(rows)
    assert found.dtype == torch.float32
    # A half is rounded to either side, as the scale in float32 is a little more or less.
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_no_error_is_beyond_half_a_step_of_each_number() -> None:
    plain, rows = linear()
    layer = Int8Linear(plain.weight, plain.bias)
    t = plain.weight.abs().amax(1, keepdim=True) / LARGEST_WEIGHT
    assert ((layer.weight - plain.weight).abs() <= t / 2 * (1 + 1e-5)).all()
    s = rows.abs().amax(1, keepdim=True) / largest_input()
    bound = s / 2 * plain.weight.abs().sum(1) + rows.abs().sum(1, keepdim=True) * t.T / 2
    bound += plain.in_features * s * t.T / 4
    error = (layer(rows) - plain(rows)).abs()
    assert (error <= bound * (1 + 1e-4) + 1e-6).all()
    assert error.max() > 0


@torch.inference_mode()
def test_a_row_does_not_depend_on_its_batch() -> None:
    plain, rows = linear()
    layer = Int8Linear(plain.weight, plain.bias)
    together = layer(rows)
    for place, row in enumerate(rows):
        assert torch.equal(layer(row.unsqueeze(0))[0], together[place])
    beside = torch.cat([rows, torch.full((1, 50), 1e6)])
    assert torch.equal(layer(beside)[:-1], together)
    assert torch.equal(layer(rows.view(2, 3, 50)), together.view(2, 3, 37))


@torch.inference_mode()
def test_zeros_and_what_is_no_number() -> None:
    plain, rows = linear()
    layer = Int8Linear(plain.weight, plain.bias)
    rows[1], rows[2, 3], rows[3, 4] = 0, torch.nan, torch.inf
    found = layer(rows)
    assert torch.equal(found[1], plain.bias)
    assert torch.equal(Int8Linear(plain.weight)(rows)[1], torch.zeros(37))
    assert found[2].isnan().all()
    assert not found[3].isfinite().any()
    assert found[[0, 4, 5]].isfinite().all()
    assert torch.equal(Int8Linear(torch.zeros(5, 50), torch.ones(5))(rows[:1]), torch.ones(1, 5))
    assert layer(rows[:0]).shape == (0, 37)


@torch.inference_mode()
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_are_whole(sign: int) -> None:
    """All products at their largest: two of them overflow 16 bits where L is too large."""
    layer = Int8Linear(torch.ones(16, 512) * sign)
    torch.testing.assert_close(layer(torch.ones(3, 512)), torch.full((3, 16), 512.0 * sign))
    torch.testing.assert_close(layer(-torch.ones(3, 512)), torch.full((3, 16), -512.0 * sign))


@torch.inference_mode()
@pytest.mark.parametrize("fast", [False, True])
def test_the_map_in_bfloat16(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor that multiplies bfloat16, and on one that does not."""
    monkeypatch.setattr(bfloat16_linear, "has_fast_bfloat16", lambda device: fast)
    plain, rows = linear()
    layer = Bfloat16Linear(plain.weight, plain.bias)
    assert layer.rounded.dtype == torch.bfloat16
    error = (layer.weight - plain.weight).abs() / plain.weight.abs()
    assert 0 < error.max() <= 2**-8
    inputs = rows.bfloat16() if fast else rows
    expected = inputs.double() @ layer.rounded.double().T + plain.bias.double()
    # The product itself is rounded to 8 bits where inputs are.
    few = 2**-8 if fast else 1e-5
    torch.testing.assert_close(layer(rows).double(), expected, rtol=few, atol=few / 4)
    assert torch.equal(Bfloat16Linear(plain.weight)(rows[:1] * 0), torch.zeros(1, 37))


@pytest.mark.parametrize("kind", [Int8Linear, Bfloat16Linear])
def test_the_gradient_is_that_of_the_map(kind: type[Int8Linear | Bfloat16Linear]) -> None:
    plain, rows = linear()
    layer = kind(plain.weight, plain.bias)
    rows.requires_grad_(True)
    out = torch.randn(6, 37)
    found = layer(rows)
    (gradient,) = torch.autograd.grad(found, rows, out)
    few = {"rtol": 2**-6, "atol": 2**-6} if kind is Bfloat16Linear else {}
    torch.testing.assert_close(gradient, out @ layer.weight, **few)
    with torch.no_grad():
        assert torch.equal(found.detach(), layer(rows))


def recurrent(attention: str, cell: str = "gru", **more: object) -> Callable[[], PairModel]:
    given = {"attention": attention, "cell": cell, "embedding_size": 32, "hidden_size": 32, **more}
    return lambda: RecurrentEncoderDecoder(RecurrentSettings.model_validate(given), 60, 60)


PAIRS: dict[str, Callable[[], PairModel]] = {
    "transformer": lambda: Transformer(
        TransformerSettings(size="tiny", tied_embeddings="all"), 60, 60
    ),
    "untied": lambda: Transformer(TransformerSettings(size="tiny", tied_embeddings="none"), 60, 60),
    "biased": lambda: Transformer(TransformerSettings(size="tiny", output_bias=True), 60, 60),
    "convolutional": lambda: ConvolutionalEncoderDecoder(
        ConvolutionalSettings(embedding_size=32, hidden_size=32), 60, 60
    ),
    "bytenet": lambda: ByteNet(ByteNetSettings(hidden_size=32, encoder_layers=2), 60, 60),
    "fixed vector": recurrent("none", "lstm"),
    "bahdanau": recurrent("bahdanau"),
    "luong": recurrent("luong-general", "lstm"),
    "luong without feeding": recurrent("luong-dot", input_feeding=False, bidirectional=False),
    "luong-local-p": recurrent("luong-local-p"),
}
WRITERS: dict[str, Callable[[], LanguageModel]] = {
    "gpt": lambda: Gpt(GptSettings(layers=2, hidden_size=32, heads=2), 60),
    "gpt untied": lambda: Gpt(
        GptSettings(layers=2, hidden_size=32, heads=2, tied_embeddings=False, output_bias=True), 60
    ),
    "recurrent": lambda: RecurrentLanguageModel(RecurrentLanguageSettings(hidden_size=32), 60),
    "bytenet": lambda: ByteNetLanguageModel(ByteNetLanguageSettings(hidden_size=32, layers=3), 60),
}


def close(found: Tensor, exact: Tensor, share: float) -> None:
    """The difference is at most a share of the logits' own size, and there is one."""
    similar(found, exact, share)
    assert not torch.equal(found, exact)


def similar(found: Tensor, expected: Tensor, share: float) -> None:
    """Two computations in few bits: a sum that is rounded otherwise in float32 may become another
    whole number, which is an error as large as those of the copy itself."""
    assert float((found - expected).norm() / expected.norm()) < share


def share_of(copied: nn.Module) -> float:
    """The error that the rounding of a copy may leave in its logits, relative to their size."""
    products = [one for one in copied.modules() if isinstance(one, Int8Linear | Bfloat16Linear)]
    if type(products[0]) is Int8Linear:
        return quantised(len(products), largest_input())
    # Of weights; where the processor multiplies bfloat16, of inputs and results too.
    return quantised(len(products) * (3 if has_fast_bfloat16(CPU) else 1))


COPIES = pytest.mark.parametrize("copy_of", [int8_copy, bfloat16_copy], ids=["int8", "bfloat16"])


@torch.inference_mode()
@COPIES
@pytest.mark.parametrize("name", PAIRS)
def test_models_of_pairs(name: str, copy_of: Callable[[nn.Module], Any]) -> None:
    model = PAIRS[name]().eval()
    for bias in [one for key, one in model.named_buffers() if key == "bias"]:
        bias.normal_()
    exact = model.teacher_force(SOURCE, TARGET)
    copied = copy_of(model)
    whole = copied.teacher_force(SOURCE, TARGET)
    share = share_of(copied)
    close(whole, exact, share)
    assert torch.equal(model.teacher_force(SOURCE, TARGET), exact), "the model itself is changed"
    states = copied.states(SOURCE, TARGET)
    assert copied.projection is not None
    assert torch.equal(copied.logits(states), copied.projection(states))
    state = copied.start(SOURCE)
    for place in range(TARGET.shape[1]):
        logits, state = copied.step(TARGET[:, place], state)
        similar(logits, whole[:, place], share)
    # One source alone: no row has to do with another.
    alone = copied.teacher_force(Source(SOURCE.tokens[1:], SOURCE.lengths[1:]), TARGET[1:])
    similar(alone[0], whole[1], share)


@torch.inference_mode()
@COPIES
@pytest.mark.parametrize("name", WRITERS)
def test_models_that_write(name: str, copy_of: Callable[[nn.Module], Any]) -> None:
    model = WRITERS[name]().eval()
    for bias in [one for key, one in model.named_buffers() if key == "bias"]:
        bias.normal_()
    copied = copy_of(model)
    whole = copied.logits(copied.states(TARGET))
    share = share_of(copied)
    close(whole, model.logits(model.states(TARGET)), share)
    assert copied.projection is not None
    assert torch.equal(whole, copied.projection(copied.states(TARGET)))
    logits, _ = copied.step(TARGET[:, 2], copied.start(TARGET[:, :3]))
    similar(logits, whole[:, 2], share)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["transformer", "bahdanau", "convolutional"])
def test_bfloat16(name: str) -> None:
    model = PAIRS[name]().eval()
    with autocast(CPU, "bfloat16"):
        found = model.teacher_force(SOURCE, TARGET).float()
    exact = model.teacher_force(SOURCE, TARGET)
    products = sum(part.ndim > 1 for part in model.parameters())
    close(found, exact, quantised(3 * products))  # of weights, inputs and results


@COPIES
def test_what_is_copied_and_what_is_shared(copy_of: Callable[[nn.Module], Any]) -> None:
    model = PAIRS["untied"]()
    copied = copy_of(model)
    assert not copied.training
    assert not [part for part in copied.modules() if type(part) is nn.Linear]
    assert copied.output is copied.projection, "the output layer is held twice"
    table = model.target_embedding.weight  # type: ignore[union-attr]
    assert copied.target_embedding.weight is table  # type: ignore[union-attr]
    learnt = {id(one) for one in model.parameters()}
    assert {id(one) for one in copied.parameters()} < learnt
    copy.deepcopy(copied)  # packed weights go along
    cells = [part for part in copy_of(PAIRS["bahdanau"]()).modules() if isinstance(part, nn.GRU)]
    assert cells
    assert all(one.dtype == torch.float32 for part in cells for one in part.parameters())


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_the_weights_of_the_model_itself_are_let_go(precision: str) -> None:
    model = PAIRS["transformer"]()
    kept = weakref.ref(model.encoder[0].feed_forward.expand)  # type: ignore[index]
    translator = Translator([model], None, precision=precision)  # type: ignore[arg-type]
    del model
    gc.collect()
    assert kept() is None
    assert translator.models


def test_a_map_in_two_places_stays_one() -> None:
    model = PAIRS["transformer"]()
    first, second = model.encoder[0], model.encoder[1]  # type: ignore[index]
    second.self_attention.query_projection = first.self_attention.query_projection
    layers = int8_copy(model).encoder
    assert (
        layers[0].self_attention.query_projection  # type: ignore[index]
        is layers[1].self_attention.query_projection  # type: ignore[index]
    )


def test_what_is_refused() -> None:
    cuda = torch.device("cuda")
    for name, device, int8, part in (
        ("int8", CPU, False, "int8 is available for translation and text generation only"),
        ("int8", cuda, True, "int8 needs a CPU; on cuda use bfloat16"),
        ("int4", CPU, True, "use float32, bfloat16, float16, int8 or auto"),
        ("int4", CPU, False, "use float32, bfloat16, float16 or auto"),
        ("float16", CPU, True, "float16 needs a CUDA GPU"),
    ):
        with pytest.raises(UserError, match=part) as raised:
            check_precision(name, device, int8=int8)
        assert "\n" not in str(raised.value)
    assert check_precision("int8", CPU, int8=True) == "int8"
    aligner = WordAligner(AlignerSettings(hidden_size=8), 60, 60)
    with pytest.raises(UserError, match="int8 is not available for word aligners"):
        Translator([aligner], None, precision="int8")  # type: ignore[arg-type]
    translator = Translator([aligner], None, precision="bfloat16")  # type: ignore[arg-type]
    assert translator.models == (aligner,)
