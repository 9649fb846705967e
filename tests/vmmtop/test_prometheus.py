"""vmmtop --prometheus, scraped."""
import http.client
import re
import signal
import socket
import subprocess
import unittest

from support import MIB, TOP, TopTest

SAMPLE = re.compile(r'^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.]+)$')


def parse(text):
    """{name: [(labels, value)]}; fails on a line that is not of the format, or a sample without a type."""
    found, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("gauge", "counter"), line
            types[name] = kind
            continue
        if line.startswith("# HELP "):
            continue
        match = SAMPLE.match(line)
        assert match, line
        name, labels, value = match.groups()
        assert name in types and name.endswith("_total") == (types[name] == "counter"), line
        pairs = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))
        found.setdefault(name, []).append((pairs, float(value)))
    return found


class Prometheus(TopTest):
    def serve(self, address=":0"):
        """Starts vmmtop; returns host and port."""
        server = subprocess.Popen([TOP, "--dir", self.folder, "--prometheus", address], stderr=subprocess.PIPE,
                                  text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait, 30)
        self.addCleanup(server.send_signal, signal.SIGTERM)
        host, port = re.match(r"vmmtop: http://(.*):(\d+)/metrics\n", server.stderr.readline()).groups()
        return server, host.strip("[]"), int(port)

    def get(self, host, port, method="GET", path="/metrics"):
        connection = http.client.HTTPConnection(host, port, timeout=20)
        self.addCleanup(connection.close)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()

    def test_metrics_follow_the_processes(self):
        _, host, port = self.serve()
        self.assertEqual(host, "127.0.0.1")
        self.assertNotIn("vmmcache_reserved_bytes", parse(self.get(host, port)[2]))
        worker = self.worker()
        worker.do("pool weights", "alloc 1 5242880 3")

        def scrape():
            status, kind, text = self.get(host, port)
            self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            return parse(text)

        found = self.until(scrape, lambda metrics: metrics["vmmcache_allocations_total"][0][1] == 1)
        (labels, value), = found["vmmcache_requested_bytes"]
        self.assertEqual(value, 5 * MIB)
        self.assertEqual((labels["pid"], labels["program"]), (str(worker.pid), "vmmtop_worker"))
        pools = {labels["pool"]: value for labels, value in found["vmmcache_pool_requested_bytes"]}
        self.assertEqual(pools, {"default": 0, "weights": 5 * MIB})
        (labels, value), = found["vmmcache_stream_allocated_bytes"]
        self.assertEqual((labels["stream"], labels["pool"], value), ("0x30", "weights", 5 * MIB))
        worker.kill()
        self.assertNotIn("vmmcache_reserved_bytes", scrape())

    def test_names_that_were_cut_are_characters(self):
        worker = self.worker()
        worker.do("pool " + "a" + "\u00e4" * 29, "pool " + "\u00e4" * 30)
        worker.raw(b"pool \xed\xa0\x80\xff\n")
        _, host, port = self.serve()
        wanted = {"default", "a" + "\u00e4" * 29, "\u00e4" * 30, "????"}
        self.until(lambda: {labels["pool"] for labels, _ in
                            parse(self.get(host, port)[2]).get("vmmcache_pool_reserved_bytes", [])},
                   lambda names: names == wanted)
        self.assertEqual({pool["name"] for pool in self.read()["processes"][0]["caches"][0]["pools"]}, wanted)

    def test_other_requests_are_refused(self):
        _, host, port = self.serve()
        self.assertEqual(self.get(host, port, path="/")[0], 404)
        self.assertEqual(self.get(host, port, method="POST")[0], 405)
        self.assertEqual(self.get(host, port, method="HEAD")[::2], (200, ""))

    def test_garbage_does_not_end_the_server(self):
        server, host, port = self.serve()
        for garbage in (b"\0" * 100, b"GET /metrics\r\n" + b"A: b\r\n" * 10000 + b"\r\n", b"GET"):
            with socket.create_connection((host, port), timeout=20) as connection:
                try:
                    connection.sendall(garbage)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
                except OSError:
                    pass
        self.assertEqual(self.get(host, port)[0], 200)
        self.assertIsNone(server.poll())

    def test_interrupt_ends_it_with_success(self):
        server, _, port = self.serve("127.0.0.1:0")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(30), 0)
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5)

    def test_ports_that_are_none(self):
        for address in (":65536", ":99999", ":-1", ":", ":1x", ":00000080", "x"):
            self.assertIn("takes [HOST]:PORT", self.top("--prometheus", address, code=2), address)

    def test_port_that_is_taken(self):
        _, host, port = self.serve()
        self.assertIn("cannot listen on", self.top("--prometheus", "%s:%d" % (host, port), code=2))


if __name__ == "__main__":
    unittest.main()
