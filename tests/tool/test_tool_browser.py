"""The report in a real browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tool.conftest import Tool


def test_the_report_runs_in_chromium(tool: Tool, store: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("not run: there is no chromium here (Debian: apt-get install chromium)")
    assert tool("report", store, tmp_path / "report.html").exit_code == 0
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shot = tmp_path / "report.png"
    done = subprocess.run(
        [browser, *options, "--window-size=500,900", f"--screenshot={shot}", (tmp_path / "report.html").as_uri()],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert b"Uncaught" not in done.stderr
