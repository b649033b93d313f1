"""Models that describe images: the paper's equations as loops, steps of a search, owners."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention import watch
from heedful.models import CaptionSettings, ImageShape, Scenes, build_caption_model
from heedful.models.images import centred, in_patches

SHAPE = ImageShape(8, 12, 3)
ENCODER = {"widths": [4, 6], "blocks": 1}
VOCABULARY = 15
MODELS: dict[str, dict[str, Any]] = {
    "soft": {"kind": "recurrent", "context_gate": True},
    "gru, Luong": {"kind": "recurrent", "cell": "gru", "attention": "luong-general",
                   "initial_state": "zeros"},
    "hard": {"kind": "recurrent", "attention": "hard-reinforce"},
    "none": {"kind": "recurrent", "attention": "none", "decoder_layers": 2},
    "heads": {"kind": "recurrent", "attention": {"heads": 2, "normalizer": "sparsemax"}},
    "location": {"kind": "recurrent", "attention": {"score": "coverage"}},
    "Transformer": {"kind": "transformer"},
    "patches": {"kind": "transformer", "patch_size": 4, "tied_embeddings": "none"},
    "cbam": {"kind": "recurrent", "encoder": {**ENCODER, "channel_attention": "cbam",
                                              "reduction": 2}},
}  # fmt: skip
models = pytest.mark.parametrize("name", MODELS)


def made(name: str, **more: Any) -> Any:
    torch.manual_seed(3)
    table = {"encoder": ENCODER, "dropout": 0.0, "hidden_size": 6, **MODELS[name], **more}
    if table["kind"] == "transformer":
        table |= {"layers": 1, "decoder_layers": 1, "ffn_size": 8, "heads": 2}
    else:
        table |= {"embedding_size": 5}
    settings = CaptionSettings.model_validate(table)
    return build_caption_model(settings, SHAPE, VOCABULARY).double().eval()


def images(count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(256, (count, *SHAPE[:3]), generator=generator, dtype=torch.uint8)


def targets(rows: int, length: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    found = torch.randint(4, VOCABULARY, (rows, length), generator=generator)
    found[:, 0] = 2
    return found


@models
def test_steps_are_teacher_forcing(name: str) -> None:
    model, target = made(name), targets(4)
    rows = torch.tensor([2, 0, 1, 1])
    state, steps = model.start(Scenes(images())), []
    with torch.no_grad():
        state = state.select(rows)
        for place in range(5):
            logits, state = model.step(target[:, place], state)
            steps.append(logits)
        forced = model.teacher_force(Scenes(images(), rows), target)
    torch.testing.assert_close(torch.stack(steps, 1), forced)


@models
def test_captions_of_one_image_are_those_of_its_copies(name: str) -> None:
    one, other, target = made(name), made(name), targets(4)
    owners = torch.tensor([0, 0, 1, 2])
    shared = one.teacher_force(Scenes(images(), owners), target)
    copied = other.teacher_force(Scenes(images()[owners]), target)
    torch.testing.assert_close(shared, copied)
    probe = torch.randn_like(shared)
    (shared * probe).sum().backward()
    (copied * probe).sum().backward()
    for (name, own), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        if own.grad is None:  # a sampled choice passes no gradient
            assert theirs.grad is None, name
        else:
            torch.testing.assert_close(own.grad, theirs.grad)


@pytest.mark.parametrize("name", ["soft", "Transformer"])
def test_the_vector_of_a_frame_depends_on_it_and_its_neighbours(name: str) -> None:
    torch.manual_seed(3)
    table = {"encoder": ENCODER, "dropout": 0.0, "hidden_size": 6, **MODELS[name]}
    table |= {"heads": 2} if name == "Transformer" else {"embedding_size": 5}
    settings = CaptionSettings.model_validate(table)
    model: Any = build_caption_model(settings, ImageShape(8, 12, 3, 5), VOCABULARY)
    model = model.double().eval()
    clips = torch.randint(256, (2, 5 * 8, 12, 3), dtype=torch.uint8)
    found = model.look(clips, torch.float64)
    frames = [centred(one[None], torch.float64) for one in clips[1].split(8)]
    for place in range(5):
        around = [frames[max(place - 1, 0)], frames[place], frames[min(place + 1, 4)]]
        maps = model.look.network(torch.cat(around, 3).permute(0, 3, 1, 2))
        torch.testing.assert_close(found[1, place], maps[0].mean((1, 2)))
    axes, target = model.attention_axes(), targets(2)
    assert ("target", "frames") in axes.values()
    with torch.no_grad(), watch(model, axes) as seen:
        logits = model.teacher_force(Scenes(clips), target)
    reading = [name for name, own in axes.items() if own == ("target", "frames")][-1]
    assert torch.cat(seen[reading], 2).shape[2:] == (5, 5)
    state = model.start(Scenes(clips))
    step, _ = model.step(target[:, 0], state)
    torch.testing.assert_close(step, logits[:, 0])


@models
def test_weights_are_over_the_cells(name: str) -> None:
    model = made(name)
    axes = model.attention_axes()
    with torch.no_grad(), watch(model, axes) as seen:
        model.teacher_force(Scenes(images(1)), targets(1))
    lengths = {"target": 5, "image": 6 if name == "patches" else 24, "gate": 1}
    lengths |= {axis: rows * columns for axis, (rows, columns) in model.grids.items()}
    for module, (queries, keys) in axes.items():
        weights = torch.cat(seen[module], 2)
        assert weights.shape[2] == lengths[queries]
        assert weights.shape[3] == lengths.get(keys, weights.shape[3])
    assert ("target", "image") in axes.values() or name == "none"


def test_soft_attention_is_that_of_the_papers_equations() -> None:
    """Xu et al. 2015, equations 1 to 8 and section 4.2.1, word by word, cell by cell."""
    model: Any = made("soft")
    target = targets(2)
    found = model.teacher_force(Scenes(images(2)), target)
    decoder, stack = model.decoder, model.decoder.stack
    weight_ih, bias_ih = stack.weights("ih", 0)
    weight_hh, bias_hh = stack.weights("hh", 0)
    score = decoder.attention.score
    for row in range(2):
        values = centred(images(2)[row : row + 1], torch.float64).permute(0, 3, 1, 2)
        maps = model.look.network(values)[0]  # [F, rows, columns]
        cells = [model.norm(maps[:, y, x]) for y in range(4) for x in range(6)]
        mean = torch.stack(cells).mean(0)
        h, c = torch.tanh(model.initial.weight @ mean + model.initial.bias).split(6)
        for place in range(5):
            word = model.target_embedding.weight[target[row, place]]
            energies = [
                score.v @ torch.tanh(score.query_projection.weight @ h
                                     + score.key_projection.weight @ cell)
                for cell in cells
            ]  # fmt: skip
            alpha = torch.stack(energies).softmax(0)
            context = sum(a * cell for a, cell in zip(alpha, cells, strict=True))
            gate = decoder.context_gate
            context = torch.sigmoid(gate.weight @ h + gate.bias) * context
            gates = weight_ih @ torch.cat([word, context]) + bias_ih + weight_hh @ h + bias_hh
            i, f, g, o = gates.split(6)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            state = decoder.readout(h[None], word[None], context[None])[0]
            torch.testing.assert_close(found[row, place], model.output_table @ state)


def test_the_transformer_reads_cells_with_learned_places() -> None:
    model: Any = made("patches")
    inner = model.transformer
    cells = in_patches(centred(images(), torch.float64), 4)
    hidden = F.linear(cells, model.project.weight, model.project.bias) + model.cells
    encoded = inner.encode_vectors(hidden)
    expected = model.logits(inner.decode(encoded, None, targets(3)))
    torch.testing.assert_close(model.teacher_force(Scenes(images()), targets(3)), expected)


def test_hard_attention_learns_by_reward() -> None:
    table = {"encoder": ENCODER, "hidden_size": 6, "embedding_size": 5}
    for name, learns in (("hard", True), ("soft", False), ("none", False)):
        settings = CaptionSettings.model_validate({**table, **MODELS[name]})
        assert settings.learns_by_reward is learns
