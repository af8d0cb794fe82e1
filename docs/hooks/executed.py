"""Pages whose numbers are computed while the site is built.

In a page that says `executed: true` at its top

* a block opened with three backticks and `python exec` is run and shown, and below it the value of its last line;
* one opened with `python exec hidden` is run, and only its value is shown;
* `{{ seconds:.3f}}` in the text becomes what an f-string makes of it.

A page has one namespace, which begins with what `shown.py` offers. What fails, fails the build.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import shown
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

BLOCK = re.compile(r"^```python exec( hidden)?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\{\{(.+?)\}\}", flags=re.DOTALL)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Run an executed page."""
    if not page.meta.get("executed"):
        return markdown
    try:
        return executed(markdown, page.file.src_uri)
    except Exception as error:
        raise PluginError(f"{page.file.src_uri}: {type(error).__name__}: {error}") from error


def executed(text: str, name: str) -> str:
    """The page with its blocks run and its numbers filled in."""
    names: dict[str, Any] = {"__name__": name} | {word: getattr(shown, word) for word in shown.__all__}
    made, at = "", 0
    for block in BLOCK.finditer(text):
        made += _filled(text[at : block.start()], names)
        value = _run(block[2], names, name)
        if not block[1]:
            made += f"```python\n{block[2]}```\n\n"
        # text is Markdown; other values are shown as Python would
        made += "" if value is None else value if isinstance(value, str) else f"```python\n{value!r}\n```"
        at = block.end()
    return made + _filled(text[at:], names)


def _filled(text: str, names: dict[str, Any]) -> str:
    # triple quotes, so that an expression may hold quotes of its own
    return INLINE.sub(lambda found: str(eval(f'f"""{{{found[1].strip()}}}"""', names)), text)  # noqa: S307


def _run(code: str, names: dict[str, Any], name: str) -> Any:
    """Execute a block; the value of its last line if that is an expression."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)  # noqa: S102
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if last is not None else None  # noqa: S307
