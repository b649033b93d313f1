"""The documents against the code: links, commands, settings, examples, names."""

import doctest
import functools
import importlib
import math
import pkgutil
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeGuard, Union, get_args, get_origin

import pytest
import torch
import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import heedful.cli
import heedful.cli.main
from heedful.attention.settings import AttentionSettings
from heedful.basics.parts import PartSettings
from heedful.basics.settings import Settings
from heedful.decoding import SearchOptions
from heedful.models import (
    CaptionSettings,
    EncoderSettings,
    ImageSettings,
    ImageShape,
    LanguageSettings,
    ModelSettings,
    PairSettings,
    SequenceSettings,
    SpeechSettings,
    StorySettings,
    SynthesisSettings,
    build_caption_model,
    build_encoder,
    build_language_model,
    build_model,
    build_speech_model,
    registered,
)
from heedful.models.attention_settings import LayerAttentionSettings, PairAttentionSettings
from heedful.models.bert import BertSettings
from heedful.models.gpt import GptSettings
from heedful.models.recurrent_language import RecurrentLanguageSettings
from heedful.models.registry import kind_of
from heedful.models.transformer import TransformerSettings
from heedful.models.xlnet import XLNetSettings
from heedful.runs.recipe import check_recipe, read_recipe
from heedful.runs.registry import GROUP
from heedful.runs.search_space import SearchSpace
from heedful.runs.settings import FileSettings, LoopSettings
from heedful.tasks.algorithm.problems import PROBLEMS
from heedful.tasks.answer.examples import StoryFiles
from heedful.tasks.answer.recipe import AnswerTraining
from heedful.tasks.captioning.examples import CaptionFiles
from heedful.tasks.captioning.recipe import CaptionRecipe, CaptionTraining
from heedful.tasks.denoising.recipe import DenoisingData, DenoisingTraining, NoiseSettings
from heedful.tasks.dialogue.recipe import DialogueData, DialogueTraining
from heedful.tasks.image_classification.examples import ImageFiles
from heedful.tasks.image_classification.recipe import ImageTraining
from heedful.tasks.pairs.default_recipe import choose_recipe
from heedful.tasks.pairs.recipe import DataSettings, PairRecipe, TrainingSettings
from heedful.tasks.spec import specs
from heedful.tasks.summary.examples import SummaryFiles
from heedful.tasks.summary.recipe import SummaryRecipe, SummarySearch, SummaryTraining
from heedful.tasks.synthesis.examples import SpeechFiles
from heedful.tasks.synthesis.recipe import SpeakingSettings, SynthesisTraining
from heedful.tasks.texts.recipe import (
    EncoderRecipe,
    HeadSettings,
    LanguageRecipe,
    TaggingHead,
    TextRecipe,
)
from heedful.tasks.transcription.examples import SpokenFiles
from heedful.tasks.transcription.recipe import (
    TranscriptionRecipe,
    TranscriptionSearch,
    TranscriptionTraining,
)
from heedful.tasks.transcription.subwords import SubwordSettings
from heedful.training.optimisers import learning_rate
from heedful.training.resuming import CHANGEABLE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
RECORDS = sorted(DOCS.glob("decisions/*.md"))  # they may name what has moved since


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Links


