"""What mkdocs does not do by itself: sections of the README as pages, and formulas without a script."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

README = Path(__file__).parent.parent / "README.md"
_INCLUDED = re.compile(r"^\{\{ README: (.+) \}\}$", re.MULTILINE)
_ELSEWHERE = re.compile(r"(?<!!)\[([^]]+)\]\((?!docs/|https?://|#)[^)]+\)")  # files that are not part of the site
_FILE_NAME = re.compile(r"\[(?:docs/)?(\w+\.md)\]\((?!https?:)")  # a link whose text is the name of a page's file
_VERBATIM = re.compile(r"(<pre.*?</pre>)", re.DOTALL)
_CODE = re.compile(r"<code>[^<]*</code>")
_OPTION = re.compile(r"(?<![^\s>])-{1,2}\w[^\s<]{0,40}")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_markdown(markdown: str, config: Mapping[str, Any], **_: Any) -> str:
    """Replaces `{{ README: heading }}` by that section of the README, so that nothing is written twice.

    Links whose text is a file name, as one wants it in a folder of files, get the name that the page has in the menu.
    """
    names = page_names(config["nav"])
    page = _INCLUDED.sub(lambda found: readme_section(found[1]), markdown)
    return _FILE_NAME.sub(lambda found: f"[{names.get(found[1], found[1])}](", page)


def on_page_content(content: str, **_: Any) -> str:
    """Turns formulas into MathML, which browsers show by themselves, and keeps lines from ending within an option."""
    parts = _VERBATIM.split(content)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = _CODE.sub(lambda code: _keep_options_whole(code[0]), part)
        elif parts[i - 1].endswith('<div class="language-bash highlight">'):
            parts[i] = _keep_options_whole(part)
    return _FORMULA.sub(lambda found: formula(html.unescape(found[3]).strip(), found[2] == "("), "".join(parts))


def formula(tex: str, inline: bool) -> str:
    """Returns a formula as MathML; one that stands by itself is in a box that scrolls where it is too wide."""
    for end in ("begin", "end"):  # the same in LaTeX, but latex2mathml knows only the other name
        tex = tex.replace(f"\\{end}{{aligned}}", f"\\{end}{{split}}")
    if inline:
        return convert(tex, display="inline")
    return f'<div class="formula">{convert(tex, display="block")}</div>'


def _keep_options_whole(code: str) -> str:
    return _OPTION.sub(lambda found: f'<span class="option">{found[0]}</span>', code)


def page_names(nav: list[dict[str, Any]]) -> dict[str, str]:
    """Returns the name in the menu of each file, whatever the section it stands in."""
    names = {}
    for entry in nav:
        for name, place in entry.items():
            names.update({place: name} if isinstance(place, str) else page_names(place))
    return names


def readme_section(heading: str) -> str:
    """Returns a section of the README without its heading, its links as they are seen from docs/.

    Of a link to a file outside of docs/ only the text is left.

    Args:
        heading: The text of the heading, or "top" for what stands before the first `##`.

    Raises:
        ValueError: If the README has no such heading.
    """
    text = README.read_text(encoding="utf-8")
    if heading == "top":
        section = text.split("\n## ")[0].split("\n", 1)[1]
    else:
        start = re.search(rf"^(##+) {re.escape(heading)}\n", text, re.MULTILINE)
        if start is None:
            raise ValueError(f"README.md has no heading {heading!r}, which a page of the site includes.")
        level = len(start[1])
        rest = text[start.end() :]
        end = re.search(rf"^#{{2,{level}}} ", rest, re.MULTILINE)
        section = rest[: end.start()] if end else rest
        section = re.sub(rf"^#{{{level}}}(#+ )", r"#\1", section, flags=re.MULTILINE)  # ### below ## becomes ##
    section = _ELSEWHERE.sub(r"\1", section)
    return re.sub(r"\]\(docs/", "](", section)
