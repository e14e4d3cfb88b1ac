"""The services of a folder and their clients get the same ports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ingest.stack import ports
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


@pytest.mark.parametrize("system", ["32768\t60999\n", "16000\t65535\n"])
def test_ports_of_outgoing_connections_are_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    (tmp_path / "range").write_text(system)
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    chosen = remembered_ports(tmp_path / "ports.json", tuple(map(str, range(100))))
    assert max(chosen.values()) < int(system.split()[0])
