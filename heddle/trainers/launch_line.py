"""The words of a launch line, or of the shell script that makes one; nothing is run.

Scripts as trainers publish them set variables and arrays, and end in a command. This reads assignments, `${NAME}`,
`${NAME:-usual}`, `$((A * B))`, arrays, and `if` with comparisons of words; other commands are passed over.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from heddle.errors import HeddleError
from heddle.files import read_text

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "srun", "accelerate")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNS = re.compile(rf"(?:export\s+|declare\s+(?:-\w+\s+)?|local\s+)?({_NAME})(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    rf"\$\(\((.*?)\)\)|\$\{{({_NAME})(\[[@*]\])?(?::?([-=+?])((?:[^{{}}]|\$\{{[^{{}}]*\}})*))?\}}|\$({_NAME}|\d)"
)
_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}
ENDS = {"while": "done", "for": "done", "until": "done", "case": "esac"}
MOST = 1_000_000  # characters of a script


def launch_words(given: str) -> list[str]:
    """The words of a line, or of the command that the script in a file ends in."""
    path = Path(given)
    if "\n" not in given and not given.lstrip().startswith("-") and _is_file(path):
        given = read_text(path, "a script that starts a trainer")
    if len(given) > MOST:
        raise HeddleError(
            "The launch line is too long.", f"It has {len(given):,} characters.", "Give the script itself."
        )
    return ShellScript().words_of(given)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a line is too long for the name of a file
        return False


class ShellScript:
    """Variables as they are after each line."""

    def __init__(self) -> None:
        self.variables: dict[str, list[str]] = {}
        self.left = MOST  # characters that variables may still stand for: one that doubles itself soon fills memory

    def words_of(self, text: str) -> list[str]:
        """The words of the last command that starts a trainer; of a line that is only arguments, all of them."""
        found: list[str] = []
        branches: list[str] = []  # of each open `if`: "take" this branch, "look" for one, or "done" with it
        passed_over = ""  # the word that ends a loop, whose turns nobody can count without running it
        for line in _lines(text):
            first = line.split()[0]
            if passed_over:
                passed_over = "" if first == passed_over else passed_over
            elif first in ENDS:
                passed_over = "" if line.endswith(ENDS[first]) else ENDS[first]
            elif first == "if":
                branches.append("take" if self._holds(line) else "look")
            elif first in ("elif", "else") and branches:
                holds = first == "else" or self._holds(line)
                branches[-1] = (
                    "take" if branches[-1] == "look" and holds else {"take": "done"}.get(branches[-1], branches[-1])
                )
            elif first == "fi" and branches:
                branches.pop()
            elif all(branch == "take" for branch in branches):
                found = self._line(line) or found
        return found

    def _line(self, line: str) -> list[str]:
        """Take an assignment, or give back the words of a command that starts a trainer."""
        assigns = _ASSIGNS.fullmatch(line)
        if assigns is not None and not re.search(r"^\S*=\S*\s+\S*(torchrun|python|deepspeed)", line):
            name, more, value = assigns.groups()
            array = value.strip().startswith("(") and value.strip().endswith(")")
            words = self._words(value.strip()[1:-1]) if array else [self._one(value)]
            self.variables[name] = (self.variables.get(name, []) if more else []) + words
            return _split(" ".join(words)) if not array and "pretrain_" in words[0] and ".py " in words[0] else []
        words = self._words(line)
        starts = words and (words[0].startswith("--") or _starts_trainer(words))
        return words if starts else []

    def _words(self, text: str) -> list[str]:
        return _split(self._filled(text))

    def _one(self, text: str) -> str:
        return " ".join(self._words(text))

    def _filled(self, text: str, depth: int = 0) -> str:
        """The text with variables filled in; one that is not known stays away, as in a shell."""

        def value(match: re.Match[str]) -> str:
            sum_of, name, _, rule, usual, bare = match.groups()
            if sum_of is not None:
                return str(_calculated(self._filled(sum_of, depth + 1), self.variables))
            known = self.variables.get(name or bare)
            if rule in ("-", "=") and not known:
                return self._filled(usual, depth + 1).strip("\"'")
            self.left -= sum(map(len, known or []))
            if self.left < 0:
                raise HeddleError(
                    "The variables of the launch line are too long.",
                    f"Together they stand for more than {MOST:,} characters.",
                    "Give the command that the script starts, with its values.",
                )
            return " ".join(known or [])

        filled = re.sub(r"'[^']*'|" + _VARIABLE.pattern, lambda m: m[0] if m[0].startswith("'") else value(m), text)
        return self._filled(filled, depth + 1) if "$" in filled and filled != text and depth < 8 else filled

    def _holds(self, line: str) -> bool:
        """Whether a condition holds: words that are equal or not, empty or not. Whatever else is asked does not."""
        _, bracket, tests = line.partition("[")
        return bool(bracket) and any(self._test(part) for part in tests.split("||"))

    def _test(self, text: str) -> bool:
        words = re.findall(r'"[^"]*"|\S+', re.sub(r"\bthen$", "", text.strip()).strip("[]; "))
        filled = [self._filled(word).strip("\"'") for word in words]
        match filled:
            case [left, "==" | "=" | "-eq", right]:
                return left == right
            case [left, "!=" | "-ne", right]:
                return left != right
            case ["-z", value]:
                return not value
            case ["-n", value]:
                return bool(value)
        return False


def _starts_trainer(words: list[str]) -> bool:
    """Whether a launcher is called, behind whatever else: `uv run`, a profiler, variables that are set for it."""
    if words[0] in ("echo", "printf", "cd", "mkdir", "cp", "source"):
        return False
    programs = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    called = any(name.startswith("python") for name in programs) and any(name.endswith(".py") for name in programs)
    return called or any(name in LAUNCHERS for name in programs)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        raise HeddleError(
            "The launch line has a quotation mark that is not closed.",
            f"It is read as a shell would read it: {text[:60]!r}.",
            "Close it, or put the line into a file and name that.",
        ) from None


def _calculated(text: str, variables: dict[str, list[str]]) -> int:
    """Whole numbers added and multiplied, as `$((…))` has them."""
    named = re.sub(_NAME, lambda name: " ".join(variables.get(name[0], ["0"])), text)
    try:
        return _value(ast.parse(named.strip() or "0", mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return 0


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        found = _ARITHMETIC[type(node.op)](_value(node.left), _value(node.right))
        if abs(found) < 2**63:  # as in a shell
            return found
    raise ValueError


def _lines(text: str) -> Iterator[str]:
    """Whole lines without comments: those that a backslash, an array or a quotation mark goes on in are joined."""
    whole = ""
    for raw in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*", "", raw) if "'" not in raw and '"' not in raw else _uncommented(raw)
        whole = f"{whole}\n{line}" if whole else line
        if _open(whole):
            continue
        for part in re.split(r";\s*(?=then|fi|else|$)", whole):
            if part.strip() and part.strip() != "then":
                yield part.strip().removeprefix("then ").strip()
        whole = ""
    if whole.strip():
        yield whole.strip()


def _uncommented(line: str) -> str:
    quote = ""
    for at, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def _open(text: str) -> bool:
    """Whether an array or a quotation is still open at the end."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    if plain.count('"') % 2 or plain.count("'") % 2:
        return True
    assigned = re.match(rf"\s*(?:export\s+)?{_NAME}\+?=\(", plain)
    return bool(assigned) and plain.count("(") > plain.count(")")
