"""Tests of lopt.kubeflow against a local HTTPS server. The clock is the tests'; no test waits for time to pass."""

import http.server
import json
import os
import pathlib
import queue
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import lopt
from lopt import kubeflow

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/digits/status"
LONG_SECONDS = 100  # a test that waits so long has failed


def make_certificate(directory, name):
    """A self-signed certificate of 127.0.0.1: the paths of it and of its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True)
    return certificate, key


class Server(http.server.ThreadingHTTPServer):
    """Takes posts into `posts` as (path, headers, body), and answers as `behaviour` says."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, certificate, key):
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts = queue.Queue()
        self.behaviour = "answer"
        self.released = threading.Event()  # of those that hang
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # clients that do not trust the certificate

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server_port}{PATH}"

    def taken(self):
        """All posts so far."""
        posts = []
        while not self.posts.empty():
            posts.append(self.posts.get())
        return posts


class Handler(http.server.BaseHTTPRequestHandler):
    def setup(self):
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self):
        super().finish()
        self.request.close()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.put((self.path, dict(self.headers), body))
        behaviour = self.server.behaviour
        if behaviour == "hang":
            self.server.released.wait(LONG_SECONDS)
        elif behaviour == "reset":
            linger = struct.pack("ii", 1, 0)  # closing sends a reset
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.request.close()
        else:
            self.send_response({"answer": 200, "fail": 500, "redirect": 302}[behaviour])
            if behaviour == "redirect":
                self.send_header("Location", self.server.url)
            self.end_headers()

    def do_GET(self):
        self.server.posts.put("a redirect was followed")

    def log_message(self, *_):
        pass


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.certificates = [make_certificate(pathlib.Path(scratch.name), name) for name in ("first", "second")]

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.server = Server(*self.certificates[0])
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.released.set)
        self.clock = Clock()
        self.token = self.scratch / "token"
        self.token.write_text("a token\n")
        self.ca = self.scratch / "ca.crt"
        self.ca.write_bytes(self.certificates[0][0].read_bytes())
        self.environ = {"KUBEFLOW_TRAINER_SERVER_URL": self.server.url,
                        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.ca),
                        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token)}

    def progress(self, total=100, timeout_seconds=LONG_SECONDS):
        progress = kubeflow.Progress(timeout_seconds, environ=self.environ, clock=self.clock)
        progress.on_start({"meta_steps": total})
        return progress

    def update(self, progress, step, seconds=1.0, **metrics):
        """An update that takes so long; its post, if there is one, has ended when this returns."""
        self.clock.now += seconds
        progress.on_metrics(step, metrics or {"meta_loss": 0.5})
        self.join()

    def join(self):
        for thread in threading.enumerate():
            if thread.name == "lopt.kubeflow":
                thread.join(LONG_SECONDS)

    def statuses(self):
        return [body["trainerStatus"] for _, _, body in self.server.taken()]

    def percentages(self):
        return [status["progressPercentage"] for status in self.statuses()]


