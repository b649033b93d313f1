"""Opens the translator of ``heedful translate``, with its search options and its memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.data.memory import Memory
from heedful.decoding import SearchOptions
from heedful.inference.translator import Translator
from heedful.tasks.options import opening_of
from heedful.tasks.pairs.run import load_memory
from heedful.tasks.translation.command_options import Translate


def open_translator(
    options: Translate, loads: Callable[..., Translator], given: dict[str, Any]
) -> tuple[Translator, SearchOptions, Memory | None]:
    """The translator, its search options, and the memory for exact matches if it is used.

    Args:
        options: the options of the command.
        loads: loads runs with any inference engine: ``heedful.interop.engines.load_with_engine``.
        given: the search options that were given; the others are the translator's.

    Raises:
        UserError: a run cannot be loaded, or the options do not fit it.
    """
    translator = loads(
        [options.run, *(options.ensemble or [])],
        engine=options.engine,
        quantization=options.quantization,
        **opening_of(options),
    )
    usual = translator.options.model_dump()
    usual["beam"] = max(usual["beam"], given.get("nbest", 1))
    search = check(SearchOptions, {**usual, **given}, "search options")
    if translator.engine is not None:
        translator.engine.check(search)
    if options.keep_unknown:
        translator = _keeping_unknown(translator, options.run)
    return translator, search, load_memory(options.run) if uses_memory(options) else None


def uses_memory(options: Translate) -> bool:
    """Whether exact matches are taken from the run's translation memory, if it has one."""
    of_model = options.scores or options.nbest or options.sample or options.alignments
    return not (options.no_memory or of_model)


def _keeping_unknown(translator: Translator, run: Path) -> Translator:
    """The translator, which keeps names that are not in the run's memory.

    Raises:
        UserError: the run has no memory, or its model knows no placeholders.
    """
    memory = load_memory(run)
    if memory is None:
        raise UserError(
            f"{run} has no memory, whose words --keep-unknown needs: train it with "
            "data.keep_memory = true"
        )
    return translator.keeping_unknown(memory)
