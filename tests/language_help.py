"""A small language model with random weights and a vocabulary of bytes, for tests."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.attention.masks import causal
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.models.language import LanguageModel, boundary


class ByteVocabulary:
    """Each byte of UTF-8 is a token; characters other than ASCII have several."""

    size = 260
    mask = None

    def encode(self, text: str) -> list[int]:
        return [byte + 4 for byte in text.encode()]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token - 4 for token in tokens if token > END).decode("utf-8", "replace")

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        names = {PAD: "<pad>", UNKNOWN: "<unk>", BEGIN: "<s>", END: "</s>"}
        return [names.get(token) or repr(bytes([token - 4]))[2:-1] for token in tokens]

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        words, word, inside = [], -1, False
        for token in tokens:
            space = token <= END or bytes([token - 4]).isspace()
            word += not space and not inside
            inside = not space
            words.append(-1 if token <= END else word + space)
        return [index if index <= word else -1 for index in words]

    def word_starts(self) -> list[int]:
        return [ord(" ") + 4]

    def fingerprint(self) -> str:
        return "bytes"


@dataclass
class Read:
    """The simplest state: all tokens so far ``[N, L]``."""

    tokens: Tensor

    def select(self, rows: Tensor) -> "Read":
        return Read(self.tokens[rows])


class SmallLanguage(LanguageModel):
    """One layer of causal attention; each step recomputes all positions."""

    def __init__(self, vocabulary: int = 260, dim: int = 16, max_length: int = 40) -> None:
        super().__init__()
        self.max_length = max_length
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(max_length, dim)
        self.attention = MultiHeadAttention(dim, heads=2)

    def states(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(boundary(tokens)) + self.positions(places)
        result: Tensor = hidden + self.attention(hidden, hidden, mask=causal())
        return result

    @property
    def embedding(self) -> nn.Embedding:
        return self.tokens

    @property
    def output_table(self) -> Tensor:
        return self.tokens.weight

    def start(self, prompts: Tensor) -> Read:
        return Read(prompts[:, :-1])

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:  # type: ignore[override]
        read = torch.cat([state.tokens, tokens.unsqueeze(1)], dim=1)
        return self.logits(self.states(read)[:, -1]), Read(read)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("text", "text")}


class Recited(SmallLanguage):
    """Generates a fixed text repeatedly, independent of its input: byte i at position i."""

    def __init__(self, text: str, max_length: int = 400) -> None:
        super().__init__(max_length=max_length)
        tokens = [END if byte == ord("|") else byte + 4 for byte in text.encode()]
        self.text = torch.tensor(tokens)

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:  # type: ignore[override]
        read = torch.cat([state.tokens, tokens.unsqueeze(1)], dim=1)
        logits = torch.zeros(len(read), 260)
        logits[:, self.text[(read.shape[1] - 1) % len(self.text)]] = 20.0
        return logits, Read(read)
