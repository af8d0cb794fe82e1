"""Networks: groups, links and short forms, there and back, and what each mistake is told."""

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.spec.cluster import Device
from heddle.spec.network import DeviceGroup, GroupLink, Network, Speed, in_words
from heddle.spec.network.changes import changed_links
from heddle.spec.network.network_file import dumps_network, load_network, network_from_table
from heddle.spec.presets import network_presets
from tests.helpers.manual import DOCS, section, tables

FAST, SLOW = {"latency_ms": 1.0, "gbps": 5.0}, {"latency_ms": 11.0, "gbps": 1.12}


def read(text):
    return network_from_table(tomllib.loads(text)["network"])


def test_tables_say_what_the_links_say():
    network = read("""
        [network]
        across = { latency_ms = 100.0, gbps = 0.5 }
        inside = { latency_ms = 1.0, gbps = 8.0 }
        regions = { Ohio = 3, Tokyo = 2, Desk = 1 }
        [[network.links]]
        between = ["Ohio", "Tokyo"]
        latency_ms = 50.0
        gbps = 2.0
        [[network.links]]
        from = "Tokyo"
        to = "Ohio"
        latency_ms = 60.0
        gbps = 1.0
        [[network.links]]
        between = ["Ohio:2", "Ohio:1"]
        gbps = 0.8
        [[network.links]]
        from = "Ohio:0"
        to = "Tokyo"
        gbps = 4.0
    """)
    assert network.devices == 6
    assert network.group_of == ("Ohio",) * 3 + ("Tokyo",) * 2 + ("Desk",)
    assert in_words(network) == "6 devices in 3 groups of 1, 2 and 3"
    delay, bandwidth = network.tables()
    gbps = bandwidth * 8 / 1e9
    assert (delay.diagonal() == 0).all()
    assert np.isinf(gbps.diagonal()).all()
    assert gbps[0, 1:] == pytest.approx([8, 8, 4, 4, 0.5])  # of one device before its group's
    assert gbps[1, 2] == gbps[2, 1] == pytest.approx(0.8)
    assert gbps[1, 3:] == pytest.approx([2, 2, 0.5])
    assert gbps[3, :3] == pytest.approx([1, 1, 1])  # one way before both ways
    assert (delay[1, 3], delay[3, 1], delay[5, 0]) == pytest.approx((0.05, 0.06, 0.1))


@given(st.data())
def test_a_network_is_the_same_after_writing_and_reading(data):
    numbers = st.floats(0.001, 1e6)
    speeds = st.builds(Speed, latency_ms=numbers, gbps=numbers)
    names = data.draw(st.lists(st.text("abc -ü", min_size=1).filter(lambda s: s == s.strip()), min_size=1, unique=True))
    devices = st.none() | st.builds(Device, name=st.just("card"), memory_gib=numbers)
    groups = tuple(
        DeviceGroup(
            name=name, devices=data.draw(st.integers(1, 9)), inside=data.draw(speeds), device=data.draw(devices)
        )
        for name in names
    )
    links = ()
    if len(names) > 1:
        links = (
            GroupLink(between=tuple(names[:2]), latency_ms=1.5, gbps=data.draw(numbers)),
            GroupLink(source=names[1], target=f"{names[0]}:0", gbps=data.draw(numbers)),
        )
    network = Network(name="drawn", groups=groups, links=links, across=data.draw(speeds))
    assert network_from_table(tomllib.loads(dumps_network(network))["network"]) == network


def test_every_published_pair_can_be_had_by_name_and_by_code():
    aws = network_presets()["aws"]
    assert len(aws["links"]) == 48
    names = set(aws["codes"].values())
    for pair, (latency, gbps) in aws["links"].items():
        a, b = pair.split("-")
        assert {a, b} <= names
        codes = {name: code for code, name in aws["codes"].items()}
        for one, two in ((a, b), (b, a), (codes[a], codes[b])):
            network = network_from_table({"preset": "aws", "regions": {one: 2, two: 1}})
            delay, bandwidth = network.tables()
            assert (delay[0, 2] * 1e3, bandwidth[0, 2] * 8e-9) == pytest.approx((latency, gbps))
            assert (delay[0, 1] * 1e3, bandwidth[0, 1] * 8e-9) == pytest.approx((5, 2))


def test_a_preset_s_link_and_device_can_be_replaced_and_named():
    network = read("""
        [network]
        preset = "aws"
        inside = { latency_ms = 0.1, gbps = 25.0 }
        [[network.groups]]
        name = "Ohio"
        devices = 2
        device = "A100-SXM4-40GB"
        [[network.groups]]
        name = "California"
        devices = 2
        [[network.groups]]
        name = "Tokyo"
        [[network.links]]
        between = ["Tokyo", "California"]
        gbps = 0.7
        [[network.links]]
        between = ["Tokyo", "Ohio"]
        gbps = 0.9
    """)
    assert network.groups[0].device.memory_gib == 40
    assert network.groups[1].inside == Speed(latency_ms=0.1, gbps=25.0)
    gbps = network.tables()[1] * 8e-9
    assert (gbps[4, 2], gbps[0, 4], gbps[0, 2]) == pytest.approx((0.7, 0.9, 1.02))


