"""Answers in texts by a BERT with a span head, compared with the same model in transformers.

    python benchmarks/span_speed.py [--rounds 7] [--questions 64] [--memory 10000]

Both have the same random weights and read the same windows: random questions of 12 tokens and texts
of 20 to 600 tokens, in windows of at most 384 tokens that overlap by 128, in batches of similar
length with at most 8,192 tokens. For each question, both find the best span of at most 30 tokens
and the score of "no answer". Both take turns; the figures are medians in milliseconds of processor
time for each question, and the least, median and largest ratio. ``--memory N`` also answers N
questions with heedful and prints how much the largest resident memory grows after the first tenth
of them.
"""

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForQuestionAnswering

from heedful.data.byte_vocabulary import ByteSettings, ByteVocabulary
from heedful.inference.batches import Item, token_batches
from heedful.inference.span_reader import SpanReader
from heedful.inference.span_windows import Window, windows_of
from heedful.models.bert import Bert, BertSettings
from heedful.models.encoders import HeadedEncoder, sequences_of
from heedful.models.span_layer import SpanLayer

LAYERS, WIDTH, HEADS, INNER = 4, 256, 4, 1024
SYMBOLS, LENGTH, OVERLAP, LONGEST = 8000, 384, 128, 30
BATCH_TOKENS = 8192
Best = tuple[float, float]
"""The score of the best span, and that of "no answer"."""


