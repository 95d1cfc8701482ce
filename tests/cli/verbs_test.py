"""tokenize, score, generate, merge-lora, and training on completions of a server."""
import http.server
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


def lines(result):
    return [json.loads(line) for line in result.out.splitlines()]


def ask(c, verb, rows, *options):
    return lines(c.run(verb, "--model", MODEL, *options, stdin="".join(json.dumps(r) + "\n" for r in rows)).expect(0))


@case
def tokenize(c):
    text, chat = ask(c, "tokenize", [{"text": "3 + 4 = 7"},
                                     {"messages": [{"role": "user", "content": "3 + 4?"}], "add_generation_prompt": True}])
    assert text["rendered"] == text["decoded"] == "3 + 4 = 7" and len(text["ids"]) > 2, text
    assert chat["decoded"] == chat["rendered"] and "3 + 4?" in chat["rendered"], chat
    closed = ask(c, "tokenize", [{"messages": [{"role": "user", "content": "3 + 4?"}]}])[0]
    assert chat["rendered"].startswith(closed["rendered"]) and len(chat["ids"]) > len(closed["ids"])


@case
def score_and_generate_agree(c):
    prompt = {"messages": [{"role": "user", "content": "Ines finds 3 stamps on Monday and 10 on Tuesday. How many?"}]}
    rows = [dict(prompt, max_new_tokens=12, seed=s, n=2) for s in (1, 2)] + [dict(prompt, max_new_tokens=3, temperature=0)]
    out = ask(c, "generate", rows)
    assert [(o["index"], o["sample"]) for o in out] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)], out
    assert out[4]["finish_reason"] == "length" and len(out[4]["ids"]) == 3
    short = ask(c, "generate", [dict(prompt, max_tokens=3, temperature=0)])
    assert [o["ids"] for o in short] == [out[4]["ids"]], "max_tokens is not max_new_tokens"
    stop = out[0]["text"][2:4]
    cut = ask(c, "generate", [dict(prompt, max_new_tokens=12, seed=1, stop=[stop])])[0]
    assert cut["text"] == out[0]["text"][:out[0]["text"].find(stop)], (cut, out[0])
    assert out[0]["ids"][:len(cut["ids"])] == cut["ids"] and cut["finish_reason"] == "stop"
    alone = ask(c, "generate", rows[1:2])
    assert [o["ids"] for o in alone] == [o["ids"] for o in out[2:4]], "a line depends on the lines beside it"
    assert [o["log_probs"] for o in alone] == [o["log_probs"] for o in out[2:4]]
    scored = ask(c, "score", [dict(prompt, completion_ids=o["ids"]) for o in out])
    for o, s in zip(out, scored):
        assert s["ids"] == o["ids"]
        worst = max(abs(a - b) for a, b in zip(s["log_probs"], o["log_probs"]))
        assert worst < 1e-4, worst
    cached = ask(c, "score", [dict(prompt, completion_ids=o["ids"]) for o in out], "--engine")
    assert [o["log_probs"] for o in cached] == [o["log_probs"] for o in out], "what is drawn has another log-prob when it is given"
    assert all(s["ids"] == o["ids"] for o, s in zip(out, cached))
    ids = ask(c, "tokenize", [dict(prompt, add_generation_prompt=True)])[0]["ids"] + out[0]["ids"]
    whole = ask(c, "score", [{"ids": ids}])[0]["log_probs"]
    assert len(whole) == len(ids) - 1
    assert max(abs(a - b) for a, b in zip(whole[-len(out[0]["ids"]):], scored[0]["log_probs"])) < 1e-4


