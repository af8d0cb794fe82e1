"""Pages whose numbers are computed.

Their sources are in `docs/hooks/pages`, each where its page is in `docs`. In a source

* a block opened with three backticks and `python exec` is run and shown, and below it the value of its last line;
* one opened with `python exec hidden` is run, and only its value is shown;
* `{{ seconds:.3f}}` in the text becomes what an f-string makes of it.

A source has one namespace, which begins with what `shown.py` offers. What fails, fails the build.

The page in `docs` is for who reads the repository: the same with drawings as text. `make pages` writes it, and a build
of the site that finds it out of date fails.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import shown
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

SOURCES = Path(__file__).with_name("pages")
DOCS = Path(__file__).parents[1]
NOTE = "<!-- Written by `make pages`; change docs/hooks/pages/{} instead. -->\n\n"
BLOCK = re.compile(r"^```python exec( hidden)?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\{\{(.+?)\}\}", flags=re.DOTALL)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Run a page that has a source."""
    name = page.file.src_uri
    source = SOURCES / name
    if not source.is_file():
        return markdown
    try:
        site, repository = executed(source.read_text(encoding="utf-8"), name)
    except Exception as error:
        raise PluginError(f"{name}: {type(error).__name__}: {error}") from error
    if NOTE.format(name) + repository != (DOCS / name).read_text(encoding="utf-8"):
        raise PluginError(f"docs/{name} is not what its source gives now: run `make pages`")
    return site


def executed(text: str, name: str) -> tuple[str, str]:
    """A source with its blocks run and its numbers filled in: for the site, and for the repository."""
    names: dict[str, Any] = {"__name__": name} | {word: getattr(shown, word) for word in shown.__all__}
    made, at = shown.Shown("", ""), 0
    for block in BLOCK.finditer(text):
        made += _filled(text[at : block.start()], names)
        value = _run(block[2], names, name)
        if not block[1]:
            made += f"```python\n{block[2]}```\n\n"
        # text is Markdown; other values are shown as Python would
        made += "" if value is None else value if isinstance(value, str) else f"```python\n{value!r}\n```"
        silent = block[1] is not None and value is None  # then the empty line after it goes, too
        at = block.end() + 2 * silent
    made += _filled(text[at:], names)
    return str(made), made.plain


def _filled(text: str, names: dict[str, Any]) -> shown.Shown:
    measured = names | {"clock": lambda seconds: names["clock"](seconds).plain}
    site, repository = (INLINE.sub(lambda found, n=n: _value(found[1], n), text) for n in (names, measured))
    return shown.Shown(site, repository)


def _value(expression: str, names: dict[str, Any]) -> str:
    # triple quotes, so that an expression may hold quotes of its own
    return str(eval(f'f"""{{{expression.strip()}}}"""', names))  # noqa: S307


def _run(code: str, names: dict[str, Any], name: str) -> Any:
    """Execute a block; the value of its last line if that is an expression."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)  # noqa: S102
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if last is not None else None  # noqa: S307


def write() -> None:
    """Bring the pages of the repository up to date."""
    for source in sorted(SOURCES.rglob("*.md")):
        name = source.relative_to(SOURCES).as_posix()
        _, repository = executed(source.read_text(encoding="utf-8"), name)
        (DOCS / name).write_text(NOTE.format(name) + repository, encoding="utf-8")


if __name__ == "__main__":
    write()
