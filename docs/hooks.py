"""Pages of the documentation that are made from something else: pages at the root of the repository, and the reference."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.structure.files import File

from orchestration.records import reference

ROOT = Path(__file__).parents[1]
FROM_THE_ROOT = {
    "infra/README.md": "cluster.md",
    "RESULTS.md": "results.md",
    "DECISIONS.md": "decisions.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the repository, and the pages that they become."""
FETCHED, OURS = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"
PAGES = {"README.md": "index.md", **FROM_THE_ROOT}


def on_files(files, config):
    """Add the generated pages."""
    texts = {page: (ROOT / file).read_text(encoding="utf-8") for file, page in FROM_THE_ROOT.items()}
    texts |= {page: make() for page, make in reference.PAGES.items()}
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links between files of the repository lead to their pages; to what is no page, to nothing."""
    if not re.search(r"^## ", markdown, re.MULTILINE):
        page.meta["hide"] = ["toc"]  # a page without parts needs no list of them: its tables have the room
    origin = next((file for file, made in FROM_THE_ROOT.items() if made == page.file.src_uri), f"docs/{page.file.src_uri}")
    depth = "../" * page.file.src_uri.count("/")

    def page_of(path):
        """Where a link leads among the pages; the file's name where it is no page; the link itself where it leaves the repository."""
        absolute = (ROOT / origin).parent.joinpath(path).resolve()
        if "://" in path or path.startswith("#") or not absolute.is_relative_to(ROOT):
            return path, True
        name = absolute.relative_to(ROOT).as_posix()
        if name in PAGES or name.startswith("docs/"):
            return depth + PAGES.get(name, name.removeprefix("docs/")), True
        return name, False

    def link(match):
        text, anchor = match[1], match[3] or ""
        place, is_page = page_of(match[2])
        if is_page:
            return f"{text}({place}{anchor})"
        words = text.lstrip("!")[1:-1]
        return f"`{place}`" if place.endswith(words) else f"{words} (`{place}`)"

    def definition(match):
        return f"{match[1]}: {page_of(match[2])[0]}{match[3] or ''}"

    markdown = re.sub(r"(!?\[[^\]]*\])\(([^)#\s]+)(#[^)]*)?\)", link, markdown)
    return re.sub(r"^(\[[^\]]+\]): ([^#\s]+)(#\S+)?$", definition, markdown, flags=re.MULTILINE)


def on_post_page(output, page, config):
    """Take the script with which search works on files from here: the theme would fetch it."""
    return output.replace(FETCHED, "../" * page.file.src_uri.count("/") + OURS)


def on_post_template(output_content, template_name, config):
    """The same for pages that no text stands behind."""
    return output_content.replace(FETCHED, OURS)