def anchors(path: Path) -> set[str]:
    """The places in a page that a link may name, as the common Markdown viewers make them."""
    titles = re.findall(r"^#+ (.*)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *RECORDS], ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, place = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{named(page)}: {target}"
        if place:
            assert place in anchors(path), f"{named(page)}: {target}"


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", read(DOCS / "index.md")))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"index.md"}


# Commands


@functools.cache
def root_command() -> Any:
    """The command ``heedful`` with all below it, as Click sees it."""
    app = typer.Typer()
    for module in pkgutil.iter_modules(heedful.cli.__path__):
        register = getattr(importlib.import_module(f"heedful.cli.{module.name}"), "register", None)
        if register is not None:
            register(app)
    return typer.main.get_command(app)


def command_lines(text: str) -> Iterator[str]:
    """What follows ``heedful`` in blocks of code and in code within sentences."""
    text = re.sub(r"\\\n\s*", "", text)
    for line in text.splitlines():
        code = re.findall(r"`([^`]+)`", line) if not line.startswith("    ") else [line]
        if not code and re.match(r"\s*(?:.*\| )?(?:\$ )?heedful ", line):
            code = [line]
        for part in code:
            for found in re.findall(r"(?:^|[|\s])heedful +([a-z-][^|#>]*)", part):
                # Two spaces or more divide a command from what is said of it.
                yield re.split(r"\s{2,}", found.strip())[0]


def check_command(line: str) -> None:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    command = root_command()
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"heedful {line}: no command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    known |= {"--help", "-h", "--plugin"}  # which every command takes
    if command is root_command():
        known.add("--version")
    for word in words:
        option = re.match(r"\[?(--[a-z-]+|-[a-z])\b", word)
        if option:
            assert option[1] in known, f"heedful {line}: no option {option[1]}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_and_option_exists(page: Path) -> None:
    for line in command_lines(read(page)):
        check_command(line)


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    text = "a `heedful data stats x --json` and\n\n    echo a | heedful translate R --beam 5   so\n"
    assert list(command_lines(text)) == ["data stats x --json", "translate R --beam 5"]
    for line in ("data stats x --json", "translate RUN [FILE] [--beam N] …", "data split"):
        check_command(line)
    for wrong in ("trian x", "data stat x", "train --otu x"):
        with pytest.raises(AssertionError, match=r"no (command|option)"):
            check_command(wrong)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it."""
    yield name, command.help or ""
    for part, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {part}".strip())


def test_every_help_has_an_example() -> None:
    root = root_command()
    root.help = heedful.cli.main.HELP
    for name, text in helps(root, ""):
        examples = list(command_lines(text))
        assert any(example.startswith(name) for example in examples), f"heedful {name} -h"
        for example in examples:
            check_command(example)


# Settings


class Setting(NamedTuple):
    """A row of the tables in docs/recipes.md."""

    key: str
    values: str
    default: str


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)


NAMES = ("text", "texts", "rated")
"""Settings whose values are names of columns."""


def values_of(field: FieldInfo, name: str = "") -> str:
    """What a setting may be, in the words of docs/recipes.md."""
    kind = field.annotation
    if get_origin(kind) in (Union, UnionType):
        kinds = [part for part in get_args(kind) if part is not type(None)]
        kind = float if set(kinds) == {int, float} else kinds[0]
    if get_origin(kind) is Literal:
        return " · ".join(f"`{toml(value)}`" for value in get_args(kind))
    if get_origin(kind) is list:
        shortest, longest = limits(field, "min_length"), limits(field, "max_length")
        if longest is None:
            files = f"{shortest or 0} or more {'rules' if name == 'protect' else 'files'}"
            return "list" if get_args(kind) == (Any,) else files
        if get_args(kind) == (int,):
            return f"{shortest} to {longest} integers"
        return f"{shortest or 0} to {longest} {'names' if name in NAMES else 'files'}"
    if get_origin(kind) is dict:
        return "table"
    if get_origin(kind) is tuple:
        if is_table(get_args(kind)[0]):
            return "list of tables"
        return "list" if ... in get_args(kind) else f"{len(get_args(kind))} numbers"
    if is_table(kind):
        return "name or table"
    word = {int: "integer", float: "number", bool: "true or false", str: "text"}[kind]
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {plain(limits(field, name))}"
        for name, sign in signs.items()
        if limits(field, name) is not None
    ]
    multiple = limits(field, "multiple_of")
    return " ".join([word, ", ".join(bounds)] if bounds else [word]) + (
        f", a multiple of {multiple}" if multiple else ""
    )


def limits(field: FieldInfo, name: str) -> Any:
    found = [getattr(part, name) for part in field.metadata if hasattr(part, name)]
    return found[0] if found else None


def plain(number: float) -> str:
    return f"{int(number) if number == int(number) else number:,}"


MODELS: dict[str, list[type[ModelSettings]]] = {
    "pairs": registered(PairSettings),
    "texts": [*registered(EncoderSettings), *registered(LanguageSettings)],
}
FILLED: dict[type[Settings], str] = {
    **dict.fromkeys((TransformerSettings, BertSettings, GptSettings, XLNetSettings), "size"),
    RecurrentLanguageSettings: "hidden_size",
}
"""Settings whose numbers come from another one, where they are not given."""


def settings(kind: type[Settings], before: str) -> Iterator[Setting]:
    """The settings of a table and of the tables in it, but the model's."""
    for name, field in kind.model_fields.items():
        if before + name in ("model", "tasks"):
            continue
        if name == "language_model":  # a language model's own table
            yield Setting(before + name, "table", "required")
            continue
        inner: Any = field.annotation
        if get_origin(inner) in (Union, UnionType):
            inner = next((part for part in get_args(inner) if is_table(part)), inner)
        if is_table(inner) and _is_described_once(inner):
            yield Setting(before + name, "table", "not set")
            continue
        if is_table(inner) and not issubclass(inner, PartSettings):
            yield from settings(inner, f"{before}{name}.")
            continue
        if before + name == "tune":
            yield from settings(SearchSpace, "tune.KEY.")
            continue
        default = field.get_default(call_default_factory=True)
        if default is PydanticUndefined:
            shown = f"from `{FILLED[kind]}`" if kind in FILLED else "required"
        else:
            default = default.as_value() if isinstance(default, PartSettings) else default
            shown = "not set" if default is None else f"`{toml(default)}`"
        yield Setting(before + name, values_of(field, name), shown)


def _is_described_once(kind: type[Settings]) -> bool:
    return issubclass(kind, AttentionSettings) and not issubclass(kind, PartSettings)


def is_table(kind: Any) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)


