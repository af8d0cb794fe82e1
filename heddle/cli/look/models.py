"""`heddle models`: the presets, families and features that a [model] may have."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """List the models that Heddle knows: presets, Hugging Face families, and the features of [model]."""
    import json

    from rich.table import Table

    from heddle.console import plain_console

    console, every = plain_console(), known()
    if as_json:
        console.out(json.dumps(every))
        return
    presets = Table("preset", "parameters", "layers", "hidden", box=None, title="Presets", title_justify="left")
    for name, model in every["presets"].items():
        presets.add_row(name, f"{model['parameters']:,}", str(model["layers"]), str(model["hidden"]))
    families = Table("family", "features", box=None, title="Hugging Face families, in and out", title_justify="left")
    for name, family in every["families"].items():
        families.add_row(name, ", ".join(family["features"]))
    features = Table("key", "values", "families", box=None, title="Features of [model]", title_justify="left")
    for name, feature in every["features"].items():
        features.add_row(name, feature["values"], ", ".join(feature["families"]))
    for table in (presets, families, features):
        console.print(table)
        console.print()


def known() -> dict[str, Any]:
    """Presets with their sizes, families with what sets them apart, features with the families that have them."""
    from dataclasses import fields
    from typing import Literal, get_args, get_origin, get_type_hints

    from heddle.spec.hf.families import FAMILIES
    from heddle.spec.model import ModelSpec
    from heddle.spec.presets import model_presets
    from heddle.spec.shorthand import model_from_table

    presets = {name: model_from_table({"preset": name}) for name in model_presets()}
    usual = {field.name: field.default for field in fields(ModelSpec)}
    families = {
        name: {"architecture": family.architecture, "features": family.features(usual)}
        for name, family in FAMILIES.items()
    }
    hints = get_type_hints(ModelSpec)
    sizes = {"name", "layers", "hidden", "heads", "vocab", "sequence", "family"}
    features = {
        name: {
            "values": " ".join(map(str, get_args(hint))) if get_origin(hint) is Literal else "",
            "families": [
                family
                for family, said in families.items()
                if any(each.partition(" ")[0] == name for each in said["features"])
            ],
        }
        for name, hint in hints.items()
        if name not in sizes
    }
    return {
        "presets": {
            name: {"parameters": model.parameters, "layers": model.layers, "hidden": model.hidden}
            for name, model in presets.items()
        },
        "families": families,
        "features": features,
    }
