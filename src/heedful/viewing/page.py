"""The page as one HTML file, with inline modules, style and data, that works from disk."""

import base64
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.files import write_text
from heedful.inference.trace import Trace
from heedful.viewing.trace_encoding import map_bytes, summary

FOLDER = Path(__file__).with_name("page")

# The modules use only these forms of import and export, so no bundler is needed.
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)

# How the page loads the panel of a task.
_PANEL = "import(`./${name}.js`)"

# The browser blocks all network requests of the file.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body class="heed-page">
<div id="heedful" class="heedful" data-whole="true"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="heedful-data">{data}</script>
<script type="module">
{script}</script>
</body>
</html>
"""


def export_html(traces: Trace | Sequence[Trace], path: str | Path) -> None:
    """Write an HTML file that shows traces without a server.

    Args:
        traces: one trace, or several, which can be compared side by side.
        path: the file.

    Raises:
        UserError: there is no trace, or the file cannot be written; no incomplete file remains.
    """
    write_text(Path(path), html(traces))


def html(traces: Trace | Sequence[Trace]) -> str:
    """The content of the file that :func:`export_html` writes."""
    data = page_data(traces)
    names = [each["name"] for each in data["traces"]]
    return _PAGE.format(
        policy=_POLICY,
        title=_escape_html(" · ".join(dict.fromkeys(["heedful", *names]))[:200]),
        style=style(),
        # In JSON, "<" occurs in strings only. The escape prevents a text from ending the script.
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        script=bundle("file"),
    )


def page_data(traces: Trace | Sequence[Trace]) -> dict[str, Any]:
    """The data of the embedded page: names, summaries, and compressed weights in base64.

    Raises:
        UserError: there is no trace.
    """
    several = [traces] if isinstance(traces, Trace) else list(traces)
    if not several:
        raise UserError("no trace to show; give at least one")
    packed: list[dict[str, Any]] = []
    for place, trace in enumerate(several):
        name = trace.title or f"trace {place + 1}"
        same = sum(each["title"] == name for each in packed)
        maps = [
            base64.b64encode(zlib.compress(map_bytes(trace, index))).decode()
            for index in range(len(trace.maps))
        ]
        packed.append(
            {
                "title": name,
                "name": f"{name} ({same + 1})" if same else name,
                "summary": summary(trace),
                "maps": maps,
            }
        )
    return {"traces": packed}


def style() -> str:
    """All style sheets, concatenated."""
    sheets = (
        "style.css",
        "matrices.css",
        "translate.css",
        "panels.css",
        "desk.css",
        "text_panels.css",
        "chat.css",
        "axis_views.css",
        "pictures.css",
        "links.css",
        "how.css",
    )
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in sheets)


def bundle(entry: str, *, panels: bool = False) -> str:
    """Bundle a module and its imports in one script, in which each module is a function.

    Args:
        entry: the name of the module, without its extension.
        panels: whether the panels of the tasks are in the bundle, too. The page loads those that
            its models have.

    Raises:
        ValueError: a module has an import or export of an unsupported form.
    """
    parts: list[str] = []
    seen: set[str] = set()
    names = panel_modules() if panels else []
    for name in names:
        _add(name, parts, seen)
    if panels:
        parts.append(
            f"const panelModules = {{ {', '.join(f'{one}: {one}Module' for one in names)} }};\n"
        )
    _add(entry, parts, seen)
    script = "".join(parts)
    return script.replace(_PANEL, "panelModules[name]") if panels else script


def panel_modules() -> list[str]:
    """The names of the modules that have a panel of a task."""
    return [
        path.stem
        for path in sorted(FOLDER.glob("*.js"))
        if "\nexport function panel(" in path.read_text(encoding="utf-8")
    ]


def _add(name: str, parts: list[str], seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        _add(found[2], parts, seen)
    exported = _EXPORT.findall(text)
    text = _IMPORT.sub(
        lambda found: f"const {{{_rename_imports(found[1])}}} = {found[2]}Module;\n", text
    )
    text = _EXPORT.sub("", text).replace("\nexport {};\n", "\n")
    if re.search(r"^(import|export)\b", text, re.MULTILINE) or "</script" in text.lower():
        raise ValueError(f"{name}.js has an import, export or end tag of an unsupported form")
    parts.append(
        f"const {name}Module = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"
    )


def _rename_imports(names: str) -> str:
    return re.sub(r"(\w+) as (\w+)", r"\1: \2", names)


def _escape_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
