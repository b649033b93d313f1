"""Bidirectional attention flow against its equations, and BERT's spans against transformers."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import watch
from heedful.attention.scores import Trilinear, build_score
from heedful.layers.spelled_tokens import SpelledTokens
from heedful.models import EncoderSettings, build_encoder
from heedful.models.attention_flow import AttentionFlowEncoder, AttentionFlowSettings, Flow
from heedful.models.bert import Bert, BertSettings
from heedful.models.encoders import Encoded, HeadedEncoder, sequences_of
from heedful.models.span_layer import (
    SpanLayer,
    answer_places,
    best_spans,
    log_probabilities,
)

QUESTIONS, CONTEXTS = [[7, 9, 5], [8]], [[5, 6, 4, 11, 9], [6, 10]]
SPELLINGS = ["", "", "", "", "a", "bc", "lonely", "é", "x", "yy", "zzzz", "longest word"]


def encoder(**options: object) -> AttentionFlowEncoder:
    torch.manual_seed(3)
    given = {"embedding_size": 5, "hidden_size": 3, "character_filters": 4, "character_size": 2}
    settings = AttentionFlowSettings.model_validate({**given, "character_width": 3, **options})
    made = AttentionFlowEncoder(settings, len(SPELLINGS), SPELLINGS)
    return made.double().eval()


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


# The score


def test_the_trilinear_score_is_its_equation_with_gradients() -> None:
    torch.manual_seed(1)
    score = Trilinear(4).double()
    query, key = (torch.randn(2, n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 5))
    found = score(query, key)
    w = score.weight.flatten()
    wanted = torch.stack(
        [
            torch.stack(
                [torch.stack([w @ torch.cat([q, k, q * k]) for k in key[row]]) for q in query[row]]
            )
            for row in range(2)
        ]
    )
    close(found, wanted)
    inputs = [query, key, score.weight]
    weights = torch.randn_like(found)
    ours = torch.autograd.grad((found * weights).sum(), inputs)
    theirs = torch.autograd.grad((wanted * weights).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        close(one, other)
    assert isinstance(build_score("trilinear", 4), Trilinear)


# The model, as the paper writes it


def lstm(network: nn.Module, inputs: Tensor) -> Tensor:
    """A bidirectional LSTM over one unpadded text ``[W, D]``, as PyTorch computes it."""
    found: Tensor = network(inputs.unsqueeze(0))[0][0]
    return found


def spelled(module: SpelledTokens, token: int) -> Tensor:
    """max_i relu(W [x_i … x_{i+k−1}] + b), byte by byte."""
    text = SPELLINGS[token].encode()
    weight, bias = module.convolution.weight, module.convolution.bias  # [F, E, k]
    assert bias is not None
    if not text:
        return torch.zeros_like(bias)
    rows = [module.bytes.weight[byte + 1] for byte in text]
    rows += [torch.zeros_like(rows[0])] * (module.width - len(rows))
    found = [
        torch.relu(bias + sum(weight[:, :, at] @ rows[start + at] for at in range(module.width)))
        for start in range(len(rows) - module.width + 1)
    ]
    return torch.stack(found).amax(0)


def annotated(model: AttentionFlowEncoder, text: list[int]) -> Tensor:
    rows = []
    for token in text:
        word = model.tokens.weight[token]
        if model.spelling is not None:
            word = torch.cat([spelled(model.spelling, token), word])
        for highway in model.highways:
            gate = torch.sigmoid(highway.gate(word))
            word = gate * torch.relu(highway.transform(word)) + (1 - gate) * word
        rows.append(word)
    return lstm(model.contextual.network, torch.stack(rows))


def reference(model: AttentionFlowEncoder, question: list[int], context: list[int]) -> Tensor:
    """[G; M; M²] of one pair, by plain loops."""
    u, h = annotated(model, question), annotated(model, context)
    w1, w2, w3 = model.context_to_question.score.weight
    rows = []
    scores = torch.stack(
        [torch.stack([w1 @ ht + w2 @ uj + w3 @ (ht * uj) for uj in u]) for ht in h]
    )
    flow = model.settings.flow
    b = scores.amax(1).softmax(0)
    read = sum(weight * ht for weight, ht in zip(b, h, strict=True))
    if flow in ("context-to-question", "none"):
        read = h.mean(0)
    for t, ht in enumerate(h):
        a = scores[t].softmax(0)
        ut = sum(weight * uj for weight, uj in zip(a, u, strict=True))
        if flow in ("question-to-context", "none"):
            ut = u.mean(0)
        rows.append(torch.cat([ht, ut, ht * ut, ht * read]))
    g = torch.stack(rows)
    m = lstm(model.modelling.network, g)
    return torch.cat([g, m, lstm(model.ending.network, m)], 1)


@pytest.mark.parametrize("flow", ["both", "context-to-question", "question-to-context", "none"])
def test_attention_flow_is_the_papers_equations_with_gradients(flow: Flow) -> None:
    model = encoder(flow=flow)
    states = model(sequences_of(QUESTIONS, CONTEXTS)).states
    total, wanted = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for row, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS, strict=True)):
        begin = len(question) + 2
        found = states[row, begin : begin + len(context)]
        plain = reference(model, question, context)
        close(found, plain)
        weights = torch.linspace(-1, 2, plain.numel(), dtype=torch.float64).view_as(plain)
        total, wanted = total + (found * weights).sum(), wanted + (plain * weights).sum()
    names = [name for name, _ in model.named_parameters() if name != "nothing"]
    parameters = [model.get_parameter(name) for name in names]
    options = {"allow_unused": True, "materialize_grads": True}
    ours = torch.autograd.grad(total, parameters, **options)
    theirs = torch.autograd.grad(wanted, parameters, **options)
    for name, one, other in zip(names, ours, theirs, strict=True):
        if name == "tokens.weight" or name == "spelling.bytes.weight":
            one, other = one[1:], other[1:]  # PAD has no gradient
        close(one, other)


def test_padding_and_other_rows_have_no_influence() -> None:
    model = encoder()
    together = model(sequences_of(QUESTIONS, CONTEXTS)).states
    alone = model(sequences_of(QUESTIONS[1:], CONTEXTS[1:])).states
    close(together[1, : alone.shape[1]], alone[0])
    assert not together[1, alone.shape[1] :].any()


def test_every_score_of_two_texts_can_be_chosen() -> None:
    for score in ("dot", "scaled-dot", "general", "additive", "concat", "cosine", "gaussian"):
        model = encoder(attention={"score": score, "normalizer": "entmax15"})
        assert model(sequences_of(QUESTIONS, CONTEXTS)).states.isfinite().all()
    with pytest.raises(ValueError, match="nothing"):
        encoder(attention={"score": "nothing"})


def test_the_weights_of_both_directions_are_watched() -> None:
    model = encoder()
    with watch(model, ["context_to_question", "question_to_context"]) as seen:
        model(sequences_of(QUESTIONS[:1], CONTEXTS[:1]))
    first, second = seen["context_to_question"][0], seen["question_to_context"][0]
    assert (first.shape, second.shape) == ((1, 1, 5, 3), (1, 1, 1, 5))
    for weights in (first, second):
        close(weights.sum(-1).double(), torch.ones(weights.shape[:-1], dtype=torch.float64))


def test_bidirectional_attention_flow_is_a_kind_of_recipe() -> None:
    settings = EncoderSettings.model_validate(
        {"kind": "bidirectional-attention-flow", "hidden_size": 2, "character_filters": 0}
    )
    made = build_encoder(settings, 20)
    assert isinstance(made, AttentionFlowEncoder)
    assert made.spelling is None


# Spans


def test_answers_are_in_the_second_text_or_at_the_beginning() -> None:
    allowed = answer_places(sequences_of(QUESTIONS, CONTEXTS))
    assert allowed.int().tolist() == [
        [1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0],
        [1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0],
    ]


def test_the_best_spans_are_those_of_all_pairs() -> None:
    torch.manual_seed(5)
    rows = sequences_of(QUESTIONS, CONTEXTS)
    scores = log_probabilities(torch.randn(2, 11, 2), rows)
    assert torch.allclose(scores.exp().sum(1), torch.ones(2, 2))
    found = best_spans(scores, 3, 4)
    for row, (begin, length) in enumerate([(5, 5), (3, 2)]):
        pairs = [
            (float(scores[row, i, 0] + scores[row, j, 1]), i, j)
            for i in range(begin, begin + length)
            for j in range(i, min(begin + length, i + 3))
        ]
        best = sorted(pairs, reverse=True)[:4]
        given = [
            (float(score), int(i), int(j))
            for score, i, j in zip(*(one[row] for one in found), strict=True)
        ][: len(best)]
        assert given == best


def test_berts_spans_are_those_of_transformers_with_gradients() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=23,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=40,
    )
    torch.manual_seed(7)
    theirs = transformers.BertForQuestionAnswering(config).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    settings = BertSettings(layers=2, hidden_size=12, heads=3, ffn_size=20, max_length=40)
    ours = HeadedEncoder(Bert(settings, 23), {"answer-spans": SpanLayer(12, 0.0)}).double().eval()
    pairs = pairs_of(ours, theirs)
    with torch.no_grad():
        for one, other in pairs:
            one.copy_(other)
    rows = sequences_of(QUESTIONS, CONTEXTS)
    mask = torch.arange(rows.tokens.shape[1]) < rows.lengths.unsqueeze(1)
    wanted = theirs(rows.tokens, attention_mask=mask.long(), token_type_ids=rows.segments)
    logits = ours.heads["answer-spans"](ours.encoder(rows))
    both = torch.stack([wanted.start_logits, wanted.end_logits], -1)
    close(logits[mask], both[mask])
    boundaries = torch.tensor([[6, 8], [0, 0]])
    losses = [F.nll_loss(log_probabilities(one, rows), boundaries) for one in (logits, both)]
    assert losses[0].item() > 1
    ours_of = torch.autograd.grad(losses[0], [one for one, _ in pairs], retain_graph=True)
    theirs_of = torch.autograd.grad(losses[1], [other for _, other in whole(pairs)])
    for one, (_, other), part in zip(ours_of, pairs, theirs_of, strict=True):
        close(one, part if part.shape == other.shape else part[row_of(other, part)])


Pairs = list[tuple[nn.Parameter, Tensor]]


def whole(pairs: Pairs) -> list[tuple[nn.Parameter, Tensor]]:
    """The pairs with their whole parameters, of which the output layer's rows are parts."""
    return [
        (one, other if other.is_leaf else other._base if other._base is not None else other)
        for one, other in pairs
    ]


