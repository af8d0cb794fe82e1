"""One word per idea: the words that are no longer used, and sentences that can be read in one go.

The words that are used instead are in docs/reference/glossary.md.
"""

import re

import pytest

from tests.helpers.commands import REPOSITORY

INSTEAD = {
    r"wish(es|ed)?": "goal",
    r"doctors?": "watchdog",
    r"bills?|billed": "breakdown",
    r"programmes?": "integer program, or ilp",
    r"deaf": "say which signals are ignored",
    r"workshop": "builder",
    r"modell\w+|labell\w+|cancell(ed|ing)|travell\w+|signall\w+|totall\w+ing": "one l: modeled, labeled, canceled",
    r"(colou|favou|behaviou|neighbou|honou|labou|rumou)r\w*": "or: color, behavior, neighbor",
    r"centres?|centred|fibres?": "er: center",
    r"(general|initial|local|material|maxim|minim|normal|optim|organ|parallel|quant|random|real|recogn|regular|serial"
    r"|special|summar|synchron|token|util|visual)is(e|ed|er|ers|es|ing|ations?)": "z: optimize",
    r"analys(e|ed|ing)": "analyze",
    r"grey": "gray",
    r"licence": "license",
    r"artefacts?": "artifact",
    r"whilst": "while",
}
NAMES = ("bigscience-workshop",)  # of others
LONGEST = 40  # words of a sentence

PACKAGE = sorted(path for end in ("py", "html", "js", "css") for path in (REPOSITORY / "heddle").rglob(f"*.{end}"))
MANUAL = [*sorted((REPOSITORY / "docs").rglob("*.md")), *(REPOSITORY / f"{name}.md" for name in ("README", "SECURITY"))]


def words_of(text):
    """Words in lower case, those that names are made of one by one."""
    for name in NAMES:
        text = text.replace(name, "")
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}


def no_longer_used(text):
    return {
        word: instead for word in words_of(text) for pattern, instead in INSTEAD.items() if re.fullmatch(pattern, word)
    }


def sentences(text):
    """The prose of a page: no code, tables, headings or comments."""
    text = re.sub(r"^( *)```.*?^\1```$|<!--.*?-->", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )", text):
        if not re.match(r"\s*[|#<]|(?:\n| {4})\s*\S", block):
            yield from re.split(r"(?<=[.!?:])\s+(?=[A-Z`\[(*\"'0-9])", " ".join(block.split()))


def test_words_that_were_replaced_do_not_come_back():
    found = {
        f"{path.relative_to(REPOSITORY)}: {word}": instead
        for path in [*PACKAGE, *MANUAL]
        for word, instead in no_longer_used(path.read_text(encoding="utf-8")).items()
    }
    assert len(PACKAGE) > 500
    assert found == {}


@pytest.mark.parametrize(
    "text", ["a wish", "SearchWish", "class _Doctor", "memory_bill", "the optimiser", "modelled", "Programme", "COLOUR"]
)
def test_a_word_is_found_in_prose_and_in_names(text):
    assert len(no_longer_used(text)) == 1


@pytest.mark.parametrize(
    "text", ["wishbone", "billion", "a program", "raise, noise and otherwise", "called", "scoreboard"]
)
def test_other_words_are_left_alone(text):
    assert no_longer_used(text) == {}


def test_no_sentence_of_the_manual_is_long():
    found = [(path.name, text) for path in MANUAL for text in sentences(path.read_text(encoding="utf-8"))]
    assert len(found) > 2000
    assert [each for each in found if len(each[1].split()) > LONGEST] == []


def test_a_long_sentence_is_found_outside_of_code_and_tables():
    long = " ".join(["word"] * (LONGEST + 1))
    for page in (f"Short. {long}. Short.", f"* one\n* {long}"):
        assert max(len(text.split()) for text in sentences(page)) > LONGEST
    for page in (f"```\n{long}\n```", f"| {long} |", f"    {long}", f"# {long}"):
        assert not any(sentences(page))