def peers(seed: int) -> tuple[SpanReader, BertForQuestionAnswering]:
    """Our reader and their model, with the same weights."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=SYMBOLS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        max_position_embeddings=LENGTH,
    )
    theirs = BertForQuestionAnswering(config).eval()
    settings = BertSettings(
        layers=LAYERS, hidden_size=WIDTH, heads=HEADS, ffn_size=INNER, max_length=LENGTH
    )
    bert, layer = Bert(settings, SYMBOLS), SpanLayer(WIDTH, 0.0)
    copy_weights(bert, layer, theirs)
    model = HeadedEncoder(bert, {"answer-spans": layer})
    texts = ["any text"] * 9
    words = ByteVocabulary.train(
        texts, ByteSettings(), vocabulary=260, minimum_count=1, seed=1, where="the benchmark"
    )
    reader = SpanReader(
        model, words, may_refuse=True, overlap=OVERLAP, longest=LONGEST, batch_tokens=BATCH_TOKENS
    )
    return reader, theirs


def copy_weights(bert: Bert, layer: SpanLayer, theirs: BertForQuestionAnswering) -> None:
    other = theirs.bert
    modules: list[tuple[nn.Module, nn.Module]] = [
        (bert.embeddings.tokens, other.embeddings.word_embeddings),
        (bert.embeddings.positions.table, other.embeddings.position_embeddings),
        (bert.embeddings.segments, other.embeddings.token_type_embeddings),
        (bert.embeddings.norm, other.embeddings.LayerNorm),
    ]
    for ours, beside in zip(bert.layers, other.encoder.layer, strict=True):
        heads, attention = ours.self_attention, beside.attention.self
        modules += [
            (heads.query_projection, attention.query),
            (heads.key_projection, attention.key),
            (heads.value_projection, attention.value),
            (heads.output_projection, beside.attention.output.dense),
            (ours.around_self.norm, beside.attention.output.LayerNorm),
            (ours.feed_forward.expand, beside.intermediate.dense),
            (ours.feed_forward.contract, beside.output.dense),
            (ours.around_feed_forward.norm, beside.output.LayerNorm),
        ]
    for mine, beside in modules:
        mine.load_state_dict(beside.state_dict())
    with torch.no_grad():
        for place, linear in enumerate((layer.start, layer.end)):
            linear.weight.copy_(theirs.qa_outputs.weight[place : place + 1])
            linear.bias.copy_(theirs.qa_outputs.bias[place : place + 1])


def questions(count: int, seed: int) -> list[list[Window]]:
    rng = random.Random(seed)

    def tokens(number: int) -> list[int]:
        return [rng.randrange(5, SYMBOLS) for _ in range(number)]

    return [
        windows_of(tokens(12), tokens(rng.randint(20, 600)), LENGTH, OVERLAP) for _ in range(count)
    ]


def by_heedful(reader: SpanReader, asked: Sequence[Sequence[Window]]) -> list[Best]:
    return [
        (max(one.spans[0][0] for one in own), min(one.nothing for one in own))
        for own in reader.read(asked)
    ]


def by_transformers(
    model: BertForQuestionAnswering, asked: Sequence[Sequence[Window]]
) -> list[Best]:
    """As their examples do it: start and end logits of padded batches, and all pairs of both."""
    best = [(float("-inf"), float("inf"))] * len(asked)
    items = [
        Item(line, part, [*one.row.first, *(one.row.second or [])])
        for line, own in enumerate(asked)
        for part, one in enumerate(own)
    ]
    with torch.inference_mode():
        for batch in token_batches(items, 1, BATCH_TOKENS):
            chosen = [asked[item.line][item.part] for item in batch]
            rows = sequences_of(
                [one.row.first for one in chosen], [one.row.second or [] for one in chosen]
            )
            mask = torch.arange(rows.tokens.shape[1]) < rows.lengths.unsqueeze(1)
            found = model(rows.tokens, attention_mask=mask.long(), token_type_ids=rows.segments)
            context = (rows.segments > 0) & (
                torch.arange(mask.shape[1]) < rows.lengths[:, None] - 1
            )
            context[:, 0] = True
            starts, ends = (
                one.masked_fill(~context, -1e30).log_softmax(1)
                for one in (found.start_logits, found.end_logits)
            )
            spans = pairs(starts[:, 1:], ends[:, 1:])
            for item, span, start, end in zip(batch, spans, starts, ends, strict=True):
                most, least = best[item.line]
                best[item.line] = (max(most, float(span)), min(least, float(start[0] + end[0])))
    return best


def pairs(starts: Tensor, ends: Tensor) -> Tensor:
    """The best sum of a start and an end at most ``LONGEST`` tokens later, ``[B]``."""
    length = starts.shape[1]
    allowed = torch.ones(length, length).triu().tril(LONGEST - 1).bool()
    return (starts[:, :, None] + ends[:, None]).masked_fill(~allowed, -1e30).flatten(1).amax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    reader, theirs = peers(1)
    asked = questions(given.questions, 2)
    first, second = by_heedful(reader, asked), by_transformers(theirs, asked)
    difference = max(
        abs(one - other)
        for mine, other_of in zip(first, second, strict=True)
        for one, other in zip(mine, other_of, strict=True)
    )
    times: dict[str, list[float]] = {"heedful": [], "transformers": []}
    for _ in range(given.rounds):
        for name, run in (
            ("heedful", lambda: by_heedful(reader, asked)),
            ("transformers", lambda: by_transformers(theirs, asked)),
        ):
            begin = time.process_time()
            run()
            times[name].append(1000 * (time.process_time() - begin) / len(asked))
    ratios = sorted(a / b for a, b in zip(times["transformers"], times["heedful"], strict=True))
    between = (ratios[0], statistics.median(ratios), ratios[-1])
    found: dict[str, object] = {
        "milliseconds a question": {k: round(statistics.median(v), 2) for k, v in times.items()},
        "transformers / heedful": [round(one, 3) for one in between],
        "largest difference of a score": difference,
    }
    if given.memory:
        found["memory grows by MiB"] = growth(reader, given.memory)
    print(json.dumps(found, indent=1))


def growth(reader: SpanReader, count: int) -> float:
    """How much the largest resident memory grows after the first tenth of the questions."""
    after_tenth = 0
    for block in range(10):
        by_heedful(reader, questions(max(1, count // 10), block))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        after_tenth = after_tenth or peak
    return (peak - after_tenth) / 1024


if __name__ == "__main__":
    main()
