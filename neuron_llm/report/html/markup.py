"""Elements of HTML and SVG, every text in them escaped. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already; any other text is escaped where it is put in."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: object) -> Markup:
    """Return `<name attributes>children</name>`.

    Args:
        name: of the element.
        children: text, which is escaped, or markup.
        attributes: their names with `_` for `-` and `class_` for `class`; None leaves one out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Return the parts one after another, escaped unless they are markup."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def _value(value: object) -> str:
    """Write a coordinate as short as a picture needs it."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
