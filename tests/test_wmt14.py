"""WMT14: official files as archives, unpacked and in sacreBLEU's cache; recipes and their costs.

The fixtures are ours, in the formats of statmt.org/wmt14.
"""

import gzip
import importlib
import io
import json
import lzma
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from sacrebleu.dataset import DATASETS
from safetensors.torch import save_file

from heedful.data.filters import NO_FILTERS
from heedful.runs.model_size import on_meta
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe, with_overrides
from heedful.tasks.pairs.preparation import prepare_run
from heedful.tasks.pairs.sketch import sketch_pair_model
from heedful.training.on_paper import step_cost
from heedful.training.optimisers import learning_rate

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "wmt14.md"
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "terminology" / "tico19-en-fr"
FILTERS = NO_FILTERS.model_copy(update={"empty": True})
RECIPES = [
    f"wmt14-en-{to}-{model}"
    for to in ("de", "fr")
    for model in ("transformer-base", "transformer-big", "gnmt", "convs2s")
]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("wmt14_costs")


@pytest.fixture
def dry_run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("wmt14_dry_run")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("wmt14_data")


def sgm(kind: str, language: str, texts: Sequence[str], first: int = 1) -> str:
    segments = "\n".join(
        f'<seg id="{number}">{text}</seg>' for number, text in enumerate(texts, first)
    )
    return (
        f'<{kind}set setid="newstest" srclang="any" trglang="{language}">\n'
        f'<doc sysid="ref" docid="abc/12" genre="news" origlang="en">\n<p>\n{segments}\n</p>\n'
        f"</doc>\n</{kind}set>\n"
    )


def archive(path: Path, files: Mapping[str, str]) -> None:
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for name, text in files.items():
            content = text.encode()
            if name.endswith(".gz"):
                content = gzip.compress(content)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def corpora(language: str) -> dict[str, dict[str, str]]:
    """The official archives: Europarl has an empty line and characters that end no line."""
    pair = f"{language}-en"
    found = {
        "training-parallel-europarl-v7.tgz": {
            f"training/europarl-v7.{pair}.en": "One.\nTwo\u2028and \x85 more.\n\nFour.\r\n",
            f"training/europarl-v7.{pair}.{language}": "Eins.\nZwei.\nDrei.\nVier.\n",
            "training/europarl-v7.cs-en.en": "Not asked for.\n",
        },
        "training-parallel-commoncrawl.tgz": {
            f"commoncrawl.{pair}.en": "Q&amp;A\nOne.\n",
            f"commoncrawl.{pair}.{language}": "F&amp;A\nEins.\n",
            f"commoncrawl.{pair}.annotation": "x\ny\n",
        },
        "training-parallel-nc-v9.tgz": {
            f"training/news-commentary-v9.{pair}.en": "News of today.\n" * 9,
            f"training/news-commentary-v9.{pair}.{language}": "Neues von heute.\n" * 9,
        },
        "dev.tgz": {
            "dev/newstest2013-src.en.sgm": sgm("src", "en", ["Q&amp;A  & more", "two"]),
            f"dev/newstest2013-ref.{language}.sgm": sgm("ref", language, ["F & A", "&lt;zwei&gt;"]),
        },
    }
    if language == "fr":
        found["training-parallel-un.tgz"] = {
            "un/undoc.2000.fr-en.en": "Resolution.\n",
            "un/undoc.2000.fr-en.fr": "Résolution.\n",
        }
        found["training-giga-fren.tar"] = {
            "giga-fren.release2.fixed.en.gz": "Giga.\n",
            "giga-fren.release2.fixed.fr.gz": "Géga.\n",
        }
    stem = "newstest2014-" + ("deen" if language == "de" else "fren")
    for name, count in (("test-full", 3), ("test", 2)):
        texts = [f"{name} {number}" for number in range(count)]
        found["test-full.tgz" if count == 3 else "test-filtered.tgz"] = {
            f"{name}/{stem}-src.en.sgm": sgm("src", "en", texts),
            f"{name}/{stem}-ref.{language}.sgm": sgm("ref", language, texts),
        }
    return found


def downloads(folder: Path, language: str, without: Sequence[str] = ()) -> Path:
    folder.mkdir()
    for name, files in corpora(language).items():
        if name not in without:
            archive(folder / name, files)
    return folder


