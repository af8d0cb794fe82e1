"""What the words and numbers of a measured row stand for: counts, and the cluster that a GPU's name means."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace

from heddle.errors import shorten
from heddle.format import GIB
from heddle.spec.cluster import Cluster
from heddle.spec.presets import cluster_presets, preset
from heddle.spec.tables import build

# watts, NVIDIA data sheets
FULL_POWER = {"A100": 400, "H100": 700, "H200": 700, "GB200": 1200, "GB300": 1400, "B200": 1000, "B300": 1100}
DEVICES = (  # words for a device, and its preset; the first that is found counts
    ("gb300", "gb300-nvl72"),
    ("gb200", "gb200-nvl72"),
    ("gh200|h200", "dgx-h200"),
    ("b300", "dgx-b300"),
    ("b200", "dgx-b200"),
    ("a100|a800", "dgx-a100"),
    ("h800", "dgx-h800"),
    ("h100", "dgx-h100"),
    (r"\bh20\b", "dgx-h20"),
    ("v100", "dgx-v100"),
    ("l40s", "l40s"),
    (r"\bl4\b", "l4"),
    ("a10g", "a10g"),
    ("3090", "rtx-3090"),
    ("4090", "rtx-4090"),
    ("5090", "rtx-5090"),
    ("mi250", "mi250x"),
    ("mi300x", "mi300x"),
    ("mi325", "mi325x"),
    ("mi355", "mi355x"),
    (r"v5e|v5 ?lite", "tpu-v5e"),
    ("v5p", "tpu-v5p"),
    ("v6e|trillium", "tpu-v6e"),
    (r"ironwood|tpu ?v?7", "tpu-v7"),
    (r"trn2|trainium ?2", "trn2"),
)
IDLE_POWER = 100
MOST = 1e15  # of any number in a row
LARGEST_HOST, TRAY = 16, 4  # devices of one host at most; and of each host of a rack that NVLink joins (GB200 NVL72)


class CannotModelError(Exception):
    """Why a row is skipped."""


def number_of(text: Mapping[str, str], name: str, default: float | None = None) -> float:
    """A number that is not negative, as all in a row are."""
    value = text.get(name) or ""
    if not value:
        if default is None:
            raise CannotModelError(f"it does not state {name}")
        return default
    try:
        number = float(value)
    except ValueError:
        raise CannotModelError(f"{name} = {shorten(value)} is not a number") from None
    if not 0 <= number <= MOST:
        raise CannotModelError(f"{name} = {shorten(value)} is not in [0, {MOST:g}]")
    return number


def count_of(text: Mapping[str, str], name: str, default: int | None = None, least: int = 1) -> int:
    """How many there are of something; at least one, mostly."""
    stated = number_of(text, name, default)
    if stated % 1:
        raise CannotModelError(f"{name} = {stated:g} is not a whole number")
    number = int(stated)
    if number < least:
        raise CannotModelError(f"{name} = {number} is less than {least}")
    return number


def cluster_of(text: Mapping[str, str], fallback: Cluster | None = None) -> Cluster:
    """The preset that a row's GPU is in, changed by what its interconnect column says."""
    word = text.get("gpu", "").lower()
    found = next((name for words, name in DEVICES if re.search(words, word)), None)
    if found is None and fallback is not None:
        return fallback
    if found is None:
        raise CannotModelError(f"there is no preset for the GPU {text.get('gpu')!r}; give --cluster")
    size = re.search(r"(\d{1,6})\s*gb", word)
    name = found
    if name == "dgx-a100":
        name += "-40gb" if size and int(size[1]) == 40 else "-80gb"
    cluster = build(Cluster, preset("cluster", name, cluster_presets()), "cluster")
    device = cluster.device
    if size and abs(int(size[1]) - device.memory_gib) > 8:
        device = replace(device, memory_gib=int(size[1]) * 1e9 / GIB)
    inner, outer = cluster.links
    if re.search("[ah]800", word):
        inner = replace(inner, gbs=200.0)
    return _as_stated(replace(cluster, device=device, links=(inner, outer)), text)


def nodes_of(cluster: Cluster, devices: int) -> Cluster:
    """The same cluster in nodes of so many devices, which the links inside a node join."""
    links = tuple(replace(link, devices=devices) if link.devices == cluster.devices else link for link in cluster.links)
    return replace(cluster, devices=devices, links=links, nodes=1)