@case
def a_dtype_to_compute_with(c):
    rows = [{"prompt": "3 + 4 =", "max_new_tokens": 6, "temperature": 0}, {"prompt": "1 2 3", "max_new_tokens": 6, "seed": 3}]
    whole = ask(c, "generate", rows)
    assert ask(c, "generate", rows, "--dtype", "float32") == whole
    drawn = ask(c, "generate", rows, "--dtype", "bfloat16")
    given = [dict(r, completion_ids=o["ids"]) for r, o in zip(rows, drawn)]
    given = [{k: r[k] for k in ("prompt", "completion_ids")} for r in given]
    wide, narrow = (ask(c, "score", given, "--dtype", dtype) for dtype in ("float32", "bfloat16"))
    assert wide != narrow, "the trainer's pass in bfloat16 gives the numbers of float32"
    for o, w, n in zip(drawn, wide, narrow):
        for a, b in ((o, w), (o, n), (w, n)):
            assert max(abs(x - y) for x, y in zip(a["log_probs"], b["log_probs"])) < 0.2, (a, b)
    for verb in ("generate", "score"):
        c.run(verb, "--model", MODEL, "--dtype", "int4").expect(2, "[rlalgo.cli.7]", "--dtype int4", "float32 or bfloat16")
    # A configuration's own bf16 holds, unless the option says otherwise. So hot that a rounding shows, where bfloat16 is multiplied.
    c.config({"bf16": True, "output_dir": str(MODEL)})
    hot = ("--temperature", "3", "--top-p", "1", "--top-k", "0", "--repetition-penalty", "1", "--max-new-tokens", "200")
    said = [c.run("inference", model, *hot, *dtype, stdin="1 2 3").expect(0).out
            for model in ("config.yaml", MODEL) for dtype in ((), ("--dtype", "bfloat16"), ("--dtype", "float32"))]
    assert said[0] == said[1] == said[4] and said[2] == said[3] == said[5], said
    c.run("inference", MODEL, "--dtype", "int4", stdin="3").expect(2, "[rlalgo.cli.7]", "--dtype int4")


@case
def score_on_the_engine(c):
    text = "Ines finds 3 stamps on Monday and 10 on Tuesday. How many?"
    rows = [{"prompt": text, "completion": " 13"}, {"ids": [5]}, {"ids": list(range(5, 60))}, {"prompt": "3 +", "completion": " 4 = 7"}]
    for options in [(), ("--temperature", "0.7"), ("--batch", "1")]:
        trained, cached = (ask(c, "score", rows, *options, *engine) for engine in [(), ("--engine",)])
        assert [len(r["log_probs"]) for r in cached][1:3] == [0, 54]
        for t, e in zip(trained, cached):
            assert t["ids"] == e["ids"] and len(t["log_probs"]) == len(e["log_probs"])
            assert all(abs(a - b) < 1e-4 for a, b in zip(t["log_probs"], e["log_probs"])), (t, e)
    c.run("score", "--model", MODEL, "--temperature", "0").expect(2, "[rlalgo.cli.16]")


@case
def ids_need_no_tokenizer_and_texts_no_weights(c):
    ids = {"ids": list(range(5, 25))}
    scored, made = ask(c, "score", [ids])[0], ask(c, "generate", [dict(ids, max_new_tokens=4)])[0]
    folder = c.model_copy()
    (folder / "tokenizer.json").unlink()

    def bare(verb, row, code=0, *parts):
        return c.run(verb, "--model", folder, stdin=json.dumps(row) + "\n").expect(code, *parts)
    assert lines(bare("score", ids))[0] == scored
    assert lines(bare("generate", dict(ids, max_new_tokens=4)))[0]["ids"] == made["ids"]
    bare("score", {"prompt": "a", "completion": "b"}, 1, "[rlalgo.text.1]", str(folder))
    bare("tokenize", {"text": "a"}, 1, "[rlalgo.text.1]", str(folder))
    folder.rename(c.folder / "bare")
    texts = c.model_copy()
    for path in list(texts.iterdir()):
        if "token" not in path.name and "template" not in path.name:
            path.unlink()
    row = {"text": "3 + 4 = 7"}
    assert lines(c.run("tokenize", "--model", texts, stdin=json.dumps(row) + "\n").expect(0)) == ask(c, "tokenize", [row])


