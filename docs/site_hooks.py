"""What mkdocs does not do by itself: sections of the README as pages, and formulas without a script."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

README = Path(__file__).parent.parent / "README.md"
_INCLUDED = re.compile(r"^\{\{ README: (.+) \}\}$", re.MULTILINE)
_ELSEWHERE = re.compile(r"(?<!!)\[([^]]+)\]\((?!docs/|https?://|#)[^)]+\)")  # files that are not part of the site
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces `{{ README: heading }}` by that section of the README, so that nothing is written twice."""
    return _INCLUDED.sub(lambda found: readme_section(found[1]), markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turns formulas into MathML, which browsers show by themselves."""
    return _FORMULA.sub(
        lambda found: convert(html.unescape(found[3]).strip(), display="inline" if found[2] == "(" else "block"),
        content,
    )


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
