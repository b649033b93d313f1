"""Tiny data and recipes for every single-text task."""

import random
from pathlib import Path
from typing import Any

COLOURS, ANIMALS, VERBS = ("red", "green", "blue"), ("dog", "cat", "bird"), ("sees", "eats")
TAGS = {
    **dict.fromkeys(("the", "a"), "DET"),
    **dict.fromkeys(COLOURS, "ADJ"),
    **dict.fromkeys(ANIMALS, "NOUN"),
    **dict.fromkeys(VERBS, "VERB"),
}

LOOP = {
    "precision": "float32",  # the default depends on the processor
    "max_steps": 8,
    "batch_tokens": 120,
    "learning_rate": 0.01,
    "warmup_steps": 2,
    "log_every": 2,
    "validate_every": 4,
    "checkpoint_every": 3,
}
WORDS = {"kind": "words", "vocabulary_size": 60}
BERT = {"layers": 2, "hidden_size": 16, "ffn_size": 16, "heads": 2, "max_length": 40}
LABELLED = {"train": "labelled.tsv", "validation": "labelled-held.tsv"}
RATED = {"train": "rated.tsv", "validation": "rated-held.tsv", "label": "number"}
PAIRS = {"train": "pairs.tsv", "validation": "pairs-held.tsv", "text": ["first", "second"]}
TAGGED = {"train": "tagged.tsv", "validation": "tagged-held.tsv"}
DOCUMENTS = {"train": "documents.txt", "validation": "documents-held.txt"}
ATTENTIVE = {
    "kind": "recurrent-encoder",
    "hidden_size": 8,
    "embedding_size": 8,
    "hops": 3,
    "attention_size": 8,
}


def encoder(task: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A recipe of an encoder; ``more`` replaces tables."""
    tables = {"task": task, "seed": 5, "data": data, "max_tokens": 24, "tokeniser": WORDS}
    return {**tables, "model": BERT, "training": LOOP, **more}


MASKED = encoder("masked", DOCUMENTS, tokeniser={**WORDS, "mask": True})
XLNET = {**BERT, "kind": "xlnet"}
PERMUTATION = encoder(
    "permutation",
    DOCUMENTS,
    tokeniser={**WORDS, "mask": True},
    model=XLNET,
    permutation={"memory": 7},
)
LANGUAGE = {
    "task": "language-model",
    "seed": 5,
    "data": DOCUMENTS,
    "context": 12,
    "tokeniser": {"kind": "characters", "vocabulary_size": 60},
    "training": LOOP,
}
RECIPES: dict[str, dict[str, Any]] = {
    "classification": encoder("classification", LABELLED),
    "pairs": encoder("classification", PAIRS),
    "rated": encoder("regression", RATED),
    "compared": encoder(
        "classification",
        PAIRS,
        model={"kind": "decomposable", "hidden_size": 8, "ffn_size": 8, "embedding_size": 8},
    ),
    "attentive": encoder(
        "classification", LABELLED, model=ATTENTIVE, training={**LOOP, "penalty": 0.1}
    ),
    "grams": encoder(
        "classification",
        LABELLED,
        model={"kind": "convolutional-encoder", "embedding_size": 6, "feature_maps": 4},
        head_max_norm=0.1,
    ),
    "hierarchical": encoder(
        "classification",
        LABELLED,
        model={
            "kind": "hierarchical",
            "embedding_size": 8,
            "word_hidden_size": 4,
            "sentence_hidden_size": 4,
        },
    ),
    "writer": encoder(
        "classification",
        LABELLED,
        model={
            "kind": "language",
            "language_model": {
                "kind": "gpt",
                "layers": 1,
                "hidden_size": 16,
                "heads": 2,
                "max_length": 40,
            },
        },
    ),
    "paced": encoder(
        "classification",
        LABELLED,
        training={
            **LOOP,
            "layer_decay": 0.5,
            "unfreeze_every": 2,
            "schedule": "slanted_triangular",
            "label_smoothing": 0.1,
            "accumulation_steps": 2,
        },
    ),
    "vectors": encoder(
        "classification", LABELLED, model=ATTENTIVE, vectors={"file": "vectors.txt"}
    ),
    "frozen": encoder(
        "tagging", TAGGED, model=ATTENTIVE, vectors={"file": "vectors.txt", "frozen": True}
    ),
    "tagging": encoder("tagging", TAGGED),
    "chain": encoder("tagging", TAGGED, crf=True),
    "masked": MASKED,
    "alone": {**MASKED, "masking": {"next_sentence": False, "whole_word": True}},
    "permutation": PERMUTATION,
    "in one segment": {
        **PERMUTATION,
        "permutation": {"one_in": 2, "longest_span": 1, "pairs": False},
    },
    "xlnet": encoder("classification", LABELLED, model={**XLNET, "begin": "last"}),
    "ordered": {
        **MASKED,
        "masking": {"sentence_order": True},
        "model": {**BERT, "embedding_size": 6, "shared_layers": True},
    },
    "replaced": {
        **MASKED,
        "task": "replaced",
        "model": {**BERT, "embedding_size": 6, "pooler": "gelu"},
        "replacing": {"generator_size": 0.5, "generator_layers": 1},
    },
    "gpt": {**LANGUAGE, "model": {"layers": 1, "hidden_size": 16, "heads": 2}},
    "lstm": {
        **LANGUAGE,
        "model": {"kind": "recurrent-language-model", "hidden_size": 16, "layers": 1},
    },
    "several": {
        **{key: table for key, table in MASKED.items() if key != "data"},
        "task": "several",
        "temperature": 2.0,
        "tasks": {
            "colour": {"task": "classification", "data": LABELLED},
            "words": {"task": "tagging", "data": TAGGED, "weight": 0.5},
            "hidden": {"task": "masked", "data": DOCUMENTS},
        },
    },
}


def sentence(rng: random.Random) -> list[str]:
    return [
        *("the", rng.choice(COLOURS), rng.choice(ANIMALS), rng.choice(VERBS)),
        *("a", rng.choice(ANIMALS)),
    ]


def _rated(words: list[str]) -> str:
    """A text and a number: twice the number of the colour, and the number of the verb."""
    return f"{' '.join(words)}\t{10 + 2 * COLOURS.index(words[1]) + VERBS.index(words[3])}"


def write_data(folder: Path) -> None:
    """Write the files that the recipes name: the colour is the label of a text."""
    rng = random.Random(1)
    for name, count in (("", 48), ("-held", 9)):
        texts = [sentence(rng) for _ in range(count)]
        labelled = [f"{' '.join(words)}\t{words[1]}" for words in texts]
        pairs = [
            f"{' '.join(one)}\t{' '.join(other)}\t{'same' if one[2] == other[2] else 'other'}"
            for one, other in zip(texts, texts[1:] + texts[:1], strict=True)
        ]
        tagged = ["".join(f"{word}\t{TAGS[word]}\n" for word in words) for words in texts]
        documents = ["\n".join(" ".join(sentence(rng)) for _ in range(4)) for _ in range(count)]
        for file, lines in (
            (f"labelled{name}.tsv", ["text\tlabel", *labelled]),
            (f"rated{name}.tsv", ["text\tnumber", *map(_rated, texts)]),
            (f"pairs{name}.tsv", ["first\tsecond\tlabel", *pairs]),
            (f"tagged{name}.tsv", tagged[:16]),
            (f"documents{name}.txt", ["\n\n".join(documents[: max(4, count // 4)])]),
        ):
            (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    vectors = (f"{word} {' '.join(f'{rng.gauss(0, 1):.4f}' for _ in range(8))}" for word in TAGS)
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n", encoding="utf-8")
