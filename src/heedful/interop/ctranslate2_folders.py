"""Exports runs for CTranslate2: ``heedful export ctranslate2``, and a cache for the engine."""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, cannot_write
from heedful.interop.ctranslate2_facts import (
    FILE,
    TOKENISER,
    Facts,
    KeptRule,
    check_quantization,
    require_ctranslate2,
)
from heedful.interop.export_layout import layout_of
from heedful.interop.layouts.ctranslate2 import Watched, specification, symbol_names
from heedful.interop.layouts.encoder_decoder import refuse_parts
from heedful.models.transformer import TransformerSettings
from heedful.runs.checkpoints import MODEL, Checkpoint, require_shapes
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.tasks.pairs.alignment_rules import describe_rule, rule_of
from heedful.tasks.pairs.building import outline_run_model, search_options
from heedful.tasks.pairs.run import PairRun

_LAYOUT = 1
"""The version of the layout; it changes whenever the same run is exported differently."""
_DAYS_KEPT = 30
"""Days after which unused folders of the cache are deleted when another one is made."""


class _Exportable(NamedTuple):
    """A run that CTranslate2 supports, and the checkpoint to export."""

    run: PairRun
    settings: TransformerSettings
    checkpoint: Checkpoint

    def facts(self, quantization: str) -> Facts:
        """The facts to write beside the model.

        Raises:
            UserError: the run's alignment rule is damaged.
        """
        model = outline_run_model(self.run)
        require_shapes(model, self.checkpoint.shapes(), self.checkpoint.path)
        known = rule_of(self.run, model)
        assert known is not None  # a Transformer attends to its source
        data = self.run.recipe.data
        search = search_options(self.run.recipe.evaluation)
        return Facts(
            source=data.source,
            target=data.target,
            max_length=self.settings.max_length,
            beam=search.beam,
            length_penalty=search.length_penalty,
            alignment=KeptRule(**describe_rule(known.rule)),
            quantization=quantization,
            parameters=sum(one.numel() for one in model.parameters()),
            weights=self.checkpoint.state["hashes"][MODEL],
            vocabulary=self.run.tokenisers().fingerprint(),
        )

    def watched(self, facts: Facts) -> Watched:
        """The attention that CTranslate2 returns.

        Raises:
            UserError: the alignment rule names a head that does not exist.
        """
        rule = facts.alignment
        found = re.fullmatch(r"decoder\.(\d+)\.cross_attention", rule.module)
        assert found is not None  # the rule names cross-attention of a Transformer
        heads = self.settings.decoder_heads or self.settings.heads
        if rule.heads is not None and max(rule.heads) >= heads:
            raise UserError(
                f"{self.run.path}: the alignment rule names a head with the index "
                f"{max(rule.heads)}, {rule.module} has {heads}; choose the rule again "
                "(heedful align --choose-rule)"
            )
        return Watched(int(found[1]), rule.heads)

    def write(self, folder: Path, facts: Facts) -> None:
        """Write the export into ``folder``, which exists and is empty."""
        tokenisers = self.run.tokenisers()
        source, target = (
            side.pieces(range(side.size)) for side in (tokenisers.source, tokenisers.target)
        )
        spec = specification(self.checkpoint.weights(), self.settings, self.watched(facts))
        save_model(folder, spec, source, target, facts.quantization)
        shutil.copytree(self.run.path / TOKENISER, folder / TOKENISER)
        facts.write(folder)


def save_model(
    folder: Path, spec: Any, source: Sequence[str], target: Sequence[str], quantization: str
) -> None:
    """Write a specification in CTranslate2's format.

    Args:
        folder: an existing folder.
        spec: a ``ctranslate2.specs.TransformerSpec``.
        source: the pieces of the source, by id.
        target: the pieces of the target, by id.
        quantization: data type of the weights.
    """
    spec.register_source_vocabulary(symbol_names(source))
    spec.register_target_vocabulary(symbol_names(target))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def export_ctranslate2(
    run: str | Path,
    out: str | Path,
    *,
    quantization: str | None = None,
    checkpoint: str | int | None = None,
) -> Path:
    """Export a run's Transformer, and what translation of text needs, for CTranslate2.

    Args:
        run: the run's folder.
        out: the folder to write, which must not exist.
        quantization: CTranslate2's data type of the weights; float32 if None.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's chosen one if None.

    Raises:
        UserError: CTranslate2 does not support the run's model, or the package is not installed.
    """
    kept = check_quantization(quantization) or "float32"
    found = _exportable(open_run(run), checkpoint)
    require_ctranslate2()
    out = Path(out)
    if out.exists():
        raise UserError(f"{out} exists; choose another place")
    facts = found.facts(kept)
    with atomic_folder(out) as made:
        found.write(made, facts)
    return out


def cached_export(run: Path, quantization: str, checkpoint: str | int | None) -> Path:
    """The export of a run in the user's cache folder; created if it does not exist.

    Args:
        run: the run's folder.
        quantization: data type of the weights.
        checkpoint: as for `export_ctranslate2`.

    Raises:
        UserError: see `export_ctranslate2`; or the cache cannot be written.
    """
    found = _exportable(open_run(run), checkpoint)
    require_ctranslate2()
    facts = found.facts(quantization)
    made_of = f"{_LAYOUT} {facts.model_dump_json()} {found.settings.model_dump_json()}"
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = root / "heedful" / "ctranslate2" / hashlib.sha256(made_of.encode()).hexdigest()[:32]
    try:
        if not (folder / FILE).exists():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(found, facts, folder)
        os.utime(folder / FILE)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


def _make(found: _Exportable, facts: Facts, folder: Path) -> None:
    _forget_unused(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as beside:
        made = Path(beside) / "made"
        made.mkdir()
        found.write(made, facts)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / FILE).exists():  # otherwise another process has written it
                raise


def _forget_unused(root: Path) -> None:
    oldest = time.time() - _DAYS_KEPT * 24 * 3600
    for path in root.glob(f"*/{FILE}"):
        if path.stat().st_mtime < oldest:
            shutil.rmtree(path.parent, ignore_errors=True)


def _exportable(run: Run, checkpoint: str | int | None) -> _Exportable:
    layout_of(run, "ctranslate2", "CTranslate2")
    own = cast(PairRun, run)
    settings = cast(TransformerSettings, own.recipe.model)
    refuse_parts(settings, others=True)
    if own.tokenisers().target.first is not None:
        raise UserError(
            f"{run.path}: its translations begin with the token of their language, which the "
            "search of CTranslate2 here does not force; use --engine torch"
        )
    return _Exportable(own, settings, run.chosen(checkpoint))
