"""docs/reference/job-file.md says what the dataclasses say: each key, its type, default and range; examples work."""

import dataclasses
import json
import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from heddle.schedule import NAMES
from heddle.spec import Cluster, Data, Device, Efficiency, Link, ModelSpec, Peak, Plan, RopeScaling, Train
from heddle.spec.hf.config_write import write_config
from heddle.spec.huggingface import FAMILIES
from heddle.spec.job import TABLES, job_from_tables
from heddle.spec.layer_memory import LayerRun
from heddle.spec.network import Network
from heddle.spec.network.as_cluster import network_of
from heddle.spec.network.link_codes import LinkCodes
from heddle.spec.plan import Predicted
from heddle.spec.presets import cluster_presets, model_presets
from heddle.spec.ranges import ranges_of
from heddle.spec.shorthand import cluster_from_table, model_from_table
from heddle.spec.software import Software
from heddle.spec.tables import build, key_of, to_table
from heddle.spec.tune import Lora, Preference, Tune

PAGE = (Path(__file__).parents[2] / "docs" / "reference/job-file.md").read_text(encoding="utf-8")
SECTIONS: dict[str, Any] = {
    "[model]": ModelSpec,
    "[model.rope_scaling]": RopeScaling,
    "[data]": Data,
    "[train]": Train,
    "[tune]": Tune,
    "[tune.lora]": Lora,
    "[preference]": Preference,
    "[cluster]": Cluster,
    "[cluster.device]": Device,
    "[cluster.device.tflops]": Peak,
    "[[cluster.links]]": Link,
    "[cluster.efficiency]": Efficiency,
    "[network]": Network,
    "[cluster.software]": Software,
    "[plan]": Plan,
    "[[plan.codes]]": LinkCodes,
    "[[plan.layers]]": LayerRun,
    "[predicted]": Predicted,
}
# Keys of the file that are not of the dataclass: where a model or a cluster starts from.
STARTS = {"[model]": {"preset", "config", "module"}, "[cluster]": {"preset", "file"}}
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


class Row(typing.NamedTuple):
    key: str
    type: str
    default: str
    range: str
    meaning: str


def section(heading: str) -> str:
    """The text under a heading, up to the next one."""
    start = re.search(rf"^##+ `{re.escape(heading)}`.*$", PAGE, flags=re.MULTILINE)
    assert start, f"no heading {heading}"
    return re.split(r"^##", PAGE[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def rows(heading: str) -> list[Row]:
    """The table of keys under a heading."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


def described(hint: Any, plural: bool = False) -> str:
    """A type in the words of the page."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(described(option) for option in arguments if option is not type(None))
    if origin is typing.Literal:
        return ", ".join(f'`"{word}"`' if isinstance(word, str) else str(word) for word in arguments)
    if origin is tuple:
        return f"list of {described(arguments[0], plural=True)}"
    names = {str: "string", int: "whole number", float: "number", bool: "true or false"}
    return names.get(hint, "table") + "s" * plural


def default(field: dataclasses.Field[Any]) -> Any:
    """The true default as plain TOML data, or the page's word where there is none."""
    if field.default_factory is not dataclasses.MISSING:
        return to_table(field.default_factory())
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None:
        return "none"
    return list(field.default) if isinstance(field.default, tuple) else field.default


def test_every_section_is_checked() -> None:
    headings = re.findall(r"^##+ `(.*?)`", PAGE, flags=re.MULTILINE)
    assert set(headings) == set(SECTIONS)
    tops = {heading.strip("[]") for heading in headings if "." not in heading}
    assert tops == set(TABLES)


KEYED = [heading for heading in SECTIONS if heading != "[network]"]  # whose keys the page on networks has


@pytest.mark.parametrize("heading", KEYED)
def test_every_key_is_documented_and_no_other(heading: str) -> None:
    keys = [row.key.strip("`") for row in rows(heading)]
    assert len(keys) == len(set(keys))
    fields = {key_of(field) for field in dataclasses.fields(SECTIONS[heading])}
    assert set(keys) == fields | STARTS.get(heading, set())
    assert all(row.meaning for row in rows(heading))


@pytest.mark.parametrize(
    ("heading", "field"),
    [(heading, field) for heading in KEYED for field in dataclasses.fields(SECTIONS[heading])],
)
def test_types_defaults_and_ranges_are_true(heading: str, field: dataclasses.Field[Any]) -> None:
    (row,) = [row for row in rows(heading) if row.key == f"`{key_of(field)}`"]
    names = heading == "[plan]" and field.name == "schedule"  # whatever the registry holds
    hint = typing.get_type_hints(SECTIONS[heading])[field.name]
    assert row.type == (", ".join(f'`"{name}"`' for name in (*NAMES, "searched")) if names else described(hint))
    allowed = ranges_of(SECTIONS[heading]).get(field.name)
    assert row.range == ("" if allowed is None else f"`{allowed.text}`")
    true = default(field)
    if true in ("required", "none") and not row.default.startswith("`"):
        assert row.default == true
        return
    stated = tomllib.loads(f"x = {row.default.strip('`')}")["x"]
    assert (stated, type(stated)) == (true, type(true))


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_can_be_read(block: str, tmp_path: Path) -> None:
    # What the examples refer to lies beside them.
    (tmp_path / "config.json").write_text(json.dumps(write_config(model_from_table({"preset": "tiny"}))))
    (tmp_path / "my-cluster.toml").write_text(next(example for example in BLOCKS if "two desks" in example))
    document = tomllib.loads(block)
    assert document
    assert document.keys() <= set(TABLES)
    if {"model", "data"} <= document.keys():
        assert job_from_tables(document, tmp_path)
        return
    for name, table in document.items():
        match name:
            case "model":
                assert model_from_table(table, tmp_path)
            case "cluster" if table.keys() == {"device"}:
                assert build(Device, table["device"], "cluster.device")
            case "cluster":
                assert cluster_from_table(table, tmp_path)
            case "network":
                assert network_of(table, tmp_path)
            case "data":
                assert build(Data, table, "data")
            case "train":
                assert build(Train, table, "train")
            case "plan":
                plan = build(Plan, table, "plan")
                plan.check(model_from_table({"preset": "llama-3-8b"}), 8, 8192)
            case "predicted":
                assert job_from_tables({"model": {"preset": "tiny"}, "plan": document["plan"], name: table})


@pytest.mark.parametrize("heading", list(SECTIONS))
def test_every_table_has_an_example_that_shows_it(heading: str) -> None:
    assert heading in "".join(re.findall(r"```toml\n(.*?)```", section(heading), flags=re.DOTALL))


def test_every_preset_and_family_is_named() -> None:
    presets = PAGE.partition("### Model presets")[2].partition("\n### ")[0]
    listed = re.findall(r"`([\w.-]+)`", presets)
    assert sorted(listed) == sorted(model_presets())
    assert set(cluster_presets()) | {"this"} <= set(re.findall(r"`([\w-]+)`", section("[cluster]")))
    families = PAGE.partition("### Hugging Face models")[2].partition("\n## ")[0]
    assert set(FAMILIES) <= set(re.findall(r"`(\w+)`", families))


def test_every_link_of_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)
    # the anchors that both GitHub and MkDocs make of headings
    anchors = [re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-") for heading in headings]
    assert len(anchors) == len(set(anchors))
    links = set(re.findall(r"\]\(#([\w-]+)\)", PAGE))
    assert len(links) > 8
    assert links <= set(anchors)