def row_of(part: Tensor, base: Tensor) -> slice:
    """The rows of ``base`` that ``part`` is a view of."""
    size = base[0].numel()
    first = part.storage_offset() // size
    return slice(first, first + len(part))


def pairs_of(ours: HeadedEncoder, theirs: nn.Module) -> Pairs:
    """Each of our parameters beside theirs; the rows of their output are our two layers."""
    bert, other = ours.encoder, theirs.bert
    assert isinstance(bert, Bert)
    modules: list[tuple[nn.Module, nn.Module]] = [
        (bert.embeddings.tokens, other.embeddings.word_embeddings),
        (bert.embeddings.positions.table, other.embeddings.position_embeddings),
        (bert.embeddings.segments, other.embeddings.token_type_embeddings),
        (bert.embeddings.norm, other.embeddings.LayerNorm),
    ]
    for mine, layer in zip(bert.layers, other.encoder.layer, strict=True):
        heads, self_attention = mine.self_attention, layer.attention.self
        modules += [
            (heads.query_projection, self_attention.query),
            (heads.key_projection, self_attention.key),
            (heads.value_projection, self_attention.value),
            (heads.output_projection, layer.attention.output.dense),
            (mine.around_self.norm, layer.attention.output.LayerNorm),
            (mine.feed_forward.expand, layer.intermediate.dense),
            (mine.feed_forward.contract, layer.output.dense),
            (mine.around_feed_forward.norm, layer.output.LayerNorm),
        ]
    pairs: Pairs = []
    for one, beside in modules:
        own, named = dict(one.named_parameters()), dict(beside.named_parameters())
        pairs += [(own[name], named[name]) for name in own]
    layer_of = ours.heads["answer-spans"]
    assert isinstance(layer_of, SpanLayer)
    output = theirs.qa_outputs
    for place, linear in enumerate((layer_of.start, layer_of.end)):
        pairs.append((linear.weight, output.weight[place : place + 1]))
        pairs.append((linear.bias, output.bias[place : place + 1]))
    return pairs


def test_a_layer_reads_its_own_part_of_the_states() -> None:
    torch.manual_seed(2)
    layer = SpanLayer(6, 0.0, (2, 1, 3)).eval()
    states = torch.randn(1, 4, 6)
    found = layer(Encoded(states, None))
    changed = states.clone()
    changed[..., 2] += 1  # only starts read it
    other = layer(Encoded(changed, None))
    assert torch.equal(found[..., 1], other[..., 1])
    assert not torch.equal(found[..., 0], other[..., 0])
