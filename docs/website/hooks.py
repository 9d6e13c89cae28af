"""Hooks of MkDocs: files of the repository become pages, and diagrams need no network.

Each file of the repository that a page links to becomes a page under `repository/`, README.md the first page.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
ASSETS = {
    "assets/site.css": HERE / "site.css",
    "assets/site.js": HERE / "site.js",
    "assets/mermaid.js": HERE / "node_modules/mermaid/dist/mermaid.min.js",
    "assets/iframe-worker.js": HERE / "node_modules/iframe-worker/shim/index.js",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".ts": "ts", ".sh": "bash"}
_SEARCH = 'data-md-component="search" role="dialog" aria-label="Search"'
_TITLE = re.compile(r'id="(__nav_\w+_label)".*?<span class="md-ellipsis">\s*([^<]+)', re.DOTALL)
_SECTION = re.compile(r'aria-labelledby="(__nav_\w+_label)"')
_CORNER = re.compile(r"<th([^>]*)></th>")
_FOLDERS = {"Operator": "runbooks", "Project": "decisions"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add every runbook and every decision to the navigation."""
    assert config.nav is not None
    for section in config.nav:
        ((title, pages),) = section.items()
        if folder := _FOLDERS.get(title):
            found = sorted(path.name for path in (Path(config.docs_dir) / folder).glob("*.md"))
            found.sort(key=lambda name: name != "README.md")
            pages.append({folder.capitalize(): [f"{folder}/{name}" for name in found]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and scripts that are not in docs."""
    for uri, path in ASSETS.items():
        if not path.is_file():
            raise PluginError(f"{path.relative_to(REPOSITORY)} is not there: run `make site`, which installs it")
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    waiting = ["README.md"]
    for file in list(files):
        if file.is_documentation_page():
            waiting += _links(f"docs/{file.src_uri}", file.content_string)
    while waiting:
        path = waiting.pop()
        if (REPOSITORY / path / "README.md").is_file():
            path += "/README.md"
        uri = page_of(path)
        if files.get_file_from_path(uri) is None:
            text = _as_markdown(path)
            files.append(File.generated(config, uri, content=text))
            waiting += _links(path, text)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links to files of the repository lead to their pages."""
    here = source_of(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1])))
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".") + (match[2] or "")

    return "".join(text if _CODE.match(text) else _LINK.sub(rewritten, text) for text in _CODE.split(markdown))


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Add labels for screen readers, and our copy of Mermaid to pages with a diagram.

    Material would fetch Mermaid from another host.
    """
    output = _named(output)
    if 'class="mermaid"' not in output:
        return output
    script = posixpath.relpath("assets/mermaid.js", posixpath.dirname(page.file.url) or ".")
    return output.replace("</head>", f'<script src="{script}"></script></head>', 1)


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Add labels for screen readers to 404.html."""
    return _named(output) if template_name.endswith(".html") else output


def _named(output: str) -> str:
    """Label the search and the lists of pages; make a table's empty corner an ordinary cell."""
    output = output.replace('data-md-component="search" role="dialog"', _SEARCH, 1)
    titles = dict(_TITLE.findall(output))
    output = _SECTION.sub(lambda match: f'aria-label="Pages of {titles.get(match[1], match[1]).strip()}"', output)
    return _CORNER.sub(r"<td\1></td>", output)


def page_of(path: str) -> str:
    """Return a repository path's page in the site."""
    if path == "README.md":
        return "index.md"
    target = REPOSITORY / path
    if target.is_dir():
        readme = f"{path}/README.md"
        return page_of(readme) if (REPOSITORY / readme).is_file() else f"repository/{path}/index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if target.suffix == ".md" else f"repository/{path}.md"


def source_of(uri: str) -> str:
    """Return the repository path that a page of the site shows."""
    if uri == "index.md":
        return "README.md"
    path = uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"
    if (REPOSITORY / path.removesuffix("/index.md")).is_dir():
        return path.removesuffix("/index.md")
    return path if (REPOSITORY / path).is_file() else path.removesuffix(".md")


def _links(path: str, text: str) -> list[str]:
    """Return the files and folders of the repository, outside the site's own pages, that a text links to."""
    prose = _CODE.sub("", text)
    found = [posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1])) for match in _LINK.finditer(prose)]
    return [
        each for each in found if (REPOSITORY / each).exists() and not (REPOSITORY / "docs" / page_of(each)).exists()
    ]


def _as_markdown(path: str) -> str:
    target = REPOSITORY / path
    if target.is_dir():
        names = sorted(each.name for each in target.iterdir() if each.is_file())
        return "\n".join([f"# {path}", "", *(f"- [{name}]({posixpath.basename(path)}/{name})" for name in names)])
    try:
        text = target.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return f"# {path}\n\n{target.stat().st_size:,} bytes, which are no text.\n"
    if target.suffix == ".md":
        return text
    return f"# {path}\n\n````{_LANGUAGES.get(target.suffix, 'text')}\n{text}\n````\n"
