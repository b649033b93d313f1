"""Traces as a page takes them: bytes give the weights back, and the summary stays small."""

import base64
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.inference import AttentionMap, Trace, make_trace
from heedful.viewing.trace_encoding import THUMBNAIL, map_bytes, summary
from test_inference import sentences, translator


def decoded(trace: Trace, index: int) -> torch.Tensor:
    facts = summary(trace)["maps"][index]
    raw = np.frombuffer(map_bytes(trace, index), dtype=np.uint8).astype(np.float32)
    shares = (raw - 128) / 127 if facts["negative"] else raw / 255
    weights = torch.tensor(shares).view(facts["heads"], facts["queries"], facts["keys"])
    return weights * torch.tensor(facts["scale"]).view(-1, 1, 1)


@settings(max_examples=25, deadline=None)
@given(
    heads=st.integers(1, 3),
    queries=st.integers(1, 90),
    keys=st.integers(1, 90),
    low=st.sampled_from([0.0, -1.0]),
    size=st.sampled_from([1e-6, 1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_bytes_give_the_weights_back(
    heads: int, queries: int, keys: int, low: float, size: float, seed: int
) -> None:
    made = torch.rand(heads, queries, keys, generator=torch.Generator().manual_seed(seed))
    weights = (made * (1 - low) + low) * size
    axes = {"target": [str(i) for i in range(queries)], "source": [str(i) for i in range(keys)]}
    trace = Trace.of(axes, {"cross": ("target", "source", weights)})
    step = weights.abs().amax((1, 2), keepdim=True) / (127 if (weights < 0).any() else 255)
    assert bool(((decoded(trace, 0) - weights).abs() <= 0.51 * step + 1e-12).all())
    facts = summary(trace)["maps"][0]
    assert facts["thumbnail_size"] == [min(queries, THUMBNAIL), min(keys, THUMBNAIL)]
    small = np.frombuffer(base64.b64decode(facts["thumbnails"]), dtype=np.uint8)
    assert len(small) == heads * facts["thumbnail_size"][0] * facts["thumbnail_size"][1]
    assert int(small.max()) == max(map_bytes(trace, 0)) or facts["negative"]


def test_entropy_is_that_of_the_rows_in_bits() -> None:
    weights = torch.tensor([[[0.25, 0.25, 0.25, 0.25]], [[0.0, 1.0, 0.0, 0.0]]])
    trace = Trace.of({"q": ["a"], "k": list("wxyz")}, {"map": ("q", "k", weights)})
    assert summary(trace)["maps"][0]["entropy"] == pytest.approx([2.0, 0.0])


def test_144_heads_of_1024_tokens_have_a_summary_under_a_megabyte() -> None:
    weights = torch.rand(12, 1024, 1024)
    tokens = [f"▁token{i}" for i in range(1024)]
    maps = [AttentionMap(f"layer {i}", "tokens", "tokens", weights) for i in range(12)]
    trace = make_trace({"tokens": tokens}, maps)
    text = json.dumps(summary(trace), ensure_ascii=False)
    assert len(text.encode()) < 1_000_000
    assert len(map_bytes(trace, 3)) == 12 * 1024 * 1024


def test_a_translators_trace_says_where_words_and_alignments_are() -> None:
    ours = translator()
    trace = ours.trace(sentences(1)[0], "a small tree.", relevance=True)
    found = json.loads(json.dumps(summary(trace)))
    place = found["alignment"]["map"]
    assert found["maps"][place]["name"] == ours.models[0].alignment.module
    assert found["maps"][place]["written"]
    for one in found["maps"]:
        assert one["written"] == (one["query_axis"] != one["key_axis"])
        assert one["queries"] == len(found["axes"][one["query_axis"]])
    assert len(found["decided"]) == len(found["log_probabilities"])
    assert found["labels"]["source"][-1] == "</s>"
    assert len(found["words"]["source"]) == len(found["axes"]["source"])
