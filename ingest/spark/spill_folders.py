"""Folders of this process for what Spark writes outside of tables: shuffles, spilled rows, cached blocks.

They hold values of rows. A process that is killed leaves them behind; the next one deletes them. A lock on the folder
says whether its process still lives: unlike a process id it isn't given to another one, and holds between containers.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PROPERTY = "spark.local.dir"
_NEW = ".new-"
"""Begins the name of a folder that is not locked yet."""
_OF_SPARK = ("blockmgr-*", "spark-*")
"""The names of folders that Spark makes itself."""
_log = logging.getLogger(__name__)


def spill_roots(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the folders below which each process of this user has its own. `settings`: of a session."""
    named = environment.get("SPARK_LOCAL_DIRS") or settings.get(_PROPERTY) or tempfile.gettempdir()
    return [Path(folder.strip()) / f"ingest-spill-{os.getuid()}" for folder in named.split(",") if folder.strip()]


def own_spill_folders(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the property by which Spark writes into folders of this process, and deletes those that processes have
    left which were killed. SPARK_LOCAL_DIRS has precedence in Spark: then nothing is returned, and it stands."""
    if os.environ.get("SPARK_LOCAL_DIRS"):
        return {}
    return {_PROPERTY: ",".join(str(_own_folder(root)) for root in spill_roots(settings))}


def left_behind(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the folders that killed processes have left, and all that Spark has in SPARK_LOCAL_DIRS. `settings`: of a
    session."""
    roots = spill_roots(settings, environment)
    found = [folder for root in roots if root.is_dir() for folder in root.iterdir() if not _is_locked(folder)]
    if environment.get("SPARK_LOCAL_DIRS"):
        found += [folder for root in roots for name in _OF_SPARK for folder in root.parent.glob(name)]
    return sorted(found)


@cache
def _own_folder(root: Path) -> Path:
    """Returns the folder of this process below `root`."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _delete_left_behind(root)
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    # Locked until the process ends, however it ends.
    fcntl.flock(os.open(new, os.O_RDONLY), fcntl.LOCK_EX)
    folder = new.rename(root / new.name.removeprefix(_NEW))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _delete_left_behind(root: Path) -> None:
    """Deletes the folders whose process has ended. One that can't be deleted is logged."""
    for folder in root.iterdir():
        if not folder.name.startswith(_NEW):
            try:
                _delete_if_unlocked(folder)
            except FileNotFoundError:  # Its process, or another one, deletes it.
                continue
            except OSError as failure:
                problem = failure.strerror or type(failure).__name__
                _log.warning("%s is left of a killed process and can't be deleted: %s → delete it", folder, problem)


def _delete_if_unlocked(folder: Path) -> None:
    with _locked(folder) as is_free:
        if is_free:
            shutil.rmtree(folder)


def _is_locked(folder: Path) -> bool:
    try:
        with _locked(folder) as is_free:
            return not is_free
    except OSError:  # Its process has deleted it, or it belongs to nobody who could be asked.
        return not folder.is_dir()


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Locks a folder meanwhile; gives False if its process lives."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
