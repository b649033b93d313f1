"""Small tokenisers and random models of other libraries, in the files that these libraries
write."""

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE, Unigram, WordPiece

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A cat, sat on the mat; the mat was flat!",
    "Numbers 12 and 345, and a naïve café in Zürich.",
    "She sells sea shells by the sea shore (doesn't she?)",
] * 5

LABELS = ["anger", "joy", "none at all"]
SPECIAL = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"]


def wordpiece(special: list[str] | None = None, size: int = 120, lower: bool = True) -> Tokenizer:
    """A WordPiece tokeniser whose special tokens are in an unusual order and not at the start."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=["[unused0]", *(special or SPECIAL)], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def save_wordpiece(folder: Path, lower: bool = True, **options: object) -> dict[str, int]:
    """Write a BERT tokeniser as transformers does; returns its tokens."""
    vocabulary: dict[str, int] = wordpiece(lower=lower).get_vocab()
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=lower, **options).save_pretrained(
        folder
    )
    return vocabulary


def save_bytes(folder: Path, size: int = 300, **options: object) -> dict[str, int]:
    """Write a GPT-2 tokeniser as transformers does, with the end of text last; returns its
    tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(folder / "trained.json"))
    model = json.loads((folder / "trained.json").read_text())["model"]
    (folder / "trained.json").unlink()
    vocabulary: dict[str, int] = model["vocab"] | {"<|endoftext|>": len(model["vocab"])}
    merges = [tuple(pair) for pair in model["merges"]]
    made = transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges, **options)
    made.save_pretrained(folder)
    return vocabulary


