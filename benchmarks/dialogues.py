"""Generated dialogues at a counter: are answers right that depend on earlier turns?

    python benchmarks/dialogues.py make FOLDER [--train 8000]
    heedful train dialogues-transformer --data FOLDER --out runs/dialogues-transformer
    heedful evaluate runs/dialogues-transformer

A guest says a name and a number, orders, changes and cancels, and asks what was said; every answer
follows from the turns before it: "Make it three." is answered with the thing that was ordered last,
"Cancel the second one." with the thing in that place, "How many things did I order?" with a count.
Small talk lies between. The ``distance`` of an answer is how many turns before it the fact that it
needs was said for the last time; that of the oldest fact, if it needs several. No dialogue of the
test data occurs in the training data.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

NAMES = (
    "Ada", "Ben", "Carla", "Dan", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jakob", "Kira",
    "Liam", "Mona", "Nils", "Olga", "Pablo", "Quinn", "Rosa", "Sven", "Tara", "Umar", "Vera",
    "Wanda", "Yusuf", "Zoe", "Anton", "Bella", "Cem", "Dora", "Emil", "Frida", "Georg", "Hanna",
    "Ivo", "Jana", "Karl",
)  # fmt: skip
THINGS = (
    "teas", "coffees", "cakes", "sandwiches", "salads", "soups", "juices", "muffins", "pretzels",
    "bagels", "waffles", "pancakes", "burgers", "pizzas", "lemonades", "cookies", "yoghurts",
    "omelettes", "croissants", "smoothies",
)  # fmt: skip
COUNTS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
TOTALS = (
    "One", "Two", "Three", "Four",
)  # fmt: skip
PLACES = ("first", "second", "third", "fourth")
TALK = {
    "It is cold today.": "Yes, take a seat near the heater.",
    "Do you have a free table?": "Yes, the one at the window is free.",
    "Is it always so busy here?": "Only at noon.",
    "Do you take cards?": "Yes, we take cards and cash.",
    "I have been waiting for a while.": "I am sorry about that.",
    "Is there music tonight?": "Yes, it begins at eight.",
}


class Meeting:
    """A dialogue while it is made: what was ordered, and when each fact was said last."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.turns: list[dict[str, Any]] = []
        self.order: list[list[str]] = []
        """Count and thing, in the order in which they were ordered."""
        self.name = self.number = ""
        self.last: list[str] | None = None
        """What was ordered or changed last."""
        self.said: dict[str, int] = {}
        """Fact → the number of the turn that said it last."""

    def say(
        self, question: str, answer: str, *, needed: Sequence[str] = (), says: str = ""
    ) -> None:
        """Add a turn of the guest and its answer.

        Args:
            question: what the guest says.
            answer: the answer.
            needed: the facts of earlier turns that the answer needs.
            says: the fact that the answer says, if any.
        """
        here = len(self.turns) + 1  # the number of the answer
        distance = max((here - self.said[one] for one in needed), default=1)
        self.turns.append({"speaker": "guest", "text": question})
        self.turns.append({"speaker": "host", "text": answer, "distance": distance})
        if says:
            self.said[says] = here

    def give_name(self) -> None:
        if not self.name:
            self.name = self.rng.choice(NAMES)
            self.say(f"My name is {self.name}.", f"Welcome, {self.name}.", says="name")

    def give_number(self) -> None:
        if not self.number:
            self.number = " ".join(self.rng.choices("0123456789", k=4))
            self.say(f"My number is {self.number}.", f"Noted, {self.number}.", says="number")

    def ask_name(self) -> None:
        if self.name:
            answer = f"Yes, you are {self.name}."
            self.say("Do you remember my name?", answer, needed=["name"], says="name")

    def ask_number(self) -> None:
        if self.number:
            answer = f"It was {self.number}."
            self.say("Which number did I give?", answer, needed=["number"], says="number")

    def add(self) -> None:
        if len(self.order) < len(PLACES):
            self.last = [self.rng.choice(COUNTS), self.rng.choice(self.free())]
            self.order.append(self.last)
            form = self.rng.choice(["I would like {}.", "Please bring {}.", "Can I have {}?"])
            amount = _amount(self.last)
            self.say(form.format(amount), f"Sure, {amount}.", says=self.last[1])

    def free(self) -> list[str]:
        """The things that are not ordered."""
        return [one for one in THINGS if one not in [thing for _, thing in self.order]]

    def change_count(self) -> None:
        if self.last:
            self.last[0] = self.rng.choice([one for one in COUNTS if one != self.last[0]])
            thing = self.last[1]
            ask = f"Make it {self.last[0]}."
            self.say(ask, f"Sure, {_amount(self.last)}.", needed=[thing], says=thing)

    def change_thing(self) -> None:
        if self.last:
            before, self.last[1] = self.last[1], self.rng.choice(self.free())
            thing = self.last[1]
            ask = f"No, {thing} instead."
            self.say(ask, f"Sure, {_amount(self.last)}.", needed=[before], says=thing)

    def cancel(self) -> None:
        if len(self.order) > 1:
            place = self.rng.randrange(len(self.order))
            # To know what is in a place, all that was ordered up to it is needed.
            needed = [thing for _, thing in self.order[: place + 1]]
            self.order.pop(place)
            self.say(f"Cancel the {PLACES[place]} one.", f"No {needed[-1]} then.", needed=needed)
            self.last = None

    def ask_count(self) -> None:
        if self.order:
            one = self.rng.choice(self.order)
            thing = one[1]
            self.say(f"How many {thing}?", f"It was {_amount(one)}.", needed=[thing], says=thing)

    def ask_place(self) -> None:
        if self.order:
            place = self.rng.randrange(len(self.order))
            needed = [thing for _, thing in self.order[: place + 1]]
            answer = f"It was {_amount(self.order[place])}."
            ask = f"What was the {PLACES[place]} thing?"
            self.say(ask, answer, needed=needed, says=needed[-1])

    def ask_total(self) -> None:
        if self.order:
            needed = [thing for _, thing in self.order]
            ask = "How many different things did I order?"
            self.say(ask, f"{TOTALS[len(self.order) - 1]}.", needed=needed)

    def talk(self) -> None:
        question = self.rng.choice([*TALK])
        self.say(question, TALK[question])