def model_settings(part: str) -> Iterator[Setting]:
    if part == "pairs":
        for table in (LayerAttentionSettings, PairAttentionSettings):
            for row in settings(table, "model.attention: model.attention."):
                if table is PairAttentionSettings or row.key.endswith((".every", ".numbers")):
                    yield row
    for kind in MODELS[part]:
        yield from settings(kind, f"{kind_of(kind)}: model.")


def text_settings() -> Iterator[Setting]:
    """Those of recipes for single texts: once where all tasks that have a setting agree."""
    recipes = {spec.name: spec.recipe_type() for spec in specs()}
    kinds = {task: kind for task, kind in recipes.items() if issubclass(kind, TextRecipe)}
    found: dict[str, dict[str, Setting]] = {}
    for task, kind in kinds.items():
        for row in settings(kind, ""):
            if row.key not in ("task", "tune") and not row.key.startswith(("tune.", "compare.")):
                found.setdefault(row.key, {})[task] = row
    yield Setting("task", " · ".join(f'`"{task}"`' for task in kinds), "required")
    heads = [head.model_fields["task"].default for head in HeadSettings.variants()]
    yield Setting("tasks.NAME.task", " · ".join(f'`"{head}"`' for head in heads), "required")
    yield from (row for row in settings(TaggingHead, "tasks.NAME.") if row.key.endswith("weight"))
    for by_task in found.values():
        if len(set(by_task.values())) == 1:
            yield next(iter(by_task.values()))
            continue
        for task, row in by_task.items():
            yield row._replace(key=f"{task}: {row.key}")
    yield from model_settings("texts")


def documented(part: str) -> Iterator[Setting]:
    """The rows of docs/recipes.md; a heading says which kind of model, or task, they are about."""
    kind = ""
    pairs, texts = read(DOCS / "recipes.md").split("\n## Settings for single texts\n")
    for line in (pairs if part == "pairs" else texts).splitlines():
        if line.startswith("#"):
            found = re.search(r'(?:kind|task) = "([\w-]+)"', line)
            kind = f"{found[1]}: " if found else ""
            kind = "model.attention: " if line == "### [model.attention]" else kind
        row = re.match(r"\| `([\w.]+)` \| (.*?) \| (.*?) \| \S", line)
        if row:
            yield Setting(kind + row[1], row[2], row[3])


def coded(part: str) -> list[Setting]:
    if part == "texts":
        return sorted(text_settings())
    own = set(OWN_PAGES)
    found = [spec for spec in specs() if spec.family == "pairs" and spec.name not in own]
    recipes = {spec.name: spec.recipe_type() for spec in found}
    names = " · ".join(f'`"{name}"`' for name in recipes)
    default = check_recipe({"data": {"train": "pairs.tsv"}}, "a recipe").task
    rows = [row for row in settings(PairRecipe, "") if row.key != "task"]
    for kind in recipes.values():
        own = [row for row in settings(kind, "") if row.key != "task"]
        assert own == rows
    task = Setting("task", names, f'`"{default}"`')
    return sorted([task, *rows, *model_settings("pairs")])


@pytest.mark.parametrize("part", MODELS)
def test_every_setting_is_documented_as_it_is(part: str) -> None:
    code, docs = coded(part), sorted(documented(part))
    assert [row.key for row in docs] == [row.key for row in code]
    assert docs == code


