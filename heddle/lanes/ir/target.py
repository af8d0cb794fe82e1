"""What IR says about the machine it was made for, brought to what this LLVM and this machine can take."""

from __future__ import annotations

import re

from heddle.errors import HeddleError
from heddle.lanes.ir.llvm import binding

SAME = {"amd64": "x86_64", "arm64": "aarch64"}
# Names that LLVM 22 knows. It ends the whole process over a function that asks for any other.
CPUS = {
    "generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "nocona", "core2", "penryn", "nehalem", "westmere",
    "corei7", "corei7-avx", "sandybridge", "ivybridge", "core-avx-i", "haswell", "core-avx2", "broadwell", "skylake",
    "skylake-avx512", "skx", "cascadelake", "cooperlake", "cannonlake", "icelake-client", "icelake-server",
    "rocketlake", "tigerlake", "sapphirerapids", "emeraldrapids", "graniterapids", "alderlake", "raptorlake",
    "meteorlake", "arrowlake", "lunarlake", "bonnell", "silvermont", "goldmont", "tremont", "gracemont", "k8",
    "k8-sse3", "opteron", "athlon64", "amdfam10", "barcelona", "btver1", "btver2", "bdver1", "bdver2", "bdver3",
    "bdver4", "znver1", "znver2", "znver3", "znver4", "znver5", "cortex-a53", "cortex-a72", "cortex-a76",
    "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2", "apple-m1", "apple-m2", "apple-m3", "apple-m4",
}  # fmt: skip
OFTEN = {"x87", "neon", "fp-armv8", "v8a", "v8.1a", "v8.2a", "outline-atomics"}  # that no list of this CPU's names


def fitted(text: str, source: str) -> str:
    """IR for this kind of machine, without CPUs and features that this LLVM has no name for."""
    _same_architecture(text, source)
    llvm = binding()
    known, cpus = {*llvm.get_host_cpu_features(), *OFTEN}, CPUS | {llvm.get_host_cpu_name()}

    def features(found: re.Match[str]) -> str:
        return f'"target-features"="{",".join(f for f in found[1].split(",") if f[1:] in known)}"'

    def cpu(found: re.Match[str]) -> str:
        return found[0] if found[1] in cpus else ""

    text = re.sub(r'"target-features"="([^"]*)"', features, text)
    return re.sub(r'"(?:target|tune)-cpu"="([^"]*)" ?', cpu, text)


def for_this_machine(text: str) -> str:
    """IR that says nothing about a machine, so that it is compiled for the one it will run on."""
    text = re.sub(r'^target (?:triple|datalayout) = ".*"\n', "", text, flags=re.M)
    return re.sub(r' ?"(?:target-cpu|tune-cpu|target-features)"="[^"]*"', "", text)


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
