"""HTML and SVG elements as strings in which everything is escaped that is not markup already."""

from __future__ import annotations

import html

__all__ = ["Markup", "element", "join"]

VOID_TAGS = frozenset({"br", "col", "hr", "meta"})


class Markup(str):
    """Text that is markup: it is not escaped again."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """Return an element. What is not `Markup` is escaped; None is left out.

    A name may end in an underscore, as Python needs for "class", and has hyphens elsewhere.

    >>> element("p", "a < b, ", element("b", "c"), class_="note", data_x=1.0)
    '<p class="note" data-x="1">a &lt; b, <b>c</b></p>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID_TAGS:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*parts: str | None) -> Markup:
    """Put parts together, of which those that are not markup are escaped.

    >>> join(element("i", "x"), " & ", None, "y")
    '<i>x</i> &amp; y'
    """
    return Markup("".join(_escaped(part) for part in parts if part is not None))


def _escaped(part: str) -> str:
    return part if isinstance(part, Markup) else html.escape(part)


def _attribute(value: str | float) -> str:
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")  # positions: a hundredth of a pixel
        return "0" if value == "-0" else value
    return html.escape(str(value))
