"""Which parameter is split how: by patterns of names, each parameter by exactly one.

column      a product's outputs: each rank computes some of them
row         a product's inputs: each rank has some, and the parts are summed
vocabulary  rows of an embedding; outputs of a head, which are gathered
partial     whole on every rank, but each sees only its share of what it is used for: gradients are summed
replicated  whole on every rank, which all compute the same
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from heddle.errors import HeddleError, listing
from heddle.models.own.files import ROLES, OwnFile

# What Hugging Face's tp_plan calls them.
THEIRS = {
    "colwise": "column",
    "rowwise": "row",
    "colwise_gather_output": "vocabulary",
    "colwise_rep": "vocabulary",
    "embedding_rowwise": "vocabulary",
    "replicated_with_grad_allreduce": "partial",
    "replicated": "replicated",
}
# Attributes that count heads, in modules that have a product whose outputs are split: each rank has its share.
HEADS = (
    "num_heads",
    "n_heads",
    "n_head",
    "heads",
    "num_attention_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_kv_heads",
    "kv_heads",
)
SHOWN = 8  # parameters that an error lists


@dataclass(frozen=True)
class PatternRule:
    """How a parameter is split, and which pattern says so."""

    role: str
    pattern: str

    def __str__(self) -> str:
        return f"'{self.pattern}' ({self.role})"


def rules_of(file: OwnFile, module: nn.Module) -> dict[str, PatternRule]:
    """The rule of every parameter by name; none at all where nobody has given patterns."""
    names = [name for name, _ in module.named_parameters()]
    if file.patterns:
        given = [PatternRule(role, pattern) for role in ROLES for pattern in file.patterns.get(role, ())]
        aliases: dict[str, list[str]] = {name: [] for name in names}  # of weights that two modules share
        first = {parameter: name for name, parameter in module.named_parameters()}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            aliases[first[parameter]].append(name)
        found = {
            name: list(dict.fromkeys(rule for rule in given if any(covers(rule.pattern, each) for each in own)))
            for name, own in aliases.items()
        }
        _check(file, {name: _one_of_each(rules, aliases[name]) for name, rules in found.items()})
        if idle := [rule for rule in given if not any(rule in rules for rules in found.values())]:
            raise HeddleError(
                f"{file.path}: the pattern {idle[0]} matches no parameter.",
                "A pattern that matches nothing was meant for something.",
                f"Names look like {listing(names[:: max(1, len(names) // 3)][:3])}.",
            )
        return {name: rules[0] for name, rules in found.items()}
    planned = getattr(module, "tp_plan", None) or {}
    if not planned:
        return {}
    return {name: _their_rule(file, planned, name) for name in names}


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern is about a parameter: it matches its name, or that of the module that has it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[0], pattern)


def _one_of_each(rules: list[PatternRule], aliases: list[str]) -> list[PatternRule]:
    """The rules of a parameter; of one that is shared, one for all its names if they agree."""
    alone = all(sum(covers(rule.pattern, name) for rule in rules) <= 1 for name in aliases)
    return rules[:1] if alone and len({rule.role for rule in rules}) == 1 else rules


def _check(file: OwnFile, found: dict[str, list[PatternRule]]) -> None:
    bare = [name for name, rules in found.items() if not rules]
    several = [f"{name} by {' and '.join(map(str, rules))}" for name, rules in found.items() if len(rules) > 1]
    if not bare and not several:
        return
    lines = [f"no pattern: {name}" for name in bare[:SHOWN]] + [f"more than one: {each}" for each in several[:SHOWN]]
    left = len(bare) + len(several) - len(lines)
    raise HeddleError(
        f"{file.path}: {len(bare)} parameters are covered by no pattern of plan, {len(several)} by more than one:",
        "\n".join([*lines, *([f"… and {left} more"] if left else [])]),
        f"Every parameter is covered by exactly one pattern: {listing(ROLES)}.",
    )


def _their_rule(file: OwnFile, planned: dict[str, str], name: str) -> PatternRule:
    """Of Hugging Face's plan; what that does not name is whole everywhere."""
    rules = [(pattern, style) for pattern, style in planned.items() if covers(pattern, name)]
    if not rules:
        return PatternRule("replicated", "what tp_plan does not name")
    pattern, style = rules[0]
    if style not in THEIRS:
        raise HeddleError(
            f"{file.path}: the module's tp_plan has the style {style!r} for {pattern}, which Heddle does not know.",
            f"Known: {listing(list(THEIRS))}.",
            "Write patterns of your own: plan = {'column': […], 'row': […], …}.",
        )
    return PatternRule(THEIRS[style], f"tp_plan: {pattern}")


def shared_sizes(module: nn.Module, rules: dict[str, PatternRule], divide: tuple[str, ...] | None) -> list[int]:
    """The sizes that tensor ranks must divide; a vocabulary may be padded."""
    sizes = []
    for name, parameter in module.named_parameters():
        rule = rules.get(name)
        owner = module.get_submodule(name.rpartition(".")[0])
        if rule is not None and rule.role in ("column", "row"):
            dim = split_dim(owner, name, rule.role)
            sizes += [] if dim is None or dim >= parameter.dim() else [parameter.shape[dim]]
    config = getattr(module, "config", None) if rules and divide is None else None
    stated = [getattr(config, name, None) for name in HEADS]
    heads = [value for value in stated if isinstance(value, int) and value > 0]
    return sizes + heads + [value for _, _, value in divided(module, rules, divide)]


def split_dim(owner: nn.Module, name: str, role: str) -> int | None:
    """Along which dim a parameter of a module is split; None: it is not, as a bias that is added after a sum."""
    bias = name.endswith("bias") and (isinstance(owner, nn.Linear) or is_conv1d(owner))
    if role == "row":
        return None if bias else 0 if is_conv1d(owner) else 1
    if role == "column":
        return 1 if is_conv1d(owner) and not bias else 0
    return 0 if role == "vocabulary" else None


def is_conv1d(module: nn.Module) -> bool:
    """Whether it is Hugging Face's product with a transposed weight, as in GPT-2."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def divided(
    module: nn.Module, rules: dict[str, PatternRule], divide: tuple[str, ...] | None
) -> list[tuple[nn.Module, str, int]]:
    """Modules, and attributes of theirs, that each tensor rank has a share of: as the file says, or counts of heads."""
    found = []
    for path, each in module.named_modules():
        for name, value in vars(each).items():
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            full = f"{path}.{name}" if path else name
            if divide is not None:
                wanted = any(fnmatchcase(full, pattern) for pattern in divide)
            else:
                wanted = name in HEADS and _splits(path, each, rules)
            if wanted:
                found.append((each, name, value))
    return found


def _splits(path: str, module: nn.Module, rules: dict[str, PatternRule]) -> bool:
    """Whether a module has, right below it, a product whose outputs are split."""
    below = [f"{path}.{name}.weight" if path else f"{name}.weight" for name, _ in module.named_children()]
    return any(name in rules and rules[name].role == "column" for name in below)
