"""Renders a certificate as one HTML page that loads no other resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import Any

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Erasure $request</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100%; margin: .5em 0 1.5em }
th, td { text-align: left; border-bottom: 1px solid #ccc; padding: .25em .75em .25em 0; vertical-align: top;
         overflow-wrap: anywhere }
th { font-weight: 600 }
td.n { text-align: right; font-variant-numeric: tabular-nums }
</style>
</head>
<body>
<h1>Certificate of erasure</h1>
<table>$facts</table>
<h2>What it says</h2>
<ul>$says</ul>
<h2>What it does not say</h2>
<ul>$does_not_say</ul>
<h2>What was searched for</h2>
<table>$needles</table>
<p>Each in these forms, as far as they are of its type: $forms.</p>
<h2>Values from the subject's events</h2>
$collected
<h2>What was not decided</h2>
$not_decided
<h2>What was read</h2>
<table>$read</table>
<h2>What was not scanned</h2>
$not_scanned
<h2>What the scan had to find to be believed</h2>
<table>$canaries</table>
<p>Signed with the key <code>$public_key</code>. The file of the same name that ends with .json is what counts:
<code>ingest certificate verify</code> tells with the issuer's public key whether it, or this page, is the issuer's and
unaltered.</p>
</body>
</html>
""")


def render_page(content: Mapping[str, Any], public_key: str) -> str:
    """Returns the page of a certificate's content. `public_key`: of the signature, in base64."""
    facts = [
        ("Request", content["request"]),
        ("Subject (keyed hash)", content["subject"]),
        *((f"Erased in {source} up to", upto) for source, upto in sorted(content["cut_offs"].items())),
        ("Head of the ledger", content["ledger_head"]),
        ("Places", ", ".join(content["places"])),
        ("Residues", "none"),
        ("Searched", content["searched"]),
        ("Issued at", content["issued_at"]),
        ("Issued by", f"{content['issued_by']['project']} {content['issued_by']['version']}"),
    ]
    absent = [(n["place"], n["file"] or "(all of it)", n["why"]) for n in content["not_scanned"]]
    undecided = [(n["needle"], n["form"], n["why"]) for n in content["not_decided"]]
    return _PAGE.substitute(
        request=escape(content["request"]),
        facts=_rows(facts),
        says=_items(content["says"]),
        does_not_say=_items(content["does_not_say"]),
        needles=_rows(
            ((n["label"], n["type"], ", ".join(n["columns"]) or "everywhere") for n in content["needles"]),
            *("searched value", "type", "searched in"),
        ),
        collected=_table_or(
            [(c["column"], c["values"], c["shared"]) for c in content["collected"]],
            "None were collected, or they were destroyed.",
            *("personal column", "searched values", "not searched, as others have them"),
        ),
        not_decided=_table_or(undecided, "Nothing.", "searched value", "form", "why"),
        forms=escape(", ".join(content["forms"])),
        read=_rows(
            ((k["place"], k["kind"], k["files"], k["bytes"], k["decoded_bytes"]) for k in content["read"]),
            *("place", "kind", "files", "bytes", "decoded bytes"),
        ),
        not_scanned=_table_or(absent, "Nothing was left out.", "place", "file", "why"),
        canaries=_rows(
            ((c["place"], c["format"], c["found"]) for c in content["canaries"]), "place", "format", "found"
        ),
        public_key=escape(public_key),
    )


def _table_or(rows: Sequence[Sequence[object]], otherwise: str, *headings: str) -> str:
    return f"<table>{_rows(rows, *headings)}</table>" if rows else f"<p>{otherwise}</p>"


def _rows(rows: Iterable[Iterable[object]], *headings: str) -> str:
    head = f"<tr>{''.join(f'<th>{escape(h)}</th>' for h in headings)}</tr>" if headings else ""
    return head + "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>" for row in rows)


def _table_cell(value: object) -> str:
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)
