"""Downloads from a server on the loopback address: resumed, checked, safe; every failure is said and leaves nothing."""

import errno
import hashlib
import http.server
import io
import multiprocessing
import socket
import tarfile
import threading
from contextlib import contextmanager

import pytest

from zoo.weights import published
from zoo.weights.published import (
    SOURCES,
    FetchError,
    Source,
    cache_folder,
    fetch,
    find_source,
    get_source,
    list_sources,
    verify,
)

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(http.server.BaseHTTPRequestHandler):
    """Serves ``content`` with ranges; ``cut`` sends only that many bytes of it."""

    content, cut, etag, ranges = CONTENT, None, '"one"', True
    asked: list[str] = []

    def do_GET(self):
        wanted = self.headers.get("Range", "")
        type(self).asked.append(wanted)
        if self.path.endswith("missing"):
            self.send_error(404)
            return
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if self.headers.get("If-Range") not in (None, self.etag):
            start = 0
        if start >= len(self.content):
            self.send_error(416)
            return
        body = self.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", self.etag)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        self.end_headers()
        self.wfile.write(body if self.cut is None else body[: self.cut])

    def log_message(self, *args):
        pass


@contextmanager
def served(**settings):
    handler = type("Handler", (Server,), {"asked": [], **settings})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()


def source(url, file="weights.h5", **settings):
    digest = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    defaults = {"digest": digest, "size": len(CONTENT), "licence": "MIT"}
    return Source(name="net.test", net="net", family="keras", url=f"{url}/{file}", **{**defaults, **settings})


def left(folder):
    return sorted(p.name for p in (folder / "weights" / "net.test").iterdir() if p.name != "lock")


def test_fetch_once_then_from_the_cache(tmp_path):
    with served() as (url, handler):
        path = fetch(source(url), folder=tmp_path)
        assert path.read_bytes() == CONTENT
        assert fetch(source(url), folder=tmp_path) == path
        assert handler.asked == [""]
    assert left(tmp_path) == ["weights.h5", "weights.h5.json"]


def test_a_cut_download_is_kept_and_resumed(tmp_path):
    with served(cut=300_000) as (url, _), pytest.raises(FetchError, match=r"cut short: 300,000 of 1,048,576 bytes"):
        fetch(source(url), folder=tmp_path)
    assert "weights.h5" not in left(tmp_path)
    with served() as (url, handler):
        assert fetch(source(url), folder=tmp_path).read_bytes() == CONTENT
        assert handler.asked == ["bytes=300000-"]
    assert left(tmp_path) == ["weights.h5", "weights.h5.json"]


@pytest.mark.parametrize("settings", [{"etag": '"two"'}, {"ranges": False}])
def test_resume_starts_again_when_the_server_cannot(tmp_path, settings):
    with served(cut=1000) as (url, _), pytest.raises(FetchError):
        fetch(source(url), folder=tmp_path)
    with served(**settings) as (url, _):
        assert fetch(source(url), folder=tmp_path).read_bytes() == CONTENT


def test_a_stale_part_is_found_by_its_hash(tmp_path):
    part = tmp_path / "weights" / "net.test" / "weights.h5.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 5000)
    with served() as (url, handler):
        assert fetch(source(url), folder=tmp_path).read_bytes() == CONTENT
        assert handler.asked == ["bytes=5000-", ""]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"digest": "md5:00", "size": None}, "its md5 is .*, published is 00"),
        ({"digest": "sha256:0cc3c7bd", "size": None}, "published is 0cc3c7bd"),
        ({"size": 5}, "it has 1,048,576 bytes, published are 5"),
    ],
)
def test_another_file_than_published_is_deleted(tmp_path, settings, message):
    with served() as (url, _), pytest.raises(FetchError, match=message):
        fetch(source(url, **settings), folder=tmp_path)
    assert left(tmp_path) in ([], ["weights.h5.etag"])


def test_a_short_sha256_is_the_beginning(tmp_path):
    with served() as (url, _):
        fetch(source(url, digest=f"sha256:{hashlib.sha256(CONTENT).hexdigest()[:8]}"), folder=tmp_path)


def test_not_found_and_no_network(tmp_path):
    with served() as (url, _), pytest.raises(FetchError, match=r"answers 404 Not Found for .*missing"):
        fetch(source(url, "missing"), folder=tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(FetchError, match=r"No answer from .*check the network, or copy the file to"):
        fetch(source(url), folder=tmp_path)
    assert left(tmp_path) == []


def test_a_full_disk_is_said_and_space_given_back(tmp_path, monkeypatch):
    def full(response, part, *args):
        part.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(published, "_append", full)
    with served() as (url, _), pytest.raises(FetchError, match=r"is full.*ZOO_HOME"):
        fetch(source(url), folder=tmp_path)
    assert left(tmp_path) == ["weights.h5.etag"]


def test_a_changed_file_in_the_cache_is_found(tmp_path, monkeypatch):
    with served() as (url, _):
        known = source(url, digest="")
        path = fetch(known, folder=tmp_path)
        monkeypatch.setattr(published, "SOURCES", (known,))
        assert verify(tmp_path) == {"net.test": "ok"}
        path.write_bytes(CONTENT[:-1] + b"!")
        assert "at its download it was" in verify(tmp_path)["net.test"]
        with pytest.raises(FetchError, match="damaged or changed"):
            fetch(known, folder=tmp_path)


def test_archives_are_unpacked_once(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("model.ckpt")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    with served(content=buffer.getvalue()) as (url, _):
        packed = source(url, "a.tar.gz", digest="", size=None, member="model.ckpt")
        assert fetch(packed, folder=tmp_path).read_bytes() == b"hello"
        assert fetch(packed, folder=tmp_path).name == "model.ckpt"
        with pytest.raises(FetchError, match=r"does not hold other.ckpt; it holds model.ckpt"):
            fetch(source(url, "a.tar.gz", digest="", size=None, member="other.ckpt"), folder=tmp_path / "second")


def _fetch_in_process(url, folder, results):
    results.put(fetch(source(url), folder=folder, progress=False).read_bytes() == CONTENT)


def test_two_processes_at_once_download_once(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with served() as (url, handler):
        processes = [context.Process(target=_fetch_in_process, args=(url, tmp_path, results)) for _ in range(3)]
        for process in processes:
            process.start()
        assert [results.get(timeout=60) for _ in processes] == [True] * 3
        for process in processes:
            process.join()
        assert handler.asked == [""]


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ZOO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "zoo"


def test_the_table_of_sources():
    assert len({s.name for s in SOURCES}) == len(SOURCES)
    for entry in SOURCES:
        assert entry.url.startswith("https://")
        assert entry.digest.partition(":")[0] in ("md5", "sha256") or entry.family == "slim"
        assert entry.accuracy["top5"] > 90
        assert entry.licence
    assert find_source("imagenet", "inception_v3").name == "inception_v3.keras"
    assert find_source("imagenet", "densenet161").name == "densenet161.torchvision"
    assert find_source("slim", "inception_v3").num_classes == 1001
    assert find_source("imagenet") is None
    assert [s.name for s in list_sources("inception*notop")] == ["inception_v3.keras_notop"]
    with pytest.raises(ValueError, match=r"did you mean inception_v3.slim"):
        get_source("inception_v3.slm")
