"""Show traces in a notebook: the page as a widget."""

import json
from collections.abc import Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.inference.trace import Trace
from heedful.viewing.page import bundle, page_data, style


def widget(traces: Trace | Sequence[Trace]) -> Any:
    """An anywidget that shows traces, as the last expression of a cell.

    Args:
        traces: one trace, or several, which can be compared side by side.

    Raises:
        UserError: anywidget is not installed, or there is no trace.
    """
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise UserError(
            'a view in a notebook needs anywidget; install it with pip install "heedful[notebook]"'
        ) from error

    class AttentionWidget(anywidget.AnyWidget):
        """The page; the trait ``data`` has all of its data."""

        _esm = bundle("widget") + "export default { render: widgetModule.render };\n"
        _css = style()
        data = traitlets.Unicode().tag(sync=True)

    return AttentionWidget(data=json.dumps(page_data(traces), ensure_ascii=False))
