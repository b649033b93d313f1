"""Trains Eole and Sockeye on the corpus of ``train_speed.py`` for a few updates at a time.

Each repetition is a separate run of the program. Its speed is read from its log: the first half of
the updates is the warm-up, the second half counts. The settings are the fastest ones: batches by
tokens, no validation, no attention entropy (Eole), bfloat16 if the processor supports it (Eole;
Sockeye supports mixed precision on NVIDIA only). The tokens of the corpus are passed as words.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from corpus import Corpus
from heedful.basics.device import has_fast_bfloat16
from heedful.data.store import Store
from install_peers import peer_python
from sizes import Size

HERE = Path(__file__).resolve().parent
SYMBOLS = 4
"""Smaller ids are PAD, UNKNOWN, BEGIN and END, for which each program has its own symbols."""


class Texts(NamedTuple):
    """The corpus in the format of the peers."""

    folder: Path
    vocabulary: int
    source_tokens: float
    """Source tokens for each target token, with END on both sides."""
    target_tokens: float
    """Mean target tokens per sentence, with END."""


def write_texts(corpus: Corpus, folder: Path) -> Texts:
    """Write the tokens as words, one sentence per line, and the vocabularies."""
    folder.mkdir()
    pairs = 0
    totals = [0, 0]
    sides = [folder / "train.source", folder / "train.target"]
    with sides[0].open("w", encoding="utf-8") as one, sides[1].open("w", encoding="utf-8") as two:
        for row in Store.open(corpus.folder / "train"):
            pairs += 1
            pair = (row["source"], row["target"])
            for side, (file, tokens) in enumerate(zip((one, two), pair, strict=True)):
                file.write(" ".join(map(str, tokens.tolist())) + "\n")
                totals[side] += len(tokens) + 1
    for side in sides:  # Sockeye requires validation pairs, but must never validate
        lines = side.read_text(encoding="utf-8").splitlines()[:8]
        held = folder / side.name.replace("train", "held")
        held.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [str(number) for number in range(SYMBOLS, corpus.vocabulary)]
    eole = ["<unk>", "<blank>", "<s>", "</s>", *words]
    (folder / "words.txt").write_text("\n".join(eole) + "\n", encoding="utf-8")
    sockeye = {word: number for number, word in enumerate(["<pad>", *eole[:1], *eole[2:4], *words])}
    (folder / "words.json").write_text(json.dumps(sockeye), encoding="utf-8")
    return Texts(folder, corpus.vocabulary, totals[0] / totals[1], totals[1] / pairs)


class Training(NamedTuple):
    """The training of a peer: model and number of updates."""

    texts: Texts
    size: Size
    batch_tokens: int
    steps: int
    """The number of measured updates, after as many warm-up updates."""
    threads: int


class PeerError(RuntimeError):
    """A peer failed; the message contains the end of its output."""


def eole_config(training: Training, model: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Eole's configuration, without the model."""
    texts = training.texts
    words = str(texts.folder / "words.txt")
    corpus = {"path_src": str(texts.folder / "train.source"), "weight": 1}
    corpus["path_tgt"] = str(texts.folder / "train.target")
    precision = "bf16" if has_fast_bfloat16(torch.device("cpu")) else "fp32"
    return {
        "src_vocab": words,
        "tgt_vocab": words,
        "share_vocab": True,
        "src_vocab_size": texts.vocabulary,
        "tgt_vocab_size": texts.vocabulary,
        "overwrite": True,
        "report_every": training.steps,
        "seed": 1,
        "skip_empty_level": "silent",
        "data": {"all": corpus},
        "training": {
            "model_path": str(texts.folder / "eole"),
            "world_size": 0,
            "batch_type": "tokens",
            "batch_size": training.batch_tokens,
            "normalization": "tokens",
            "valid_steps": 10**9,
            "save_checkpoint_steps": 10**9,
            "train_steps": 2 * training.steps,
            "compute_dtype": precision,
            "num_workers": 0,
            "optim": "adam",
            "adam_beta2": 0.98,
            "decay_method": "noam",
            "warmup_steps": 100,
            "learning_rate": 1.0,
            "max_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "dropout": [0.1],
            "attention_dropout": [0.0],
            "log_attention_entropy": False,
            "param_init_method": "xavier_uniform",
        },
        "model": dict(model),
        **more,
    }


