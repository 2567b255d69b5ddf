"""What the README and the documentation show: links, pages, and snippets that run."""

import multiprocessing
import re
import runpy
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from fakes import write_folders
from locations import REPOSITORY

from lws_lightning.cli import resolve_config

DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
HERE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
PHOTOS = {"birds": {"crow": 12, "owl": 14}, "cars": {"old": 12, "new": 12}}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"Save this as `([\w./]+)`")


def blocks(page, language):
    """(the paragraph before, the code) of each block of a language."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match[1] == language:
            before = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
            found.append((before, match[2]))
    return found


def write_files(page, folder):
    """Writes what the page says to save, and returns the other blocks of Python."""
    rest = []
    for language in ("python", "yaml"):
        for before, code in blocks(page, language):
            saved = SAVED_AS.search(before)
            if saved:
                (folder / saved[1]).write_text(code, encoding="utf-8")
            elif language == "python":
                rest.append(code)
    return rest


@cache
def headings(text):
    return {line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")}


def test_every_page_is_in_the_site_and_every_page_of_the_site_is_there():
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    listed = set()
    parts = [navigation]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            listed.add(part)
        else:
            parts += part if isinstance(part, list) else part.values()
    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


@HERE
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
    for heading in re.findall(r"^\{\{ README: (.+) \}\}$", text, re.MULTILINE):
        assert heading == "top" or heading in headings(PAGES[0].read_text(encoding="utf-8")), heading


SLOW_SNIPPETS = ("export", "other_tasks", "own_network")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW_SNIPPETS else ()) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    """In order and in one namespace, with a few steps instead of many."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_folders(tmp_path / "photos", PHOTOS)
    codes = write_files(page, tmp_path)
    if not codes:
        pytest.skip("no snippet to run")
    script = tmp_path / "snippet.py"
    script.write_text(re.sub(r"max_steps=\d+", "max_steps=2", "\n".join(codes)), encoding="utf-8")
    if page.stem in SLOW_SNIPPETS or "fork" not in multiprocessing.get_all_start_methods():
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return
    # A copy of this process has Lightning already, whose import takes seconds.
    process = multiprocessing.get_context("fork").Process(target=run_alone, args=(script,))
    process.start()
    process.join(280)
    process.kill()  # no effect on one that has ended
    assert process.exitcode == 0


def run_alone(script):
    """Runs a script as Python does, with its folder's own modules and none that another test imported."""
    for path in script.parent.rglob("*.py"):
        sys.modules.pop(path.stem, None)
    sys.argv[:] = [str(script)]
    runpy.run_path(str(script), run_name="__main__")


def commands(page):
    """The words of each `lws fit` and `lws sweep` that a page shows, in blocks or within the text."""
    text = page.read_text(encoding="utf-8")
    lines = [line for _, code in blocks(page, "bash") for line in without_loops(code.replace("\\\n", " ").splitlines())]
    lines += re.findall(r"`(lws (?:fit|sweep) [^`]*configs/[^`]*)`", FENCE.sub("", text))
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[2:] if words[:3] == ["python", "-m", "lws_lightning"] else words
        if words[:2] == ["lws_lightning", "fit"] or words[:2] in (["lws", "fit"], ["lws", "sweep"]):
            found.append(words[1:])
    return found


def without_loops(lines):
    """Writes the bodies of a shell's `for` loops out."""
    name, values = "", [""]
    for line in lines:
        if head := re.fullmatch(r"for (\w+) in (.+); do", line):
            name, values = head[1], head[2].split()
        elif line == "done":
            name, values = "", [""]
        else:
            yield from (line.replace(f"${name}", value) if name else line for value in values)


def expand(pattern):
    """The files that a shell makes of a pattern with braces or asterisks, or one that the page says to save."""
    if Path(pattern).is_file():
        return [Path(pattern).resolve()]
    made = subprocess.run(
        ["bash", "-c", f"ls -d {pattern}"], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return [Path(REPOSITORY / line) for line in made.stdout.split()]


@HERE
def test_shown_commands_are_understood(page, tmp_path, monkeypatch):
    """Every configuration file is there, and every option is one of `lws fit`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(page, tmp_path)
    for subcommand, *words in commands(page):
        if any(word.startswith("CONFIG") for word in words) or ("--config" not in words and subcommand == "fit"):
            continue
        words = [word for word in words if word != "--print_config"]
        first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
        chains = [[expand(part) for part in word.split("+")] for word in words[:first]]
        configs = [config for chain in chains for config in chain[0]]
        own = [overlay for chain in chains[:1] for part in chain[1:] for overlay in part]
        options, overlays = without(words[first:], ("--seeds", "--jobs", "--out", "--cluster"))
        configs, overlays = (configs, overlays) if subcommand == "sweep" else (overlays[:1], overlays[1:])
        assert configs
        for chain in chains[1:]:  # each further one with overlays of its own
            if len(chain) > 1:
                chained = [word for part in chain[1:] for word in ("--config", str(part[0]))]
                assert resolve_config(chain[0][0], chained)["model"]
        given = [word for overlay in (*own, *overlays) for word in ("--config", str(overlay))]
        assert resolve_config(configs[0], [*given, *options])["model"]


def without(options, names):
    """Leaves out options of `lws sweep` itself, each with its value; the files of `--config` apart."""
    kept, files = [], []
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name == "--config":
            files += expand(value)
        elif name.split(".")[0] not in names:
            kept += [name, value]
    return kept, files
