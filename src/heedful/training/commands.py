"""What ``heedful train`` is asked for, as tables of a recipe."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.data.subwords import VocabularyTooLargeError
from heedful.runs.choosing import choose_recipe
from heedful.runs.recipe import check_recipe, read_recipe, with_overrides
from heedful.runs.run import open_run
from heedful.training.train import train


def train_from_command(
    recipe: str | None,
    out: Path,
    data: list[str],
    *,
    source: str | None,
    target: str | None,
    overrides: list[str],
    start_from: Path | None,
) -> bool:
    """Train from a recipe or from a corpus alone; True when training has ended.

    Raises:
        UserError: neither a recipe nor data are given, or they cannot be used.
    """
    tables, where, folder = _tables(recipe, out, data, source, target)
    if start_from is not None:
        tables = _as_started_from(tables, start_from, has_model="model" in tables and bool(recipe))
    checked = check_recipe(with_overrides(tables, overrides), where)
    try:
        return train(checked, out, data=folder, start_from=start_from)
    except VocabularyTooLargeError as error:
        asked = any(override.startswith("tokeniser.vocabulary") for override in overrides)
        if recipe is not None or asked:
            raise
        # Nobody asked for this size: it was chosen before the corpus was looked at so closely.
        smaller = f"tokeniser.vocabulary={error.supported}"
        notice(f"the corpus supports a vocabulary of {error.supported:,}: taken")
        checked = check_recipe(with_overrides(tables, [*overrides, smaller]), where)
        return train(checked, out, data=folder, start_from=start_from)


def _tables(
    recipe: str | None, out: Path, data: list[str], source: str | None, target: str | None
) -> tuple[dict[str, Any], str, Path | None]:
    """The recipe's tables, where they are from, and the folder of relative data paths."""
    if recipe is not None:
        if len(data) > 1:
            raise UserError("with a recipe, --data names one folder, where its data paths start")
        path = find_recipe(recipe)
        tables = read_recipe(path)
        languages = {"source": source, "target": target}
        given = [f"data.{side}={text}" for side, text in languages.items() if text is not None]
        return with_overrides(tables, given), str(path), Path(data[0]) if data else None
    if (out / "run.json").exists():
        # The same command again: the recipe that was chosen then, for the same files.
        tables = open_run(out).recipe.model_dump(mode="json", exclude_none=True)
        return tables | {"data": tables["data"] | ({"train": data} if data else {})}, str(out), None
    if not data:
        raise UserError("give a recipe, or a corpus with --data FILE --from LANGUAGE --to LANGUAGE")
    tables = choose_recipe(data, source=source, target=target, encoding=None)
    training, model = tables["training"], tables["model"]
    notice(
        f"recipe chosen from the corpus: {model['size']} Transformer, vocabulary "
        f"{tables['tokeniser']['vocabulary']:,}, at most {training['max_steps']:,} steps of "
        f"{training['batch_tokens']:,} tokens; it is in {out / 'recipe.toml'}"
    )
    return tables, f"the recipe chosen for {', '.join(data)}", None


def find_recipe(name: str) -> Path:
    """A recipe file, or one of those that come with the package, by name.

    Raises:
        UserError: there is neither.
    """
    path = Path(name)
    if path.exists() or path.suffix == ".toml":
        return path
    folder = Path(str(files("heedful"))) / "recipes"
    packaged = folder / f"{name}.toml"
    if packaged.exists():
        return packaged
    names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
    raise UserError(f"no recipe '{name}': neither a file nor one of heedful's own ({names})")


def _as_started_from(tables: dict[str, Any], start: Path, has_model: bool) -> dict[str, Any]:
    """``tables`` with the model and tokeniser of the run that is gone on from."""
    recipe = open_run(start).recipe.model_dump(mode="json", exclude_none=True)
    model = tables["model"] if has_model else recipe["model"]
    return {**tables, "model": model, "tokeniser": recipe["tokeniser"]}
