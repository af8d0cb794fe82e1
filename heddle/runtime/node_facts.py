"""What a node is like before any GPU talks to another: driver, GPUs, adapters, limits; and what of it is wrong.

Finding out and judging are apart: facts are plain words and numbers that go into a file, and whoever reads the file
judges by the same functions. Nothing here connects to anything.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heddle.runtime.device import built_for, gpu_count, versions
from heddle.runtime.recorder import machine
from heddle.spec.this_machine import asks_for_cpus, nvidia_smi
from heddle.version import __version__

GIB = 1 << 30
LEAST_SHARED = 1 * GIB  # bytes of /dev/shm, in which NCCL and gloo keep what processes of a node exchange
LEAST_FILES = 4096  # open files: every connection to another rank is one
LEAST_LOCKED = 1 * GIB  # bytes that adapters may hold in place
SKEW = 0.5  # seconds between the clocks of two nodes, beyond which traces and logs mislead
WAIT = 10  # seconds that a command may take
UNLIMITED = -1
ADAPTERS = Path("/sys/class/infiniband")
SHARED = Path("/dev/shm")  # noqa: S108


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    good: bool
    words: str
    hint: str = ""


# -------------------------------------------------------------------------------------------------------------- facts


def node_facts(adapters: Path = ADAPTERS, shared: Path = SHARED) -> dict[str, Any]:
    """All that is known of this node."""
    gpus = _gpus()
    return {
        "host": machine(),
        "node": socket.gethostname(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "versions": {"heddle": __version__, "python": platform.python_version(), **versions()},
        "built_for": built_for(),
        "usable": gpu_count(),
        "gpus": gpus,
        "topology": _said("nvidia-smi", "topo", "-m") if gpus else "",
        "nvlink": _nvlink() if gpus else [],
        "xid": _xid() if gpus else [],
        "adapters": [_port(port) for port in sorted(adapters.glob("*/ports/*"))],
        "shared_memory": shutil.disk_usage(shared).total if shared.is_dir() else 0,
        "locked_memory": _limit(resource.RLIMIT_MEMLOCK),
        "open_files": _limit(resource.RLIMIT_NOFILE),
        "interfaces": [name for _, name in socket.if_nameindex()],
    }


def _gpus() -> list[dict[str, str]]:
    """A row per GPU. Columns are asked for in groups: a driver that does not know one gives none."""
    if shutil.which("nvidia-smi") is None:
        return []
    groups = (
        ("index", "uuid", "name", "driver_version", "memory.total"),
        ("ecc.errors.uncorrected.volatile.total",),
        ("pcie.link.gen.current", "pcie.link.width.current", "pcie.link.width.max"),
        ("clocks_event_reasons.hw_slowdown",),
        ("temperature.gpu", "power.limit"),
    )
    found: list[dict[str, str]] = []
    for columns in groups:
        rows = nvidia_smi(*columns)
        found = found or [{} for _ in rows]
        for gpu, row in zip(found, rows, strict=False):
            gpu |= dict(zip(columns, row, strict=True))
    remapped = ("nvidia-smi", "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure")
    for line in _said(*remapped, "--format=csv,noheader").splitlines():
        uuid, *states = (word.strip() for word in line.split(","))
        for gpu in found:
            if gpu.get("uuid") == uuid and len(states) == 2:
                gpu |= {"remapped_rows.pending": states[0], "remapped_rows.failure": states[1]}
    return found


def _nvlink() -> list[str]:
    """The speeds of the first GPU's links."""
    return re.findall(r"Link \d+: ([\d.]+ GB/s)", _said("nvidia-smi", "nvlink", "-s", "-i", "0"))


def _xid() -> list[str]:
    """The last errors of GPUs in the kernel's log, where one may read it."""
    lines = [line.strip() for line in _said("dmesg").splitlines() if "Xid" in line]
    return lines[-5:]


