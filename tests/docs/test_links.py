"""Links lead somewhere, and the reference names every command, setting and class of error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingest.batches.table_owner import OTHER_DATABASE
from ingest.changelog.envelope import (
    CLOUD_EVENT,
    NO_SEQUENCE,
    NOT_JSON,
    REGISTRY_FRAME,
    TOO_LARGE,
    UNKNOWN_OP,
    UNWRAPPED_ROW,
)
from ingest.changelog.refusal import NO_IMAGE, NO_KEY, PARTIAL, UNDECODABLE
from ingest.cli.commands import app
from ingest.config import json_schema
from ingest.lakehouse.quarantine import SET_ASIDE
from ingest.loop.suppression.suppress import OLD_OR_NEW
from ingest.merge.actions import OLDER_THAN_HORIZON
from tests.docs.pages import GENERATED, ROOT, pages
from tools import reference


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    """Returns the text of all pages, including the generated ones."""
    return pages() | {GENERATED / name: text for name, text in reference.pages().items()}


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_lead_to_pages_and_headings(texts: dict[Path, str]) -> None:
    wrong = []
    for page, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            known = target in texts if target.suffix == ".md" and target != ROOT / "CHANGELOG.md" else target.exists()
            if not known or (anchor and anchor not in anchors(texts[target])):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert wrong == []


def test_architecture_lists_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = sorted(file.parent.name for file in (ROOT / "ingest").glob("*/__init__.py"))
    assert [name for name in packages if f"| `{name}` |" not in text] == []


def test_named_source_files_exist() -> None:
    named = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|xml|toml))`")
    files = {name for text in pages().values() for name in named.findall(text)}
    assert files
    assert [name for name in sorted(files) if not ((ROOT / name).exists() or (ROOT / "ingest" / name).exists())] == []


def test_quarantine_codes_are_documented() -> None:
    text = (ROOT / "docs" / "data-engineer" / "errors.md").read_text(encoding="utf-8")
    codes = {
        *(NOT_JSON, REGISTRY_FRAME, CLOUD_EVENT, UNWRAPPED_ROW, UNKNOWN_OP, NO_SEQUENCE, TOO_LARGE),
        *(NO_KEY, NO_IMAGE, UNDECODABLE, PARTIAL, OLDER_THAN_HORIZON, OTHER_DATABASE, OLD_OR_NEW, SET_ASIDE),
        *("incompatible-type", "reserved-name", "columns-alike"),
    }
    assert [code for code in codes if f"| `{code}` |" not in text] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    written = [page.relative_to(ROOT / "docs") for page in pages() if ROOT / "docs" in page.parents]
    assert [
        str(p) for p in [*written, *(Path("reference") / n for n in reference.pages())] if f'"{p}"' not in navigation
    ] == []


def test_reference_lists_commands_and_settings(texts: dict[Path, str]) -> None:
    commands, configuration = (texts[GENERATED / name] for name in ("commands.md", "configuration.md"))
    names = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    assert [name for name in names if f"## ingest {name}\n" not in commands] == []
    schema = json_schema()
    keys = {key for node in (schema, *schema["$defs"].values()) for key in node["properties"]}
    assert [key for key in keys if f"`{key}`" not in configuration] == []


def test_reference_lists_remedies(texts: dict[Path, str]) -> None:
    text = texts[GENERATED / "errors.md"]
    assert "| there is no pipeline file … | give the path of a YAML file, or a pipeline's name |" in text
    assert all(f"## {kind}\n" in text for kind in ("ConfigError", "Contended", "SourceRefused", "Unreachable"))
