"""What the checks of ``heedful check`` find in a translation, for responses of the server."""

from typing import Any

from heedful.data.protected.choosing import ALWAYS
from heedful.data.protected.pairs import Rules
from heedful.data.units import Unit
from heedful.evaluation.checks import CHECKS, check_units
from heedful.evaluation.finding_spans import concerned


def findings(translator: Any, source: str, target: str) -> list[dict[str, Any]]:
    """The findings of all checks, with the parts of both texts that they are about.

    Args:
        translator: its rules for protected spans are used if it has any.
        source: a text.
        target: its translation.
    """
    rules = translator.protection.rules or Rules(
        ALWAYS, translator.source_language, translator.target_language
    )
    found = []
    for _, of_unit in check_units([Unit("", source, target)], rules):
        for one in of_unit:
            parts = concerned(one.check, source, target, rules)
            found.append(
                {
                    "check": one.check,
                    "message": CHECKS[one.check],
                    "detail": one.detail,
                    "serious": one.serious,
                    "source": [list(part) for part in parts.source],
                    "target": [list(part) for part in parts.target],
                }
            )
    return found
