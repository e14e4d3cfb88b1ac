"""The services of a folder and their clients get the same ports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from ingest.stack.ports import remembered_ports

AT_ONCE = 4


def test_concurrent_requests_get_the_same_ports(tmp_path: Path) -> None:
    begin = Barrier(AT_ONCE, timeout=300)

    def repeated_ports(_: int) -> list[dict[str, int]]:
        found = []
        for n in range(20):
            begin.wait()
            found.append(remembered_ports(tmp_path / f"{n}.json", ("broker", "controller")))
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        first, *others = pool.map(repeated_ports, range(AT_ONCE))
    assert others == [first] * (AT_ONCE - 1)
    assert all(len({*ports.values()}) == 2 for ports in first)
