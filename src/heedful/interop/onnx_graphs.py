"""The graphs of an ONNX export: which tensors go in, which come out, and how they are checked.

Shapes: B rows, L tokens of a text, S source tokens, T steps so far, H heads, D width of a head, C
outputs of a head, V target vocabulary.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from heedful.attention import Memory
from heedful.attention.masks import padding
from heedful.basics.errors import UserError
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.models.pairs import Source, sample_rows
from heedful.models.transformer import Transformer, TransformerState

_MOST_ROWS = 4096
_TOLERANCE = 1e-4
"""Largest difference between the outputs of a graph and those of the model, per unit of size."""


class Graph(NamedTuple):
    """A module to export, with named tensors."""

    file: str
    module: nn.Module
    inputs: Mapping[str, Tensor]
    """Example inputs, by name."""
    axes: Mapping[str, Mapping[int, str]]
    """Input → dimension → the name of its size, where the size may change."""
    sizes: Mapping[str, tuple[int, int]]
    """Name of a size → its smallest and largest value."""
    outputs: Sequence[str]


class EncoderGraph(nn.Module):
    """Tokens, lengths and segments of rows → the outputs of one head.

    Args:
        model: the encoder and its heads.
        decide: computes the outputs of the head from those of the encoder.
    """

    def __init__(self, model: HeadedEncoder, decide: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.decide = model, decide

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor) -> Tensor:
        """The outputs ``[B, C]``, or ``[B, L, C]`` for heads of tokens."""
        return self.decide(self.model.encoder.encode(Sequences(tokens, lengths, segments)))


class SourceGraph(nn.Module):
    """The encoder of a translator: sources → keys and values for each layer of the decoder."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Key and value ``[B, H, S, D]`` of each layer."""
        memories, _ = self.model.encode(Source(tokens, lengths))
        return [part for memory in memories for part in (memory.key, memory.value)]


class _Past:
    """The keys and values of a layer so far, which a step appends to."""

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self.key, self.value, self.length = key, value, key.shape[2]

    def append(self, step: Memory) -> Memory:
        self.key = torch.cat([self.key, step.key], 2)
        self.value = torch.cat([self.value, step.value], 2)
        return Memory(self.key, self.value)


class _Pasts(list[_Past]):
    """The caches of all layers, as a step of the model reads them."""

    @property
    def position(self) -> int:
        return self[0].length


class _Sources(list[Memory]):
    """The memories of all layers, as a step of the model reads them."""

    lengths: Tensor

    def read(self) -> Iterator[tuple[Memory, Tensor]]:
        for memory in self:
            shape = (self.lengths.shape[0], 1, 1, memory.key.shape[2])
            yield memory, padding(self.lengths).dense(shape, self.lengths.device)


class StepGraph(nn.Module):
    """One step of a translator's decoder."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, lengths: Tensor, memories: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits ``[B, V]`` of the next token, and the keys and values with this step.

        Args:
            tokens: the last token of each row ``[B]``; BEGIN in the first step.
            lengths: lengths of the sources ``[B]``.
            memories: key and value ``[B, H, S, D]`` of each layer, from :class:`SourceGraph`.
            past: key and value ``[B, H, T, D]`` of each layer; T is 0 in the first step.
        """
        caches = _Pasts(_Past(*past[place : place + 2]) for place in range(0, len(past), 2))
        sources = _Sources(
            Memory(*memories[place : place + 2]) for place in range(0, len(memories), 2)
        )
        sources.lengths = lengths
        state = TransformerState(cast(Any, caches), cast(Any, sources))
        logits, _ = self.model.step(tokens, state)
        return logits, [part for one in caches for part in (one.key, one.value)]


def encoder_graphs(model: HeadedEncoder, decide: Callable[[Any], Tensor]) -> list[Graph]:
    """The graph of an encoder with one head: ``model.onnx``."""
    batch = sequences_of([[5] * 6, [6] * 4], [[7] * 3, [5] * 2])
    axes = {0: "rows", 1: "tokens"}
    return [
        Graph(
            "model.onnx",
            EncoderGraph(model, decide),
            dict(zip(("tokens", "lengths", "segments"), batch, strict=True)),
            {"tokens": axes, "lengths": {0: "rows"}, "segments": axes},
            {"rows": (1, _MOST_ROWS), "tokens": (2, model.max_length)},
            ["logits"],
        )
    ]


