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
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PROPERTY = "spark.local.dir"
_NEW = ".new-"
"""Begins the name of a folder that is not locked yet."""
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
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
