"""Networks in files: a [network] table in TOML, with short forms for regions and presets for their links.

[network]
preset = "aws"                              # links between regions, as published
regions = { Ohio = 16, Ireland = 8 }        # a short form of [[network.groups]]

[[network.links]]                           # one that is known better
from = "Ireland:7"                          # a single device, counted from 0; without a number the whole group
to = "Ohio"
latency_ms = 90.0
gbps = 0.2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.network.network import Network
from heddle.spec.presets import known_devices, network_presets
from heddle.spec.tables import build, read_toml, to_table, to_toml, wrong_type

KEYS = ("name", "groups", "links", "across", "preset", "regions", "inside")  # the last three are short forms


def network_from_table(table: dict[str, Any]) -> Network:
    """A network from its [network] table, the short forms written out.

    `regions = { Ohio = 16 }` are groups, `inside` is that of every group that has none of its own, and `preset = "aws"`
    brings the links between regions, and their `inside`. A device may be named: "A100-SXM4-80GB".
    """
    table = dict(table)
    groups = table.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise wrong_type("network.groups", shorten(groups), "a list of tables, each written [[network.groups]]")
    groups = [dict(group) for group in groups] + _regions(table.pop("regions", {}))
    inside = table.pop("inside", None)
    links = table.get("links", [])
    if not isinstance(links, list) or not all(isinstance(link, dict) for link in links):
        raise wrong_type("network.links", shorten(links), "a list of tables, each written [[network.links]]")
    if "preset" in table:
        known = network_presets()
        name = table.pop("preset")
        if not isinstance(name, str) or name not in known:
            raise HeddleError(
                f"There is no network preset {shorten(name)}.",
                "A preset has published links between regions.",
                nearest(str(name), known),
            )
        inside = inside or known[name]["inside"]
        links = _preset_links(name, known[name], groups, links) + links
    for group in groups:
        if inside is not None:
            group.setdefault("inside", inside)
        if isinstance(word := group.get("device"), str):
            devices = known_devices()
            if word not in devices:
                raise HeddleError(
                    f"There is no device {shorten(word)}.",
                    "A name refers to the device of a preset.",
                    nearest(word, devices),
                )
            group["device"] = to_table(devices[word])
    for key in table:
        if key not in KEYS:
            raise HeddleError(f"[network] has no key '{key}'.", "Heddle never ignores a key.", nearest(key, KEYS))
    return build(Network, {**table, "groups": groups, "links": links}, "network")


def _regions(regions: Any) -> list[dict[str, Any]]:
    if not isinstance(regions, dict):
        raise wrong_type("network.regions", shorten(regions), "a table of devices by region, such as { Ohio = 16 }")
    return [{"name": name, "devices": count} for name, count in regions.items()]


def _preset_links(
    name: str, preset: dict[str, Any], groups: list[dict[str, Any]], links: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The published links between the groups at hand, without those that the file has itself."""
    codes: dict[str, str] = preset["codes"]
    pairs: dict[str, list[float]] = preset["links"]
    names = [str(group.get("name")) for group in groups]
    known = sorted({*codes, *codes.values()})
    for each in names:
        if each not in known:
            raise HeddleError(
                f"Preset {name!r} has no region {shorten(each)}.",
                "It has links between the regions that were measured.",
                nearest(each, known),
            )
    said = [tuple(link.get("between", ())) for link in links if isinstance(link.get("between", ()), list | tuple)]
    found = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            one, two = codes.get(a, a), codes.get(b, b)
            pair = pairs.get(f"{one}-{two}") or pairs.get(f"{two}-{one}")
            # one that was not measured, as not every two were, is asked for by the network itself
            if pair is not None and (a, b) not in said and (b, a) not in said:
                found.append({"between": [a, b], "latency_ms": float(pair[0]), "gbps": float(pair[1])})
    return found


def load_network(path: str | Path) -> Network:
    """Read a file with a [network] table; every mistake in it is a HeddleError that names the file."""
    path = Path(path)
    document = read_toml(path, "a network, described in TOML")
    table = document.get("network")
    if not isinstance(table, dict):
        raise HeddleError(
            f"{path} has no table [network].",
            "It should describe groups of devices and their links.",
            "The manual's page on networks shows one.",
        )
    if others := [key for key in document if key != "network"]:
        raise HeddleError(
            f"{path}: there is no table [{others[0]}] in a network.",
            "Heddle never ignores a key.",
            "A network file has one table, [network].",
        )
    try:
        return network_from_table(table)
    except HeddleError as error:
        raise HeddleError(f"{path}: {error.what}", error.why, error.hint) from None


def dumps_network(network: Network) -> str:
    """The network as TOML; reading it returns the same network."""
    return to_toml({"network": to_table(network)})
