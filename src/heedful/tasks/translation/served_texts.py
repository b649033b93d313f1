"""Translates the texts and documents of a request, each from its own language."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from pydantic import BaseModel

from heedful.basics.errors import UserError
from heedful.data.documents import Document
from heedful.data.documents.branches import with_branches
from heedful.data.protected.known import KnownSpans
from heedful.data.protected.spans import find_spans
from heedful.inference.document_texts import DocumentTexts
from heedful.inference.span_placement import PLACED, remove_spans, with_spans
from heedful.inference.translation import Translation
from heedful.tasks.endpoints import Model, Search, SearchAll, Server, search_options
from heedful.tasks.pairs.matches import Matches
from heedful.tasks.translation.detection import Detector

AUTO = "auto"
"""The source language of requests whose language is detected."""


class Detected(BaseModel):
    """A language, and its probability in percent."""

    confidence: float
    language: str

    @classmethod
    def of(cls, language: str, probability: float) -> "Detected":
        """From a probability of at most 1."""
        return cls(confidence=round(100 * probability, 1), language=language)


class _Lookup:
    """The part of a request that one model translates.

    Args:
        model: the model.
        texts: its texts.
        alternatives: the number of alternatives for each text.
        server: the server.
        known: the markup of texts of documents; None for plain texts.
        contexts: the contexts of texts of documents.
    """

    def __init__(
        self,
        model: Model,
        texts: Sequence[str],
        alternatives: int,
        server: Server,
        known: KnownSpans | None,
        contexts: Sequence[str | None] | None,
    ) -> None:
        translator = model.predictor
        self.options = search_options(translator.options, server.limits, alternatives + 1)
        keeps = {} if known is None else {"keeps": known.keeps}
        memory = None if alternatives else translator.memory
        exponent = self.options.length_penalty
        self.matches = Matches(memory, texts, exponent, contexts=contexts, **keeps)
        places = known is not None and translator.protection.rules is None and translator.aligns
        self._known = None if places else known
        self._bare = [
            remove_spans(text, find_spans(text, PLACED, known.of(text)))
            for text in self.matches.rest
            if places and known is not None
        ]
        self._places = places

    @property
    def search(self) -> Search:
        """The search for texts without a match."""
        if self._places:
            return Search([one.text for one in self._bare], self.options, alignments=True)
        return Search(self.matches.rest, self.options, known=self._known)

    def joined(self, found: Sequence[Translation]) -> list[Translation]:
        """The results for all texts."""
        if self._places:
            given = zip(self.matches.rest, self._bare, found, strict=True)
            found = [with_spans(*each) for each in given]
        return self.matches.joined(found)


class ServedTexts:
    """Translates texts and documents with the models of a server.

    Args:
        server: the server.
        model: the model for its pair of languages, instead of the first one for them.
    """

    def __init__(self, server: Server, model: Model | None = None) -> None:
        self._server, self._models = server, server.models
        self._own = model
        self._detector = Detector(server.models.codes)

    async def detect(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """For each text, the served languages with probabilities, most probable first.

        Raises:
            UserError: the detector supports none of the served languages.
        """
        found = await asyncio.to_thread(lambda: [self._detector.rank(text) for text in texts])
        if not all(found):
            served = ", ".join(self._models.codes) or "none"
            raise UserError(f"none of the served languages can be detected ({served})")
        return found

    async def sources(self, texts: Sequence[str], target: str) -> list[Detected]:
        """The most probable language of each text that can be translated or is the target language.

        Raises:
            UserError: there is none, or the detector supports none of the served languages.
        """
        return [Detected.of(*self._likeliest(one, target)) for one in await self.detect(texts)]

    def _model(self, source: str, target: str) -> Model:
        """The model for a pair of languages."""
        own = self._own
        if own is not None and (own.source, own.target) == (source, target):
            return own
        model: Model = self._models.of_pair(source, target)
        return model

    def _likeliest(self, ranked: Sequence[tuple[str, float]], target: str) -> tuple[str, float]:
        sources = self._models.sources(target)
        possible = [one for one in ranked if one[0] in sources or one[0] == target]
        if not possible:
            raise UserError(f"no detectable language can be translated to {target}")
        # At equal probability, prefer a language that can be translated.
        return max(possible, key=lambda one: (one[1], one[0] in sources))

    async def translate(
        self,
        texts: Sequence[str],
        sources: Sequence[str],
        target: str,
        search: SearchAll,
        alternatives: int = 0,
        known: KnownSpans | None = None,
        contexts: Sequence[str | None] | None = None,
    ) -> list[Translation]:
        """Translate each text from its own language; texts in the target language are unchanged.

        Args:
            texts: the texts.
            sources: the served language of each text.
            target: a served language.
            search: runs the searches.
            alternatives: the number of alternatives for each text.
            known: the markup of texts of documents; None for plain texts.
            contexts: the context of each text, for memory matches; None for none.
        """
        places: dict[str, list[int]] = {}
        for i, source in enumerate(sources):
            places.setdefault(source, []).append(i)
        found: dict[int, Translation] = {}
        if target in places and (target, target) not in self._models.pairs:
            found |= {i: Translation(texts[i], texts[i]) for i in places.pop(target)}
        models = [self._model(source, target) for source in places]
        lookups = await asyncio.to_thread(
            lambda: [
                _Lookup(
                    model,
                    [texts[i] for i in own],
                    alternatives,
                    self._server,
                    known,
                    None if contexts is None else [contexts[i] for i in own],
                )
                for model, own in zip(models, places.values(), strict=True)
            ]
        )
        answers = await search(
            [(model, lookup.search) for model, lookup in zip(models, lookups, strict=True)]
        )
        for own, lookup, made in zip(places.values(), lookups, answers, strict=True):
            joined = await asyncio.to_thread(lookup.joined, made)
            found |= dict(zip(own, joined, strict=True))
        return [found[i] for i in range(len(texts))]

    async def translate_documents(
        self,
        documents: Sequence[Document],
        sources: Sequence[str],
        target: str,
        search: SearchAll,
        alternatives: int = 0,
    ) -> list[list[bytes]]:
        """For each document, its translation and alternatives, with the markup of the source.

        If the markup of a translation differs, the words between the markup are translated
        separately.

        Args:
            documents: the opened documents.
            sources: the served language of each document.
            target: a served language.
            search: runs the searches.
            alternatives: the maximum number of alternatives for each document.
        """
        use_memory = not alternatives
        documents = [
            self._with_branches(*each, target, use_memory)
            for each in zip(documents, sources, strict=True)
        ]
        texts = DocumentTexts(documents)
        own = [sources[number] for number, _ in texts.places]
        whole = [i for i in range(len(own)) if texts.is_whole(i)]
        made = await self.translate(
            [texts.segments[i] for i in whole],
            [own[i] for i in whole],
            target,
            search,
            alternatives,
            texts.known,
            [texts.contexts[i] for i in whole],
        )
        found = [Translation(text, "") for text in texts.segments]
        for i, one in zip(whole, made, strict=True):
            found[i] = one
        best = await self._repaired(texts, [one.text for one in found], own, target, search)
        kinds = [None if one.match is None else one.match.kind for one in found]
        ranked: list[list[bytes]] = [[] for _ in documents]
        for rank in range(1 + max((len(one.alternatives) for one in found), default=0)):
            chosen = [_ranked(one, rank) for one in found]
            filled = await asyncio.to_thread(texts.filled, chosen, best, kinds)
            for results, result in zip(ranked, filled, strict=True):
                if result not in results:
                    results.append(result)
        return [results[: 1 + alternatives] for results in ranked]

    def _with_branches(
        self, document: Document, source: str, target: str, use_memory: bool
    ) -> Document:
        """A document with the branches of ICU messages as segments, if the model keeps them."""
        if (source, target) not in self._models.pairs:
            return document
        translator = self._model(source, target).predictor
        memory = translator.memory if use_memory else None
        return with_branches(document, translator.protection.rules, memory)

    async def _repaired(
        self,
        texts: DocumentTexts,
        found: list[str],
        sources: Sequence[str],
        target: str,
        search: SearchAll,
    ) -> list[str]:
        """Translations of all segments; those with other markup are made in pieces."""
        refused = await asyncio.to_thread(texts.refused, found)
        own = [sources[number] for number in refused.segments]
        made = await self.translate(refused.words, own, target, search)
        for number, text in refused.joined([one.text for one in made]).items():
            found[number] = text
        return found


def _ranked(one: Translation, rank: int) -> str:
    """The hypothesis of a rank, or the last one."""
    return next(islice([one, *one.alternatives], min(rank, len(one.alternatives)), None)).text