def node_size(text: Mapping[str, str]) -> int | None:
    """GPUs of a node, where a row states them: in a column, or in words such as "nodes of 4 GPUs"."""
    if text.get("gpus_per_node"):
        return count_of(text, "gpus_per_node")
    said = re.search(
        r"nodes? (?:of|with) (\d{1,3})\b|\b(\d{1,3})[ -]gpus?[ -](?:per[ -]node|nodes?\b)",
        f"{text.get('interconnect', '')} {text.get('notes', '')}",
        re.IGNORECASE,
    )
    return max(1, int(said[1] or said[2])) if said else None


def shard_ranks(text: Mapping[str, str], node: int) -> float:
    """Replicas that share states, where a row says that not all do: hybrid sharding, in a column or in words.

    Such as "zero1=8", "FSDP 8 x data" and, for those of a node, "HSDP".
    """
    if text.get("shard_ranks"):
        return count_of(text, "shard_ranks")
    said = f"{text.get('zero', '')} {text.get('notes', '')}"
    if found := re.search(
        r"\bzero[-_ ]?1 ?= ?(\d{1,6})\b|\bfsdp (?:\d{1,6} to )?(\d{1,6}) ?[x×] ?data", said, re.IGNORECASE
    ):
        return max(1, int(found[1] or found[2]))
    return float(node) if re.search(r"\bhsdp\b|hybrid[-_ ]shard", said, re.IGNORECASE) else math.inf


def adapted(cluster: Cluster, text: Mapping[str, str]) -> Cluster:
    """A given cluster as a row says that it was, if it ran on such devices."""
    chip = re.search(r"[abh]\d00", cluster.device.name.lower())
    if chip is None or chip[0] not in text.get("gpu", "").lower().replace("800", "100").replace("b300", "b200"):
        return cluster
    return _as_stated(cluster, text)


def _as_stated(cluster: Cluster, text: Mapping[str, str]) -> Cluster:
    """What a row says of its network, its nodes, its memory's bandwidth, and a cap on its power."""
    device = cluster.device
    said = f"{text.get('gpu', '')} {text.get('interconnect', '')}"
    if bandwidth := re.search(r"(\d{1,6}(?:\.\d+)?)\s*TB/s", said):
        device = replace(device, memory_gbs=1000 * float(bandwidth[1]))
    watts = re.search(r"\b([1-9]\d{2,3})\s*W\b", said)
    full = next((value for key, value in FULL_POWER.items() if key in device.name), None)
    if watts and full and IDLE_POWER < int(watts[1]) < full:
        # Beyond what it takes when idle, power grows with clock times voltage squared, and voltage with clock: a cap
        # costs its cube root.
        capped = ((int(watts[1]) - IDLE_POWER) / (full - IDLE_POWER)) ** (1 / 3)
        rates = {f.name: value * capped for f in fields(device.tflops) if (value := getattr(device.tflops, f.name))}
        device = replace(device, tflops=replace(device.tflops, **rates))
    if (size := node_size(text)) and size != cluster.devices:
        cluster = nodes_of(cluster, size)
    links = cluster.links
    if len(links) > 1 and (speed := network_of(text, cluster.devices)):
        links = (*links[:-1], replace(links[-1], gbs=speed))
    return replace(cluster, device=device, links=links)


def network_of(text: Mapping[str, str], devices: int) -> float | None:
    """GB/s of one device to other nodes, of which each has so many.

    A row states it in words such as "8x200Gb/s", "400Gb/s per GPU" or "1600 Gbps per node". Where NVLink joins a rack,
    the node that has network cards is a tray of it.
    """
    said = text.get("interconnect", "")
    cards = min(devices, TRAY) if devices > LARGEST_HOST else devices
    rate = r"(\d{1,9}(?:\.\d+)?)\s*Gb(?:/s|ps|it/s)"
    if several := re.search(rf"(\d{{1,9}})\s*[x×]\s*{rate}", said, re.IGNORECASE):
        return int(several[1]) * float(several[2]) / 8 / cards
    if own := re.search(rf"{rate}[^|;,]*per GPU", said, re.IGNORECASE):
        return float(own[1]) / 8
    if node := re.search(rf"{rate}[^|;,]*(?:per node|node-node)", said, re.IGNORECASE):
        return float(node[1]) / 8 / cards
    return None
