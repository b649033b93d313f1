"""The models of a server: by name, by language pair, and their facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.inference import Trace
from heedful.serving.errors import RefusedError, printable
from heedful.tasks.endpoints import Endpoint, base_code, plain_code
from heedful.tasks.spec import TaskSpec, spec_named, specs


@dataclass(frozen=True)
class Served:
    """One model of a server."""

    name: str
    predictor: Any
    """Of :meth:`heedful.tasks.spec.TaskSpec.load`."""
    source: str | None = None
    """Language code shown to clients; None if unknown or if the task has no languages."""
    target: str | None = None
    task: str | None = None
    """Name of the task; that of the predictor if None."""

    @cached_property
    def spec(self) -> TaskSpec:
        """The specification of its task."""
        return spec_named(self.task or self.predictor.task)

    @property
    def language(self) -> str:
        """The source language without its region, for splitting sentences; English if unknown."""
        return base_code(self.source or "en")

    @property
    def title(self) -> str:
        """The line that describes the model when the server starts."""
        return self.spec.title(self)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The description of the model in ``/api/models``."""
        spec = self.spec
        return {"name": self.name, **spec.identity(self), **spec.facts(self.predictor)}

    def has(self, endpoint: Endpoint[Any]) -> bool:
        """Whether the model supports an endpoint."""
        return endpoint in self.spec.endpoints()

    def trace(
        self,
        source: str,
        target: str | None = None,
        /,
        *,
        relevance: bool = True,
        **options: bool,
    ) -> Trace:
        """Trace the attention of the model.

        Args:
            source: the text; for a tagger, words separated by spaces.
            target: the second text of a pair, a translation, or the continuation of a prompt.
            relevance: whether to add maps that are derived from the weights, such as rollout.
            options: options of the task; options that are false are ignored.

        Raises:
            UserError: the texts cannot be traced, or the task does not have an option.
        """
        given = {name: True for name, value in options.items() if value}
        self.check_trace(None, frozenset(given))
        return self.spec.trace(self.predictor, source, target, relevance=relevance, **given)

    def check_trace(self, source: str | None, options: frozenset[str]) -> None:
        """Raise UserError for options that the task does not have, or for an invalid text.

        Args:
            source: the text of a client's request; None if the text is not from a client.
            options: names of options.
        """
        for name in options - self.spec.trace_options:
            raise UserError(
                f"{self.name} {self.spec.does} and has no option {name}; leave {name} out"
            )
        if source is not None:
            self.spec.check_traced(source)