class OfACallback(WithServer):
    def test_each_field_is_what_the_api_wants(self):
        progress = self.progress(total=131)
        self.update(progress, 9, meta_loss=1234.56789)
        self.update(progress, 29, seconds=5, meta_loss=0.25, gradient_norm=3.0)
        first, second = self.server.taken()
        for path, headers, body in first, second:
            self.assertEqual(path, PATH)
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertEqual(headers["Authorization"], "Bearer a token")
            self.assertEqual(list(body), ["trainerStatus"])
            self.assertRegex(body["trainerStatus"].pop("lastUpdatedTime"), r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual(first[2]["trainerStatus"],
                         {"progressPercentage": 7, "metrics": [{"name": "loss", "value": "1234.57"}]})
        # 20 updates in 5 s; 101 remain, for 25.25 s.
        self.assertEqual(second[2]["trainerStatus"],
                         {"progressPercentage": 22, "estimatedRemainingSeconds": 26,
                          "metrics": [{"name": "loss", "value": "0.25"},
                                      {"name": "updates_per_second", "value": "4"}]})

    def test_there_is_a_post_every_five_seconds_at_most_and_one_at_the_end(self):
        progress = self.progress(total=14)
        for step in range(14):
            self.update(progress, step)
        progress.on_end(None)
        posted = self.statuses()
        self.assertEqual([status["progressPercentage"] for status in posted], [7, 42, 78, 100])
        self.assertEqual([status.get("estimatedRemainingSeconds") for status in posted], [None, 8, 3, 0])

    def test_the_rate_is_that_of_the_last_minute(self):
        progress = self.progress(total=10_000)
        for step in range(100):
            self.update(progress, step)
        for step in range(100, 160):
            self.update(progress, step, seconds=2)
        self.assertEqual(self.statuses()[-1]["metrics"][1], {"name": "updates_per_second", "value": "0.5"})

    def test_a_record_without_a_loss_keeps_the_one_before(self):
        progress = self.progress()
        self.update(progress, 0, meta_loss=0.75)
        self.update(progress, 1, seconds=5, learning_rate=0.1)
        self.update(progress, 2, seconds=5, meta_loss=float("nan"))
        self.assertEqual([status["metrics"][0] for status in self.statuses()],
                         [{"name": "loss", "value": "0.75"}] * 2 + [{"name": "loss", "value": "nan"}])

    def test_token_and_certificate_are_read_anew_for_each_post(self):
        progress = self.progress()
        self.update(progress, 0)
        self.token.write_text("another token")
        self.update(progress, 1, seconds=5)
        self.ca.write_bytes(self.certificates[1][0].read_bytes())
        with self.assertLogs("lopt.kubeflow", "WARNING") as logged:
            self.update(progress, 2, seconds=5)
        self.ca.write_bytes(self.certificates[0][0].read_bytes())
        self.update(progress, 3, seconds=5)
        self.assertEqual([(headers["Authorization"], body["trainerStatus"]["progressPercentage"])
                          for _, headers, body in self.server.taken()],
                         [("Bearer a token", 1), ("Bearer another token", 2), ("Bearer another token", 4)])
        self.assertIn("SSLCertVerificationError", logged.output[0])

    def test_a_failure_is_logged_once_for_each_kind_and_posts_go_on(self):
        progress = self.progress()
        with self.assertLogs("lopt.kubeflow", "WARNING") as logged:
            for step, behaviour in enumerate(["fail", "fail", "reset", "redirect", "reset", "redirect", "fail", "answer"]):
                self.server.behaviour = behaviour
                self.update(progress, step, seconds=5)
            self.token.unlink()
            self.update(progress, 8, seconds=5)
            self.update(progress, 9, seconds=5)
        kinds = [re.search(r"\(logged once for this kind of failure, (.*)\)", line)[1] for line in logged.output]
        self.assertEqual(len(kinds), len(set(kinds)), logged.output)
        of_reset = {"ConnectionResetError", "RemoteDisconnected", "SSLEOFError"}  # whichever the client sees first
        self.assertTrue(of_reset & set(kinds), kinds)
        self.assertEqual([kind for kind in kinds if kind not in of_reset], ["HTTP 500", "HTTP 302", "FileNotFoundError"])
        self.assertEqual(self.percentages(), [1, 2, 3, 4, 5, 6, 7, 8])

    def test_updates_do_not_wait_for_a_server_that_hangs(self):
        self.server.behaviour = "hang"
        progress = self.progress()
        for step in range(30):
            self.clock.now += 1
            progress.on_metrics(step, {"meta_loss": 0.5})  # would take LONG_SECONDS
        self.assertEqual(self.server.posts.get(timeout=LONG_SECONDS)[2]["trainerStatus"]["progressPercentage"], 1)
        self.assertTrue(self.server.posts.empty())  # one post at a time
        self.server.behaviour = "answer"
        self.server.released.set()
        self.join()
        self.update(progress, 30)
        progress.on_end(None)
        self.assertEqual(self.percentages(), [31, 100])

    def test_the_end_waits_for_a_server_that_hangs_no_longer_than_said(self):
        self.server.behaviour = "hang"
        progress = self.progress(timeout_seconds=0.1)
        progress.on_metrics(0, {"meta_loss": 0.5})
        with self.assertLogs("lopt.kubeflow", "WARNING") as logged:
            progress.on_end(None)
            self.join()
        self.assertTrue(any("TimeoutError" in line or "timed out" in line for line in logged.output), logged.output)
        self.assertFalse(self.server.released.is_set())

    def test_the_end_does_not_wait_for_what_keeps_no_timeout_such_as_the_look_up_of_a_name(self):
        released = threading.Event()
        self.addCleanup(released.set)
        with unittest.mock.patch("ssl.create_default_context", lambda **_: released.wait(LONG_SECONDS)):
            progress = self.progress(timeout_seconds=0.1)
            progress.on_metrics(0, {"meta_loss": 0.5})
            with self.assertLogs("lopt.kubeflow", "WARNING") as logged:
                progress.on_end(None)
                self.assertFalse(released.is_set())
                released.set()
                self.join()
        self.assertIn("the end of the run is not posted", logged.output[0])

    def test_without_the_variables_it_does_nothing(self):
        progress = kubeflow.Progress(environ={}, clock=self.clock)
        with self.assertNoLogs("lopt.kubeflow"):
            lopt.meta_train("smoke", callbacks=[progress])
        self.assertTrue(self.server.posts.empty())
        self.assertNotIn("lopt.kubeflow", [thread.name for thread in threading.enumerate()])

    def test_variables_that_do_not_fit_are_named(self):
        for changed, wanted in [({"KUBEFLOW_TRAINER_SERVER_TOKEN": ""}, "but not KUBEFLOW_TRAINER_SERVER_TOKEN"),
                                ({"KUBEFLOW_TRAINER_SERVER_URL": self.server.url.replace("https", "http")},
                                 "is to begin with https://")]:
            with self.subTest(wanted), self.assertLogs("lopt.kubeflow", "WARNING") as logged:
                progress = kubeflow.Progress(environ=self.environ | changed, clock=self.clock)
                progress.on_start({"meta_steps": 10})
                self.update(progress, 0)
            self.assertIn(wanted, logged.output[0])
        self.assertTrue(self.server.posts.empty())

    def test_training_ends_with_the_same_bits_whatever_the_server_does(self):
        def of_result(training):
            return training.theta.values.tobytes(), training.updates, training.totals

        alone = of_result(lopt.meta_train("smoke"))
        for behaviour in ["answer", "fail", "reset", "hang"]:
            with self.subTest(behaviour):
                self.server.behaviour = behaviour
                progress = kubeflow.Progress(0.1 if behaviour == "hang" else LONG_SECONDS, environ=self.environ)
                logger = self.assertNoLogs if behaviour == "answer" else self.assertLogs
                with logger("lopt.kubeflow", "WARNING"):
                    self.assertEqual(of_result(lopt.meta_train("smoke", callbacks=[progress])), alone)
                    self.join()
                percentages = self.percentages()
                if behaviour != "hang":  # where the time may be over before a post has arrived
                    self.assertEqual((percentages[0], percentages[-1]), (5, 100))


class OfADirectory(WithServer):
    def setUp(self):
        super().setUp()
        self.run_directory = self.scratch / "run"

    def write_run(self, updates=None, status="running", pid=7, loss=None, config={"meta_steps": 200}):
        """What a run writes of itself, `updates` at this time."""
        (self.run_directory / "status").mkdir(parents=True, exist_ok=True)
        (self.run_directory / "config.json").write_text(json.dumps(config))
        manifest = {"format": "lopt run 1", "status": status, "updates": 0}
        (self.run_directory / "manifest.json").write_text(json.dumps(manifest))
        if updates is not None:
            rank = {"rank": 0, "host": "host", "pid": pid, "updates": updates, "state": "computing",
                    "time_seconds": self.clock.now}
            (self.run_directory / "status/rank-0.json").write_text(json.dumps(rank))
        if loss is not None:
            with open(self.run_directory / "metrics.jsonl", "a") as file:
                file.write(loss)

    def follow(self, moments):
        """Follows the directory; a second passes before each of these functions, the next moment of the run."""
        moments = iter(moments)

        def wait(seconds):
            self.clock.now += seconds
            return next(moments)() is True

        kubeflow.follow(self.run_directory, wait, environ=self.environ, clock=self.clock, timeout_seconds=LONG_SECONDS)
        self.assertEqual(list(moments), [])
        statuses = self.statuses()
        for status in statuses:
            del status["lastUpdatedTime"]
        return statuses

    def test_a_run_is_followed_from_before_its_beginning_to_its_end(self):
        record = json.dumps({"step": 40, "meta_loss": 2.5, "learning_rate": 0.1}) + "\n"
        statuses = self.follow([
            lambda: None,
            lambda: self.write_run(status="starting"),
            lambda: self.write_run(0),
            *[lambda: None] * 4,
            lambda: self.write_run(50, loss=record + '{"step": 50, "meta_l'),
            *[lambda: None] * 3,
            lambda: self.write_run(120, loss='oss": "nan"}\n' + json.dumps({"step": 51}) + "\n"),
            lambda: self.write_run(150, status="finished"),
        ])
        nan = {"name": "loss", "value": "nan"}
        self.assertEqual(statuses, [
            {"progressPercentage": 0, "metrics": []},
            {"progressPercentage": 25, "estimatedRemainingSeconds": 15,
             "metrics": [{"name": "loss", "value": "2.5"}, {"name": "updates_per_second", "value": "10"}]},
            {"progressPercentage": 100, "estimatedRemainingSeconds": 0,
             "metrics": [nan, {"name": "updates_per_second", "value": "15"}]},
        ])

    def test_a_run_that_stands_still_has_no_estimate(self):
        self.write_run(20)
        statuses = self.follow([*[lambda: None] * 4, lambda: self.write_run(20), lambda: True])
        self.assertEqual(statuses, [{"progressPercentage": 10, "metrics": []}] * 3)

    def test_an_interrupted_run_is_followed_on_and_the_pause_is_not_of_its_rate(self):
        self.write_run(20)
        statuses = self.follow([
            *[lambda: None] * 4,
            lambda: self.write_run(40, status="interrupted"),
            *[lambda: None] * 99,
            lambda: self.write_run(40, pid=8),
            *[lambda: None] * 4,
            lambda: self.write_run(80, pid=8),
            lambda: self.write_run(200, pid=8, status="finished"),
        ])
        self.assertEqual([status["metrics"] for status in (statuses[1], statuses[-2])],
                         [[{"name": "updates_per_second", "value": "4"}], [{"name": "updates_per_second", "value": "8"}]])

    def test_what_is_no_run_of_meta_train_is_logged_once_and_ends_with_it(self):
        self.write_run(5, config={"steps": 10})
        with self.assertLogs("lopt.kubeflow", "WARNING") as logged:
            statuses = self.follow([
                lambda: None,
                lambda: (self.run_directory / "config.json").write_text("{"),
                lambda: None,
                lambda: self.write_run(10, status="finished", config={"steps": 10}),
            ])
        self.assertEqual(statuses, [])
        self.assertEqual(len(logged.output), 2, logged.output)
        self.assertIn("has no meta_steps", logged.output[0])
        self.assertIn("JSONDecodeError", logged.output[1])

    def test_a_long_log_is_read_at_its_end(self):
        records = "".join(json.dumps({"step": step, "meta_loss": float(step)}) + "\n" for step in range(20_000))
        self.write_run(200, status="finished", loss=records)
        self.assertEqual(self.follow([])[0]["metrics"], [{"name": "loss", "value": "19999"}])

    def test_a_run_of_lopt_is_read_as_it_is(self):
        lopt.meta_train("smoke", out=self.run_directory)
        [status] = self.follow([])
        last = json.loads((self.run_directory / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(status["progressPercentage"], 100)
        self.assertEqual(status["metrics"], [{"name": "loss", "value": f"{last['meta_loss']:.6g}"}])

    def start(self, **environ):
        process = subprocess.Popen([sys.executable, "-m", "lopt.kubeflow", self.run_directory], env=os.environ | environ,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_the_command_posts_until_the_run_has_finished(self):
        self.write_run(200, status="finished")
        process = self.start(**self.environ)
        self.assertEqual((process.wait(LONG_SECONDS), process.stderr.read()), (0, ""))
        self.assertEqual(self.percentages(), [100])

    def test_the_command_posts_once_more_when_it_is_terminated(self):
        self.write_run(20)
        process = self.start(**self.environ)
        first = self.server.posts.get(timeout=LONG_SECONDS)
        self.write_run(40, status="interrupted")
        process.send_signal(signal.SIGTERM)
        self.assertEqual((process.wait(LONG_SECONDS), process.stderr.read()), (0, ""))
        self.assertEqual(first[2]["trainerStatus"]["progressPercentage"], 10)
        self.assertEqual(self.percentages()[-1], 20)

    def test_the_command_does_nothing_without_the_variables(self):
        self.write_run(20)
        process = self.start(**dict.fromkeys(self.environ, ""))
        self.assertEqual(process.wait(LONG_SECONDS), 0)
        self.assertIn("KUBEFLOW_TRAINER_SERVER_URL is not set", process.stderr.read())
        self.assertTrue(self.server.posts.empty())


if __name__ == "__main__":
    unittest.main()
