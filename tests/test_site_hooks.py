"""The hooks of the site, without mkdocs."""

import importlib.util
import re
import sys
import types

import pytest
import yaml
from locations import REPOSITORY

from lws_lightning import __version__


@pytest.fixture
def hooks(monkeypatch):
    converter = types.SimpleNamespace(convert=lambda text, display: f"<math {display}>{text}</math>")
    monkeypatch.setitem(sys.modules, "latex2mathml", types.ModuleType("latex2mathml"))
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", converter)
    spec = importlib.util.spec_from_file_location("site_hooks", REPOSITORY / "docs/site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def readme(hooks, monkeypatch, tmp_path):
    def write(text):
        monkeypatch.setattr(hooks, "README", tmp_path / "README.md")
        (tmp_path / "README.md").write_text(text, encoding="utf-8")

    return write


MENU = {"nav": [{"Home": "index.md"}, {"Use it": [{"Options": "configuration.md"}]}]}


def test_a_section_with_links_and_headings(hooks, readme):
    readme(
        "# Title\n\nTop.\n\n## Results\n\nOne [page](docs/a.md), [file](LICENSE).\n\n"
        "### Deeper\n\nWords.\n\n## Next\n\nElse.\n"
    )
    page = hooks.on_page_markdown("# Results\n\n{{ README: Results }}\n", MENU)
    assert "[page](a.md), file." in page
    assert re.findall(r"^#+ .*$", page, re.MULTILINE) == ["# Results", "## Deeper"]
    assert "Else." not in page
    assert hooks.on_page_markdown("{{ README: top }}", MENU).strip() == "Top."


def test_a_section_that_is_not_there(hooks, readme):
    readme("# Title\n")
    with pytest.raises(ValueError, match="no heading 'Results'"):
        hooks.on_page_markdown("{{ README: Results }}", MENU)


def test_formulas_become_mathml(hooks):
    page = r'<p><span class="arithmatex">\(a &lt; b\)</span></p><div class="arithmatex">\[c\]</div>'
    assert hooks.on_page_content(page) == (
        '<p><math inline>a < b</math></p><div class="formula"><math block>c</math></div>'
    )


def test_every_environment_of_a_formula_is_one_that_the_converter_knows(hooks):
    pages = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").rglob("*.md")]
    used = {hooks.formula(found, True) for page in pages for found in re.findall(r"\\begin\{\w+\}", page)}
    assert used == {r"<math inline>\begin{split}</math>", r"<math inline>\begin{cases}</math>"}


def test_a_link_that_shows_a_file_name_shows_the_name_of_the_page(hooks, readme):
    readme("# Title\n\nSee [docs/configuration.md](docs/configuration.md#files).\n")
    page = hooks.on_page_markdown("[configuration.md](configuration.md), [how](a.md), [b.md](b.md)", MENU)
    assert page == "[Options](configuration.md), [how](a.md), [b.md](b.md)"
    assert "See [Options](configuration.md#files)." in hooks.on_page_markdown("{{ README: top }}", MENU)


def test_no_line_ends_within_an_option(hooks):
    assert hooks.on_page_content("<code>lws fit --a.b_c X</code>") == (
        '<code>lws fit <span class="option">--a.b_c</span> X</code>'
    )
    assert hooks.on_page_content("<code>--jobs</code>") == '<code><span class="option">--jobs</span></code>'
    command = '<div class="language-bash highlight"><pre><code>lws<span class="w"> </span>{}</code></pre></div>'
    whole = command.format('<span class="option">--help</span>')
    assert hooks.on_page_content(command.format("--help")) == whole
    for unchanged in ("<code>a - b, a-b</code>", "<pre><code>lws --help</code></pre>", "<p>--jobs</p>"):
        assert hooks.on_page_content(unchanged) == unchanged


def test_the_site_is_set_up():
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    plain = yaml.safe_load(re.sub(r"!ENV |!!python/\S+", "", text))
    assert {"navigation.footer", "navigation.top"} <= set(plain["theme"]["features"])
    for file in plain["extra_css"]:
        assert "overflow-x: auto" in (REPOSITORY / "docs" / file).read_text(encoding="utf-8")


def test_the_citation_is_that_of_this_version():
    cited = (REPOSITORY / "docs/cite.md").read_text(encoding="utf-8")
    assert f"version = {{{__version__}}}" in cited
    assert f"version: {__version__}" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