def _amount(one: list[str]) -> str:
    return " ".join(one)


STEPS: dict[Callable[[Meeting], None], int] = {
    Meeting.give_name: 3, Meeting.give_number: 3, Meeting.ask_name: 2, Meeting.ask_number: 2,
    Meeting.add: 6, Meeting.change_count: 2, Meeting.change_thing: 2, Meeting.cancel: 2,
    Meeting.ask_count: 2, Meeting.ask_place: 2, Meeting.ask_total: 1, Meeting.talk: 3,
}  # fmt: skip
"""What may happen, and how often."""


def dialogue(rng: random.Random, fewest: int = 3, most: int = 9) -> list[dict[str, Any]]:
    """The turns of a dialogue with ``fewest`` to ``most`` answers."""
    made, answers = Meeting(rng), rng.randint(fewest, most)
    while len(made.turns) < 2 * answers:
        [step] = rng.choices([*STEPS], [*STEPS.values()])
        step(made)
    return made.turns


def dialogues(rng: random.Random, known: set[str]) -> Iterator[str]:
    """Dialogues as JSON lines, none of which is in ``known`` or comes twice."""
    while True:
        turns = dialogue(rng)
        text = "\n".join(one["text"] for one in turns)
        if text not in known:
            known.add(text)
            yield json.dumps({"turns": turns}, ensure_ascii=False)


def make(out: Path, train: int, held: int, seed: int) -> None:
    """Write ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl``."""
    out.mkdir(parents=True, exist_ok=True)
    rng, known = random.Random(seed), set[str]()
    made = dialogues(rng, known)
    for part, count in (("test", held), ("validation", held // 2), ("train", train)):
        lines = [next(made) for _ in range(count)]
        (out / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{out / part}.jsonl: {count:,} dialogues")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    made = parts.add_parser("make", help="write the dialogues")
    made.add_argument("out", type=Path)
    made.add_argument("--train", type=int, default=8000)
    made.add_argument("--held", type=int, default=500, help="test dialogues")
    made.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    make(given.out, given.train, given.held, given.seed)


if __name__ == "__main__":
    main()