@case
def bad_lines(c):
    for verb, line, text in [("tokenize", "[1]", "line 1"), ("tokenize", "{}", "ids, messages and text"),
                             ("score", '{"ids": [1, 99999999]}', "99999999"), ("score", '{"ids": []}', "ids is empty"),
                             ("score", '{"prompt": "a"}', "completion"), ("generate", '{"prompt": "a", "n": 0}', "1 to 4096"),
                             ("generate", '{"prompt": "a", "temperature": "hot"}', "temperature"),
                             ("generate", '{"prompt": "a", "temprature": 0}', "expected temperature"),
                             ("generate", '{"prompt": "a", "max_tokens": 3, "max_new_tokens": 3}', "both"),
                             ("generate", '{"prompt": "a", "tools": []}', "messages"),
                             ("generate", '{"prompt": "a", "stop": [1]}', "stop"),
                             ("score", '{"prompt": "a", "completion": "b", "temperature": 2}', "temperature"),
                             ("score", '{"ids": [1, 2], "completion": "b"}', "both"),
                             ("tokenize", '{"txt": "a"}', "expected text")]:
        c.run(verb, "--model", MODEL, stdin=line + "\n").expect(1, "[rlalgo.cli.11]", text)
    c.run("score").expect(2, "[rlalgo.cli.12]")
    c.run("generate", "--modle", MODEL).expect(2, "[rlalgo.cli.8]", "--model")
    c.run("tokenize", "--model", c.folder / "nowhere").expect(2, "[rlalgo.config.20]")


@case
def a_bad_line_costs_no_other_line_its_answer(c):
    good = {"ids": list(range(5, 25))}
    bad = ["[1]", "{", '{"ids": [99999999]}', "[" * 100000, '{"ids": [5], "messages": []}']
    for verb, options, extra in [("tokenize", (), {}), ("score", (), {}), ("score", ("--batch", "1"), {}),
                                 ("score", ("--engine",), {}), ("generate", (), {"max_new_tokens": 3})]:
        text = json.dumps(dict(good, **extra)) + "\n"
        alone = lines(c.run(verb, "--model", MODEL, *options, stdin=text).expect(0))[0]
        mixed = "\n" + bad[0] + "\n" + text + "\n".join(bad[1:3]) + "\n" + text + "\n".join(bad[3:])  # the last has no newline
        result = c.run(verb, "--model", MODEL, *options, stdin=mixed).expect(1, "[rlalgo.cli.11]", "[rlalgo.cli.20]", "5 of 7")
        out = lines(result)
        assert ["error" in o for o in out] == [True, False, True, True, False, True, True], (verb, out)
        assert [o["index"] for o in out if "error" in o] == [1, 3, 4, 6, 7], out
        assert "line 2" in out[0]["error"] and "99999999" in out[3]["error"] and "nested" in out[5]["error"], out
        for o in (out[1], out[4]):
            if verb == "score" and not options:  # a pass over two lines may round otherwise
                assert o["ids"] == alone["ids"] and max(abs(a - b) for a, b in zip(o["log_probs"], alone["log_probs"])) < 1e-5
            else:
                assert {k: v for k, v in o.items() if k != "index"} == {k: v for k, v in alone.items() if k != "index"}
    for key, value in [("n", 1.5), ("n", 1e300), ("seed", -1), ("top_k", -1), ("max_new_tokens", 0), ("temperature", -1),
                       ("top_p", 0), ("add_generation_prompt", "yes"), ("n", "2")]:
        row = {"messages": [{"role": "user", "content": "a"}], key: value}
        c.run("generate", "--model", MODEL, stdin=json.dumps(row) + "\n").expect(1, "[rlalgo.", "line 1", "1 of 1")