OWN_PAGES: dict[str, dict[str, Sequence[type[Settings]]]] = {
    "memory": {"data.": PROBLEMS, "model.": registered(SequenceSettings)},
    "answering": {
        "data.": [StoryFiles],
        "model.": registered(StorySettings),
        "training.": [AnswerTraining],
    },
    "images": {
        "data.": [ImageFiles],
        "model.": registered(ImageSettings),
        "training.": [ImageTraining],
    },
    "captions": {
        "data.": [CaptionFiles],
        "model.": registered(CaptionSettings),
        "training.": [CaptionTraining],
    },
    "transcription": {
        "data.": [SpokenFiles],
        "tokeniser.": [SubwordSettings],
        "model.": registered(SpeechSettings),
        "training.": [TranscriptionTraining],
        "decoding.": [TranscriptionSearch],
    },
    "denoising": {
        "data.": [DenoisingData],
        "noise.": [NoiseSettings],
        "training.": [DenoisingTraining],
    },
    "dialogue": {
        "data.": [DialogueData],
        "training.": [DialogueTraining],
    },
    "summaries": {
        "data.": [SummaryFiles],
        "training.": [SummaryTraining],
        "decoding.": [SummarySearch],
    },
    "synthesis": {
        "data.": [SpeechFiles],
        "model.": registered(SynthesisSettings),
        "training.": [SynthesisTraining],
        "decoding.": [SpeakingSettings],
    },
}
"""Pages with the settings of one task → its tables."""
SHARED: tuple[type[Settings], ...] = (
    DataSettings,
    TrainingSettings,
    FileSettings,
    LoopSettings,
    SearchOptions,
)
"""Tables whose settings are described in docs/recipes.md."""


def own_keys(page: str) -> set[str]:
    """The settings of a task that has a page of its own, without those that many tasks have."""
    found = set()
    for part, kinds in OWN_PAGES[page].items():
        for kind in kinds:
            base = next((one for one in SHARED if issubclass(kind, one)), None)
            shared = set() if base is None else {*base.model_fields} - {"choose_by"}
            rows = [row.key for row in settings(kind, part)]
            found |= {key for key in rows if key.removeprefix(part).split(".")[0] not in shared}
    return found


@pytest.mark.parametrize("page", OWN_PAGES)
def test_settings_of_tasks_with_a_page_of_their_own_are_documented(page: str) -> None:
    rows = rows_under(DOCS / f"{page}.md", "## Settings")
    assert {name for row in rows for name in row} == own_keys(page)


@functools.cache
def keys() -> set[str]:
    rows = [row for part in MODELS for row in coded(part)]
    own = set().union(*map(own_keys, OWN_PAGES))
    return {row.key.partition(": ")[2] or row.key for row in rows} | own


def rows_under(page: Path, heading: str) -> list[list[str]]:
    """The names in code of each table row under a heading."""
    section = read(page).split(f"\n{heading}\n", 1)[1]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [re.findall(r"`([\w.]+)`", row) for row in rows if "`" in row]


def test_what_may_change_is_listed() -> None:
    rows = rows_under(DOCS / "training.md", "### What may change")
    assert {name for row in rows for name in row} == CHANGEABLE


def test_names_that_scripts_rely_on_are_settings() -> None:
    section = read(DOCS / "recipes.md").split("## Names that scripts rely on\n")[1].split("\n#")[0]
    listed = [name for name in re.findall(r"`([\w.]+)`", section) if name in keys()]
    assert set(listed) >= {
        *("seed", "training.max_steps", "training.batch_tokens", "training.learning_rate"),
        *("training.checkpoint_every", "data.train", "data.validation", "data.test"),
    }


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_settings_named_anywhere_are_settings(page: Path) -> None:
    text = read(page)
    for name in re.findall(r"--set ((?:\w+\.)+\w+)=", text):
        assert name in keys(), f"{named(page)}: {name}"
    # A model is an object in the documents as well, so its names are not looked at here.
    for name in re.findall(r"`((?:data|tokeniser|training|evaluation)(?:\.[a-z_]+)+)`", text):
        if name.endswith(".safetensors"):
            continue
        assert name in keys() | {"data.filters"}, f"{named(page)}: {name}"


def test_learning_rates_are_those_of_the_docs() -> None:
    r, w, n = 0.5, 40, 100
    formulas = {
        "inverse_square_root": ("r · √(w / t)", lambda t: r * math.sqrt(w / t)),
        "linear": ("r · (1 − (t − w) / (n − w))", lambda t: r * (1 - (t - w) / (n - w))),
        "cosine": (
            "r · (1 + cos(π (t − w) / (n − w))) / 2",
            lambda t: r * (1 + math.cos(math.pi * (t - w) / (n - w))) / 2,
        ),
        "constant": ("r", lambda t: r),
        "slanted_triangular": (
            "r · (1 − 31/32 · (t − w) / (n − w))",
            lambda t: r * (1 - 31 / 32 * (t - w) / (n - w)),
        ),
    }
    text = read(DOCS / "training.md")
    for schedule, (written, formula) in formulas.items():
        assert re.search(rf"    {schedule} +{re.escape(written)}\n", text), schedule
        chosen = TrainingSettings(
            learning_rate=r, warmup_steps=w, max_steps=n, schedule=schedule, average_checkpoints=0
        )
        for t in (1, 20, 40, 41, 70, 100):
            expected = r * t / w if t < w else formula(t)
            assert learning_rate(t, chosen) == pytest.approx(expected, abs=1e-12)
    base = TrainingSettings(learning_rate=(512 * 4000) ** -0.5, warmup_steps=4000)
    for t in (1, 4000, 100_000):
        paper = 512**-0.5 * min(t**-0.5, t * 4000**-1.5)  # equation 3
        assert learning_rate(t, base) == pytest.approx(paper)
    assert base.learning_rate == pytest.approx(0.0007, rel=0.01)


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace(",", "")) for cell in cells]


