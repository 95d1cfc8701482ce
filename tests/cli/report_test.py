"""report: of one run, of several beside each other, and served while a run goes on."""
import pathlib
import re
import signal
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import main  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def get(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


@case
def runs_beside_each_other(c):
    c.train({"output_dir": "a", "logging_steps": 1}).expect(0)
    c.train({"output_dir": "b", "logging_steps": 1, "learning_rate": 5e-4, "max_steps": 3, "trl": {"temperature": 0.9}}).expect(0)
    assert c.run("report", "a", "b").expect(0).out == "comparison.html\n"
    page = (c.folder / "comparison.html").read_text()
    assert "<h1>a · b</h1>" in page and page.count('data-n="a"') == page.count('data-n="b"') > 5, page[:2000]
    differs = page[page.index("Settings that differ"):]
    for key in ("learning_rate", "trl.temperature", "max_steps"):
        assert f"<td>{key}</td>" in differs, (key, differs)
    assert "<td>micro_batch_size</td>" not in differs
    last = c.metrics("b")[-1]["reward"]
    assert re.search(rf"<td>reward</td>.*?<td class=.n.>{last:.4g} <small", page), page[page.index("Last values"):][:1500]
    c.run("report", "a", "b", "--output", "both.html").expect(0, "both.html")
    assert (c.folder / "both.html").read_text() == page
    assert c.run("report", "a").expect(0).out == "a/report.html\n"
    c.run("report", "a", "none").expect(1, "[rlalgo.run.10]", "none")


@case
def served_while_it_trains(c):
    name = c.config({"max_steps": 100000, "logging_steps": 1})
    training = c.start("train", name)
    while "step 2/" not in training.stdout.readline():
        pass
    server = c.start("report", "out", "--serve", "--port", "0")
    try:
        for line in server.stderr:
            if found := re.search(r"report at (http://127\.0\.0\.1:\d+)/", line):
                url = found[1]
                break
        page, stamp = get(url + "/"), get(url + "/stamp")
        assert ">running<" in page and "data-stamp=" in page and "setInterval" in page and "href=" not in page, page[:800]
        shown = int(re.search(r"<b>(\d+) / 100000</b>", page)[1])
        deadline = time.monotonic() + 60
        while get(url + "/stamp") == stamp or int(re.search(r"<b>(\d+) / 100000</b>", get(url + "/"))[1]) <= shown:
            assert time.monotonic() < deadline, "the page stays as it is"
            time.sleep(0.1)
        for path, host, status in (("/none", None, 404), ("/", "evil.example", 403)):
            try:
                get(url + path, host)
                raise AssertionError(path)
            except urllib.error.HTTPError as error:
                assert error.code == status, error.code
        assert not (c.folder / "out" / "report.html").read_text().count("data-stamp")  # the file is not a served page
    finally:
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=30)
        training.send_signal(signal.SIGTERM)
        training.communicate(timeout=60)
    assert server.returncode == 143 and "the report is no longer served" in rest, (server.returncode, rest)


if __name__ == "__main__":
    main(CASES)
