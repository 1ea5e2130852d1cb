"""TF1: ``tf.contrib.training``: HParams, and where parameter servers hold variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from numbers import Integral, Number
from typing import Any

from asyncmon.distributed import *

__all__ = ["GreedyLoadBalancingStrategy", "HParams", "RandomStrategy", "byte_size_load_fn"]

_ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)\s*=\s*(?:\[(?P<list>[^\]]*)\]|(?P<one>[^,\[]*))(?:$|,\s*)"
)


class HParams:
    """Hyperparameters: named values with fixed types. TF1: same name.

    A list is not empty and has elements of one type.

    Args:
        hparam_def: must be None: protocol buffers are not supported.
        model_structure: must be None.
        **kwargs: the names and values.

    Example:
        >>> hparams = HParams(learning_rate=0.1, layers=[10, 20])
        >>> hparams.parse("learning_rate=0.01,layers=[30]").values()
        {'learning_rate': 0.01, 'layers': [30]}
    """

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        for given, what in ((hparam_def, "hparam_def"), (model_structure, "model_structure")):
            if given is not None:
                raise ValueError(f"{what} must be None, got {given!r}: pass names and values.")
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a value, whose type is fixed from here on.

        ValueError for the name of another value or of a method, and for an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, list | tuple)
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a value, which is cast to the fixed type if that loses nothing.

        KeyError for an unknown name; ValueError for another type, or a list in place of one value.
        """
        setattr(self, name, self._checked(name, value))

    def _checked(self, name: str, value: Any) -> Any:
        """Return a value, or a list of values, cast to the type of a name."""
        kind, is_list = self._hparam_types[name]
        if is_list != isinstance(value, list | tuple):
            wanted = "Must pass a list for multi" if is_list else "Must not pass a list for single"
            raise ValueError(f"{wanted}-valued parameter: {name}")
        return [_cast(name, kind, one) for one in value] if is_list else _cast(name, kind, value)

    def parse(self, values: str) -> HParams:
        """Set values from a text like ``"rate=0.1,layers=[10,20],name=x"``; return ``self``.

        ValueError for another form, an unknown or repeated name, or a value of another type.
        """
        found: dict[str, Any] = {}
        at = 0
        while at < len(values):
            match = _ASSIGNMENT.match(values, at)
            if match is None:
                raise ValueError(f"Malformed hyperparameter value: {values[at:]}")
            at, name = match.end(), match["name"]
            if name not in self._hparam_types:
                raise ValueError(f"Unknown hyperparameter type for {name}")
            if name in found:
                raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
            kind = self._hparam_types[name][0]
            if match["list"] is None:
                found[name] = _parsed(name, kind, match["one"].strip(), values)
            else:
                texts = [text.strip() for text in match["list"].split(",") if text.strip()]
                found[name] = [_parsed(name, kind, text, values) for text in texts]
        return self.override_from_dict(found)

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Set values by name; return ``self``. Errors as in :meth:`set_hparam`."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Set values from a JSON object; return ``self``. Errors as in :meth:`set_hparam`."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, **options: Any) -> str:
        """Return the values as a JSON object, without functions; options are for ``json.dumps``."""
        return json.dumps({k: v for k, v in self.values().items() if not callable(v)}, **options)

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or ``default`` for an unknown name."""
        return getattr(self, key) if key in self else default

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return str(sorted(self.values().items(), key=lambda pair: pair[0]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"HParams has no value {name!r}.", name=name, obj=self)


def _cast(name: str, kind: Any, value: Any) -> Any:
    text = issubclass(kind, str | bytes)
    wrong = (
        (text and not isinstance(value, kind))
        or issubclass(kind, bool) != isinstance(value, bool)
        or (issubclass(kind, Integral) and not isinstance(value, Integral))
        or (issubclass(kind, Number) and not isinstance(value, Number))
    )
    if kind is type(None):
        return value
    if wrong:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    return kind(value)


def _parsed(name: str, kind: Any, text: str, values: str) -> Any:
    try:
        if issubclass(kind, bool):
            return {"true": True, "false": False}[text.lower()] if text.isalpha() else bool(int(text))
        return text if kind is type(None) else kind(text)
    except (ValueError, KeyError):
        raise ValueError(
            f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' in {values}"
        ) from None
