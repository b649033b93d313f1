"""The models that a server has: by name, by language pair, and their facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.inference import Translator
from heedful.serving.saying import RefusedError, said
from heedful.tasks.spec import spec_named


@dataclass(frozen=True)
class Served:
    """One model, ready to translate."""

    name: str
    translator: Translator
    source: str | None = None
    """Language code, as it is given to clients; None if it is not known."""
    target: str | None = None

    @property
    def language(self) -> str:
        """The code of the source's language alone, by which sentences end; English if unknown."""
        return base_code(self.source or "en")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What ``/api/models`` tells of it."""
        own = {"name": self.name, "source": self.source, "target": self.target}
        return {**own, **spec_named("translation").facts(self.translator)}


class ServedModels:
    """All models of a server; they stay in evaluation mode, for a search may run at any time.

    Args:
        models: of two for the same pair of languages the first is taken where no name is given.

    Raises:
        UserError: two have the same name.
    """

    def __init__(self, models: Sequence[Served]) -> None:
        self.models = list(models)
        self._by_name = {model.name: model for model in models}
        if len(self._by_name) < len(models):
            raise UserError("two models have the same name")
        self.pairs: dict[tuple[str, str], Served] = {}
        for model in models:
            for part in model.translator.models:
                part.eval()
            if model.source is not None and model.target is not None:
                self.pairs.setdefault((model.source, model.target), model)
        self.codes = list(dict.fromkeys(code for pair in self.pairs for code in pair))
        """Languages served, in the order of the models."""

    def targets(self, source: str) -> list[str]:
        """What a language is translated into."""
        return [target for own, target in self.pairs if own == source]

    def sources(self, target: str) -> list[str]:
        """What is translated into a language."""
        return [source for source, own in self.pairs if own == target]

    def code(self, given: str) -> str | None:
        """The served language that a client means: in any case, ``_`` or ``-``.

        Where there is no such code, the language's own counts (``en`` for ``en-GB``), or else the
        only one of the same language (``en-GB`` for ``en`` or ``en-US``).
        """
        wanted = plain_code(given)
        for code in self.codes:
            if plain_code(code) == wanted:
                return code
        for code in self.codes:
            if plain_code(code) == base_code(wanted):
                return code
        near = [code for code in self.codes if base_code(code) == base_code(wanted)]
        return near[0] if len(near) == 1 else None

    def require_code(self, given: str) -> str:
        """As `code`.

        Raises:
            RefusedError: 400, no such language is served.
        """
        code = self.code(given)
        if code is None:
            served = ", ".join(self.codes) or "none"
            name = said(given) if given.strip() else "an empty code"
            raise RefusedError(400, f"{name} is not supported; languages: {served}")
        return code

    def of_pair(self, source: str, target: str) -> Served:
        """The model for two served languages.

        Raises:
            RefusedError: 400, there is none.
        """
        found = self.pairs.get((source, target))
        if found is None:
            pairs = ", ".join(f"{one} to {other}" for one, other in self.pairs)
            raise RefusedError(400, f"no model translates {source} to {target}; there is {pairs}")
        return found

    def choose(self, name: str | None, source: str | None, target: str | None) -> Served:
        """The model of a name, or for two languages, or the only one.

        Raises:
            RefusedError: 400 or 404, none is meant, or more than one.
        """
        if name is not None:
            if name not in self._by_name:
                names = ", ".join(self._by_name) or "none"
                raise RefusedError(404, f"no model {said(name)}; models: {names}")
            return self._by_name[name]
        found = [
            model
            for model in self.models
            if (source is None or model.source == self.require_code(source))
            and (target is None or model.target == self.require_code(target))
        ]
        if len(found) == 1 or (found and source is not None and target is not None):
            return found[0]
        if not self.models:
            raise RefusedError(404, "this server has no model, only traces")
        if not found and source is not None and target is not None:
            return self.of_pair(self.require_code(source), self.require_code(target))
        names = ", ".join(self._by_name)
        raise RefusedError(400, f"say which model is to translate: {names}")


def plain_code(code: str) -> str:
    """A language code as it is compared."""
    return code.strip().lower().replace("_", "-")


def base_code(code: str) -> str:
    """The language of a code, without region and script."""
    return plain_code(code).partition("-")[0]


def names_of(paths: Iterable[Path]) -> list[str]:
    """A name for each run: its folder's, with a number where two folders have the same."""
    names: list[str] = []
    for path in paths:
        own = path.resolve().name or "run"
        name, number = own, 2
        while name in names:
            name, number = f"{own}-{number}", number + 1
        names.append(name)
    return names