@pytest.mark.parametrize("language", ["de", "fr"])
def test_official_archives(data: Any, tmp_path: Path, language: str) -> None:
    out = tmp_path / "out"
    counts = data.prepare(downloads(tmp_path / "wmt", language), language, out, filters=FILTERS)
    english = (out / "train.en").read_bytes().decode().split("\n")
    assert english[:4] == ["One.", "Two\u2028and \x85 more.", "Four.", "Q&amp;A"]
    other = (out / f"train.{language}").read_bytes().decode().split("\n")
    assert len(english) == len(other) == 15 + 2 * (language == "fr")
    assert other[-2] == ("Neues von heute." if language == "de" else "Géga.")
    europarl = counts["training"][f"europarl-v7.{language}-en"]
    assert europarl == {"pairs": 4, "written": 3, "empty": 1}
    assert (out / "newstest2013.en").read_text() == "Q&A & more\ntwo\n"
    assert (out / f"newstest2013.{language}").read_text() == "F & A\n<zwei>\n"
    full = "test-full 0\ntest-full 1\ntest-full 2\n"
    assert (out / "newstest2014.en").read_text() == full
    assert json.loads((out / "counts.json").read_text()) == counts
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []


def test_unpacked_files_and_sacrebleus_cache(data: Any, tmp_path: Path) -> None:
    """What is unpacked is read as it is; test sets come from the folders of sacreBLEU."""
    folder = tmp_path / "wmt"
    for name, files in corpora("de").items():
        for path, text in files.items() if name.startswith("training") else ():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, newline="")
    cache = tmp_path / "cache"
    for test_set in ("wmt13", "wmt14/full"):
        sides = DATASETS[test_set].langpairs["en-de"]
        for kind, path in zip(("src", "ref"), sides, strict=True):
            (cache / test_set / "raw" / path).parent.mkdir(parents=True, exist_ok=True)
            (cache / test_set / "raw" / path).write_text(sgm(kind, "de", [test_set]))
    counts = data.prepare(folder, "de", tmp_path / "out", filters=FILTERS, cache=cache)
    assert counts["test"] == {"newstest2013": 1, "newstest2014": 1}
    assert (tmp_path / "out" / "newstest2014.de").read_text() == "wmt14/full\n"
    # The folder that was written can be in that of the downloads.
    again = data.prepare(folder, "de", folder / "out", filters=FILTERS, cache=cache)
    assert (
        data.prepare(folder, "de", folder / "out", filters=FILTERS, cache=cache) == again == counts
    )


