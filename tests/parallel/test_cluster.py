"""TF_CONFIG and its mistakes, the watchdog, and the launcher with small commands."""

import json
import os
import socket
import sys
import threading
import time

import pytest

from zoo.parallel.cluster import ClusterConfigError, check_port, read_task
from zoo.parallel.launch import Launch, free_ports
from zoo.parallel.strategies import is_chief
from zoo.parallel.watchdog import Watchdog, reachable, wait_for

TWO = {"worker": ["host1:2222", "host2:2222"]}
PS = {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]}


def config(cluster=TWO, kind="worker", index=0, **more):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, **more})}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Checks are the same on a machine of one core."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_one_core_is_too_few_for_parameter_servers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(ClusterConfigError, match="needs two cores"):
        read_task("ps", config(PS, "chief"))
    assert read_task("multiworker", config()).name == "worker 0"


def test_a_task_knows_its_place():
    task = read_task("multiworker", config(index=1))
    assert (task.name, task.address, task.peers()) == ("worker 1", "host2:2222", {"worker 0": "host1:2222"})
    chief = read_task("ps", config(PS, "chief"))
    assert chief.peers("ps") == {"ps 0": "p:1"}
    assert set(chief.peers()) == {"worker 0", "worker 1", "ps 0"}


def test_who_writes(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert is_chief()
    for given, writes in ((config(), True), (config(index=1), False), (config(PS, "chief"), True), (config(PS), False)):
        monkeypatch.setenv("TF_CONFIG", given["TF_CONFIG"])
        assert is_chief() is writes


@pytest.mark.parametrize(
    ("strategy", "environment", "message"),
    [
        ("multiworker", {}, "TF_CONFIG, which is not set; 'zoo launch' sets it"),
        ("ps", {}, 'as {"cluster": {"chief": '),
        ("multiworker", {"TF_CONFIG": "{"}, "TF_CONFIG cannot be read as JSON: .*. Write it as"),
        ("multiworker", {"TF_CONFIG": "[]"}, "TF_CONFIG cannot be read: the whole: Input should be a dictionary"),
        ("multiworker", config({}), "cluster maps kinds of tasks"),
        ("multiworker", config({"worker": []}), r"cluster.worker is a list of addresses; got \[\]"),
        ("multiworker", config({"worker": ["host"]}), r'cluster.worker\[0\] is HOST:PORT; got "host"'),
        ("multiworker", config({"worker": ["a:1", "b:99999"]}), r'cluster.worker\[1\] is HOST:PORT; got "b:99999"'),
        ("multiworker", config({"worker": ["a:1", "a:1"]}), "an address of its own"),
        ("multiworker", config(PS), "cluster.ps is no kind of task of multiworker"),
        ("ps", config(), "needs a chief, workers and a ps"),
        ("multiworker", {"TF_CONFIG": json.dumps({"cluster": TWO})}, "TF_CONFIG cannot be read: task: Field required"),
        ("multiworker", config(kind="boss"), 'task.type is one of the cluster\'s .*; got "boss"'),
        ("multiworker", config({"worker": "a:1"}), "cluster.worker: Input should be a valid list"),
        ("multiworker", {"TF_CONFIG": "[" * 100_000}, "TF_CONFIG .*RecursionError"),
        ("multiworker", {"TF_CONFIG": '{"cluster": ' * 200 + "1" + "}" * 200}, "TF_CONFIG is refused: .*100 deep"),
        ("multiworker", config({"worker": ["a:" + "1" * 5000]}), "is HOST:PORT"),
        ("multiworker", config(index=2), "task.index is a number from 0 to 1; got 2"),
        ("multiworker", config(index="x"), "task.index: Input should be a valid integer.*received 'x'"),
    ],
)
def test_broken_configurations_name_the_field(strategy, environment, message):
    with pytest.raises(ClusterConfigError, match=message):
        read_task(strategy, environment)


def test_a_taken_port_means_a_second_process_of_that_index():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        task = read_task("multiworker", config({"worker": [f"127.0.0.1:{port}", "h:1"]}))
        with pytest.raises(ClusterConfigError, match=f"worker 0 listens on port {port}.*same task.index"):
            check_port(task)
    check_port(task)


def listen():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def test_waiting_for_a_worker_that_never_comes():
    server, address = listen()
    with server:
        wait_for({"worker 0": address}, 5)
        nobody = f"127.0.0.1:{free_ports(1)[0]}"
        with pytest.raises(TimeoutError, match=f"did not come within 0.3 s: worker 1 at {nobody}"):
            wait_for({"worker 0": address, "worker 1": nobody}, 0.3)


@pytest.mark.parametrize("timeout", [0.4, 4.0, 60.0])
def test_the_watchdog_is_as_quick_as_its_timeout_says(monkeypatch, timeout):
    """By a clock of its own: the peer answers for 100 s and is then gone."""
    now, left = [0.0], []
    monkeypatch.setattr("zoo.parallel.watchdog.time.monotonic", lambda: now[0])
    monkeypatch.setattr("zoo.parallel.watchdog.reachable", lambda address: now[0] < 100)
    dog = Watchdog("worker 1", {"worker 0": "h:1"}, timeout, leave=lambda code: left.append(now[0]))

    def wait(seconds):
        now[0] += seconds
        return now[0] > 10_000

    monkeypatch.setattr(dog, "_ended", type("Clock", (), {"wait": staticmethod(wait), "is_set": lambda self: False})())
    dog._watch()
    assert len(left) == 1 and 100 + 0.7 * timeout <= left[0] <= 100 + timeout + 2 * min(1.0, timeout / 4)


def test_the_watchdog_ends_a_process_whose_peer_is_gone(capfd):
    server, address = listen()
    left = threading.Event()
    status = []
    dog = Watchdog("worker 1", {"worker 0": address}, 0.4, leave=lambda code: (status.append(code), left.set()))
    dog.start()
    assert not left.wait(1.2)
    server.close()
    assert not reachable(address)
    assert left.wait(5)
    assert status == [1]
    assert f"worker 1 ends: worker 0 at {address} has been gone for 0.4 s" in capfd.readouterr().err
    left.clear()
    never = Watchdog(
        "worker 1", {"chief 0": address}, 0.2, status=0, leave=lambda code: (status.append(code), left.set())
    )
    never.start()
    assert left.wait(5)
    assert status == [1, 1]  # 0 is for a chief that has been there, and has done its work
    assert f"chief 0 at {address} did not come for 0.2 s" in capfd.readouterr().err
    quiet = Watchdog("worker 1", {"worker 0": address}, 0.2, leave=status.append).start()
    quiet.stop()
    time.sleep(0.6)
    assert status == [1, 1]


def run(script, workers=2, servers=0, restarts=3, tmp_path=None):
    launch = Launch([sys.executable, "-c", script], workers, servers, logs=tmp_path, restarts=restarts)
    return launch, launch.run()


def test_launch_gives_each_task_its_place_and_log(tmp_path, capfd):
    script = "import os, json; c = json.loads(os.environ['TF_CONFIG']); print(c['task'], len(c['cluster']['worker']))"
    (tmp_path / "worker-0.log").write_text("of before\n")
    (tmp_path / "worker-1.log").write_text("of before\n")
    launch, status = run(script, workers=3, tmp_path=tmp_path)
    assert status == 0
    for index in range(2):
        assert (tmp_path / f"worker-{index}.log").read_text().startswith("of before\n{")
    for index in range(3):
        assert f"'index': {index}" in (tmp_path / f"worker-{index}.log").read_text()
    assert "'index': 0" in capfd.readouterr().out
    assert len({a for addresses in launch.cluster.values() for a in addresses}) == 3


def test_one_failure_stops_all_within_ten_seconds(tmp_path, capfd):
    script = (
        "import os, json, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # as one that hangs in TensorFlow
        "if json.loads(os.environ['TF_CONFIG'])['task']['index'] == 1: sys.exit(7)\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    _, status = run(script, tmp_path=tmp_path)
    assert status == 7
    assert time.monotonic() - started < 10
    assert "worker-1 ended with status 7; the other tasks are stopped" in capfd.readouterr().err


def test_a_worker_beside_parameter_servers_is_started_again(tmp_path, capfd):
    script = (
        "import os, json, pathlib, sys, time\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        f"mark = pathlib.Path({str(tmp_path)!r}, 'died')\n"
        "if task['type'] == 'worker' and task['index'] == 0 and not mark.exists():\n"
        "    mark.touch(); os.kill(os.getpid(), 9)\n"
        "if task['type'] == 'chief': time.sleep(1.5); sys.exit(3)\n"
        "time.sleep(60)\n"
    )
    launch, status = run(script, workers=2, servers=1, tmp_path=tmp_path)
    assert status == 3  # the chief's
    assert [task.restarts for task in launch.tasks if task.kind == "worker"] == [1, 0]
    said = capfd.readouterr().err
    assert "worker-0 ended with status 137 and is started again" in said
    assert "chief-0 ended with status 3; the other tasks are stopped" in said
    assert all(task.process.poll() is not None for task in launch.tasks)


def test_a_worker_that_refuses_its_input_ends_the_job(tmp_path, capfd):
    script = (
        "import os, json, sys, time\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "if task == {'type': 'worker', 'index': 1}: sys.exit(2)\n"
        "time.sleep(60)\n"
    )
    launch, status = run(script, workers=2, servers=1, tmp_path=tmp_path)
    assert status == 2
    assert all(task.restarts == 0 for task in launch.tasks)
    assert "worker-1 ended with status 2; the other tasks are stopped" in capfd.readouterr().err


def test_mistakes(tmp_path):
    for words, workers, servers, message in (
        ([], 2, 0, "say what to launch"),
        (["zoo"], 0, 0, "at least one worker"),
        (["zoo"], 1, -1, "no negative number"),
        (["no-such-program"], 1, 0, "no program 'no-such-program'"),
        (["zoo", "train", "lenet5"], 2, 0, "tasks of zoo train --strategy multiworker; got no --strategy"),
        (["zoo", "train", "lenet5", "--strategy=ps"], 2, 0, "without --ps .*multiworker; got --strategy ps"),
        (["zoo", "train", "lenet5", "--strategy", "multiworker"], 2, 1, "with --ps .*ps; got --strategy multiworker"),
    ):
        with pytest.raises(ValueError, match=message):
            Launch(words, workers, servers, logs=tmp_path)
    assert os.listdir(tmp_path) == []
