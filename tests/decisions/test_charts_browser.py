"""The charts in Chromium under the policy that the pages have: nothing refused, nothing asked of another host."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import plotly
import pytest

from decisions.charts import Interval, arrivals_over_time, completion_ecdf, pairs_forest
from decisions.charts.arrivals import Busiest, Lane
from decisions.charts.classes import classes_of_both_sides
from decisions.charts.lengths import Histogram, Measure, Spread, both_sides, length_histogram
from decisions.charts.levels import levels_over_time, line_of
from decisions.charts.trials import trials_by_themselves
from tests.decisions.test_charts import OWN, by_class, ladder, power
from tests.decisions.test_charts_tuning import TUNING_CHARTS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'"
)
STATIC = Path(__file__).parents[2] / "decisions" / "static" / "draftproof"
FILES = {
    "/charts.js": STATIC / "charts.js",
    "/plotly.css": STATIC / "plotly.css",
    "/plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js",
}
PROMPT, SIDE = Measure("prompt length", "tokens"), Histogram([1, 2, 4], [3, 1])
CHARTS = [
    completion_ecdf("peak", baseline_s=[1, 2], candidate_s=[1], baseline_planned=2, candidate_planned=2, deadline_s=3),
    *TUNING_CHARTS.values(),
    pairs_forest(
        cell="peak",
        metric="attainment",
        values=[0.01, 0.02],
        interval=Interval(0.015, 0.01, 0.02),
        required=0.02,
        required_is="minimum improvement",
        scale="points",
        confidence=0.9,
    ),
    by_class(),
    power(),
    ladder(),
    trials_by_themselves("peak", [OWN], "attainment"),
    arrivals_over_time(
        [1, 2], bucket_s=10, lanes=[Lane("tuning", [(0, 10)]), Lane("held-out", [(10, 20)])], busiest=Busiest(3, 1)
    ),
    length_histogram(PROMPT, SIDE, Spread(1, 2, 3)),
    both_sides(PROMPT, tuning=SIDE, held_out=SIDE),
    classes_of_both_sides(tuning={"chat": 1}, held_out={"chat": 2}),
    levels_over_time([line_of("peak", "constant", [-0.5, 0.5], warm_up_s=1, duration_s=2)]),
    # As many levels as anyone compares, and the longest name that one may have.
    levels_over_time(
        [
            line_of("ordinary-weekday-morning-hours"[3 * place :], "", [0.1 * place], warm_up_s=1, duration_s=9)
            for place in range(8)
        ]
    ),
]
WATCH = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => refused.push(event.violatedDirective));
"""


def page() -> str:
    figures = [json.dumps(chart.figure) for chart in CHARTS]
    elements = "".join(
        f'<figure><div data-chart></div><script type="application/json">{figure}</script></figure>'
        for figure in figures
    )
    head = (
        '<meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="/plotly.css">'
        '<script src="/watch.js"></script><script src="/charts.js" defer></script>'
        '<script src="/plotly.min.js" defer></script>'
    )
    return f'<!doctype html><html lang="en"><head>{head}<title>charts</title></head><body>{elements}</body></html>'


class Files(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kinds = {".js": "text/javascript", ".css": "text/css"}
        if self.path in FILES:
            body, kind = FILES[self.path].read_bytes(), kinds[FILES[self.path].suffix]
        elif self.path == "/watch.js":
            body, kind = WATCH.encode(), kinds[".js"]
        else:
            body, kind = page().encode(), "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the test's own output is what counts."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


COVERED = """() => {
  const figure = [...document.querySelectorAll('.js-plotly-plot')].at(-1);
  const texts = figure?.querySelectorAll('.annotation-text, [class^="y"][class$="tick"] text') ?? [];
  const boxes = [...texts].map((one) => one.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const outside = boxes.filter((one) => one.left < 0 || one.right > document.documentElement.clientWidth);
  return [boxes.length, boxes.filter((a, n) => boxes.some((b, m) => m > n && meet(a, b))).length, outside.length];
}"""


# A phone of 390 px leaves a chart 358; this bare page's margins take 96.
@pytest.mark.parametrize("width", [454, 1280])
async def test_the_names_of_eight_levels_cover_nothing(address: str, width: int) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = await browser.new_page(viewport={"width": width, "height": 844})
        await tab.goto(address)
        # The word on the warm-up, and of each row its name, its mean and both ends of its scale; none over another.
        await tab.wait_for_function(f"() => String(({COVERED})()) === '{1 + 4 * 8},0,0'")
        await browser.close()


async def test_every_chart_is_drawn_and_nothing_is_refused(address: str) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = await browser.new_page(color_scheme="light")
        said: list[str] = []
        asked: set[str] = set()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
        await tab.goto(address)
        await tab.wait_for_function(f"() => document.querySelectorAll('.xaxislayer-above').length >= {len(CHARTS)}")
        in_light = await tab.evaluate("document.querySelector('.xtick text').style.fill")
        await tab.emulate_media(color_scheme="dark")
        await tab.wait_for_function(
            f"() => document.querySelector('.xtick text').style.fill !== {json.dumps(in_light)}"
        )
        drawn = await tab.evaluate("document.querySelectorAll('.js-plotly-plot').length")
        refused = await tab.evaluate("refused")
        await browser.close()
    assert (drawn, refused, said, asked - {"data:,"}) == (len(CHARTS), [], [], {address})