TWO = {
    "groups": [{"name": "a", "devices": 2, "inside": FAST}, {"name": "b"}],
    "links": [{"between": ["a", "b"], **SLOW}],
}


@pytest.mark.parametrize(
    ("change", "what", "hint"),
    [
        ({"link": []}, "[network] has no key 'link'", "Did you mean 'links'?"),
        ({"groups": []}, "no groups", "[[network.groups]]"),
        ({"groups": 3}, "network.groups = '3' has the wrong type", ""),
        ({"groups": [{"name": "a", "devices": 2}]}, "Nothing joins the 2 devices of 'a'", "inside = {"),
        ({"groups": [{"name": "a", "devices": 0}]}, "devices must be in [1, 1e6], got 0", "smallest"),
        ({"groups": [{"name": "a:1"}]}, "'a:1' cannot be the name", ""),
        ({"groups": [{"name": "a"}, {"name": "a"}]}, "two groups called 'a'", "Rename one"),
        ({"links": []}, "No link leads from 'a' to 'b'", "between = ['a', 'b']"),
        ({"links": [{"from": "a", "to": "b", **SLOW}]}, "No link leads from 'b' to 'a'", "across"),
        ({"links": [{"between": ["a", "c"], **SLOW}]}, "no group 'c'", "Known: a, b"),
        ({"links": [{"between": ["a:2", "b"], **SLOW}]}, "names the device 'a:2'", "'a:0'"),
        ({"links": [{"between": ["a"], **SLOW}]}, "has the ends", "from = "),
        ({"links": [{"from": "a", **SLOW}]}, "has the ends", "between = "),
        ({"links": [{"between": ["a", "a:1"], **SLOW}]}, "within one group", "`inside` of 'a'"),
        ({"links": [*TWO["links"], *TWO["links"]]}, "Two links lead from 'a' to 'b'", "Remove one"),
        ({"links": [{"between": ["a", "b"], "gbps": 0}]}, "gbps must be in (0, 1e9], got 0", "above 0"),
        ({"links": [{"between": ["a", "b"], "gbps": 1, "latency_ms": -1}]}, "latency_ms must be in [0, 1e9]", ""),
        ({"links": [{"between": ["a", "b"]}]}, "lacks 'gbps'", ""),
        ({"links": "a"}, "network.links = \"'a'\" has the wrong type", ""),
        ({"preset": "gcp"}, "no network preset 'gcp'", "aws"),
        ({"preset": "aws"}, "Preset 'aws' has no region 'a'", "Known:"),
        ({"regions": 3}, "network.regions", ""),
        ({"regions": {"c": 1.5}}, "has the wrong type", ""),
        ({"groups": [{"name": "a", "device": "abacus"}]}, "no device 'abacus'", "Known:"),
    ],
)
def test_mistakes_are_told_in_three_parts(change, what, hint):
    with pytest.raises(HeddleError) as caught:
        network_from_table(TWO | change)
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_file_is_named_in_what_is_told(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text("[network]\nregions = { a = 2 }\n")
    with pytest.raises(HeddleError, match=r"network\.toml: Nothing joins the 2 devices of 'a'"):
        load_network(path)
    path.write_text("[cluster]\nnodes = 1\n")
    with pytest.raises(HeddleError, match=r"has no table \[network\]"):
        load_network(path)
    path.write_text("[network]\nregions = { a = 1 }\n[train]\n")
    with pytest.raises(HeddleError, match=r"there is no table \[train\]"):
        load_network(path)
    with pytest.raises(HeddleError, match="There is no file"):
        load_network(tmp_path / "none.toml")


def test_too_many_devices_for_a_table():
    network = network_from_table({"regions": {"a": 5000}, "inside": FAST})
    with pytest.raises(HeddleError, match="The network has 5,000 devices"):
        network.tables()


def test_the_manual_names_every_key():
    rows = [
        row for table in tables(section(DOCS / "decide" / "networks.md", "## Describing a network")) for row in table
    ]
    named = [row[0].strip("`") for row in rows]
    assert named == [
        *("name", "groups", "links", "across", "preset", "regions", "inside"),
        *("groups.name", "groups.devices", "groups.inside", "groups.device"),
        *("links.between", "links.from", "links.to", "links.latency_ms", "links.gbps"),
    ]


def test_the_manual_s_networks_can_be_read():
    text = section(DOCS / "decide" / "networks.md", "## Describing a network")
    examples = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    assert len(examples) == 2
    assert [read(example).devices for example in examples] == [24, 40]


def test_links_that_changed_are_named():
    def pair(gbps: float, latency: float) -> Network:
        groups = tuple(DeviceGroup(name=name, devices=2, inside=Speed(gbps=10.0)) for name in ("a", "b"))
        return Network(groups=groups, across=Speed(latency_ms=latency, gbps=gbps))

    assert changed_links(pair(1.0, 20.0), pair(1.1, 20.5)) == []
    slower = changed_links(pair(1.0, 20.0), pair(0.2, 90.0))
    assert "a to b: 1 Gbit/s then, 0.2 now." in slower
    assert "b to a: 20 ms then, 90 now." in slower
    with pytest.raises(HeddleError, match="There were 4 devices"):
        changed_links(pair(1.0, 20.0), Network(groups=(DeviceGroup(name="a"),)))