class ServedModels:
    """All models of a server.

    Args:
        models: the models. A request without a model's name uses the first for its languages.

    Raises:
        UserError: two have the same name.
    """

    def __init__(self, models: Sequence[Served]) -> None:
        self.generation = 0
        """How often the models were replaced, for caches, which must not keep old models."""
        self._set(models)

    def replace(self, models: Sequence[Served]) -> None:
        """Serve other weights of the same runs; requests that are running keep theirs.

        Raises:
            UserError: a task or a language has changed.
        """
        if [_kind(one) for one in models] != [_kind(one) for one in self.models]:
            raise UserError("the runs have other tasks or languages than before: restart heedful")
        self._set(models)
        self.generation += 1

    def _set(self, models: Sequence[Served]) -> None:
        if len({model.name for model in models}) < len(models):
            raise UserError("two models have the same name")
        pairs: dict[tuple[str, str], Served] = {}
        for model in models:
            model.spec.set_evaluation_mode(model.predictor)
            if model.source is not None and model.target is not None:
                pairs.setdefault((model.source, model.target), model)
        self.models, self.pairs = list(models), pairs
        self.codes = list(dict.fromkeys(code for pair in self.pairs for code in pair))
        """Codes of all languages, in the order of the models."""

    def listed(self, listing: str) -> list[Served]:
        """The models in one of the lists of ``/api/models``."""
        return [one for one in self.models if one.spec.listing == listing]

    def panels(self) -> list[dict[str, Any]]:
        """The input panels of the page, in the order of tasks, with the names of their models."""
        found: dict[str, dict[str, Any]] = {}
        for spec in specs():
            own = [one.name for one in self.models if one.spec is spec]
            if own:
                name, title = spec.panel.name, spec.panel.title
                panel = found.setdefault(name, {"name": name, "title": title, "models": []})
                if name == TaskSpec.panel.name and title != panel["title"]:
                    panel["title"] = TaskSpec.panel.title
                panel["models"] += own
        return list(found.values())

    def targets(self, source: str) -> list[str]:
        """The target languages for a source language."""
        return [target for own, target in self.pairs if own == source]

    def sources(self, target: str) -> list[str]:
        """The source languages for a target language."""
        return [source for source, own in self.pairs if own == target]

    def code(self, given: str) -> str | None:
        """The served language for a client's code; case does not matter, and ``_`` equals ``-``.

        If no model has this code, the code without a region matches (``en`` for ``en-GB``), and
        otherwise the only code of the same language (``en-GB`` for ``en`` or ``en-US``). None if
        no code matches.
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
        """The same as `code`, but an unknown language raises an error.

        Raises:
            RefusedError: 400, no model has this language.
        """
        code = self.code(given)
        if code is None:
            served = ", ".join(self.codes) or "none"
            name = printable(given) if given.strip() else "an empty code"
            raise RefusedError(400, f"{name} is not supported; languages: {served}")
        return code

    def of_pair(self, source: str, target: str) -> Served:
        """The model for a pair of languages.

        Raises:
            RefusedError: 400, no model translates this pair.
        """
        found = self.pairs.get((source, target))
        if found is None:
            pairs = ", ".join(f"{one} to {other}" for one, other in self.pairs)
            raise RefusedError(
                400, f"no model translates {source} to {target}; available pairs: {pairs}"
            )
        return found

    def choose(
        self,
        name: str | None,
        source: str | None = None,
        target: str | None = None,
        *,
        endpoint: Endpoint[Any] | None = None,
        does: str = "",
    ) -> Served:
        """Find a model by its name or its languages; the only model needs neither.

        Args:
            name: name of the model; None to choose by languages.
            source: source language; any if None.
            target: target language; any if None.
            endpoint: an endpoint that the model must support; any model if None.
            does: what such models do, for error messages.

        Raises:
            RefusedError: 400 or 404, no model matches, or several do.
        """
        what = f" {does}" if does else ""
        candidates = [one for one in self.models if endpoint is None or one.has(endpoint)]
        if name is not None:
            found = [one for one in candidates if one.name == name]
            if not found:
                names = ", ".join(one.name for one in candidates) or "none"
                raise RefusedError(404, f"no model {printable(name)}{what}; models: {names}")
            return found[0]
        if not self.models:
            raise RefusedError(404, "this server has no model, only traces")
        if not candidates:
            raise RefusedError(404, f"no model of this server{what}")
        found = [
            one
            for one in candidates
            if (source is None or one.source == self.require_code(source))
            and (target is None or one.target == self.require_code(target))
        ]
        if len(found) == 1 or (found and source is not None and target is not None):
            return found[0]
        if not found and source is not None and target is not None:
            return self.of_pair(self.require_code(source), self.require_code(target))
        raise RefusedError(400, f"choose a model: {', '.join(one.name for one in candidates)}")

    def choose_traced(self, name: str | None) -> Served:
        """The model to trace: by name, or the only one in the list ``models``, or the only one.

        Raises:
            RefusedError: 400 or 404, no model matches, or several do.
        """
        usual = self.listed("models")
        return usual[0] if name is None and len(usual) == 1 else self.choose(name)


def _kind(model: Served) -> tuple[str, str, str | None, str | None]:
    return model.name, model.spec.name, model.source, model.target


def unique_names(paths: Iterable[Path]) -> list[str]:
    """A unique name for each run: the name of its folder, with a number if it is not unique."""
    names: list[str] = []
    for path in paths:
        own = path.resolve().name or "run"
        name, number = own, 2
        while name in names:
            name, number = f"{own}-{number}", number + 1
        names.append(name)
    return names
