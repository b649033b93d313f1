"""The worker of transformers' MarianMT, which runs in the Python of its own environment.

It imports only the standard library, torch and transformers: heedful is not installed there.
"""

import argparse
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from workers import Translating, batched, serve

PAD, BEGIN, END = 0, 2, 3
"""heedful's symbols (``heedful.basics.symbols``)."""


def build(sizes: Mapping[str, int]) -> Any:
    """MarianMT with random weights: the same sizes, one shared table, sinusoidal positions."""
    config = transformers.MarianConfig(
        vocab_size=sizes["vocabulary"],
        decoder_vocab_size=sizes["vocabulary"],
        d_model=sizes["hidden_size"],
        encoder_layers=sizes["layers"],
        decoder_layers=sizes["layers"],
        encoder_ffn_dim=sizes["ffn_size"],
        decoder_ffn_dim=sizes["ffn_size"],
        encoder_attention_heads=sizes["heads"],
        decoder_attention_heads=sizes["heads"],
        max_position_embeddings=512,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        use_cache=True,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
    )
    return transformers.MarianMTModel(config).eval()


def translate(model: Any, batches: list[list[list[int]]], beam: int, length: int) -> Any:
    """The output tokens of each sentence, batch by batch, without the start token.

    An end before ``length`` tokens is prevented by −∞ in the bias that MarianMT adds to its logits.
    ``min_new_tokens``, the usual way, would copy all logits at each step.
    """
    outputs = []
    for batch in batches:
        rows = [[*tokens, END] for tokens in batch]
        longest = max(map(len, rows))
        padded = [[*row, *[PAD] * (longest - len(row))] for row in rows]
        tokens = torch.tensor(padded)
        found = model.generate(
            input_ids=tokens,
            attention_mask=(tokens != PAD).long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=length,
            use_cache=True,
        )
        outputs += [row[1:] for row in found.tolist()]
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
    model = build(work["model"] | {"vocabulary": work["vocabulary"]})
    model.final_logits_bias[:, END] = -math.inf
    facts = {
        "versions": f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
        "precision": "float32",
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }

    def run(sentences: list[list[int]], beam: int, tokens: int) -> tuple[list[list[int]], float]:
        began = time.perf_counter()
        outputs = translate(model, batched(sentences, beam, tokens), beam, work["length"])
        return outputs, time.perf_counter() - began

    serve(Translating(work, facts, run, END))


if __name__ == "__main__":
    main()
