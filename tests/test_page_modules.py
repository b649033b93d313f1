"""The page's modules: their types, their bundle, and the notebook's widget."""

import builtins
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.basics.errors import UserError
from heedful.inference.trace import Trace
from heedful.tasks.spec import specs
from heedful.viewing import page
from heedful.viewing.notebook import widget
from heedful.viewing.page import FOLDER, bundle
from page_help import pair_trace


def test_the_snippet_for_hugging_face_models(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "sleeps", "."]
    settings = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=3, num_attention_heads=4
    )
    names: dict[str, Any] = {
        "model": transformers.BertModel._from_config(settings, attn_implementation="eager").eval(),
        "tokeniser": transformers.BertTokenizer({word: i for i, word in enumerate(words)}),
        "text": "A dog sleeps.",
        "Trace": Trace,
        "export_html": page.export_html,
        "Path": lambda name: tmp_path / name,
    }
    document = (Path(__file__).parents[1] / "docs" / "viewing.md").read_text(encoding="utf-8")
    block = document.split("For a Hugging Face model:")[1].split("\n\n")[1]
    exec(textwrap.dedent(block), names)
    trace = names["trace"]
    assert trace.axes["tokens"].labels == ["[CLS]", "a", "dog", "sleeps", ".", "[SEP]"]
    assert [one.weights.shape for one in trace.maps] == [(4, 6, 6)] * 3
    assert "layer 3" in (tmp_path / "view.html").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("tsc") is None, reason="no tsc: apt-get install node-typescript")
def test_types_of_the_modules() -> None:
    done = subprocess.run(
        ["tsc", "-p", str(FOLDER)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout


def test_modules_ask_nobody_and_write_no_markup() -> None:
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert "innerHTML" not in text, path.name
        assert "insertAdjacentHTML" not in text, path.name
        addresses = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert "http://" not in addresses, path.name
        assert "https://" not in addresses, path.name
        if path.suffix == ".js":
            assert len(text.splitlines()) <= 400, path.name


def test_every_panel_of_a_task_is_in_the_bundle_of_the_server() -> None:
    script = bundle("main", panels=True)
    assert {one.panel.name for one in specs()} <= set(page.panel_modules())
    assert all(f"{name}: {name}Module" in script for name in page.panel_modules())
    assert "import(" not in re.sub(r"/\*\*.*?\*/|//.*", "", script, flags=re.DOTALL)


def test_bundle_refuses_forms_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    (tmp_path / "good.js").write_text("export const one = 1;\n")
    (tmp_path / "star.js").write_text('import * as all from "./good.js";\n')
    (tmp_path / "tag.js").write_text('const tag = "</script>";\n')
    assert "const one = 1;" in bundle("good")
    for name in ("star", "tag"):
        with pytest.raises(ValueError, match=name):
            bundle(name)


def test_widget_holds_the_data() -> None:
    pytest.importorskip("anywidget")
    made = widget([pair_trace(), pair_trace(title="another")])
    data = json.loads(made.data)
    assert [each["name"] for each in data["traces"]] == ["a pair", "another"]
    assert made.trait_metadata("data", "sync")
    shown = heedful.view(pair_trace())
    assert type(shown).__name__ == type(made).__name__


def test_what_is_no_result_is_said() -> None:
    with pytest.raises(UserError, match="not a str"):
        heedful.view("a text")  # type: ignore[arg-type]


def test_widget_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "anywidget"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] in ("anywidget", "ipywidgets"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"heedful\[notebook\]"):
        widget(pair_trace())
