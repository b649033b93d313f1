"""Questions whose answers are parts of texts: generated facts, bAbI stories, and a split of XQuAD.

    python benchmarks/span_data.py FOLDER --xquad xquad.en.json.xz [--babi BABI_FOLDER]
    heedful train xquad-bidirectional-attention --data FOLDER --out runs/xquad

All files have SQuAD's format. XQuAD is split by paragraph: a hash of the text of a paragraph puts
it into one of ten parts, seven for training, one for validation and two for test, so that no
paragraph is in two parts. ``facts.json`` has paragraphs of generated facts about people and places
with names that are made of syllables. ``babi.json`` has the stories of the bAbI tasks (Weston et
al. 2016) as texts; the answer is the word in the last supporting fact, or else where it occurs
last. Questions whose answer does not occur in their story (yes and no, counts) are left out and
counted.
"""

import argparse
import hashlib
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.data.readers.questions import read_questions
from heedful.data.readers.stories import read_stories

PARTS = {"train": range(7), "validation": range(7, 8), "test": range(8, 10)}
SYLLABLES = ["ba", "dor", "el", "fi", "gan", "hu", "is", "ka", "lor", "mi", "nu", "ost", "pe", "ri",
             "sa", "tol", "un", "vi", "wen", "zo"]  # fmt: skip
CRAFTS = ["painter", "chemist", "sailor", "teacher", "judge", "architect", "poet", "farmer",
          "physician", "engineer", "composer", "historian"]  # fmt: skip
THINGS = ["bridge", "library", "theatre", "harbour", "school", "tower", "museum", "railway station",
          "hospital", "market"]  # fmt: skip
PERSON = [
    ("{name} was born in {place} in {year}.",
     {"Where was {name} born?": "place", "When was {name} born?": "year",
      "Who was born in {place}?": "name"}),
    ("In {year}, {name} became a {craft}.",
     {"What did {name} become in {year}?": "craft", "In what year did {name} become a {craft}?":
      "year"}),
    ("{name}, the {craft} from {place}, had {count} children.",
     {"How many children did {name} have?": "count", "What was the profession of {name}?": "craft",
      "Which town did {name} come from?": "place"}),
    ("After {count} years abroad, {name} returned to {place}.",
     {"How long was {name} abroad?": "count", "Where did {name} return to?": "place"}),
]  # fmt: skip
PLACE = [
    ("The {thing} of {place} was opened in {year} by {name}.",
     {"When was the {thing} of {place} opened?": "year",
      "Who opened the {thing} of {place}?": "name", "What did {name} open?": "thing"}),
    ("{place} has {count} inhabitants and a famous {thing}.",
     {"How many inhabitants does {place} have?": "count", "What is {place} famous for?": "thing"}),
]  # fmt: skip
FILLERS = ["Little is known about the years before.", "This was a surprise to many people.",
           "Some documents were lost later.", "Nobody expected it at the time."]  # fmt: skip


def name(rng: random.Random, parts: int) -> str:
    return "".join(rng.choices(SYLLABLES, k=parts)).capitalize()


def facts(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Paragraphs of generated facts, with a question or two about each fact."""
    rng = random.Random(seed)
    for number in range(count):
        people = [f"{name(rng, 2)} {name(rng, 3)}" for _ in range(3)]
        places = [name(rng, 2) for _ in range(3)]
        sentences, asked = [], []
        for template, questions in rng.sample(PERSON, 3) + rng.sample(PLACE, 2):
            given = {
                "name": people.pop() if people and "name" in template else name(rng, 3),
                "place": rng.choice(places),
                "year": str(rng.randint(1500, 2020)),
                "craft": rng.choice(CRAFTS),
                "thing": rng.choice(THINGS),
                "count": str(rng.randint(2, 9000)),
            }
            text = template.format(**given)
            for question, key in rng.sample(sorted(questions.items()), min(2, len(questions))):
                asked.append((question.format(**given), given[key], len(sentences), text))
            sentences.append(text)
            if rng.random() < 0.3:
                sentences.append(rng.choice(FILLERS))
        context = " ".join(sentences)
        starts = [sum(len(one) + 1 for one in sentences[:place]) for place in range(len(sentences))]
        yield {
            "context": context,
            "qas": [
                row(
                    f"facts-{number}-{place}",
                    question,
                    answer,
                    starts[at] + find_words(answer, text),
                )
                for place, (question, answer, at, text) in enumerate(asked)
            ],
        }


def row(name: str, question: str, answer: str, start: int) -> dict[str, Any]:
    answers = [{"text": answer, "answer_start": start}]
    return {"id": name, "question": question, "answers": answers}


def babi(folder: Path, most: int, seed: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Paragraphs of bAbI's training stories, at most ``most`` questions, and what was left out."""
    found, counts = [], Counter[str]()
    for path in sorted(folder.rglob("qa*_train.txt")):
        for number, (_, one) in enumerate(read_stories(str(path))):
            place = place_of(one["story"], one["answer"], one.get("supports", []))
            if place is None:
                counts["questions whose answer does not occur in their story"] += 1
                continue
            asked = row(f"{path.stem}-{number}", one["question"], one["answer"], place)
            found.append({"context": " ".join(one["story"]), "qas": [asked]})
    random.Random(seed).shuffle(found)
    counts["questions beyond --babi-questions"] = max(0, len(found) - most)
    return found[:most], counts


def place_of(story: list[str], answer: str, supports: list[int]) -> int | None:
    """Where the answer is in the joined story: in the last supporting fact, or where it is last."""
    starts = [sum(len(fact) + 1 for fact in story[:place]) for place in range(len(story))]
    for at in [*(one - 1 for one in reversed(supports)), *range(len(story) - 1, -1, -1)]:
        place = find_words(answer, story[at])
        if place >= 0:
            return starts[at] + place
    return None


def find_words(answer: str, text: str) -> int:
    """Where the answer is first in a text as whole words; -1: nowhere."""
    match = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text)
    return match.start() if match else -1


def part_of(context: str) -> str:
    """The part of a paragraph, by a hash of its text."""
    bucket = int(hashlib.sha256(context.encode()).hexdigest(), 16) % 10
    return next(part for part, buckets in PARTS.items() if bucket in buckets)


def split(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The paragraphs of a SQuAD-format file, by part."""
    content = path.read_bytes()
    articles = json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)["data"]
    parts: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
    for paragraph in (one for article in articles for one in article["paragraphs"]):
        parts[part_of(paragraph["context"])].append(paragraph)
    return parts


def write(path: Path, paragraphs: list[dict[str, Any]]) -> None:
    found = {"version": "1.1", "data": [{"title": path.stem, "paragraphs": paragraphs}]}
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    questions = list(read_questions([path]))  # checks that each answer is at its place
    print(f"{path}: {len(questions):,} questions about {len(paragraphs):,} texts")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--xquad", type=Path, required=True, help="XQuAD, in one language")
    parser.add_argument("--babi", type=Path, help="the folder of the bAbI tasks; default: none")
    parser.add_argument("--facts", type=int, default=4000, help="paragraphs of generated facts")
    parser.add_argument("--babi-questions", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for part, paragraphs in split(given.xquad).items():
        write(given.folder / f"{part}.json", paragraphs)
    write(given.folder / "facts.json", list(facts(given.facts, given.seed)))
    stories: list[dict[str, Any]] = []
    if given.babi is not None:
        stories, left_out = babi(given.babi, given.babi_questions, given.seed)
        for what, count in left_out.items():
            print(f"left out of bAbI: {count:,} {what}")
    write(given.folder / "babi.json", stories)


if __name__ == "__main__":
    main()
