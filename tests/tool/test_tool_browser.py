"""The report in a real browser: as wide as a telephone, light and dark, with its tables sorted by clicks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from objectspace import PersistedObjectSpace
from tests.tool.conftest import Tool

WIDTH = 375
"""Of a telephone, in CSS pixels."""

PROBE = """<!doctype html><meta charset="utf-8"><body>
<iframe src="report.html" style="border:0;width:WIDTHpx;height:3000px"></iframe><pre id="found"></pre><script>
addEventListener("error", event => { document.getElementById("found").textContent = "error: " + event.message; });
document.querySelector("iframe").addEventListener("load", event => {
  const page = event.target.contentDocument;
  const column = (table, place) => [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
  const objects = page.querySelectorAll("table.sortable")[0], button = objects.querySelectorAll("th button")[3];
  const found = { width: page.documentElement.scrollWidth, paper: getComputedStyle(page.body).backgroundColor };
  button.click(); found.up = column(objects, 3);
  button.click(); found.down = column(objects, 3);
  found.sort = button.parentNode.getAttribute("aria-sort");
  found.headings = [...page.querySelectorAll("h2")].map(heading => heading.textContent);
  found.boxes = [...page.querySelectorAll(".treemap div")].map(box => {
    const { width, height } = box.getBoundingClientRect(); return [box.title, width * height]; });
  found.heat = page.querySelectorAll(".heat td").length;
  found.lines = page.querySelectorAll(".line polyline").length;
  found.call = (page.querySelector(".call") || {}).textContent;
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""


@pytest.fixture
def chromium() -> str:
    """Return the browser."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("not run: there is no chromium here (Debian: apt-get install chromium)")
    return found


def looked_at(browser: str, folder: Path, scheme: int) -> dict[str, Any]:
    """Open the report in a frame, and return what is there; the scheme is 0 for dark and 1 for light."""
    (folder / "probe.html").write_text(PROBE.replace("WIDTH", str(WIDTH)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    options += [f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"]
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=5000", "--dump-dom", (folder / "probe.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None
    answer: dict[str, Any] = json.loads(unescape(found[1]))
    return answer


def test_the_report_in_chromium(tool: Tool, tmp_path: Path, chromium: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        events, fixed = (
            space.create_list("events of a long name that has no place on a telephone"),
            space.create_array("a", 9),
        )
        for number in range(12):
            events.extend(range(20))
            fixed[number % 9] = number
            space.checkpoint()
    assert tool("report", tmp_path / "state.db", tmp_path / "report.html").exit_code == 0
    dark, light = looked_at(chromium, tmp_path, 0), looked_at(chromium, tmp_path, 1)
    assert (dark["paper"], light["paper"]) == ("rgb(13, 17, 23)", "rgb(255, 255, 255)")
    assert dark["width"] == light["width"] == WIDTH
    sizes = [int(text.replace(",", "")) for text in light["up"]]
    assert sizes == sorted(sizes)
    assert light["down"] == light["up"][::-1]
    assert light["sort"] == "descending"
    assert {"Full against differential", "Objects by size", "Where slots change", "What grows"} <= set(
        light["headings"]
    )
    areas = {title.split(" ")[0].rstrip(":"): area for title, area in light["boxes"]}
    assert areas["events"] / areas["a"] == pytest.approx(sizes[-1] / sizes[0], rel=0.05)
    assert (light["heat"], light["lines"]) == (24, 1)
    assert light["call"].startswith("events of a long name")
