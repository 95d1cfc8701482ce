"""What we write, read by programs that are not ours: Python's json, the tensorboard package, Chromium.

tensorboard is looked for in the Python of RLALGO_TENSORBOARD_PYTHON (default: this one), the browser in RLALGO_CHROMIUM
(default: chromium, chromium-browser or google-chrome on PATH). A case whose program is not there is not run, by name.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import NotRun, main  # noqa: E402

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def strict(text, where):
    """JSON as its standard has it: no NaN, no Infinity, no key twice in an object."""
    def once(pairs):
        assert len(dict(pairs)) == len(pairs), f"{where}: a key twice among {[k for k, _ in pairs]}"
        return dict(pairs)

    def constant(name):
        raise AssertionError(f"{where}: {name} is no JSON")

    return json.loads(text, object_pairs_hook=once, parse_constant=constant)


def read_all_json(folder):
    """Every JSON and JSONL file below a folder, each read whole; how many there were."""
    files = 0
    for path in sorted(pathlib.Path(folder).rglob("*.json*")):
        text = path.read_bytes().decode()  # UTF-8, strictly
        if path.suffix == ".jsonl":
            assert text == "" or text.endswith("\n"), path
            for number, line in enumerate(text.split("\n")[:-1], 1):
                assert isinstance(strict(line, f"{path}:{number}"), dict), (path, number)
        else:
            strict(text, path)
        files += 1
    return files


# Texts that are hard to write: quotes, control characters, half of a surrogate pair, characters beyond 16 bits.
HARD = 'a "quoted" \\ back\tslash \u0001 \u2028 \U0001F600 </script><img src=x onerror=alert(1)>'
REWARD = f"""
def hard(completions, log_extra, **kwargs):
    log_extra("note", [{HARD!r} + str(i) for i in range(len(completions))])
    return [None if i % 3 == 0 else float(i) for i in range(len(completions))]
"""
LOGGED = {"max_steps": 5, "logging_steps": 2, "save_steps": 2, "save_strategy": "steps", "val_set_size": 0.004, "eval_steps": 3,
          "eval_strategy": "steps", "trl": {"reward_funcs": ["hard.hard", "builtin.gsm8k_accuracy"]}}


def train_hard(c, *overrides, **changes):
    (c.folder / "hard.py").write_text(REWARD)
    c.train({**LOGGED, **changes}, *overrides).expect(0)
    return c.folder / "out"


@case
def json_by_python(c):
    out = train_hard(c)
    assert read_all_json(out) >= 15
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().split("\n")[:-1]]  # U+2028 is no end of a line
    assert len(samples) == 16 and {sample["logged"]["note"][:-1] for sample in samples} == {HARD}, samples
    for line in (out / "metrics.jsonl").read_text().splitlines():
        assert all(value is None or isinstance(value, (int, float)) for value in json.loads(line).values())
    rows = c.folder / "pairs.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i} + 1 =", "chosen": f" {i + 1} " + HARD, "rejected": " no"}) + "\n" for i in range(12)))
    c.run("train", c.config({
        "rl": "dpo", "datasets": [{"path": "pairs.jsonl"}], "adapter": "lora", "lora_r": 2, "lora_alpha": 4, "lora_target_linear": True,
        "output_dir": "dpo", "sequence_len": 256, "save_steps": 1, "save_strategy": "steps", "micro_batch_size": 2}, drop=["trl"])).expect(0)
    assert (c.folder / "dpo/pairs.json").is_file() and (c.folder / "dpo/adapter_config.json").is_file()
    assert read_all_json(c.folder / "dpo") >= 15
    lines = "".join(json.dumps({"prompt": text, "max_tokens": 4}) + "\n" for text in ("2 + 2 =", HARD))
    done = c.run("generate", "--model", "out", stdin=lines).expect(0)
    assert [strict(line, "generate") for line in done.out.splitlines()], done.err


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def expected_scalars(folder):
    """Tag → [[step, value], …] of metrics.jsonl, as transformers names tags and at the precision of the format."""
    out = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for name, value in record.items():
            if name != "step" and value is not None:
                tag = "eval/" + name[5:] if name.startswith("eval_") else "train/" + name
                out.setdefault(tag, []).append([record["step"], float32(value)])
    return out


# Prints the scalars of a folder of events; then again for every line it reads, as a TensorBoard that is open does.
ACCUMULATE = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
import pathlib
folder = sys.argv[1]
reader = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
def show():
    reader.Reload()
    out = {tag: [[e.step, e.value] for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    for tag in reader.Tags()["tensors"]:
        out[tag] = [[e.step, float(e.tensor_proto.float_val[0])] for e in reader.Tensors(tag)]
    walls = [e.wall_time for path in sorted(pathlib.Path(folder).iterdir()) for e in event_file_loader.EventFileLoader(str(path)).Load()]
    print(json.dumps({"scalars": out, "ordered": walls == sorted(walls), "version": reader.file_version}), flush=True)
show()
for line in sys.stdin:
    show()
"""


