"""Every Python block of README.md and docs/ runs, and prints what it says it prints.

The blocks of a page share a namespace, in a process of their own. A comment `# -> text` states the line that its statement prints.
"""

import re
import subprocess

import pytest

from tests.docs.markdown import PAGES, ROOT, blocks

LANGUAGES = {"python", "bash", "text", "cpp", "yaml"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks(page, script):
    parts = [block for block in blocks(page) if block.language == "python"]
    if not parts:
        return
    # Compiled one by one, moved down to their lines, so that a traceback points into the page.
    name = str(page.relative_to(ROOT))
    program = "names = {'__name__': '__main__'}\n" + "".join(
        f"exec(compile({chr(10) * (part.line - 1) + part.text!r}, {name!r}, 'exec'), names)\n" for part in parts
    )
    ran = script(program)
    said = [text for part in parts for text in re.findall(r"# -> (.*)$", part.text, flags=re.M)]
    if said:
        assert ran.stdout.splitlines() == said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_block_languages(page):
    """A language outside this set, such as `python no-run`, would escape the tests."""
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    named = {
        command
        for block in blocks(page)
        if block.language == "bash"
        for command in re.findall(r"\./dev (\w+)", block.text)
    }
    usage = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True).stdout
    assert named <= set(re.findall(r"^  (\w+)", usage, flags=re.M))


def test_readme_script_is_short():
    """README.md promises eight lines."""
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len(first.text.splitlines()) == 8
