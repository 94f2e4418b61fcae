"""Every link between the pages leads somewhere."""

import re
import subprocess

import pytest

from tests.docs.markdown import PAGES, ROOT, prose


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            broken.append(target)
    assert not broken


def test_every_page_is_reachable():
    """A page that README.md does not lead to is a page nobody reads."""
    linked, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in linked:
            continue
        linked.add(page)
        targets = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", prose(page))
        queue += [(page.parent / t).resolve() for t in targets if "://" not in t]
    assert set(PAGES) <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page):
    """Paths in backticks, such as `csrc/driver/accel.h`, are files or folders of this tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    named = re.findall(r"`((?:csrc|torch_accel|tests|docs|benchmarks|\.github|\.ci)/[\w./]*)`", page.read_text())
    missing = [n for n in named if not any(f == n or f.startswith(f"{n.rstrip('/')}/") for f in listed)]
    assert not missing
