"""A run prints its first line before any slow import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ingest.cli.start import announce, count_text, listed

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.argv = ["ingest", "run", "no-such-pipeline"]
said = []
class Stderr:
    def write(self, text):
        slow = {"pyspark", "typer", "pydantic", "pandas", "pyarrow", "boto3", "deltalake"} & sys.modules.keys()
        said.append((text, slow))
    def flush(self): pass
sys.stderr = Stderr()
from ingest.cli import main
try:
    main()
except SystemExit:
    pass
print(said[0][0].strip(), *said[0][1])
"""


def test_first_line_is_printed_before_libraries_load() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    printed_text = done.stdout.splitlines()[0]
    assert printed_text.startswith("ingest ")
    assert printed_text.endswith(": starting pipeline no-such-pipeline")


@pytest.mark.parametrize(
    ("arguments", "printed_text"),
    [
        (["run", "--available-now", "conf/pipelines/shop.yaml"], ": starting pipeline shop\n"),
        (["run", "v1.2"], ": starting pipeline v1.2\n"),
        (["run", "shop", "--help"], ""),
        (["run"], ""),
        (["status", "shop"], ""),
        ([], ""),
    ],
)
def test_only_run_announces_its_start(
    arguments: list[str], printed_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(arguments)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith(printed_text)
    assert bool(printed.err) == bool(printed_text)


def test_long_lists_of_topics_are_shortened() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([f"t{n}" for n in range(1005)]) == "t0, t1, t2, t3, t4 and 1,000 more"
    assert [count_text(n, "batch") for n in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
