"""Settings that are asked for: read, checked, and filled up by those that suit the data."""

import json
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.training.automatic import automatic
from saas_ssl.training.presets import Settings
from saas_ssl.vision.augment import named_recipe
from saas_ssl.vision.networks import named_factory


def chosen_settings(
    data: PartiallyLabelled, base: Settings | None, given: Mapping[str, Any]
) -> Settings:
    """The base settings, or without any those that suit the data, but for what is given."""
    try:
        if base is not None:
            return base.changed(**given)
        shape, labelled = tuple(data.x.shape[1:]), len(data.labelled_rows)
        return automatic(shape, labelled, len(data.unlabelled_rows), **given)
    except ValidationError as error:
        raise ValueError(plainly(error)) from None


def checked(base: Settings | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, as the types it must have; refused before any image is decoded."""
    try:
        settings = (base or Settings(classifier_schedule="triangular")).changed(**given)
    except ValidationError as error:
        raise ValueError(plainly(error)) from None
    named_factory(settings.network)
    named_recipe(settings.augmentation)
    if settings.classifier_augmentation not in ("same", "strong"):
        named_recipe(settings.classifier_augmentation)
    return {name: getattr(settings, name) for name in given}


def setting(text: str) -> tuple[str, Any]:
    """name=value -> (name, value); numbers, true, false and none by what they mean."""
    name, equals, value = text.partition("=")
    name, value = name.strip().replace("-", "_"), value.strip()
    if not equals or not name:
        raise ValueError(f"{text!r} is not of the form name=value")
    field = Settings.model_fields.get(name)
    if value == "none" and field is not None and type(None) in get_args(field.annotation):
        return name, None
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def plainly(error: ValidationError) -> str:
    """The first of pydantic's complaints as a sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name!r}: choose one of {', '.join(Settings.model_fields)}"
    message = first["msg"].removeprefix("Value error, ")
    if not name:  # about several settings at once
        return message
    return f"{name}: {message[0].lower()}{message[1:]}, not {first['input']!r}"