def save_roberta(
    folder: Path, size: int = 300, *, stripped: bool = True, **options: object
) -> dict[str, int]:
    """Write a RoBERTa tokeniser as transformers does; returns its tokens."""
    tokens = save_bytes(folder, size)
    described = json.loads((folder / "tokenizer.json").read_text())["model"]
    # As in the original, four come first and the mask last, and GPT-2's symbol is one of all.
    names = ["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = [tuple(pair) for pair in described["merges"]]
    for path in folder.iterdir():
        path.unlink()
    # As in the original, the space before a mask belongs to it.
    mask = AddedToken("<mask>", lstrip=True, special=True) if stripped else "<mask>"
    made = transformers.RobertaTokenizer(
        vocab=vocabulary, merges=merges, mask_token=mask, **options
    )
    made.save_pretrained(folder)
    return vocabulary


def save_unigram(folder: Path, *, albert: bool = False, **options: object) -> dict[str, int]:
    """Write an XLM-R or ALBERT tokeniser as transformers does; returns its tokens.

    Its map of characters is sentencepiece's NFKC.
    """
    prefix = folder / "trained"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(prefix),
        vocab_size=90,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=3,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(prefix.with_suffix(".model").read_bytes())
    pieces = [(one.piece, one.score) for one in proto.pieces[3:]]
    if albert:
        fixed = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = [*((name, 0.0) for name in fixed), *pieces]
    else:
        fixed = ["<s>", "<pad>", "</s>", "<unk>"]
        vocabulary = [*((name, 0.0) for name in fixed), *pieces, ("<mask>", 0.0)]
    for path in folder.iterdir():
        path.unlink()
    kind = transformers.AlbertTokenizer if albert else transformers.XLMRobertaTokenizer
    charsmap = proto.normalizer_spec.precompiled_charsmap
    made = kind(vocab=vocabulary, _spm_precompiled_charsmap=charsmap, **options)
    made.save_pretrained(folder)
    return {name: number for number, (name, _) in enumerate(vocabulary)}


def randomise(model: torch.nn.Module, seed: int = 1) -> torch.nn.Module:
    """Set parameters and persistent buffers to normal values, because zeros could hide errors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "embed_positions" in name:
                continue
            tensor.normal_(0.0, 0.2, generator=generator)
            if "norm" in name.lower() or "ln_" in name:
                tensor += 1.0 if name.endswith("weight") else 0.0
        for name, tensor in model.named_buffers():
            if name == "final_logits_bias":
                tensor.normal_(0.0, 0.2, generator=generator)
    return model.eval()


def save_marian_tokeniser(folder: Path, *, separate: bool = False, code: str | None = None) -> int:
    """Write Marian's tokeniser files; returns the number of rows of the embedding.

    END is 0, the unknown symbol 1, and padding, which targets begin with, is last.
    """
    models = []
    for name, texts in (("source", TEXTS), ("target", [text[::-1] for text in TEXTS])):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(folder / name),
            vocab_size=90 if name == "source" else 330,
            model_type="unigram" if name == "source" else "bpe",
            byte_fallback=name == "target",
            hard_vocab_limit=name == "target",
            minloglevel=3,
        )
        (folder / f"{name}.vocab").unlink()
        path = (folder / f"{name}.model").rename(folder / f"{name}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        models.append([model.id_to_piece(row) for row in range(model.get_piece_size())])

    def number(pieces: list[str]) -> dict[str, int]:
        ordinary = [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
        # One piece is missing, as in real models: it is unknown.
        names = ["</s>", "<unk>", *dict.fromkeys(ordinary[:-1]), *([code] if code else [])]
        return {piece: row for row, piece in enumerate([*names, "<pad>"])}

    settings: dict[str, object] = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
    }
    rows = number(models[0] if separate else models[0] + models[1])
    (folder / "vocab.json").write_text(json.dumps(rows))
    if separate:
        target = number(models[1])
        # transformers has one padding id: that of the smaller table.
        pad = rows["<pad>"]
        swapped = next(piece for piece, row in target.items() if row == pad)
        target[swapped], target["<pad>"] = target["<pad>"], pad
        (folder / "target_vocab.json").write_text(json.dumps(target))
        settings["target_vocab_size"] = len(target)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(rows)


def bert_folder(folder: Path, kind: str, **options: Any) -> Any:
    folder.mkdir(parents=True)
    tokens = save_wordpiece(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokens) + 2,
        hidden_size=18,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=10,
        max_position_embeddings=64,
        pad_token_id=tokens["[PAD]"],
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
        **options,
    )
    model = randomise(getattr(transformers, kind)(config))
    model.save_pretrained(folder)
    return model


def gpt_folder(folder: Path, **options: Any) -> Any:
    folder.mkdir(parents=True)
    tokens = save_bytes(folder)
    end = tokens["<|endoftext|>"]
    config = transformers.GPT2Config(
        vocab_size=len(tokens),
        n_embd=18,
        n_layer=2,
        n_head=3,
        n_positions=64,
        bos_token_id=end,
        eos_token_id=end,
        **options,
    )
    model = randomise(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    return model


def marian_folder(folder: Path, *, separate: bool = False, **options: Any) -> Any:
    """A random model and its tokeniser, as transformers writes them."""
    folder.mkdir(parents=True)
    rows = save_marian_tokeniser(folder, separate=separate)
    target = rows
    if separate:
        target = len(json.loads((folder / "target_vocab.json").read_text()))
    config = transformers.MarianConfig(
        vocab_size=rows,
        decoder_vocab_size=target,
        share_encoder_decoder_embeddings=not separate,
        d_model=24,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=20,
        max_position_embeddings=64,
        pad_token_id=rows - 1,
        decoder_start_token_id=rows - 1,
        activation_function="swish",
        scale_embedding=True,
        **options,
    )
    torch.manual_seed(1)
    model = randomise(transformers.MarianMTModel(config))
    model.save_pretrained(folder)
    return model


def save_t5_tokeniser(folder: Path, size: int = 120) -> int:
    """Write a T5 tokeniser as transformers does; returns the number of its tokens."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    sentinels = [(f"<extra_id_{number}>", 0.0) for number in (4, 3, 2, 1, 0)]
    vocabulary = [tuple(piece) for piece in pieces] + sentinels
    made = transformers.T5Tokenizer(
        vocab=vocabulary, extra_ids=5, _spm_precompiled_charsmap=nfkc_charsmap(folder)
    )
    made.save_pretrained(folder)
    return len(vocabulary)


def save_pegasus_tokeniser(folder: Path, *, mapped: bool = True) -> dict[str, int]:
    """Write a Pegasus tokeniser as transformers does, with or without a map of characters."""
    save_t5_tokeniser(folder)
    described = json.loads((folder / "tokenizer.json").read_text())
    charsmap = nfkc_charsmap(folder) if mapped else None
    for path in folder.iterdir():
        path.unlink()
    fixed = ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk>"]
    vocabulary = [(name, 0.0) for name in fixed]
    vocabulary += [tuple(piece) for piece in described["model"]["vocab"][3:-5]]
    made = transformers.PegasusTokenizer(
        vocab=vocabulary, offset=3, _spm_precompiled_charsmap=charsmap
    )
    made.save_pretrained(folder)
    return {name: number for number, (name, _) in enumerate(vocabulary)}


def nfkc_charsmap(folder: Path) -> bytes:
    """The table of characters of a sentencepiece model that was trained with NFKC."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(folder / "nfkc"),
        vocab_size=60,
        normalization_rule_name="nmt_nfkc",
        minloglevel=3,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((folder / "nfkc.model").read_bytes())
    (folder / "nfkc.model").unlink()
    (folder / "nfkc.vocab").unlink()
    charsmap: bytes = proto.normalizer_spec.precompiled_charsmap
    return charsmap


def save_bart_tokeniser(folder: Path, size: int = 300) -> int:
    """Write a BART tokeniser as transformers does; returns the number of its tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = model["vocab"] | {"<mask>": len(model["vocab"])}
    merges = [tuple(pair) for pair in model["merges"]]
    transformers.BartTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    return len(vocabulary)


def save_m2m_tokeniser(folder: Path, **options: object) -> int:
    """Write an M2M-100 tokeniser as transformers does; returns the number of its rows."""
    rows = train_pieces(folder, "bpe")
    names = ["<s>", "<pad>", "</s>", "<unk>", *rows[3:-1]]  # one piece is missing: it is unknown
    (folder / "vocab.json").write_text(json.dumps({name: row for row, name in enumerate(names)}))
    transformers.M2M100Tokenizer(
        vocab_file=str(folder / "vocab.json"),
        spm_file=str(folder / "sentencepiece.bpe.model"),
        **options,
    ).save_pretrained(folder)
    return len(names) + 108


def train_pieces(folder: Path, kind: str, size: int = 120) -> list[str]:
    """Train ``sentencepiece.bpe.model``; returns its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(folder / "sentencepiece.bpe"),
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    (folder / "sentencepiece.bpe.vocab").unlink()
    path = folder / "sentencepiece.bpe.model"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(row) for row in range(model.get_piece_size())]


def save_nllb_tokeniser(folder: Path, **options: object) -> int:
    """Write an NLLB-200 tokeniser as transformers does; returns the number of its rows."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(
        vocab_size=130,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    languages = ["deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"]
    names = [*model["vocab"], *languages, "<mask>"]
    made = transformers.NllbTokenizer(
        vocab={name: row for row, name in enumerate(names)},
        merges=[tuple(pair) for pair in model["merges"]],
        extra_special_tokens=languages,
        _spm_precompiled_charsmap=nfkc_charsmap(folder),
        **options,
    )
    made.save_pretrained(folder)
    return len(made)


def save_mbart50_tokeniser(folder: Path, **options: object) -> int:
    """Write an mBART-50 tokeniser as transformers does; returns the number of its rows."""
    save_unigram(folder)
    described = json.loads((folder / "tokenizer.json").read_text())
    for path in folder.iterdir():
        path.unlink()
    pieces = [tuple(piece) for piece in described["model"]["vocab"][4:-1]]
    languages = [(name, 0.0) for name in mbart50_languages()]
    fixed = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    made = transformers.MBart50Tokenizer(
        vocab=[*fixed, *pieces, *languages, ("<mask>", 0.0)],
        _spm_precompiled_charsmap=nfkc_charsmap(folder),
        **options,
    )
    made.save_pretrained(folder)
    return len(made)


def mbart50_languages() -> list[str]:
    """The languages of mBART-50."""
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    return list(FAIRSEQ_LANGUAGE_CODES)


def save_xlnet_tokeniser(folder: Path, **options: object) -> dict[str, int]:
    """Write an XLNet tokeniser as transformers does; returns its tokens."""
    save_unigram(folder)
    described = json.loads((folder / "tokenizer.json").read_text())
    for path in folder.iterdir():
        path.unlink()
    names = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    vocabulary = [(name, 0.0) for name in names]
    vocabulary += [tuple(piece) for piece in described["model"]["vocab"][4:-1]]
    made = transformers.XLNetTokenizer(
        vocab=vocabulary, _spm_precompiled_charsmap=nfkc_charsmap(folder), **options
    )
    made.save_pretrained(folder)
    return {name: number for number, (name, _) in enumerate(vocabulary)}