def eole(training: Training) -> float:
    """Target tokens per second in Eole's log for the second half of its updates."""
    size = training.size
    model = {
        "architecture": "transformer",
        "layers": size.layers,
        "hidden_size": size.hidden_size,
        "heads": size.heads,
        "transformer_ff": size.ffn_size,
        "embeddings": {
            "word_vec_size": size.hidden_size,
            "position_encoding": True,
            "position_encoding_type": "SinusoidalInterleaved",
        },
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "add_qkvbias": True,
        "add_ffnbias": True,
    }
    return train_eole(eole_config(training, model), training)


def train_eole(config: Mapping[str, Any], training: Training) -> float:
    """Target tokens per second of a training with this configuration."""
    file = training.texts.folder / "eole.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is valid YAML
    words = _run("eole", ["-m", "eole.bin.main", "train", "-config", str(file)], training)
    return float(_last(r"([\d.]+)/\s*([\d.]+) tok/s", words, "Eole")[1])


def sockeye(training: Training) -> float:
    """Target tokens per second: the sentences per second in Sockeye's log times their mean
    length."""
    size, texts = training.size, training.texts
    given: dict[str, object] = {
        "source": texts.folder / "train.source",
        "target": texts.folder / "train.target",
        "validation-source": texts.folder / "held.source",
        "validation-target": texts.folder / "held.target",
        "source-vocab": texts.folder / "words.json",
        "target-vocab": texts.folder / "words.json",
        "output": texts.folder / "sockeye",
        "num-layers": f"{size.layers}:{size.layers}",
        "transformer-model-size": size.hidden_size,
        "num-embed": size.hidden_size,
        "transformer-attention-heads": size.heads,
        "transformer-feed-forward-num-hidden": size.ffn_size,
        "transformer-preprocess": "",
        "transformer-postprocess": "drn",
        "transformer-dropout-prepost": 0.1,
        "transformer-dropout-attention": 0,
        "transformer-dropout-act": 0,
        "weight-tying-type": "src_trg_softmax",
        "label-smoothing": 0.1,
        "optimizer": "adam",
        "initial-learning-rate": 0.001,
        "gradient-clipping-type": "norm",
        "gradient-clipping-threshold": 1.0,
        "batch-type": "max-word",
        "batch-size": training.batch_tokens,
        "batch-sentences-multiple-of": 1,
        "max-seq-len": min(256, training.batch_tokens // 2),
        "checkpoint-interval": 10**9,
        "max-updates": 2 * training.steps,
        "decode-and-evaluate": 0,
    }
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    flags = ["--shared-vocab", "--use-cpu", "--no-logfile", "--overwrite-output"]
    script = [str(HERE / "sockeye_worker.py"), str(training.steps)]
    words = _run("sockeye", [*script, *options, *flags], training)
    return float(_last(r"\bs/sec=([\d.]+)", words, "Sockeye")[0]) * texts.target_tokens


PEERS = {"Eole": ("eole", eole), "Sockeye": ("sockeye", sockeye)}
"""The environment and the training function of each row."""
VERSIONS = {"Eole": "Eole 0.6.4", "Sockeye": "Sockeye 3.1.34"}


def precision_of(name: str) -> str:
    """The precision of a peer."""
    fast = name == "Eole" and has_fast_bfloat16(torch.device("cpu"))
    return "bfloat16" if fast else "float32"


def _run(name: str, arguments: Sequence[str], training: Training) -> str:
    """The output of a peer's program.

    Raises:
        PeerError: its exit code is not 0.
    """
    python = peer_python(name)
    assert python is not None
    threads = str(training.threads)
    limits = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        cwd=training.texts.folder,
        env=own | limits,
        check=False,
    )
    if done.returncode:
        end = done.stdout.strip().splitlines()[-1:]
        raise PeerError(f"{name} ended with exit code {done.returncode}: {' '.join(end)}")
    return done.stdout


def _last(pattern: str, words: str, name: str) -> tuple[str, ...]:
    """The groups of the pattern's last match.

    Raises:
        PeerError: the pattern does not match.
    """
    found = list(re.finditer(pattern, words))
    if not found:
        raise PeerError(f"{name}'s log has no speed")
    return found[-1].groups()
