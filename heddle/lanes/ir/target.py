"""What IR says about the machine it was made for, brought to what this LLVM and this machine can take."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache

from heddle.errors import HeddleError
from heddle.lanes.child import in_child
from heddle.native.llvm import binding

SAME = {"amd64": "x86_64", "arm64": "aarch64"}
ASKED = b"\0"


def fitted(text: str, source: str) -> str:
    """IR for this kind of machine, without CPUs and features that this LLVM has no name for."""
    _same_architecture(text, source)
    llvm = binding()
    listed = {f[1:] for flags in re.findall(r'"target-features"="([^"]*)"', text) for f in flags.split(",") if f}
    named = set(re.findall(r'"(?:target|tune)-cpu"="([^"]*)"', text))
    known = set(llvm.get_host_cpu_features()) & listed | {"x87"} & listed
    cpus = {llvm.get_host_cpu_name()} & named
    if known != listed or cpus != named:  # LLVM is asked, in a child: it complains to whoever started us
        features, others = _recognized(frozenset(listed - known), frozenset(named - cpus))
        known, cpus = known | features, cpus | others

    def kept(found: re.Match[str]) -> str:
        return f'"target-features"="{",".join(f for f in found[1].split(",") if f[1:] in known)}"'

    def cpu(found: re.Match[str]) -> str:
        return found[0] if found[1] in cpus else ""

    text = re.sub(r'"target-features"="([^"]*)"', kept, text)
    return re.sub(r'"(?:target|tune)-cpu"="([^"]*)" ?', cpu, text)


@lru_cache(maxsize=64)
def _recognized(features: frozenset[str], cpus: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Those of some features and CPUs that LLVM has a name for."""

    def asked() -> Iterator[bytes]:
        target = binding().Target.from_default_triple()
        with tempfile.TemporaryFile() as complaints:
            os.dup2(complaints.fileno(), 2)
            target.create_target_machine(features=",".join(f"+{f}" for f in sorted(features)))
            for cpu in cpus:
                target.create_target_machine(cpu=cpu)
            complaints.seek(0)
            yield complaints.read() + ASKED

    said = in_child(asked).decode(errors="replace")
    if not said.endswith(ASKED.decode()):
        return frozenset(), frozenset()
    unknown = set(re.findall(r"'[+-]?([^']*)' is not a recognized", said))
    return features - unknown, cpus - unknown


def _same_architecture(text: str, source: str) -> None:
    triple = re.search(r'^target triple = "([^"-]*)', text, re.M)
    here = binding().get_default_triple().partition("-")[0]
    made_for = triple[1] if triple else here
    if re.search(r'^target datalayout = "[^"]*p:32:32', text, re.M):
        made_for = f"{made_for} with pointers of 32 bits"
    if SAME.get(made_for, made_for) != SAME.get(here, here):
        raise HeddleError(
            f"{source} is IR for {made_for}, and this machine is {here}.",
            "Packed code is checked by running it against the scalar code, which only works on the machine it is for.",
            f"Run it on such a machine, or make the IR for {here}; --cpu takes costs of another CPU.",
        )
