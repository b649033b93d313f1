"""The worker of JoeyNMT's recurrent model, which runs in the Python of its own environment.

It imports only the standard library, torch and joeynmt. The model is a bidirectional GRU with
Bahdanau's attention and random weights.
"""

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

from workers import Translating, batched, serve

UNKNOWN, PAD, BEGIN, END = 0, 1, 2, 3
"""JoeyNMT's symbols; other ids are heedful's."""


def build(width: int, symbols: int) -> Any:
    """The recurrent model, with all widths equal to ``width``."""
    special = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        unk_id=UNKNOWN,
        pad_id=PAD,
        bos_id=BEGIN,
        eos_id=END,
        sep_id=None,
        lang_tags=[],
    )
    vocabulary = Vocabulary([str(number) for number in range(4, symbols)], special)
    common = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": width}
    embeddings = {"embedding_dim": width}
    config = {
        "initializer": "xavier_uniform",
        "bias_initializer": "zeros",
        "embed_initializer": "normal",
        "embed_init_weight": 0.1,
        "encoder": {**common, "embeddings": embeddings, "bidirectional": True},
        "decoder": {
            **common,
            "embeddings": embeddings,
            "attention": "bahdanau",
            "init_hidden": "bridge",
            "input_feeding": True,
        },
    }
    return build_model(config, vocabulary, vocabulary).eval()


def translate(model: Any, batches: list[list[list[int]]], beam: int, length: int) -> Any:
    """The output tokens of each sentence, batch by batch."""
    outputs = []
    for batch in batches:
        rows = [[*tokens, END] for tokens in batch]
        longest = max(map(len, rows))
        prepared = Batch(
            src=torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows]),
            src_length=torch.tensor([len(row) for row in rows]),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(rows)),
            device=torch.device("cpu"),
            pad_index=PAD,
            eos_index=END,
            is_train=False,
        )
        found, _, _ = search(
            model,
            prepared,
            max_output_length=length,
            beam_size=beam,
            beam_alpha=1.0,
            min_output_length=length,
        )
        outputs += found.tolist()
    return outputs


def main() -> None:
    """Build the model, then handle requests for translations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="JSON: model, sentences, length")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    work = json.loads(options.work.read_text(encoding="utf-8"))
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = build(work["model"]["hidden_size"], work["vocabulary"])
    facts = {
        "versions": f"JoeyNMT 2.3.0, PyTorch {torch.__version__}",
        "precision": "float32",
        "parameters": sum(p.numel() for p in model.parameters()),
    }

    def run(sentences: list[list[int]], beam: int, tokens: int) -> tuple[list[list[int]], float]:
        began = time.perf_counter()
        outputs = translate(model, batched(sentences, beam, tokens), beam, work["length"])
        return outputs, time.perf_counter() - began

    serve(Translating(work, facts, run, END))


if __name__ == "__main__":
    main()
