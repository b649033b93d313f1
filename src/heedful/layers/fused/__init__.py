"""Layers in one call of C, for search on the CPU; beside them stand the modules, the plain form."""

from heedful.layers.fused.decoder import FusedDecoder, fused_decoder
from heedful.layers.fused.encoder import FusedEncoder, fused_encoder
from heedful.layers.fused.program import Embedding, library

__all__ = ["Embedding", "FusedDecoder", "FusedEncoder", "fused_decoder", "fused_encoder", "library"]
