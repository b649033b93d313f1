"""A well-written plain training loop around torch.nn.Transformer.

The model is the same as heedful's Transformer except for the specifics of ``torch.nn.Transformer``:
a layer norm after each stack, and dropout on attention weights and in the feed-forward networks.

Shapes: B batch, S source tokens, T target tokens, D width, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.device import autocast
from heedful.basics.symbols import PAD
from heedful.data.batching import Batch
from heedful.models.transformer import TransformerSettings
from heedful.tasks.pairs.recipe import TrainingSettings


def sinusoids(length: int, dim: int) -> Tensor:
    """``[length, D]`` of Vaswani et al. 2017, section 3.5."""
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000) / dim))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


class PlainModel(nn.Module):
    """Embeddings, ``torch.nn.Transformer``, and an output layer tied to the embeddings."""

    positions: Tensor

    def __init__(
        self, settings: TransformerSettings, vocabulary: int, dropout_everywhere: bool
    ) -> None:
        super().__init__()
        self.dim = settings.hidden_size
        self.embedding = nn.Embedding(vocabulary, self.dim, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=self.dim**-0.5)
        self.dropout = nn.Dropout(settings.dropout)
        self.transformer = nn.Transformer(
            self.dim,
            settings.heads,
            settings.layers,
            settings.layers,
            settings.ffn_size,
            settings.dropout,
            batch_first=True,
        )
        if not dropout_everywhere:
            for module in self.transformer.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    module.dropout.p = 0.0  # dropout between the two matrices
        table = sinusoids(settings.max_length, self.dim)
        self.register_buffer("positions", table, persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        """``[B, L] -> [B, L, D]``."""
        scaled = self.embedding(tokens) * math.sqrt(self.dim)
        embedded: Tensor = self.dropout(scaled + self.positions[: tokens.shape[1]])
        return embedded

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits ``[B, T, V]`` for ``source [B, S]`` and ``target_in [B, T]``."""
        padding = source == PAD
        # Padding is at the end of a target, so the causal mask is enough and faster.
        states = self.transformer(
            self.embed(source),
            self.embed(target_in),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                target_in.shape[1], device=target_in.device
            ),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)


class PlainLoop:
    """Trains a :class:`PlainModel` in float32, or in another precision by autocast."""

    def __init__(
        self,
        settings: TransformerSettings,
        vocabulary: int,
        training: TrainingSettings,
        *,
        dropout_everywhere: bool,
        device: str = "cpu",
        precision: str = "float32",
    ) -> None:
        self.device, self.precision = torch.device(device), precision
        self.model = PlainModel(settings, vocabulary, dropout_everywhere).to(self.device)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=training.label_smoothing)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=training.learning_rate, betas=training.betas, eps=1e-9
        )
        self.warmup = training.warmup_steps
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate)
        self.clip_norm = training.clip_norm or math.inf

    def _rate(self, step: int) -> float:
        return min((step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1)))

    def parameters(self) -> list[nn.Parameter]:
        """All trained parameters."""
        return list(self.model.parameters())

    def step(self, batch: Batch) -> Tensor:
        """Train on a batch; returns its loss per token in nats."""
        batch = batch.to(self.device)
        self.model.train()
        self.optimiser.zero_grad()
        with autocast(self.device, self.precision):
            logits = self.model(batch.source, batch.target_in)
            loss: Tensor = self.loss(logits.flatten(0, 1), batch.target_out.flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimiser.step()
        self.schedule.step()
        return loss.detach()