@case
def weights_in_8_bits(c):
    rows = rows_of_many_kinds()
    exact, quantized = ask(c, "generate", rows), ask(c, "generate", rows, "--quantization", "int8")
    assert ask(c, "generate", rows, "--quantization", "none") == exact
    assert ask(c, "generate", rows, "--quantization", "int8", "--batch", "5") == quantized, "--batch changes a completion"
    assert ask(c, "generate", rows, "--generation-invariant") == exact, "on the CPU it is always so"
    # Temperature 1 and no other setting: what score gives of the same tokens is near, and another policy's.
    prompt = {"prompt": "3 + 4 ="}
    drawn = ask(c, "generate", [dict(prompt, max_new_tokens=20, seed=seed) for seed in range(8)], "--quantization", "int8")
    scored = ask(c, "score", [dict(prompt, completion_ids=o["ids"]) for o in drawn])
    apart = [abs(a - b) for o, s in zip(drawn, scored) for a, b in zip(o["log_probs"], s["log_probs"])]
    assert 0 < max(apart) < 0.5 and sum(apart) / len(apart) < 0.02, apart
    for verb, model in (("generate", ("--model", MODEL)), ("inference", (MODEL,)), ("vllm-serve", (MODEL, "--port", "0"))):
        c.run(verb, *model, "--quantization", "int4").expect(2, "[rlalgo.inference.18]", "'int4'", "none, int8 or fp8", "--quantization")
        c.run(verb, *model, "--kv-cache-dtype", "fp8_e5m2").expect(2, "[rlalgo.inference.22]", "'fp8_e5m2'", "fp8_e4m3", "--kv-cache-dtype")
        for words in (("--quantization", "fp8"), ("--kv-cache-dtype", "fp8")):  # a GPU alone has them
            c.run(verb, *model, "--device", "cpu", *words, stdin='{"prompt": "1"}\n').expect(2, "[rlalgo.inference.19]", "the CPU")
    chat = lambda *more: c.run("inference", MODEL, "--temperature", "0", "--max-new-tokens", "8", *more, stdin="3 + 4 =").expect(0).out
    assert chat("--quantization", "int8").strip() and chat("--quantization", "none") == chat()


