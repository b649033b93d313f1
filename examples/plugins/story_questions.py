"""A custom task: answer a question about a story with one word.

    python story_questions.py FOLDER                    # writes stories: train.jsonl, test.jsonl
    heedful train recipe.toml --plugin story_questions.py --data FOLDER --out runs/stories
    echo '{"story": ["Mary went to the garden."], "question": "Where is Mary?"}' |
        heedful predict runs/stories --plugin story_questions.py

The model is a memory network (Sukhbaatar et al. 2015, "End-To-End Memory Networks") with one state
for each word of the question: at each hop, every word attends to the sentences of the story.

Shapes: B stories, M sentences, L words of a sentence, Q words of a question, D width.
"""

import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.basics.errors import UserError
from heedful.basics.settings import Settings
from heedful.basics.symbols import PAD
from heedful.data import columns
from heedful.data.column_batch import ColumnBatch
from heedful.data.listed_vocabularies import ListedSettings, Words
from heedful.inference import Axis, Trace
from heedful.inference.tracing import Decision, Described
from heedful.runs.settings import Recipe
from heedful.tasks.column_predictor import ColumnPredictor, TextOutput
from heedful.tasks.column_spec import ColumnSpec, ExampleFiles
from heedful.tasks.spec import register
from heedful.training.column_task import ColumnTask
from heedful.training.protocol import Loss

Text = Annotated[str, Field(min_length=1)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    story: Annotated[list[Text], Field(min_length=1, max_length=50)]
    question: Text


class Answered(Asked):
    answer: Text


class Stories(ExampleFiles):
    example = Answered


class MemoryModel(Settings):
    kind: Literal["memory-network"] = "memory-network"
    hidden_size: int = Field(32, ge=1, le=4096)
    hops: int = Field(2, ge=1, le=10)


class StoryRecipe(Recipe):
    task: Literal["story-questions"] = "story-questions"
    data: Stories
    model: MemoryModel = MemoryModel()


class MemoryNetwork(nn.Module):
    def __init__(self, settings: MemoryModel, words: int, answers: int) -> None:
        super().__init__()
        width, self.hops = settings.hidden_size, settings.hops
        self.keys, self.values = (nn.Embedding(words, width, PAD) for _ in range(2))
        self.question = nn.Embedding(words, width, PAD)
        self.age = nn.Embedding(50, width)
        self.attention, self.output = Attention(), nn.Linear(width, answers)

    def forward(self, story: Tensor, question: Tensor) -> Tensor:
        """Logits ``[B, answers]`` of ``story [B, M, L]`` and ``question [B, Q]``."""
        told = (story != PAD).any(2)  # [B, M]
        age = told.flip(1).cumsum(1).flip(1) - 1  # of the last sentence 0
        keys = self.keys(story).sum(2) + self.age(age.clamp(min=0))
        values = self.values(story).sum(2)
        state, asked = self.question(question), (question != PAD).unsqueeze(2)  # [B, Q, D]
        for _ in range(self.hops):
            state = state + self.attention(state, keys, values, mask=told.unsqueeze(1))
        logits: Tensor = self.output((state * asked).sum(1))
        return logits

    def attention_axes(self) -> dict[str, tuple[str, str, str]]:
        return {"attention": ("question", "story", "hops")}


class Answering(ColumnTask):
    by = ("story", "question")

    def batch_loss(self, batch: ColumnBatch) -> Loss:
        logits = self.model(batch["story"].padded(PAD), batch["question"].padded(PAD))
        answers = batch["answer"].values
        total = F.cross_entropy(logits.float(), answers, reduction="sum")
        right = (logits.argmax(1) == answers).sum()
        return Loss(total, {"loss": total.detach(), "accuracy": right})


class StoryPredictor(ColumnPredictor[MemoryNetwork, Asked, TextOutput]):
    def scores(self, inputs: Sequence[Asked]) -> Tensor:
        """Log-probabilities ``[B, answers]``."""
        batch = self.batch(inputs)
        logits = self.model(batch["story"].padded(PAD), batch["question"].padded(PAD))
        return logits.float().log_softmax(1)

    def answer(self, inputs: Sequence[Asked]) -> list[TextOutput]:
        best = self.scores(inputs).max(1)
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [TextOutput(self.known["answers"][number], score) for number, score in found]

    def trace(self, given: Asked, relevance: bool = True) -> Trace:
        [found] = self.predict([given])
        asked = words(self.known).cut(given.question)
        axes = {"story": Axis("slots", given.story), "question": Axis("tokens", list(asked))}

        def decide() -> Decision:
            return Decision([found.text], self.scores([given]).max(1).values)

        described = Described(f"{given.question} {found.text}", axes)
        return self.traced(described, decide, relevance=relevance)


def words(known: Mapping[str, Any]) -> Words:
    return Words(known["words"], ListedSettings(lower_case=True))


class StoryQuestions(ColumnSpec):
    name = "story-questions"
    does = "answers questions about stories"

    def recipe_type(self) -> type[StoryRecipe]:
        return StoryRecipe

    def input_type(self) -> type[Asked]:
        return Asked

    def known(self, examples: Iterable[Answered], recipe: Any) -> dict[str, Any]:
        cut, found, answers = words({"words": []}).cut, set(), set()
        for one in examples:
            found.update(word for text in (*one.story, one.question) for word in cut(text))
            answers.add(one.answer)
        return {"words": sorted(found), "answers": sorted(answers)}

    def codecs(self, known: Mapping[str, Any]) -> dict[str, columns.Codec]:
        size, answers = words(known).size, len(known["answers"])
        found = {"story": columns.texts(size), "question": columns.tokens(size)}
        return {**found, "answer": columns.label(answers)}

    def encode(self, example: Asked, known: Mapping[str, Any]) -> dict[str, Any]:
        story = words(known).encode_batch(example.story)
        longest = max(map(len, story))
        padded = [one + [PAD] * (longest - len(one)) for one in story]
        row = {"story": padded, "question": words(known).encode(example.question)}
        if not isinstance(example, Answered):
            return row
        if example.answer not in known["answers"]:
            raise UserError(f"the answer '{example.answer}' is in no training example")
        return {**row, "answer": known["answers"].index(example.answer)}

    def fresh_model(self, run: Any) -> MemoryNetwork:
        known = run.facts["known"]
        return MemoryNetwork(run.recipe.model, words(known).size, len(known["answers"]))

    def task_type(self) -> type[ColumnTask]:
        return Answering

    def predictor_type(self) -> type[StoryPredictor]:
        return StoryPredictor

    def reference(self, example: Answered) -> str:
        return example.answer


register(StoryQuestions())


def tell(rng: random.Random) -> dict[str, Any]:
    """A story of people who move between places, and a question about the place of one of them."""
    people, places = ("Mary", "John", "Sandra", "Daniel"), ("garden", "kitchen", "office", "hall")
    went = [(rng.choice(people), rng.choice(places)) for _ in range(rng.randint(2, 6))]
    who, story = rng.choice(went)[0], [f"{who} went to the {where}." for who, where in went]
    return {"story": story, "question": f"Where is {who}?", "answer": dict(went)[who]}


if __name__ == "__main__":
    rng = random.Random(1)
    for name, count in (("train", 2000), ("test", 200)):
        lines = [json.dumps(tell(rng)) + "\n" for _ in range(count)]
        Path(sys.argv[1], f"{name}.jsonl").write_text("".join(lines), "utf-8")
