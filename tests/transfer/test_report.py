"""The report: every text escaped, nothing from elsewhere, links that work, and a real browser's opinion."""

import dataclasses
import html.parser
import re
import shlex
import shutil
import subprocess
import sys
from urllib.parse import unquote

import numpy as np
import pytest

from zoo.transfer.evaluation import evaluate
from zoo.transfer.report import line_chart, sentences, strengths

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


def judged(**classes):
    """An evaluation of classes: name -> for each of its pictures, what it was called."""
    names = sorted(classes)
    labels = np.array([names.index(name) for name in names for _ in classes[name]])
    called = np.array([names.index(word) for name in names for word in classes[name]])
    return evaluate(np.eye(len(names))[called] * 0.9 + 0.1 / len(names), labels, names)


def test_nothing_below_the_whole_is_called_good_and_no_small_class_is_left_out():
    e = judged(a=["a"] * 9 + ["b"], b=["b"] * 4, c=["b"] * 5 + ["c"], d=["d"] * 6, e=["a"])
    lines = strengths(e)  # b has all its pictures and six of others: precision 0.4
    assert lines[0] == "Good at: d (F1 1.00, 6 pictures), a (F1 0.90, 10 pictures)."
    assert lines[1] == "Bad at: e (F1 0.00, 1 picture), c (F1 0.29, 6 pictures)."
    assert next(c for c in e.classes if c.name == "b").precision == pytest.approx(0.4)


def test_a_poor_model_is_good_at_nothing():
    poor = judged(a=["a", "a", "b", "b", "b"], b=["a", "a", "a", "b"], c=["a", "b", "a", "b"])
    assert [line.split(":")[0] for line in strengths(poor)] == ["Bad at"]


def test_a_model_without_mistakes_is_bad_at_nothing():
    assert strengths(judged(a=["a"] * 5, b=["b"] * 2)) == ["Good at: a (F1 1.00, 5 pictures)."]


def test_commands_can_be_pasted_from_anywhere(finished, text, tmp_path):
    run = finished[0]
    [block] = re.findall(r"<pre>(zoo predict.*?)</pre>", text, re.DOTALL)
    for line in html.unescape(block).splitlines():
        words = shlex.split(line)
        assert words[:2] in (["zoo", "predict"], ["zoo", "evaluate"]) and words[2] == str(run.folder.absolute())
    [code] = re.findall(r"<pre>(import tensorflow.*?)</pre>", text, re.DOTALL)
    picture = run.scan.pictures[0]
    code = html.unescape(code).replace("picture.jpg", picture.path)
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"{picture.label} ")


def test_an_odd_path_is_quoted(finished, tmp_path):
    from zoo.transfer.report import page_values

    odd = tmp_path / 'it\'s "my" run & <b>'
    values = page_values(dataclasses.replace(finished[0], folder=odd))
    assert shlex.split(values["place"]) == [str(odd)]
    assert eval(values["saved_model"]) == str(odd / "saved_model")


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