def test_filters_are_counted(data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = downloads(tmp_path / "wmt", "de", ["training-parallel-commoncrawl.tgz"])
    given = [str(folder), "--to", "de", "--out", str(tmp_path / "out"), "--cache", str(tmp_path)]
    assert data.main([*given, "--no-duplicates"]) == 2
    missing = capsys.readouterr().err
    assert "missing: commoncrawl.de-en.en, commoncrawl.de-en.de" in missing
    assert data.main([*given, "--no-duplicates", "--partial"]) == 0
    shown = capsys.readouterr()
    assert "without commoncrawl.de-en.en, commoncrawl.de-en.de" in shown.err
    assert "news-commentary-v9.de-en: 9 pairs, 1 written; left out: 8 duplicate" in shown.out
    assert data.main([*given, "--max-words", "2", "--partial"]) == 0
    of_words = capsys.readouterr().out
    assert "europarl-v7.de-en: 4 pairs, 2 written; left out: 1 longer than 2 words, 1" in of_words
    assert "news-commentary-v9.de-en: 9 pairs, 0 written" in of_words
    assert "newstest2014: 3 pairs (the complete set has 3,003)" in shown.out
    for name, value in (("max-words", "0"), ("max-ratio", "nan")):
        assert data.main([*given, f"--{name}", value]) == 2
        assert name.replace("-", "_") in capsys.readouterr().err
    (tmp_path / "long").write_text("two words\n")
    corpora = {"long": (tmp_path / "long", tmp_path / "long")}
    filters = FILTERS.model_copy(update={"max_words": 1})
    with pytest.raises(data.UserError, match="no training pair is left"):
        data.write_training(corpora, filters, tmp_path / "none", "de")
    assert not list(tmp_path.glob("none/*"))


def test_the_complete_test_set_is_preferred_to_an_unpacked_filtered_one(
    data: Any, tmp_path: Path
) -> None:
    folder = downloads(tmp_path / "wmt", "de", ["test-filtered.tgz"])
    for name, text in corpora("de")["test-filtered.tgz"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    counts = data.prepare(folder, "de", tmp_path / "out", filters=FILTERS)
    assert counts["test"]["newstest2014"] == 3


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [
        (sgm("src", "en", ["a", "b"]), sgm("ref", "de", ["a"]), "has 1 segments, and"),
        (sgm("src", "en", ["a"]), sgm("ref", "de", ["a"], first=2), "segment 2 of document"),
        (sgm("src", "en", ["a"]), sgm("ref", "de", ["a"])[:-45], "segments begin and 0 are"),
        ("a\n", "b\n", "0 segments begin"),
        ("<seg>a</seg>", "b\n", "has no id"),
    ],
)
def test_damaged_test_sets(
    data: Any, tmp_path: Path, source: str, reference: str, message: str
) -> None:
    paths = tmp_path / "src.sgm", tmp_path / "ref.sgm"
    for path, text in zip(paths, (source, reference), strict=True):
        path.write_text(text)
    with pytest.raises(data.UserError, match=message) as caught:
        data.read_test_set(*paths)
    assert "\n" not in str(caught.value)


def test_damaged_corpora(data: Any, tmp_path: Path) -> None:
    folder = downloads(tmp_path / "wmt", "de")
    (folder / "europarl-v7.de-en.en").write_text("One.\nTwo.\nThree.\n")
    with pytest.raises(data.UserError, match=r"has 3 lines but .* has 4"):
        data.prepare(folder, "de", tmp_path / "out", filters=FILTERS)
    assert not (tmp_path / "out" / "train.en").exists()
    whole = (folder / "training-parallel-nc-v9.tgz").read_bytes()
    (folder / "training-parallel-nc-v9.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(data.UserError, match=r"nc-v9\.tgz: the archive cannot be read"):
        data.prepare(folder, "de", tmp_path / "out", filters=FILTERS)
    damaged = bytearray(whole)
    damaged[-6] ^= 1  # the checksum, after the end of the archive
    (folder / "training-parallel-nc-v9.tgz").write_bytes(damaged)
    with pytest.raises(data.UserError, match=r"nc-v9\.tgz: the archive cannot be read"):
        data.prepare(folder, "de", tmp_path / "out", filters=FILTERS)
    with pytest.raises(data.UserError, match="no such folder"):
        data.prepare(tmp_path / "absent", "de", tmp_path / "out", filters=FILTERS)
    archive_without = downloads(tmp_path / "other", "de", ["dev.tgz"])
    with pytest.raises(data.UserError, match=r"newstest2013-src\.en\.sgm .*sacrebleu -t wmt13"):
        data.prepare(archive_without, "de", tmp_path / "out", filters=FILTERS)


@pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is absent")
def test_a_real_sgm_file(data: Any) -> None:
    """Every line with a segment is one, in both languages."""
    paths = [REAL / f"dev.en-fr.{language}.sgm.xz" for language in ("en", "fr")]
    pairs = data.read_test_set(*paths)
    for side, path in enumerate(paths):
        text = lzma.decompress(path.read_bytes()).decode("utf-8")
        lines = [line for line in text.split("\n") if "<seg " in line]
        texts = [re.sub(r"^.*?>|</seg>\s*$", "", line) for line in lines]
        assert [pair[side] for pair in pairs] == [" ".join(text.split()) for text in texts]


def test_recipes_read_what_is_written(data: Any, tmp_path: Path) -> None:
    for to in ("de", "fr"):
        folder = downloads(tmp_path / to, to)
        data.prepare(folder, to, tmp_path / f"wmt14-{to}", filters=FILTERS)
    for name in RECIPES:
        small = ["tokeniser.vocabulary_size=380", "tokeniser.joint=true"]
        tables = with_overrides(read_recipe(find_recipe(name)), small)
        recipe = check_recipe(tables, name)
        run = prepare_run(tmp_path / name, recipe, tmp_path / f"wmt14-{name[9:11]}")
        about = run.facts["data"]
        assert (about["train_pairs"], about["left_out"]) == (14 + 2 * ("-fr-" in name), {})
        assert (about["validation_pairs"], about["test_pairs"]) == (2, 3)


@pytest.mark.parametrize("name", [name for name in RECIPES if "transformer" in name])
def test_the_learning_rate_is_equation_3(name: str) -> None:
    recipe = check_recipe(read_recipe(find_recipe(name)), name)
    width = recipe.model.hidden_size
    for step in (1, 2000, 4000, 4001, 100_000):
        expected = width**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, recipe.training) == pytest.approx(expected, rel=1e-5)


def test_table_3_of_the_paper() -> None:
    """Vaswani et al. 2017, table 3 and section 5.4: sizes, dropout, smoothing, steps, averages."""
    found = {}
    for name in RECIPES:
        recipe = check_recipe(read_recipe(find_recipe(name)), name)
        if "transformer" in name:
            model, training = recipe.model, recipe.training
            found[name[9:]] = (
                (model.layers, model.hidden_size, model.ffn_size, model.heads, model.dropout),
                (training.label_smoothing, training.max_steps, training.average_checkpoints),
                recipe.tokeniser.vocabulary_size,
            )
            assert (model.attention_dropout, model.ffn_dropout) == (0, 0)
            assert (training.betas, training.batch_tokens) == ((0.9, 0.98), 25_000)
            assert (recipe.evaluation.beam, recipe.evaluation.length_penalty) == (4, 0.6)
            assert training.clip_norm is None
    base, big = (6, 512, 2048, 8), (6, 1024, 4096, 16)
    assert found == {
        "de-transformer-base": ((*base, 0.1), (0.1, 100_000, 5), 37_000),
        "de-transformer-big": ((*big, 0.3), (0.1, 300_000, 20), 37_000),
        "fr-transformer-base": ((*base, 0.1), (0.1, 100_000, 5), 32_000),
        "fr-transformer-big": ((*big, 0.1), (0.1, 300_000, 20), 32_000),
    }


def rows_of_the_page() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("model", ["transformer-base", "transformer-big", "convs2s"])
@pytest.mark.parametrize("to", ["de", "fr"])
def test_the_page_has_the_counted_operations(costs: Any, model: str, to: str) -> None:
    """GNMT's, which takes 20 seconds to count, is checked by the same command."""
    found = costs.counted(model, to)
    rows = [row for row in rows_of_the_page() if row[0] == f"`{found['recipe']}`"]
    row = next(row for row in rows if len(row) == 8)
    bleu, published = costs.PUBLISHED[model, to]
    assert row[1:4] == [f"{bleu}", f"{published:.1e}", f"{found['parameters']:,}"]
    assert row[6:] == [f"{found['counted']:.2e}", f"{found['counted'] / published:.0%}"]


@pytest.mark.parametrize("model", ["transformer-base", "transformer-big"])
@pytest.mark.parametrize("to", ["de", "fr"])
def test_the_page_has_the_projected_times(costs: Any, model: str, to: str) -> None:
    single, eight, cores = costs.project(model, to)
    steps = 100_000 if model.endswith("base") else 300_000
    assert single.shortest == pytest.approx(
        steps * 25_000 * single.correction / costs.ON_A_CARD[model]
    )
    assert eight.longest == pytest.approx(single.shortest / (8 * 0.4))
    assert eight.shortest == pytest.approx(single.shortest / (8 * 0.9))
    rows = [row[1:] for row in rows_of_the_page() if row[0] == f"`wmt14-en-{to}-{model}`"]
    for one in (single, eight, cores):
        expected = [one.where, f"{one.speed:,.0f}", f"{one.correction:.2f}", costs.span(one)]
        assert expected in rows


def test_r_is_the_ratio_of_the_counted_operations(costs: Any) -> None:
    """Against the count on the model itself, which has attention as well."""
    recipe = read_recipe(find_recipe("wmt14-en-de-transformer-base"))
    counts = {}
    for vocabulary in (8000, 37_000):
        given = [f"tokeniser.vocabulary_size={vocabulary}"]
        sketch = sketch_pair_model(check_recipe(with_overrides(recipe, given), "it"))
        model = on_meta(sketch.build)
        cost = step_cost(model, lambda sketch=sketch, model=model: sketch.loss(model, 1, 32))
        counts[vocabulary] = cost.forward + cost.backward
    ratio = costs.project("transformer-base", "de")[0].correction
    assert counts[37_000] / counts[8000] == pytest.approx(ratio, rel=0.01)


def test_generated_pairs_have_the_lengths_that_are_stated(dry_run: Any) -> None:
    pairs = list(dry_run.generated_pairs(4000, seed=1))
    assert pairs == list(dry_run.generated_pairs(4000, seed=1))
    lengths = [len(pair.source.split()) for pair in pairs]
    assert mean(lengths) == pytest.approx(24, rel=0.05)
    assert stdev(lengths) == pytest.approx(16, rel=0.05)
    assert max(map(len, (pair.target.split() for pair in pairs))) <= dry_run.MOST
    others = [len(pair.target.split()) for pair in pairs]
    assert mean(others) == pytest.approx(0.95 * mean(lengths), rel=0.02)


def test_a_difference_is_found(dry_run: Any, tmp_path: Path) -> None:
    weights = {"weight": torch.arange(4.0)}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for file in ("model", "training"):
            save_file(weights, tmp_path / name / f"{file}.safetensors")
    assert dry_run.difference(tmp_path / "one", tmp_path / "other") == 0
    save_file({"weight": weights["weight"] + 0.5}, tmp_path / "other" / "training.safetensors")
    assert dry_run.difference(tmp_path / "one", tmp_path / "other") == 0.5
    save_file({"others": weights["weight"]}, tmp_path / "other" / "training.safetensors")
    assert dry_run.difference(tmp_path / "one", tmp_path / "other") == float("inf")
