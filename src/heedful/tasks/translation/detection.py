"""Language detection: py3langid, restricted to the served languages."""

import threading
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol, cast

from heedful.tasks.endpoints import base_code

# Characters of a text that are used; more would take time and rarely change the result.
_CHARACTERS = 2_000


class _Identifier(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


class Detector:
    """Ranks languages for texts. It is thread-safe, and loads its tables at the first call.

    Args:
        codes: the languages; of several codes with the same base language, the first is used.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self.codes = list(codes)
        self._lock = threading.Lock()

    @cached_property
    def _parts(self) -> tuple[_Identifier | None, dict[str, str]]:
        langid: Any = import_module("py3langid.langid")  # it has no types
        whole = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        known = set(whole.labels)
        names: dict[str, str] = {}
        for code in self.codes:
            base = base_code(code)
            # Depending on the tables, the two forms of Norwegian have one label or two.
            label = base if base in known else {"nb": "no", "nn": "no"}.get(base, "")
            if label in known:
                names.setdefault(label, code)
        if not names:
            return None, names
        whole.set_languages(list(names))
        # A new object, so that the tables of all other languages are freed.
        small = langid.LanguageIdentifier(
            whole.nb_ptc,
            whole.nb_pc,
            whole.nb_classes,
            whole.tk_nextmove,
            whole.tk_output,
            norm_probs=True,
            tk_row=whole.tk_row,
        )
        return cast(_Identifier, small), names

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Served languages with probabilities, most probable first; empty if none is supported."""
        with self._lock:
            identifier, names = self._parts
        if identifier is None:
            return []
        return [(names[label], share) for label, share in identifier.rank(text[:_CHARACTERS])]