def rows_of_many_kinds():
    """24 lines of different prompts, lengths and settings."""
    return [{"ids": [5 + (7 * r + t * t) % 400 for t in range(3 + 5 * (r % 7))], "max_new_tokens": 4 + 3 * (r % 9),
             "temperature": [0, 1, 0.7][r % 3], "top_k": [0, 20][r % 2], "top_p": [1, 0.9][r // 2 % 2], "seed": r % 4,
             "repetition_penalty": [1, 1.1][r // 3 % 2], "n": [1, 1, 3][r % 3]} for r in range(24)]


@case
def lines_of_different_settings_share_a_batch(c):
    rows = rows_of_many_kinds()
    together = ask(c, "generate", rows)
    assert [(o["index"], o["sample"]) for o in together] == [(r, k) for r, row in enumerate(rows) for k in range(row["n"])]
    for batch in ("1", "5", "64"):
        assert ask(c, "generate", rows, "--batch", batch) == together, f"--batch {batch} changes a completion"
    for r in (0, 7, 14, 23):
        single = ask(c, "generate", [rows[r]])
        assert [dict(o, index=r) for o in single] == [o for o in together if o["index"] == r], "a line depends on the others"


@case
def a_file_and_a_pipe_give_the_same(c):
    ids = list(range(5, 25))
    many = "".join(json.dumps({"ids": [30 + r] + ids, "max_new_tokens": 100, "temperature": 0.01, "seed": r}) + "\n" for r in range(16))
    (c.folder / "many.jsonl").write_text(many)
    with open(c.folder / "many.jsonl") as file:
        filed = subprocess.run([c.program, "generate", "--model", MODEL], stdin=file, capture_output=True, text=True, timeout=120)
    assert filed.returncode == 0 and len(filed.stdout.splitlines()) == 16, filed.stderr
    piped = c.run("generate", "--model", MODEL, stdin=many).expect(0)
    assert piped.out == filed.stdout


class Talk:
    """A program that is asked line by line."""

    def __init__(self, c, *arguments):
        self.process = subprocess.Popen([c.program, *map(str, arguments)], cwd=c.folder, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        self.rest = b""

    def say(self, text):
        self.process.stdin.write(text.encode())

    def hear(self, seconds=60):
        """The next line of the answer; None when there is none in that time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, "the program ended"
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        return self.process.wait(timeout=60), (self.rest + rest).decode().splitlines()


@case
def an_interactive_writer_is_answered_line_by_line(c):
    row = {"ids": list(range(5, 25))}
    for verb, options, extra in [("tokenize", (), {}), ("score", (), {}), ("score", ("--engine",), {}),
                                 ("generate", (), {"max_new_tokens": 3})]:
        talk = Talk(c, verb, "--model", MODEL, *options)
        text = json.dumps(dict(row, **extra))
        for _ in range(3):
            talk.say(text + "\n")
            assert talk.hear() is not None, f"{verb} keeps an answer back"
        talk.say("\n" + text + "\n\n \n")  # blank lines behind it
        assert talk.hear() is not None, f"{verb} keeps an answer back"
        talk.say("nonsense\n")
        assert "error" in talk.hear()
        talk.say(text[:10])
        assert talk.hear(0.3) is None, "half a line was answered"
        talk.say(text[10:] + "\n")
        assert talk.hear() is not None
        talk.say(text)  # the last line of an input may lack its end
        status, rest = talk.end()
        assert status == 1 and len(rest) == 1 and "error" not in json.loads(rest[0]), (status, rest)


@case
def answers_come_in_the_order_of_the_input_as_soon_as_they_may(c):
    ids = list(range(5, 25))
    talk = Talk(c, "generate", "--model", MODEL)
    # The first line is long; the second has ended long before it, and a third arrives while both are under way.
    talk.say(json.dumps({"ids": ids, "max_new_tokens": 200, "temperature": 0, "repetition_penalty": 1.3, "n": 1}) + "\n")
    talk.say(json.dumps({"ids": ids, "max_new_tokens": 2}) + "\n")
    talk.say(json.dumps({"ids": ids, "max_new_tokens": 1}) + "\n")
    assert [talk.hear()["index"] for _ in range(3)] == [0, 1, 2]
    assert talk.end() == (0, [])


@case
def an_endless_input_needs_no_more_memory_than_a_long_one(c):
    row = json.dumps({"ids": [5, 6], "max_new_tokens": 1, "ignored": "x" * 250000}) + "\n"
    for verb, text in [("tokenize", row), ("score", row), ("generate", row), ("tokenize", "\n" * 250000)]:
        process = subprocess.Popen([c.program, verb, "--model", MODEL], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, bufsize=0)

        def resident():
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0])
        sizes = []
        for count in (40, 160):
            for _ in range(count):
                process.stdin.write(text.encode())  # blocks until the program has read nearly all
            sizes.append(resident())
        process.kill()
        process.communicate()
        assert sizes[1] < sizes[0] + 25000, f"{verb} grows with its input: {sizes} kB after 10 and 50 MB"
    for words in (["tokenize", "--model", MODEL], ["inference", MODEL]):
        with open("/dev/zero") as zeros:  # one line without an end
            done = subprocess.run([c.program, *words], stdin=zeros, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "[rlalgo.cli.19]" in done.stderr, done.stderr
    for words in (["generate", "--model", MODEL], ["inference", MODEL]):
        directory = os.open("/", os.O_RDONLY)
        try:
            done = subprocess.run([c.program, *words], stdin=directory, capture_output=True, text=True, timeout=60)
        finally:
            os.close(directory)
        assert done.returncode == 1 and "[rlalgo.cli.21]" in done.stderr, done.stderr


@case
def lines_before_an_input_that_breaks_are_answered(c):
    row = json.dumps({"ids": list(range(5, 25)), "max_new_tokens": 2}) + "\n"
    for verb in ("tokenize", "score", "generate"):
        result = c.run(verb, "--model", MODEL, stdin=row * 3 + "x" * (65 << 20)).expect(1, "[rlalgo.cli.19]", "line 4")
        assert len(lines(result)) == 3


@case
def waiting_is_brief_unless_the_user_says_otherwise(c):
    def said(**env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
        done = subprocess.run([c.program, "version"], capture_output=True, text=True, timeout=60,
                              env={**clean, "OMP_DISPLAY_ENV": "verbose", **env})
        assert done.returncode == 0 and done.stdout.startswith("rlalgo "), done.stderr
        seen = [line.split("'")[1] for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
        assert len(seen) == 1, f"OpenMP started {len(seen)} times\n{done.stderr}"
        return seen[0]
    assert said() == "5000"
    assert int(said(OMP_WAIT_POLICY="active")) > 1000000
    assert said(GOMP_SPINCOUNT="777") == "777"
    assert said(OMP_WAIT_POLICY="passive") == "0"


@case
def merged_adapter(c):
    changes = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True, "learning_rate": 1e-2,
               "warmup_steps": 0, "trl": {"reward_funcs": ["builtin.gsm8k_format"], "max_completion_length": 32}}
    c.train(changes).expect(0)
    c.run("merge-lora", "config.yaml").expect(0, "out/merged")
    row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 8, "temperature": 0}) + "\n"
    adapted = lines(c.run("generate", "--model", MODEL, "--lora-model-dir", "out", stdin=row).expect(0))
    merged = lines(c.run("generate", "--model", "out/merged", stdin=row).expect(0))
    plain = lines(c.run("generate", "--model", MODEL, stdin=row).expect(0))
    difference = lambda a, b: max(abs(x - y) for x, y in zip(a[0]["log_probs"], b[0]["log_probs"]))
    assert adapted[0]["ids"] == merged[0]["ids"] and difference(adapted, merged) < 0.03  # merged weights are bf16 as the base
    assert difference(adapted, plain) > 0.1, "the adapter changes nothing"
    c.run("merge-lora", "config.yaml", "--output-dir", "out").expect(2, "[rlalgo.config.31]")
    c.run("merge-lora").expect(2, "[rlalgo.cli.14]")


class Table(http.server.BaseHTTPRequestHandler):
    """A server in the protocol of `trl vllm-serve` whose completions depend on the prompt only."""

    def log_message(self, *unused):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def drip(self):
        """One byte every 50 ms: each read succeeds, the answer never ends."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        try:
            for _ in range(400):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass

    def do_GET(self):
        if self.server.drips == self.path:
            return self.drip()
        self.answer(200, {"status": "ok"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, request))
        if self.path == "/http_update_weights/" and self.server.refuses:
            return self.answer(404, {"detail": "Not Found"})
        if self.path != "/generate/":
            return self.answer(200, {})
        if self.server.drips == self.path:
            return self.drip()
        if self.server.busy > 0:
            self.server.busy -= 1
            return self.answer(429, {"detail": "busy"})
        if self.server.dies_after is not None and len(self.server.seen) > self.server.dies_after:
            return self.answer(400, {"detail": "engine dead"})
        ids = [[5 + (len(prompt) + k) % 7] * (2 + k) + [self.server.eos] for prompt in request["prompts"]
               for k in range(request["n"])]
        self.answer(200, {"completion_ids": ids, "logprobs": [[[-1.5]] * len(i) for i in ids],
                          "logprob_token_ids": [[[t] for t in i] for i in ids]})


def serve(c, **settings):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Table)
    server.seen, server.refuses, server.dies_after, server.busy, server.drips = [], False, None, 0, ""
    server.eos = json.loads((MODEL / "config.json").read_text())["eos_token_id"]
    for name, value in settings.items():
        setattr(server, name, value)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    trl = {"use_vllm": True, "vllm_mode": "server", "vllm_server_host": "127.0.0.1",
           "vllm_server_port": server.server_address[1], "vllm_server_timeout": 5,
           "vllm_importance_sampling_mode": "token_truncate"}
    return server, trl


@case
def started_as_by_a_launcher(c):
    """axolotl's commands take --launcher and --num-processes; one process does it."""
    ask = ("inference", MODEL, "--max-new-tokens", 2)
    c.run(*ask, "--launcher", "accelerate", stdin="1 + 1 =").expect(0, "--launcher accelerate has no effect")
    c.run(*ask, "--num_processes=2", stdin="1 + 1 =").expect(0, "warning: `rlalgo inference` is one process")
    c.run(*ask, "--launcher=torchrun", "--", "--nproc_per_node=2", "--rdzv_backend", "c10d", stdin="1 + 1 =").expect(0, "one process", "c10d")
    c.run(*ask, "--launcher", "mpi").expect(2, "[rlalgo.cli.7]", "accelerate, torchrun or python")
    c.run("merge-lora", "--launcher", "python", "--num-processes", 3).expect(2, "[rlalgo.cli.14]", "one process")
    c.run("generate", "--model", MODEL, "--launcher", "python").expect(2, "[rlalgo.cli.8]", "--launcher")


@case
def completions_of_a_server(c):
    server, trl = serve(c)
    c.train({"trl": trl}).expect(0)
    paths = [path for path, _ in server.seen]
    generations = [i for i, path in enumerate(paths) if path == "/generate/"]
    assert len(generations) == 2, paths
    for i in generations:
        assert paths[i - 1] == "/reset_prefix_cache/" and paths[i - 2] == "/http_update_weights/", paths
    pushed = [p["name"] for path, body in server.seen[:generations[0]] if path == "/http_update_weights/" for p in body["params"]]
    assert "model.embed_tokens.weight" in pushed and len(pushed) == len(set(pushed)) > 10, pushed
    request = server.seen[generations[0]][1]
    assert request["n"] == 4 and request["max_tokens"] == 12 and len(request["prompts"]) == 2, request
    record = c.metrics()[0]
    assert record["completions/max_length"] == 6 and record["sampling/importance_sampling_ratio/max"] <= 3.0, record
    assert record["sampling/sampling_logp_difference/mean"] > 0


@case
def server_errors(c):
    server, trl = serve(c, refuses=True)
    c.train({"trl": trl}).expect(1, "[rlalgo.sync.1]", "/http_update_weights/")
    server, trl = serve(c, dies_after=4)
    c.train({"trl": trl, "output_dir": "out2", "max_steps": 4}).expect(1, "[rlalgo.http.2]", "engine dead", "/generate/")
    server.shutdown()
    server.server_close()
    c.train({"trl": dict(trl, vllm_server_timeout=0.5), "output_dir": "out3"}).expect(
        1, "[rlalgo.http.5]", "/health/")
    c.no_output("out3")


@case
def patience_with_a_server_ends(c):
    server, trl = serve(c, busy=1)
    c.train({"trl": trl}).expect(0, "warning: POST", "/generate/: HTTP 429; attempt 2 of 6 in 0.5 s")
    server, trl = serve(c, drips="/generate/")
    c.train({"trl": dict(trl, request_timeout=0.5), "output_dir": "out2"}).expect(
        1, "[rlalgo.http.1]", "time is up", "the rest of the answer", "/generate/")
    server, trl = serve(c, drips="/health/")
    c.train({"trl": dict(trl, vllm_server_timeout=0.5), "output_dir": "out3"}).expect(1, "[rlalgo.http.5]", "time is up")


if __name__ == "__main__":
    main(CASES)
