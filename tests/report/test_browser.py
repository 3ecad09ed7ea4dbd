"""The page in a real browser: it draws, has a say about nothing, and answers the pointer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from natgrad.report import write_report
from tests.report.made_runs import MadeRun

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium is installed (on Debian: apt-get install chromium)"
)
LONG_NAME = "plain-sgd-with-a-name-that-is-longer-than-a-narrow-window-is-wide-lr0.01"
FIRST_SCRIPT = """<script>
window.problems = [];
window.addEventListener("error", (event) => window.problems.push(String(event.message)));
for (const kind of ["error", "warn"]) {
  console[kind] = (...what) => window.problems.push(what.join(" "));
}
</script>"""
LAST_SCRIPT = """<script>
const plots = [...document.querySelectorAll("svg.plot")];
const first = plots[0], box = first.getBoundingClientRect();
const move = {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2};
first.dispatchEvent(new PointerEvent("pointermove", move));
const ends = [...document.querySelectorAll("body *")].map((e) =>
  e.closest(".scroll, .tip, svg") ? 0 : e.getBoundingClientRect().right);
const found = document.createElement("pre");
found.id = "found";
found.textContent = JSON.stringify({
  problems: window.problems,
  sizes: plots.map((plot) => plot.getBoundingClientRect()).map((box) => [box.width, box.height]),
  tip: document.querySelector(".tip").innerText,
  requests: performance.getEntriesByType("resource").length,
  background: getComputedStyle(document.body).backgroundColor,
  line: getComputedStyle(document.querySelector("svg.plot .line.strong")).stroke,
  lines_of_panels: new Set([...document.querySelector(".columns-4").children].map(
    (e) => e.getBoundingClientRect().top)).size,
  overflow: Math.max(...ends) - window.innerWidth,
});
document.body.append(found);
</script>"""


def in_browser(page: Path, profile: Path, *options: str) -> str:
    """Return what the browser prints."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={profile}",
        *options,
        page.as_uri(),
    ]
    home = {"HOME": str(profile), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=home
    )
    return done.stdout


def look(page: Path, profile: Path, *options: str) -> dict[str, Any]:
    dom = in_browser(page, profile, *options, "--dump-dom")
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert match is not None, dom[-2000:]
    found: dict[str, Any] = json.loads(unescape(match.group(1)))
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("browser")
    runs = [
        MadeRun(seed=1, num_iterations=12).write(where / "online"),
        MadeRun(seed=2, num_iterations=12, method="none", resume_at=5).write(where / LONG_NAME),
    ]
    page = write_report(runs, where / "report.html")
    text = page.read_text()
    text = text.replace("<head>", "<head>" + FIRST_SCRIPT)
    page.write_text(text.replace("</body>", LAST_SCRIPT + "</body>"))
    return page


def test_page_draws_and_answers_the_pointer(page: Path, tmp_path: Path) -> None:
    found = look(page, tmp_path, "--window-size=1400,900")
    assert found["problems"] == []
    assert found["requests"] == 0
    assert len(found["sizes"]) > 20
    assert all(width > 200 and height > 40 for width, height in found["sizes"])
    assert "online, validation" in found["tip"]
    assert "epochs" in found["tip"]
    assert found["overflow"] <= 0
    assert (found["background"], found["line"]) == ("rgb(255, 255, 255)", "rgb(0, 114, 178)")


def test_page_fits_a_narrow_window_and_a_dark_one(page: Path, tmp_path: Path) -> None:
    dark = "--blink-settings=preferredColorScheme=0"
    found = look(page, tmp_path, "--window-size=700,900", dark)
    assert found["problems"] == []
    assert found["overflow"] <= 0
    assert (found["background"], found["line"]) == ("rgb(20, 23, 28)", "rgb(90, 180, 240)")


def test_panels_of_a_layer_are_not_three_and_one(page: Path, tmp_path: Path) -> None:
    assert look(page, tmp_path, "--window-size=1200,900")["lines_of_panels"] == 1


def test_plots_keep_their_size_in_the_narrowest_window(page: Path, tmp_path: Path) -> None:
    found = look(page, tmp_path, "--window-size=500,900")
    assert found["overflow"] <= 0
    assert found["sizes"][0][0] >= 560


def test_page_has_its_plots_without_scripts(page: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    without = tmp_path / "page.html"  # headless Chromium takes no picture with scripts disabled
    without.write_text(re.sub(r"<script>.*?</script>", "", page.read_text(), flags=re.DOTALL))
    in_browser(without, tmp_path / "profile", "--window-size=1400,6000", f"--screenshot={picture}")
    with Image.open(picture) as image:
        colors = image.convert("RGB").getcolors(maxcolors=2**24)
    num_pixels = {color: count for count, color in colors or []}
    assert num_pixels[0, 114, 178] > 2000  # the lines of the first run
    assert num_pixels[213, 94, 0] > 2000  # and of the second
