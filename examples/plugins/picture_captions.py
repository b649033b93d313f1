"""A custom task: generate a caption for a picture, word by word.

    python picture_captions.py FOLDER                   # draws pictures: train.jsonl, test.jsonl
    heedful train recipe.toml --plugin picture_captions.py --data FOLDER --out runs/captions
    heedful evaluate runs/captions --plugin picture_captions.py
    heedful serve runs/captions --plugin picture_captions.py

Each line of data is a JSON object with ``picture``, 12 lines of 12 pixels, each "." or the first
letter of its colour, and ``caption``. The model is a small "Show, Attend and Tell" (Xu et al.
2015): at each word, a recurrent decoder attends to the patches of the picture. heedful provides the
search.

Shapes: B pictures, N rows of search, K = 16 patches of 3 × 3 pixels, D width, T words, V symbols.
"""

import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from heedful.attention import Attention, scores
from heedful.basics.settings import Settings
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data import columns
from heedful.data.column_batch import ColumnBatch
from heedful.data.listed_vocabularies import ListedSettings, Words
from heedful.decoding import SearchOptions, search
from heedful.inference import Axis, Media, Trace
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL, Decision, Described
from heedful.runs.settings import Recipe
from heedful.tasks.column_predictor import ColumnPredictor, TextOutput
from heedful.tasks.column_spec import ColumnSpec, ExampleFiles
from heedful.tasks.spec import register
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss

COLOURS = {"r": (220, 40, 40), "g": (40, 160, 60), "b": (40, 80, 220), ".": (245, 245, 245)}
LONGEST = 12
"""Maximum words of a caption, including the end."""

# Examples and the recipe


class Picture(BaseModel):
    """An input, for which the page shows a form."""

    model_config = ConfigDict(extra="forbid")

    picture: Annotated[
        str,
        Field(pattern=r"^([.rgb]{12}\s){11}[.rgb]{12}$", description="12 lines of . r g b"),
    ]


class Captioned(Picture):
    caption: Annotated[str, Field(min_length=1)]


class Pictures(ExampleFiles):
    example = Captioned


class CaptionModel(Settings):
    kind: Literal["show-attend-tell"] = "show-attend-tell"
    hidden_size: int = Field(32, ge=1, le=4096)


class CaptionRecipe(Recipe):
    task: Literal["picture-captions"] = "picture-captions"
    data: Pictures
    model: CaptionModel = CaptionModel()
    evaluation: SearchOptions = SearchOptions(beam=3)


# Model, loss and predictor


class State(NamedTuple):
    """The state of decoding: ``[N, K, D]`` and ``[N, D]``."""

    patches: Tensor
    hidden: Tensor

    def select(self, rows: Tensor) -> "State":
        return State(self.patches[rows], self.hidden[rows])


class Captioner(nn.Module):
    """A decodable: embedded patches with positions, and a GRU that attends to them at each word."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.patch = nn.Linear(27, width)
        self.place = nn.Parameter(torch.randn(16, width) * 0.1)
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.GRUCell(width, width)
        self.attention = Attention(scores.Additive(width, width, width))
        self.output = nn.Linear(2 * width, vocabulary)

    def start(self, pictures: Tensor) -> State:
        """The state of ``pictures [B, 12, 12, 3]``, bytes."""
        patches = (pictures / 255).unfold(1, 3, 3).unfold(2, 3, 3).reshape(-1, 16, 27)
        embedded = torch.tanh(self.patch(patches) + self.place)
        return State(embedded, embedded.mean(1))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``[N, V]`` after the last ``tokens [N]``, and the next state."""
        hidden = self.cell(self.embedding(tokens), state.hidden)
        context = self.attention(hidden.unsqueeze(1), state.patches).squeeze(1)
        return self.output(torch.cat([hidden, context], 1)), State(state.patches, hidden)

    def teacher_force(self, pictures: Tensor, words: Tensor) -> Tensor:
        """Logits ``[B, T, V]`` of ``words [B, T]``, each given those before it."""
        state, logits = self.start(pictures), []
        for given in F.pad(words, (1, -1), value=BEGIN).unbind(1):
            found, state = self.step(given, state)
            logits.append(found)
        return torch.stack(logits, 1)

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("caption", "picture")}


