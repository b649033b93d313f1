"""A conversation in a terminal."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file
from heedful.data.readers.dialogues import Dialogue, Turn
from heedful.decoding import SearchOptions
from heedful.tasks.dialogue.responder import Answer, Responder
from heedful.tasks.dialogue.turns import turn_of_words

_HELP = """\
/attention   what each word of the last answer attended to
/undo        take back the last answer and what you said before it
/reset       forget the whole conversation
/save FILE   write the conversation as a JSON line, as training reads it
/help        this list
//…          a turn that begins with a slash
Ctrl-C stops an answer, Ctrl-D ends."""
_WORDS = 3
"""Number of words that are shown for each word of an answer."""


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class Conversation:
    """Turns of a person and a model.

    Args:
        responder: answers.
        search: the search settings.
        ask: prints a prompt and reads a line; raises ``EOFError`` at the end.
        write: prints a text without a line end.
    """

    def __init__(
        self,
        responder: Responder,
        search: SearchOptions,
        *,
        ask: Callable[[str], str] = input,
        write: Callable[[str], None] = _write,
    ) -> None:
        self.responder, self.search = responder, search
        self.ask, self.write = ask, write
        self.turns: list[Turn] = []
        self.last: Answer | None = None
        self.dropped = 0
        self.commands: dict[str, Callable[[str], None]] = {
            "/attention": self._attention,
            "/undo": self._undo,
            "/reset": self._reset,
            "/save": self._save,
            "/help": lambda rest: self._say(_HELP),
        }

    def run(self) -> None:
        """Read and answer until the input ends."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() edits lines with it
        self._say("Ctrl-D ends, /help lists commands.")
        while True:
            try:
                line = self.ask(f"{self.responder.partner}: ").strip()
            except EOFError:
                self.write("\n")
                return
            except KeyboardInterrupt:
                self._say("\n(Ctrl-D ends)")
                continue
            except UnicodeDecodeError:
                self._say("error: this line is not in the terminal's encoding; type it again")
                continue
            if line:
                self.take(line)

    def take(self, line: str) -> None:
        """Answer a turn, or run a command."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                name, _, rest = line.partition(" ")
                if name not in self.commands:
                    raise UserError(f"unknown command {name}; /help lists them")
                self.commands[name](rest.strip())
            else:
                self._answer(line[1:] if line.startswith("//") else line)
        except UserError as error:
            self._say(f"error: {error}")

    def _answer(self, line: str) -> None:
        turns = [*self.turns, Turn(speaker=self.responder.partner, text=line)]
        written: list[str] = []

        def show(piece: str) -> None:
            self.write(piece if written else f"{self.responder.speaker}: {piece}")
            written.append(piece)

        try:
            answer = self.responder.answer(
                Dialogue.model_construct(turns=turns),
                self.search,
                alignments=self.responder.aligns,
                stream=show,
            )
        except KeyboardInterrupt:
            self.last = None
            if written:
                self.turns = [*turns, self._own("".join(written))]
                self._say(" (stopped)")
            else:
                self._say("(stopped; what you said is taken back)")
            return
        self._say("" if written else f"{self.responder.speaker}:")
        self.turns, self.last = [*turns, self._own(answer.text)], answer
        if answer.at_limit:
            self._say("(cut off at the maximum length)")
        if answer.dropped != self.dropped:
            limit = self.responder.protection.limit
            number = f"{answer.dropped} " if answer.dropped > 1 else ""
            left = f"the {number}oldest turn{'s are' if number else ' is'} left out"
            self._say(
                f"(the model reads {limit:,} tokens: {left if answer.dropped else 'all fit'})"
            )
            self.dropped = answer.dropped

    def _own(self, text: str) -> Turn:
        return Turn.model_construct(speaker=self.responder.speaker, text=text)

    def _attention(self, rest: str) -> None:
        if self.last is None:
            raise UserError("there is no answer to look at yet")
        self.responder.require_alignments()
        answer = self.last
        read = answer.read.split()
        places = [
            turn if turn < 0 else turn + answer.dropped for turn in turn_of_words(answer.read)
        ]
        assert answer.weights is not None
        for word, row in zip(answer.text.split(), answer.weights.tolist(), strict=False):
            best = sorted(range(len(row)), key=lambda one: -row[one])[:_WORDS]
            shown = ", ".join(f"{_named(read[one], places[one])} {row[one]:.2f}" for one in best)
            self._say(f"  {word}  ←  {shown}")

    def _undo(self, rest: str) -> None:
        if not self.turns:
            raise UserError("there is nothing to take back")
        self.turns, self.last = self.turns[:-2], None
        self._say("(taken back)")

    def _reset(self, rest: str) -> None:
        self.turns, self.last, self.dropped = [], None, 0
        self._say("(a new conversation)")

    def _save(self, rest: str) -> None:
        if not rest:
            raise UserError("give a file: /save FILE")
        if not self.turns:
            raise UserError("there is nothing to save")
        path = _new_file(rest)
        turns = [{"speaker": one.speaker, "text": one.text} for one in self.turns]
        with atomic_file(path) as file:
            file.write(json.dumps({"turns": turns}, ensure_ascii=False).encode() + b"\n")
        self._say(f"(written to {path})")
        if empty := sum(not one.text.strip() for one in self.turns):
            what = "1 answer is" if empty == 1 else f"{empty} answers are"
            self._say(f"({what} empty; training refuses empty turns, so write them first)")

    def _say(self, line: str) -> None:
        self.write(f"{line}\n")


def _new_file(given: str) -> Path:
    """The path of a file that does not exist.

    Raises:
        UserError: it exists, or cannot be a path.
    """
    try:
        path = Path(given).expanduser()
        path.lstat()
    except FileNotFoundError:
        return path
    except (RuntimeError, ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot write {given}: {reason}; give another name") from error
    raise UserError(f"{path} exists; give another name")


def _named(word: str, turn: int) -> str:
    return f"{word} (turn {turn + 1})" if turn >= 0 else word
