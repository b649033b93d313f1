"""A GPT whose search steps are one kernel call each, if possible."""

from dataclasses import dataclass

from torch import Tensor

from heedful.attention.positions import Learned
from heedful.inference.fusing import cached
from heedful.inference.fusing.decoder import FusedDecoder, fused_decoder
from heedful.inference.fusing.program import Embedding
from heedful.kernels.program import Tables
from heedful.models.gpt import Gpt, GptState


@dataclass
class FusedGptState(GptState):
    """The model's state, and the fused form for its next step; None to use the model."""

    fused: FusedDecoder | None = None


class FusedGpt:
    """A decodable with the same results as the model."""

    def __init__(self, model: Gpt) -> None:
        self.model = model

    def start(self, prompts: Tensor) -> FusedGptState:
        """As the model's."""
        in_place = cached.reads_in_place(self.model.output_table)
        return FusedGptState(self.model.start(prompts, in_place=in_place).caches, self._fused())

    def step(self, tokens: Tensor, state: FusedGptState) -> tuple[Tensor, FusedGptState]:
        """As the model's."""
        if state.fused is not None and state.fused.can_step(state.length):
            symbols = self.model.embeddings.symbols(tokens)
            return state.fused.step(symbols, state.caches), state
        return self.model.step(tokens, state)[0], state

    def _fused(self) -> FusedDecoder | None:
        model, learned = self.model, self.model.embeddings.positions
        if type(learned) is not Learned:
            return None
        tables = Tables(model.embedding.weight, 1.0, learned.table.weight)
        embedding = Embedding(tables, (model.embeddings,))
        output = (model.output_table, model.bias, model.projection)
        return fused_decoder(model, model.decoder_layers(), model.norm, embedding, *output)