def translator_graphs(model: Transformer) -> list[Graph]:
    """The graphs of a translator: ``encoder.onnx`` and ``step.onnx``."""
    rows, length, steps = 2, 7, 3
    source, lengths = sample_rows(rows, length), torch.tensor([length, length - 2])
    sizes = {"rows": (1, _MOST_ROWS), "source": (2, model.max_length)}
    encoder = SourceGraph(model)
    with torch.no_grad():
        memories = encoder(source, lengths)
    names = [f"{part}_{layer}" for layer in range(len(model.decoder)) for part in ("key", "value")]
    given = {
        "tokens": source[:, 0],
        "lengths": lengths,
        **{f"memory_{name}": one for name, one in zip(names, memories, strict=True)},
        **{f"past_{name}": one[:, :, :1].repeat(1, 1, steps, 1)
           for name, one in zip(names, memories, strict=True)},
    }  # fmt: skip
    axes = {
        "tokens": {0: "rows"},
        "lengths": {0: "rows"},
        **{f"memory_{name}": {0: "rows", 2: "source"} for name in names},
        **{f"past_{name}": {0: "rows", 2: "steps"} for name in names},
    }
    return [
        Graph(
            "encoder.onnx",
            encoder,
            {"tokens": source, "lengths": lengths},
            {"tokens": {0: "rows", 1: "source"}, "lengths": {0: "rows"}},
            sizes,
            [f"memory_{name}" for name in names],
        ),
        Graph(
            "step.onnx",
            StepGraph(model),
            given,
            axes,
            {**sizes, "steps": (0, model.max_length - 1)},
            ["logits", *(f"now_{name}" for name in names)],
        ),
    ]


def write_graph(graph: Graph, folder: Path, where: str) -> None:
    """Export a graph, and compare its outputs with those of the module.

    Raises:
        UserError: the module has an operation that ONNX lacks, or the outputs differ.
    """
    path = folder / graph.file
    dims = {name: torch.export.Dim(name, min=low, max=high)
            for name, (low, high) in graph.sizes.items()}  # fmt: skip
    shapes = {
        name: {place: dims[size] for place, size in own.items()} for name, own in graph.axes.items()
    }
    told = logging.getLogger("torch.onnx")
    level = told.level
    try:
        told.setLevel(logging.ERROR)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found = torch.onnx.export(
                graph.module,
                _grouped(graph, graph.inputs),
                dynamo=True,
                dynamic_shapes=_grouped(graph, shapes),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise UserError(f"{where}: the model cannot be exported to ONNX: {reason}") from error
    finally:
        told.setLevel(level)
    assert found is not None
    found.save(str(path))
    _compare(graph, path, where)


def _grouped(graph: Graph, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values as arguments of the module: memories and past are lists."""
    if not isinstance(graph.module, StepGraph):
        return tuple(values.values())
    groups = [
        [value for name, value in values.items() if name.startswith(begin)]
        for begin in ("memory_", "past_")
    ]
    return values["tokens"], values["lengths"], *groups


def _compare(graph: Graph, path: Path, where: str) -> None:
    """Raise UserError unless onnxruntime computes what the module computes."""
    import onnxruntime

    with torch.no_grad():
        wanted = graph.module(*_grouped(graph, graph.inputs))
    flat: list[Tensor] = []
    for one in wanted if isinstance(wanted, tuple | list) else [wanted]:
        flat += one if isinstance(one, list) else [one]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    known = {one.name for one in session.get_inputs()}
    given = {name: one.numpy() for name, one in graph.inputs.items() if name in known}
    for name, found, one in zip(graph.outputs, session.run(None, given), flat, strict=True):
        size = max(1.0, float(one.abs().max()))
        if not np.allclose(found, one.numpy(), rtol=0, atol=_TOLERANCE * size):
            raise UserError(
                f"{where}: {path.name} computes another {name} than the model, up to "
                f"{float(np.abs(found - one.numpy()).max()):.2g} away; please report this"
            )
