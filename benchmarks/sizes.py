"""The model sizes of speed benchmarks, and the operations and bytes that they require.

A multiply-add counts as two operations; only matrix products and attention are counted.
Shapes: D width, I width inside the feed-forward network, V vocabulary, S source tokens with END,
T target tokens, K hypotheses.
"""

from typing import NamedTuple

from heedful.models.transformer_settings import SIZES as NAMED


class Size(NamedTuple):
    """The size of a Transformer, the same for encoder and decoder."""

    layers: int
    hidden_size: int
    ffn_size: int
    heads: int

    @property
    def encoder(self) -> int:
        """Operations for a source token, without attention."""
        return self.layers * 2 * (4 * self.hidden_size**2 + 2 * self.hidden_size * self.ffn_size)

    @property
    def memory(self) -> int:
        """Operations for a source token's keys and values in all layers of the decoder."""
        return self.layers * 2 * 2 * self.hidden_size**2

    def decoder(self, vocabulary: int) -> int:
        """Operations for a target token, without attention, with the output layer."""
        inside = self.layers * 2 * (6 * self.hidden_size**2 + 2 * self.hidden_size * self.ffn_size)
        return inside + 2 * self.hidden_size * vocabulary

    def translating(self, source: float, target: int, beam: int, vocabulary: int) -> float:
        """Operations for a sentence with this number of tokens."""
        read = (
            source * (self.encoder + self.memory) + self.layers * 4 * self.hidden_size * source**2
        )
        attention = self.layers * 4 * self.hidden_size * (source + (target + 1) / 2)
        return read + beam * target * (self.decoder(vocabulary) + attention)

    def training(self, source: float, vocabulary: int) -> float:
        """Operations for a target token: forward and backward, which takes twice as many.

        Args:
            source: source tokens for each target token.
            vocabulary: target symbols.
        """
        return 3 * (source * (self.encoder + self.memory) + self.decoder(vocabulary))

    def weights_read(self, target: int, vocabulary: int) -> int:
        """Weights read for a single sentence: the encoder's once, the decoder's at each step."""
        return (self.encoder + self.memory + target * self.decoder(vocabulary)) // 2


SIZES = {name: Size(**NAMED[name]) for name in ("tiny", "base")}
SMALLEST = "smallest"
"""A size to check that a benchmark runs; its speed is meaningless."""
SIZES[SMALLEST] = Size(layers=1, hidden_size=16, ffn_size=32, heads=2)


def recurrent_operations(
    source: float, target: int, beam: int, vocabulary: int, width: int = 256
) -> float:
    """Operations for a sentence of the recurrent model: GRUs, additive attention, output layer.

    Embeddings, states and attention have width ``width``. The encoder is bidirectional, so that
    annotations are twice as wide.
    """
    square = 2 * width**2
    encoder = source * (2 * 6 * square + 2 * square)  # two GRUs; the keys
    step = 9 * square + square + 2 * source * 4 * width + 4 * square + 2 * width * vocabulary
    return encoder + beam * target * step
