"""ELECTRA's parts: a generator that fills masked places, and a detector of replaced tokens.

Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
section 2 and 3.2. The discriminator is any :class:`heedful.models.bert.Bert` with a detector; it is
what is kept for fine-tuning. The generator is a smaller encoder that has the discriminator's
embeddings, for its input and its output.
Shapes: B batch, L tokens, M masked tokens, D width, E width of the embeddings, V vocabulary.
"""

from typing import cast

import torch
from torch import Tensor, nn

from heedful.layers.transformer import Activation, activate
from heedful.models.bert import (
    Bert,
    BertEmbeddings,
    BertSettings,
    MaskedHead,
    axes_of_layers,
    encoder_layers,
    initialise,
    padding_mask,
    run_layers,
)
from heedful.models.encoders import Encoded, Sequences, TextEncoder


def generator_settings(
    discriminator: BertSettings, fraction: float, layers: int | None = None
) -> BertSettings:
    """The settings of a generator that is a fraction of the discriminator's size.

    ``hidden_size``, ``ffn_size`` and ``heads`` are multiplied by the fraction, and rounded such
    that heads have equal widths (section 3.2); its embeddings are as wide as the discriminator's.

    Args:
        discriminator: the settings of the discriminator.
        fraction: above 0, at most 1.
        layers: number of layers; by default, as many as the discriminator's.

    Raises:
        ValueError: the generator would have more layers than the discriminator, or the attention
            does not fit its sizes.

    Example:
        >>> base = BertSettings(size="base")
        >>> small = generator_settings(base, 1 / 3)
        >>> small.layers, small.hidden_size, small.ffn_size, small.heads, small.embedding_size
        (12, 256, 1024, 4, 768)
    """
    if layers is not None and layers > discriminator.layers:
        raise ValueError(
            f"a generator of {layers} layers is larger than its discriminator of "
            f"{discriminator.layers}; take at most {discriminator.layers}"
        )
    heads = max(1, round(fraction * discriminator.heads))
    hidden = heads * max(1, round(fraction * discriminator.hidden_size / heads))
    embedded = discriminator.embedding_width
    own = {
        "size": None,
        "layers": layers or discriminator.layers,
        "hidden_size": hidden,
        "ffn_size": max(1, round(fraction * discriminator.ffn_size)),
        "heads": heads,
        "embedding_size": embedded if embedded != hidden else None,
        "pooler": "none",
    }
    return BertSettings.model_validate({**dict(discriminator), **own})


class Generator(TextEncoder):
    """An encoder with the embeddings of another, and the head that predicts masked tokens.

    The embeddings are parameters of the other encoder only.

    Args:
        encoder: the discriminator.
        settings: sizes and options, from :func:`generator_settings`.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> encoder = Bert(BertSettings(layers=1, hidden_size=8, heads=2), 30)
        >>> generator = Generator(encoder, generator_settings(encoder.settings, 0.5))
        >>> generator.head(generator(sequences_of([[7, 9]])).states).shape
        torch.Size([1, 4, 30])
    """

    dim: int
    pooled_dim: int

    def __init__(self, encoder: Bert, settings: BertSettings) -> None:
        super().__init__()
        self._shared = (encoder.embeddings,)  # In a tuple, it is not registered as a submodule.
        self.settings = settings
        self.max_length = encoder.max_length
        self.dim = self.pooled_dim = settings.hidden_size
        self.projection = (
            None
            if settings.embedding_size is None
            else nn.Linear(settings.embedding_size, settings.hidden_size)
        )
        self.layers = encoder_layers(settings)
        self.head = MaskedHead(self)
        self.apply(initialise)

    @property
    def embeddings(self) -> BertEmbeddings:
        """The embeddings of the discriminator."""
        return self._shared[0]

    @property
    def embedding(self) -> nn.Embedding:
        return self.embeddings.tokens

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch."""
        hidden = self.embeddings(batch.tokens, batch.segments)
        if self.projection is not None:
            hidden = self.projection(hidden)
        hidden = run_layers(self.layers, self.settings, hidden, padding_mask(batch))
        return Encoded(hidden, hidden[:, 0])

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return axes_of_layers(self.settings)


class Detector(nn.Module):
    """Says of each token whether it was replaced: ``σ(w · φ(W h_t + b) + c)``.

    The paper's equation for D has no hidden layer; the authors' code has one, with the model's
    activation.
    """

    def __init__(self, settings: BertSettings) -> None:
        super().__init__()
        self.dense = nn.Linear(settings.hidden_size, settings.hidden_size)
        self.output = nn.Linear(settings.hidden_size, 1)
        self.activation: Activation = settings.activation
        self.apply(initialise)

    def forward(self, states: Tensor) -> Tensor:
        """Logits of "replaced" ``[..]`` for states ``[.., D]``."""
        hidden = activate(self.dense(states), self.activation)
        return cast(Tensor, self.output(hidden)).squeeze(-1)


class ReplacedTokens(nn.Module):
    """The head of a discriminator in pre-training: its detector, and the generator.

    Args:
        encoder: the discriminator.
        generator: the settings of the generator.
    """

    def __init__(self, encoder: Bert, generator: BertSettings) -> None:
        super().__init__()
        self.detector = Detector(encoder.settings)
        self.generator = Generator(encoder, generator)


def sample(logits: Tensor, draws: Tensor) -> Tensor:
    """Draw a token from each softmax, ``[M, V] -> [M]``, without gradients.

    Token v is drawn if the number is between the cumulative probabilities of v − 1 and v, so that
    the result is a function of the arguments.

    Args:
        logits: ``[M, V]``.
        draws: ``[M]`` uniform numbers from 0 to less than 1.

    Example:
        >>> sample(torch.tensor([[0.0, 0.0, -torch.inf]] * 2), torch.tensor([0.4, 0.9])).tolist()
        [0, 1]
    """
    exact = torch.float32 if logits.device.type == "mps" else torch.float64
    below = logits.detach().to(exact).softmax(-1).cumsum(-1)
    total = below[..., -1:]
    # Rounded, the product can be the total, beyond all tokens.
    largest = torch.nextafter(total, torch.zeros_like(total))
    wanted = torch.minimum(draws.to(exact).unsqueeze(-1) * total, largest)
    return torch.searchsorted(below, wanted, right=True).squeeze(-1)