@case
def events_by_tensorboard(c):
    python = os.environ.get("RLALGO_TENSORBOARD_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode != 0:
        raise NotRun(f"no package tensorboard in {python} (RLALGO_TENSORBOARD_PYTHON)")
    out = train_hard(c)
    folders = list((out / "runs").iterdir())
    assert len(folders) == 1 and len(list(folders[0].iterdir())) == 1, folders
    reader = subprocess.Popen([python, "-c", ACCUMULATE, str(folders[0])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        first = json.loads(reader.stdout.readline())
        assert first["version"] == 2 and first["ordered"], first
        assert first["scalars"] == expected_scalars(out)
        # The run goes on to more steps while TensorBoard is open: what it shows is what metrics.jsonl holds.
        c.train(LOGGED, "--max-steps", "7", "--resume-from-checkpoint", "out/checkpoint-4").expect(0)
        reader.stdin.write("\n")
        reader.stdin.flush()
        later = json.loads(reader.stdout.readline())
        assert sum(path.stat().st_size > 0 for path in folders[0].iterdir()) == 1
        assert later["scalars"] == expected_scalars(out)
        assert later["ordered"] and max(step for step, _ in later["scalars"]["train/loss"]) == 7
    finally:
        reader.kill()
        reader.communicate()


# Moves a pointer over every chart, then leaves what it saw in the page, as JSON.
PROBE = """
(() => {
  const seen = {errors: window.pageErrors, fetched: performance.getEntriesByType('resource').map(r => r.name),
                images: document.images.length, scripts: document.scripts.length, text: document.body.innerText.length,
                links: [...document.links].map(a => a.getAttribute('href')), charts: {}};
  for (const card of document.querySelectorAll('.card')) {
    const svg = card.querySelector('svg'), box = svg.getBoundingClientRect(), tip = card.querySelector('.tip');
    const legend = card.querySelector('.legend'), at = fraction => {
      svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * fraction, clientY: box.top + 20}));
      return getComputedStyle(tip).visibility === 'visible' ? [...tip.children].map(row => row.textContent) : [];
    };
    seen.charts[card.querySelector('h3').textContent] = {
      lines: [...svg.querySelectorAll('[data-n]')].map(p => p.dataset.n), left: at(0.1), right: at(0.98),
      gap: legend ? legend.getBoundingClientRect().top - box.bottom : 0, wide: box.width,
      labels: [...svg.querySelectorAll('text[text-anchor=end]')].map(t => t.textContent)};
    svg.dispatchEvent(new PointerEvent('pointerleave'));
    seen.charts[card.querySelector('h3').textContent].after = getComputedStyle(tip).visibility;
  }
  const note = document.createElement('template');
  note.id = 'seen';
  note.setAttribute('data-seen', JSON.stringify(seen));
  document.body.append(note);
})();
"""


def browser():
    names = [os.environ["RLALGO_CHROMIUM"]] if "RLALGO_CHROMIUM" in os.environ else ["chromium", "chromium-browser", "google-chrome"]
    return next((path for path in map(shutil.which, names) if path), None)


def probed(program, page, folder):
    """The page as the browser understood it, with a pointer moved over its charts."""
    html = page.read_text()
    head, end = html.index("<head>") + 6, html.rindex("</script>")
    listen = "<script>window.pageErrors = []; addEventListener('error', e => pageErrors.push(String(e.message)))</script>"
    copy = page.with_name("probed.html")
    copy.write_text(html[:head] + listen + html[head:end] + PROBE + html[end:])
    done = subprocess.run([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900",
                           f"--user-data-dir={folder / 'browser'}", "--dump-dom", copy.as_uri()],
                          capture_output=True, text=True, timeout=100)
    copy.unlink()
    mark = 'data-seen="'
    assert mark in done.stdout, f"the page did not run: {done.stdout[-300:]} {done.stderr[-300:]}"
    quoted = done.stdout.split(mark)[1].split('"')[0]
    for entity, character in [("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", "\u00a0"), ("&amp;", "&")]:
        quoted = quoted.replace(entity, character)
    return json.loads(quoted)


@case
def report_by_chromium(c):
    program = browser()
    if program is None:
        raise NotRun("no chromium on PATH, none in RLALGO_CHROMIUM")
    out = train_hard(c)
    seen = probed(program, out / "report.html", c.folder)
    assert seen["errors"] == [] and seen["fetched"] == [] and seen["images"] == 0 and seen["scripts"] == 2, seen  # the page's, and the listener
    assert seen["links"] == ["checkpoint-2/", "checkpoint-4/", "checkpoint-5/"], seen["links"]
    assert all((out / link).is_dir() for link in seen["links"])
    records = c.metrics()
    names = {name for record in records for name in record} - {"step", "epoch"}
    charts = seen["charts"]
    assert len(charts) > 10 and seen["text"] > 2000
    lines = [name for chart in charts.values() for name in chart["lines"]]
    assert len(lines) == len(set(lines)) and set(lines) <= names
    assert len(charts["Completion length, tokens"]["lines"]) == 2, charts["Completion length, tokens"]
    for title, chart in charts.items():
        assert chart["after"] == "hidden" and chart["wide"] > 200, (title, chart)
        assert -1 <= chart["gap"] < 20, (title, chart["gap"])  # no empty room between a plot and its legend
        if chart["lines"]:
            assert chart["left"] and chart["left"][0].startswith("step "), (title, chart)
            assert len(chart["left"]) > 1 and len(chart["right"]) > 1, (title, chart)
    for title in ("Clipped tokens, mean share", "Completions cut at the limit, share", "Prompts without signal, share"):
        assert all(0 <= float(label) <= 1 for label in charts[title]["labels"]) and charts[title]["labels"], charts[title]
    # The value under the pointer is the one that was logged.
    last = [record for record in records if "grad_norm" in record][-1]
    step, row = charts["Gradient norm"]["right"]
    assert step == f"step {last['step']}" and row == f"grad_norm {last['grad_norm']:.4g}", (step, row, last["grad_norm"])


if __name__ == "__main__":
    main(CASES)