def test_recipes_are_chosen_by_the_table(tmp_path: Path) -> None:
    rules = re.findall(
        r"^\| (?:below|from) ([\d,]+) \| (\w+) \| (.*?) \|$",
        read(DOCS / "recipes.md"),
        re.MULTILINE,
    )
    assert len(rules) == 6
    for place, pairs in enumerate((4_999, 19_999, 20_000)):
        path = tmp_path / "pairs.tsv"
        path.write_text("".join(f"a{n % 9000} b c\td{n}\n" for n in range(pairs)), encoding="utf-8")
        chosen = choose_recipe([str(path)], source="en", target="de", encoding=None)
        training = chosen["training"]
        _, size, rest = rules[place]
        dropout, vocabulary, batch_tokens, passes, rate = numbers(rest.split(" | "))
        expected = {"kind": "transformer", "size": size, "pre_norm": True, "dropout": dropout}
        assert chosen["model"] == expected
        assert chosen["tokeniser"] == {"vocabulary_size": vocabulary}
        assert (training["batch_tokens"], training["learning_rate"]) == (batch_tokens, rate)
        steps = round(passes * 3 * pairs * 1.5 / batch_tokens)
        assert training["max_steps"] == max(300, steps)
        assert training["warmup_steps"] == min(4000, max(100, steps // 10))


# Examples


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_examples_run_or_compile(page: Path) -> None:
    names: dict[str, Any] = {}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    for number, block in enumerate(fenced(page, "python")):
        if ">>>" not in block:
            compile(block, named(page), "exec")
            continue
        example = doctest.DocTestParser().get_doctest(block, names, named(page), None, number)
        report: list[str] = []
        runner.run(example, out=report.append, clear_globs=False)
        names |= example.globs
        assert not runner.failures, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_toml_examples_are_recipes(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(fenced(page, "toml")):
        path = tmp_path / f"{number}.toml"
        path.write_text(block, encoding="utf-8")
        tables = read_recipe(path)
        data = {} if "tasks" in tables else {"data": {"train": "pairs.tsv"}}
        recipe = check_recipe(data | tables, named(page))
        with torch.device("meta"):
            if isinstance(recipe, PairRecipe | SummaryRecipe):
                build_model(recipe.model, 1000, 1000)
            elif isinstance(recipe, LanguageRecipe):
                build_language_model(recipe.model, 1000)
            elif isinstance(recipe, CaptionRecipe):
                build_caption_model(recipe.model, ImageShape(96, 96, 3), 1000)
            elif isinstance(recipe, TranscriptionRecipe):
                build_speech_model(recipe.model, 80, 1000)
            else:
                assert isinstance(recipe, EncoderRecipe)
                build_encoder(recipe.model, 1000)


def fenced(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", read(page), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


# Names


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_tests_and_objects_that_are_named_exist(page: Path) -> None:
    text = read(page)
    for file, test in re.findall(r"`(?:tests/)?(test_\w+\.py)(?:::(\w+))?`", text):
        path = ROOT / "tests" / file
        assert path.exists(), f"{named(page)}: {file}"
        assert not test or f"def {test}(" in read(path), f"{named(page)}: {file}::{test}"
    for file in re.findall(r"`((?:src|tests|benchmarks|\.ci)/[\w./-]+)`", text):
        if file.endswith(".json"):
            continue  # written by a command
        assert (ROOT / file).exists(), f"{named(page)}: {file}"
    for dotted in re.findall(r"`(heedful(?:\.\w+)+)(?:\([^`]*\))?`", text):
        assert resolves(dotted), f"{named(page)}: {dotted}"


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    if dotted == GROUP:
        return True
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        try:
            functools.reduce(getattr, parts[length:], found)
        except AttributeError:
            return False
        return True
    return False
