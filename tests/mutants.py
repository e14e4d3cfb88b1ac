"""Faults put into the code, one at a time: the tests must catch each. `make mutants` runs them all.

A mutant is a copy of the project in which one text is another. It is caught where the tests of the algebra fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/property/test_merge.py",
    "tests/replay/test_quality.py",
    "tests/property/test_crashes.py",
    "tests/replay/test_rules.py",
)
SECONDS = 900


@dataclass(frozen=True)
class Mutant:
    """`fault`: what goes wrong. `before` stands in `file` exactly once."""

    fault: str
    file: str
    before: str
    after: str


MUTANTS = [
    Mutant(
        "an equal position wins again",
        "changelog/merge.py",
        "newest.isNull() | (position > newest)",
        "newest.isNull() | (position >= newest)",
    ),
    Mutant(
        "a late image wins",
        "changelog/merge.py",
        "newest.isNull() | (position > newest)",
        "newest.isNull() | (position != newest)",
    ),
    Mutant(
        "tombstones are forgotten",
        "changelog/merge.py",
        "newest = F.greatest(row, grave)",
        "newest = row",
    ),
    Mutant(
        "a late delete removes a newer row",
        "changelog/merge.py",
        "(position > row) | left_behind",
        "F.lit(True)",
    ),
    Mutant(
        "the oldest of a batch wins",
        "changelog/compaction.py",
        "F.max_by(F.struct(*(quoted(c) for c in rest))",
        "F.min_by(F.struct(*(quoted(c) for c in rest))",
    ),
    Mutant(
        "batch order breaks ties",
        "changelog/position.py",
        'offset.alias("offset"),\n        partition.alias("partition"),\n    ).cast(POSITION)\n\n\ndef right_after',
        'F.lit(0).cast("bigint").alias("offset"),\n        partition.alias("partition"),\n    ).cast(POSITION)\n\n\n'
        "def right_after",
    ),
    Mutant(
        "a snapshot read beats a change at the same position",
        "changelog/position.py",
        'F.when(op == "r", 0).otherwise(1).alias("streamed")',
        'F.lit(1).alias("streamed")',
    ),
    Mutant(
        "the position of a column is ignored",
        "changelog/joining.py",
        'F.when(older, F.when(~entry["before"], entry["position"])).otherwise(position)',
        "position",
    ),
    Mutant(
        "a column crosses a delete",
        "changelog/joining.py",
        'has, had = ~brought["gone"], ~before["gone"]',
        'has, had = brought["at"].isNotNull(), before["at"].isNotNull()',
    ),
    Mutant(
        "a row with an unknown column is shown",
        "changelog/joining.py",
        "on_silver = action(~F.col(DELETED) & complete, row)",
        "on_silver = action(~F.col(DELETED), row)",
    ),
    Mutant(
        "a moved row carries nothing",
        "run/judging/by_column.py",
        "if partial.moves and (layered or key_changes):",
        "if False:",
    ),
    Mutant(
        "a moved row leaves its old key behind",
        "changelog/images.py",
        "moves = F.col(CODE).isNull() & whole & differs",
        "moves = F.lit(False)",
    ),
    Mutant(
        "a truncate clears what came after it",
        "tables/silver.py",
        "F.col(POSITION_COLUMN) < before",
        "F.lit(True)",
    ),
    Mutant(
        "a truncate is forgotten",
        "run/judging/verdict.py",
        "(F.col(POSITION_COLUMN) > literal(truncated.position))",
        "F.lit(True)",
    ),
    Mutant(
        "a null tombstone stands after what follows it",
        "changelog/tombstone_placement.py",
        "rowsBetween(Window.unboundedPreceding, -1)",
        "rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)",
    ),
    Mutant(
        "a run delivered again counts twice",
        "changelog/bag.py",
        '(F.col("_first") == 1) | ~placed',
        "F.lit(True)",
    ),
    Mutant(
        "a debt is not kept",
        "run/judging/by_content.py",
        "return stored.pending.located() if stored.pending.exists() else None",
        "return None",
    ),
    Mutant(
        "a slice that died is counted again",
        "run/merge.py",
        "last = self.tables.begun(self.merged) or last",
        "pass",
    ),
]


def survives(mutant: Mutant, folder: Path) -> bool:
    """Whether the tests pass all the same."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    for part in ("ingest", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    file = copy / "ingest" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.before) != 1:
        raise SystemExit(
            f"{mutant.file} holds the text of {mutant.fault!r} {text.count(mutant.before)} times, not once"
        )
    file.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(copy), "FUZZ_CASES": "100"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False)
    if done.returncode not in (0, 1):  # 1: a test failed; anything else says nothing of the fault.
        raise SystemExit(f"the tests of {mutant.fault!r} did not run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def main() -> None:
    """Exits with 1 where a mutant survives. Words on the command line choose the faults that hold them."""
    chosen = [m for m in MUTANTS if all(word in m.fault for word in sys.argv[1:])]
    console = Console(highlight=False)
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number, mutant in enumerate(chosen, start=1):
            survived = survives(mutant, Path(folder))
            survivors += [mutant.fault] if survived else []
            console.print(f"{number}/{len(chosen)} {'SURVIVED' if survived else 'caught'}: {mutant.fault}")
    console.print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
