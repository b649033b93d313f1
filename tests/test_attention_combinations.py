"""All combinations of parts of attention, in float64: `make combinations`, not part of `make test`.

The combinations are shuffled with a fixed seed and divided into groups, so that each share
(`HEEDFUL_COMBINATIONS=2/8`) is a random sample of all.
"""

import os

import pytest
import torch

from attention_checks import check_bert, check_gpt, check_transformer
from attention_tables import every_table, named

GROUP = 50
SHARE = os.environ.get("HEEDFUL_COMBINATIONS", "")


def groups() -> list[int]:
    """The numbers of the groups of this share."""
    if not SHARE:
        return []
    part, parts = map(int, SHARE.split("/"))
    return list(range(0, len(every_table()), GROUP))[part - 1 :: parts]


@pytest.mark.skipif(not SHARE, reason="run by `make combinations`")
@pytest.mark.parametrize("start", groups())
def test_combinations(start: int) -> None:
    failed = []
    for table in every_table()[start : start + GROUP]:
        for check in (check_transformer, check_gpt, check_bert):
            try:
                check(table, torch.float64)
            except Exception as error:  # noqa: BLE001 - all faults of a group are reported
                failed.append(f"{check.__name__} {named(table)}: {error!r}\n{table}")
    assert not failed, "\n".join(failed)