def _port(port: Path) -> dict[str, str]:
    """A port of a network adapter."""
    words = {name: _first_line(port / name) for name in ("state", "rate", "link_layer")}
    return {"name": port.parent.parent.name, "port": port.name, **words}


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _limit(kind: int) -> int:
    soft = resource.getrlimit(kind)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _said(*command: str) -> str:
    """What a command prints; nothing where it is missing, fails or takes long."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


# ----------------------------------------------------------------------------------------------------------- verdicts


def findings(facts: dict[str, Any]) -> list[Finding]:
    """What is right and wrong with one node."""
    found = [_shared_memory(facts), _open_files(facts)]
    if facts["gpus"]:
        found += [_driver(facts), *(_health(gpu) for gpu in facts["gpus"]), _errors(facts)]
    if facts["adapters"]:
        found += [_ports(facts), _locked_memory(facts)]
    return found


def _shared_memory(facts: dict[str, Any]) -> Finding:
    size = facts["shared_memory"]
    needed = len(facts["gpus"]) > 1
    return Finding(
        str(SHARED),
        not needed or size >= LEAST_SHARED,
        f"{size / GIB:.3g} GiB",
        "NCCL needs about 1 GiB: docker run --shm-size 16g, or a volume of medium Memory at /dev/shm in Kubernetes.",
    )


def _open_files(facts: dict[str, Any]) -> Finding:
    limit = facts["open_files"]
    good = limit == UNLIMITED or limit >= LEAST_FILES or not facts["gpus"]
    return Finding("open files", good, "unlimited" if limit == UNLIMITED else f"{limit:,}", "ulimit -n 65536")


def _locked_memory(facts: dict[str, Any]) -> Finding:
    limit = facts["locked_memory"]
    words = "unlimited" if limit == UNLIMITED else f"{limit / 2**10:,.0f} KiB"
    hint = "Adapters cannot register memory: ulimit -l unlimited, or IPC_LOCK in a container."
    return Finding("locked memory", limit == UNLIMITED or limit >= LEAST_LOCKED, words, hint)


def _driver(facts: dict[str, Any]) -> Finding:
    kinds = sorted({gpu["name"] for gpu in facts["gpus"]})
    drivers = sorted({gpu["driver_version"] for gpu in facts["gpus"]})
    words = f"{len(facts['gpus'])} × {', '.join(kinds)}, driver {', '.join(drivers)}, PyTorch for {facts['built_for']}"
    good = facts["usable"] > 0 or asks_for_cpus()
    return Finding("driver", good, words, "Install a PyTorch that was built for this driver.")


def _health(gpu: dict[str, str]) -> Finding:
    """Of one GPU: memory that went bad, a slow slot, a clock held back by heat or power."""
    wrong = []
    errors = gpu.get("ecc.errors.uncorrected.volatile.total", "")
    if errors.isdecimal() and int(errors) > 0:
        wrong.append(f"{errors} uncorrected memory errors")
    if gpu.get("remapped_rows.failure", "").lower() in ("yes", "1"):
        wrong.append("memory rows that could not be replaced")
    if gpu.get("remapped_rows.pending", "").lower() in ("yes", "1"):
        wrong.append("memory rows to be replaced at the next reset")
    if gpu.get("clocks_event_reasons.hw_slowdown", "").lower() == "active":
        wrong.append("its clock is held back by the hardware")
    width, most = gpu.get("pcie.link.width.current", ""), gpu.get("pcie.link.width.max", "")
    if width.isdecimal() and most.isdecimal() and int(width) < int(most):
        wrong.append(f"its slot has {width} of {most} lanes")
    words = "; ".join(wrong) or f"{gpu.get('name', '')} {gpu.get('uuid', '')}".strip()
    return Finding(f"GPU {gpu.get('index', '?')}", not wrong, words, "Reset the GPU or drain the node: nvidia-smi -q.")


def _errors(facts: dict[str, Any]) -> Finding:
    last = facts["xid"][-1] if facts["xid"] else "none in the kernel's log, as far as it can be read"
    return Finding("Xid errors", not facts["xid"], last, "NVIDIA's list of Xid errors says what each means.")


def _ports(facts: dict[str, Any]) -> Finding:
    ports = facts["adapters"]
    active = [port for port in ports if "ACTIVE" in port["state"]]
    rates = sorted({port["rate"] for port in active if port["rate"]})
    words = f"{len(active)} of {len(ports)} ports active" + (f", {', '.join(rates)}" if rates else "")
    return Finding("network adapters", bool(active), words, "Ask who runs the cluster; `ibstat` shows the ports.")


def compared(nodes: Sequence[dict[str, Any]], clocks: Sequence[float]) -> list[Finding]:
    """What nodes do not have in common that they should; `clocks` are read at one moment."""
    found = []
    for name in sorted({name for facts in nodes for name in facts["versions"]}):
        values = {facts["versions"].get(name, "none") for facts in nodes}
        if len(values) > 1:
            words = ", ".join(sorted(values))
            found.append(Finding(f"versions of {name}", False, words, "Use one image on all nodes."))
    for name, kind in (("driver_version", "drivers"), ("name", "kinds of GPUs")):
        values = {gpu[name] for facts in nodes for gpu in facts["gpus"]}
        if len(values) > 1:
            found.append(Finding(kind, False, ", ".join(sorted(values)), "Ask for nodes that are alike."))
    spread = max(clocks) - min(clocks) if clocks else 0.0
    words = f"{spread * 1000:.0f} ms apart"
    return [*found, Finding("clocks", spread <= SKEW, words, "Synchronize them: chronyd or systemd-timesyncd.")]
