"""The operating system user that Postgres runs as, since it refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from signal import Signals

from ingest.errors import PrerequisiteMissing

USER_NAME = "pgserver"
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2  # bits of CapEff, see capabilities(7)


def postgres_user() -> pwd.struct_passwd | None:
    """Returns the user to run Postgres as. None means the current user, unless that is root: then it is `USER_NAME`,
    which is created without a login if it doesn't exist.

    Raises:
        PrerequisiteMissing: the user can't be created.
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(USER_NAME)
    except KeyError:
        return _created_user()


def _created_user() -> pwd.struct_passwd:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    remedy = f"run this as another user than root, or create a system user {USER_NAME!r}"
    if useradd is None:
        raise PrerequisiteMissing("Postgres refuses to run as root, and there is no useradd here", remedy)
    command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", USER_NAME]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    try:
        return pwd.getpwnam(USER_NAME)  # ignores the exit code: another process may have created the user meanwhile
    except KeyError as absent:
        raise PrerequisiteMissing(
            f"Postgres refuses to run as root, and useradd failed ({done.returncode})", remedy
        ) from absent


def as_user(
    command: list[str],
    user: pwd.struct_passwd | None,
    folders: Iterable[Path],
    death_signal: Signals | None = None,
) -> list[str]:
    """Returns `command`, wrapped by setpriv so that it runs as `user` and can enter `folders`.

    A checkout in root's home, which is often closed to other users, holds the binaries and the data. Instead of
    changing permissions of folders, the process gets a capability that lets it through.

    Args:
        death_signal: sent to the process when its parent ends. It is set by setpriv, because the kernel clears an
            earlier setting when the user changes.
    """
    if user is None:
        return command
    setpriv = shutil.which("setpriv")
    if setpriv is None or sys.platform != "linux":
        raise PrerequisiteMissing(
            "Postgres refuses to run as root, and there is no setpriv (util-linux) to become another user",
            "run this as another user than root, or install util-linux",
        )
    prefix = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    if closed := _closed_folder(folders):
        capability = _passage(closed)
        prefix += [f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]
    if death_signal is not None:
        prefix += [f"--pdeathsig={death_signal.name.removeprefix('SIG')}"]
    return [*prefix, "--", *command]


def _closed_folder(folders: Iterable[Path]) -> Path | None:
    ancestors = {parent for folder in folders for parent in folder.resolve().parents}
    return next((parent for parent in sorted(ancestors) if not parent.stat().st_mode & stat.S_IXOTH), None)


def _passage(closed: Path) -> str:
    """Returns the least capability of this process that lets another user enter `closed`."""
    status = Path("/proc/self/status").read_text()
    capabilities = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff"))
    for bit, capability in ((_DAC_READ_SEARCH, "dac_read_search"), (_DAC_OVERRIDE, "dac_override")):
        if capabilities >> bit & 1:
            return capability
    raise PrerequisiteMissing(
        f"Postgres refuses to run as root, and its user {USER_NAME!r} can't enter {closed}",
        f"run `chmod o+x {closed}`, choose a --folder elsewhere, or run this as another user than root",
    )