class Captioning(ColumnTask):
    by = ("words",)

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        words = batch["words"].padded(PAD)
        logits = self.model.teacher_force(batch["picture"].padded(), words)
        total = F.cross_entropy(
            logits.flatten(0, 1).float(), words.flatten(), ignore_index=PAD, reduction="sum"
        )
        return Loss(total, {"loss": total.detach()})


class CaptionPredictor(ColumnPredictor[Captioner, Picture, TextOutput]):
    def answer(self, inputs: Sequence[Picture]) -> list[TextOutput]:
        pictures, options = self.batch(inputs)["picture"].padded(), self.recipe.evaluation
        longest = torch.full((len(inputs),), LONGEST, device=self.device)
        found = search(self.model, pictures, rows=len(inputs), options=options, max_lengths=longest)
        decode = words(self.known).decode
        return [TextOutput(decode(best.tokens), best.log_probability) for best, *_ in found]

    def trace(self, given: Picture, relevance: bool = True) -> Trace:
        [found] = self.predict([given])
        tokens = words(self.known).encode(found.text)
        pieces, pictures = words(self.known).pieces(tokens), self.batch([given])["picture"].padded()
        target = torch.tensor([[*tokens, END]], device=self.device)

        def decide() -> Decision:
            chosen = self.model.teacher_force(pictures, target).log_softmax(2)
            return Decision([*pieces, END_LABEL], chosen[0].gather(1, target.mT).squeeze(1))

        axes = {
            "caption": Axis("tokens", [BEGIN_LABEL, *pieces], steps=True),
            "picture": Axis("image", extent=(4, 4), media=Media.picture(pictures[0])),
        }
        return self.traced(Described(found.text, axes), decide, relevance=relevance)


def words(known: Mapping[str, Any]) -> Words:
    return Words(known["words"], ListedSettings(split="spaces"))


class PictureCaptions(ColumnSpec):
    name = "picture-captions"
    does = "captions pictures"

    def recipe_type(self) -> type[CaptionRecipe]:
        return CaptionRecipe

    def input_type(self) -> type[Picture]:
        return Picture

    def known(self, examples: Iterable[Captioned], recipe: Any) -> dict[str, Any]:
        return {"words": sorted({word for one in examples for word in one.caption.split()})}

    def codecs(self, known: Mapping[str, Any]) -> dict[str, columns.Codec]:
        return {"picture": columns.image(), "words": columns.tokens(words(known).size)}

    def encode(self, example: Picture, known: Mapping[str, Any]) -> dict[str, Any]:
        rows = example.picture.split()
        row = {"picture": np.array([[COLOURS[one] for one in line] for line in rows], np.uint8)}
        if isinstance(example, Captioned):
            row["words"] = np.array([*words(known).encode(example.caption), END])
        return row

    def fresh_model(self, run: Any) -> Captioner:
        return Captioner(run.recipe.model.hidden_size, words(run.facts["known"]).size)

    def task_type(self) -> type[ColumnTask]:
        return Captioning

    def predictor_type(self) -> type[CaptionPredictor]:
        return CaptionPredictor

    def reference(self, example: Captioned) -> str:
        return example.caption


register(PictureCaptions())

# Pictures to learn from

SHAPES = {
    "square": ["xxxx", "xxxx", "xxxx", "xxxx"],
    "ring": ["xxxx", "x..x", "x..x", "xxxx"],
    "cross": ["x..x", ".xx.", ".xx.", "x..x"],
}
NAMES = {"r": "red", "g": "green", "b": "blue"}


def draw(rng: random.Random) -> dict[str, str]:
    """A picture of two shapes, one above the other or left of it, and its caption."""
    rows, told, relation = [["."] * 12 for _ in range(12)], [], rng.choice(["above", "left of"])
    for first in (0, 6):
        corner = (first, 3) if relation == "above" else (3, first)
        top, left = (place + rng.randrange(3) for place in corner)
        colour, shape = rng.choice(list(NAMES)), rng.choice(list(SHAPES))
        for row, marks in enumerate(SHAPES[shape], start=top):
            rows[row][left : left + 4] = marks.replace("x", colour)
        told.append(f"{NAMES[colour]} {shape}")
    return {"picture": "\n".join(map("".join, rows)), "caption": f" {relation} ".join(told)}


if __name__ == "__main__":
    rng = random.Random(1)
    for name, count in (("train", 2000), ("test", 200)):
        lines = [json.dumps(draw(rng)) + "\n" for _ in range(count)]
        Path(sys.argv[1], f"{name}.jsonl").write_text("".join(lines), "utf-8")
