"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from leaselock import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "leaselock"
author = "the leaselock authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"

HERE = Path(__file__).parent
# The index names the decision records that the site publishes.
PUBLISHED = re.findall(r"\]\((decisions/[\w.-]+)\)", (HERE / "index.md").read_text("utf-8"))
RECORDS = {f"decisions/{file.name}" for file in (HERE / "decisions").glob("*.md")}
exclude_patterns = ["_build", *sorted(RECORDS.difference(PUBLISHED))]

html_theme = "furo"
html_title = f"leaselock {version}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")

myst_heading_anchors = 3

autodoc_member_order = "bysource"
# `Lock.acquire` in a docstring is a link.
default_role = "py:obj"
python_maximum_signature_line_length = 80
# Names of private types, which the signatures of public functions mention.
nitpicky = False

# Pages at the root of the repository, which the site has, too: the build copies them to project/.
ROOT_PAGES = (
    *("README", "CHANGELOG", "CONTRIBUTING", "SECURITY"),
    *("CODE_OF_CONDUCT", "AUTHORS"),
)
TO_ROOT_PAGE = re.compile(rf"\]\((?:\.\./)*({'|'.join(ROOT_PAGES)})\.md\)")

# Pages beside the code that they describe, which the site does not have.
TO_CODE_PAGE = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)*((?:src|tests|verification)/[^)#]+\.md)(#[^)]*)?\)"
)
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]
SOURCE: str = PROJECT["urls"]["Source"]

TO_PAGE = re.compile(r"\]\((/?[\w/.-]+)\.md\)")


def copy_root_pages(*_: object) -> None:
    """Write the pages of the repository's root to project/, with links that lead to the site."""
    folder = HERE / "project"
    folder.mkdir(exist_ok=True)
    for page in ROOT_PAGES:
        text = (HERE.parent / f"{page}.md").read_text("utf-8").replace("](docs/", "](/")
        target = folder / f"{page.lower()}.md"
        if not target.exists() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")


def link_root_pages(_app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to the pages of the repository's root lead to their copies."""
    source[0] = TO_ROOT_PAGE.sub(lambda found: f"](/project/{found[1].lower()}.md)", source[0])
    source[0] = TO_CODE_PAGE.sub(code_page, source[0])
    if name == root_doc:
        source[0] += sidebar(source[0])


def code_page(link: re.Match[str]) -> str:
    """Return a link to a page of the repository; its path where the repository has no URL yet."""
    if ".example/" not in SOURCE:
        return f"[{link[1]}]({SOURCE}/blob/v{release}/{link[2]}{link[3] or ''})"
    return f"{link[1]} (`{link[2]}`)"


def sidebar(index: str) -> str:
    """Return the tables of the sidebar: the sections and links of the index, in its order."""
    tables = []
    for section in re.split(r"^## ", index, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        pages = "\n".join(dict.fromkeys(TO_PAGE.findall(body)))
        tables.append(f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n{pages}\n```\n")
    return "".join(tables)


def shown_signature(
    _app: Sphinx,
    _kind: str,
    _name: str,
    _what: object,
    _options: object,
    text: str | None,
    returned: str,
) -> tuple[str, str] | None:
    """Return a signature without the argument that refuses those of other libraries."""
    return (re.sub(r", \*\*unknown: [\w.~]+", "", text), returned) if text else None


def setup(app: Sphinx) -> None:
    """Add the pages of the root."""
    app.connect("config-inited", copy_root_pages)
    app.connect("autodoc-process-signature", shown_signature)
    app.connect("source-read", link_root_pages)
