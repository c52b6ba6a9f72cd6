"""The report: every text escaped, nothing from elsewhere, links that work, and a real browser's opinion."""

import html.parser
import re
import shutil
import subprocess
from urllib.parse import unquote

import pytest

from zoo.transfer.report import line_chart, sentences

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
)


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.sources = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids.add(found.get("id"))
        self.links.append(found.get("href"))
        self.sources.append(found.get("src"))


@pytest.fixture(scope="module")
def text(finished):
    return (finished[0].folder / "report.html").read_text()


def test_a_class_called_like_a_script_is_text(text):
    assert "&lt;script&gt;alert(1)&lt;" in text
    assert "script" not in Page(text).tags


def test_nothing_comes_from_elsewhere_and_links_work(text):
    page = Page(text)
    assert all(source.startswith("data:") for source in page.sources if source)
    for link in filter(None, page.links):
        assert link.startswith("data:") or (link.startswith("#") and unquote(link[1:]) in page.ids)
    assert not re.search(r"https?://|url\(|@import", text)


def test_it_says_what_a_reader_needs(finished, text):
    run = finished[0]
    for words in (*sentences(run)[:2], "How to predict", "saved_model", run.scan.fingerprint[:16]):
        assert html.escape(words) in text or words in text
    assert text.count("<img") >= 3 * 5  # examples of each class


def test_the_same_run_gives_the_same_page(finished, text):
    from zoo.transfer.report import write_report

    assert write_report(finished[0]).read_text() == text


def test_charts_escape_their_titles_and_survive_one_point():
    svg = line_chart([("<b>", [(1.0, 1.0)])], "x & y", "z")
    assert "&lt;b&gt;" in svg and "x &amp; y against" not in svg and "nan" not in svg


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; install Debian's package chromium")
@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 844)])
def test_chromium_renders_it_without_a_word(finished, tmp_path, width, height):
    page = (finished[0].folder / "report.html").resolve().as_uri()
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", f"--window-size={width},{height}", "--dump-dom", page],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    assert "What the retrained model can do" in done.stdout and "<script" not in done.stdout
    assert "&lt;script&gt;alert(1)" in done.stdout
