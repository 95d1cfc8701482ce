"""The command line itself: help, misspelt words, colours, and results that cannot be written."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"
VERBS = ["init", "train", "preprocess", "evaluate", "inference", "merge-lora", "tokenize", "score", "generate", "vllm-serve", "report", "keys", "doctor", "version"]


def case(function):
    CASES[function.__name__] = function
    return function


@case
def help_of_all(c):
    texts = [c.run(word).expect(0).out for word in ("help", "--help", "-h")]
    assert texts[0] == texts[1] == texts[2] == c.run("help", "help").expect(0).out
    assert "reinforcement and preference learning" in texts[0], texts[0]
    for verb in VERBS:
        assert f"rlalgo {verb}" in texts[0], verb
    c.run().expect(2, "usage:")


@case
def help_of_each_verb(c):
    expected = {"train": ["CONFIG", "--trl.num-generations"], "preprocess": ["--debug"], "evaluate": ["--checkpoint", "eval_results.json"], "inference": ["--temperature", "0.9"],
                "merge-lora": ["--output-dir"], "tokenize": ["--no-special-tokens", "reads JSON lines"],
                "score": ["--engine", "log_probs"], "generate": ["--batch", "32", "finish_reason"], "report": ["OUTPUT_DIR"], "vllm-serve": ["--api-key", "--allowed-path", "8000"],
                "keys": ["--markdown"], "version": ["--help"], "init": ["--model", "--method", "never replaced"], "doctor": ["not shown"]}
    for verb in VERBS:
        texts = [c.run(*words).expect(0) for words in ((verb, "--help"), (verb, "-h"), ("help", verb))]
        assert texts[0].out == texts[1].out == texts[2].out, verb
        assert f"rlalgo {verb}" in texts[0].out and not texts[0].err, texts[0].out
        for part in expected[verb]:
            assert part in texts[0].out, f"{part} is not in {texts[0].out}"
    assert "CONFIG" in c.run("train", "none.yaml", "--max-steps", "2", "--help").expect(0).out


@case
def misspelt_words(c):
    c.run("generat").expect(2, "[rlalgo.cli.1]", "did you mean `rlalgo generate`?")
    c.run("help", "trian").expect(2, "[rlalgo.cli.1]", "did you mean `rlalgo train`?")
    c.run("tain").expect(2, "did you mean `rlalgo train`?")
    assert len(c.run("z" * 100000).expect(2, "[rlalgo.cli.1]", "bytes left out").err) < 20000
    c.run("zebra").expect(2, "[rlalgo.cli.1]", "rlalgo help")
    c.run("generate", "--modle", MODEL).expect(2, "[rlalgo.cli.8]", "did you mean --model?", "rlalgo help generate")
    c.run("inference", MODEL, "--temprature", "0").expect(2, "[rlalgo.cli.8]", "did you mean --temperature?")
    c.run("score", "--quux", "1").expect(2, "[rlalgo.cli.8]", "--engine", "--batch")
    c.run("generate", "--batch").expect(2, "[rlalgo.cli.8]", "lacks its value", "--batch")
    c.run("generate", "--batch", "many").expect(2, "[rlalgo.cli.7]", "--batch", "many")
    for words in (("generate", "--batch", "nan"), ("generate", "--batch", "0"), ("score", "--batch-tokens", "1e30"), ("inference", MODEL, "--max-new-tokens", "1e30"),
                  ("inference", MODEL, "--top-k", "-1"), ("inference", MODEL, "--seed", "1.5")):
        c.run(*words).expect(2, "[rlalgo.cli.7]", words[-2], "a whole number from")
    for option, value in (("--max-model-len", "-1"), ("--kv-cache-mb", "-1"), ("--max-waiting", "-1"), ("--request-timeout", "nan"), ("--drain-timeout", "-1"),
                          ("--max-logprobs", "-2"), ("--seed", "-1"), ("--broadcast-timeout", "nan")):
        c.run("vllm-serve", MODEL, "--port", "0", f"{option}={value}").expect(2, "[rlalgo.cli.7]", option, f"{value}, expected a number from")
    c.run("generate", MODEL, "words").expect(2, "[rlalgo.cli.6]", "found words")
    c.run("generate", "words").expect(2, "[rlalgo.config.20]", "found words")  # a model's place
    c.run("version", "--now").expect(2, "[rlalgo.cli.8]")
    c.run("report", "a", "train").expect(1, "[rlalgo.run.10]")  # a verb's name is a word like others
    c.run("inference", MODEL, "--system", "s").expect(2, "[rlalgo.cli.28]", "no --chat")
    c.run("vllm-serve", MODEL, "--lora-modules", "out").expect(2, "[rlalgo.cli.7]", "--lora-modules out", "name=directory")
    c.run("inference").expect(2, "[rlalgo.cli.6]")


@case
def whole_numbers_and_the_places_of_models_look_alike_everywhere(c):
    for verb, options in {"generate": ["--batch INT [32]"], "score": ["--batch INT [16]", "--batch-tokens INT [2048]"],
                          "inference": ["--max-new-tokens INT [256]", "--top-k INT [40]", "--seed INT [42]", "--temperature FLOAT [0.9]"],
                          "report": ["--port INT [8090]"]}.items():
        text = " ".join(c.run(verb, "--help").expect(0).out.replace("=", " [").split())
        for option in options:
            name, kind, default = option.split(" ")
            assert f"{name} {kind}" in text and default.strip("[]") in text, (verb, option, text)
    row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 3, "temperature": 0}) + "\n"
    ways = [["generate", "--model", MODEL], ["generate", MODEL], ["generate", MODEL, "--batch", "1e1"]]
    assert len({c.run(*words, stdin=row).expect(0).out for words in ways}) == 1
    greedy = ["--temperature", "0", "--max-new-tokens", "4"]
    assert c.run("inference", "--model", MODEL, *greedy, stdin="3 +").expect(0).out == c.run("inference", MODEL, *greedy, stdin="3 +").expect(0).out
    assert c.run("-V").expect(0).out == c.run("--version").expect(0).out == c.run("version").expect(0).out
    c.run("generate").expect(2, "[rlalgo.cli.12]", "rlalgo generate DIR")


@case
def a_training_that_has_left_no_model_is_said_so(c):
    name = c.config({"output_dir": "later"})
    for words in (["inference", name], ["merge-lora", name]):
        c.run(*words, stdin="3").expect(2, "[rlalgo.cli.26]", "later", "rlalgo train config.yaml")
    c.run("train", name, "--save-strategy", "steps", "--save-steps", "1").expect(0)
    (c.folder / "later" / "config.json").unlink()
    c.run("inference", name, stdin="3").expect(2, "[rlalgo.cli.26]", "later/checkpoint-2")


@case
def kernels_that_no_processor_has_are_refused(c):
    for words in (["version"], ["generate", "--model", MODEL]):
        done = subprocess.run([c.program, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                              env={**os.environ, "RLALGO_CPU": "avx1024"})
        assert (done.returncode, done.stdout) == (1, "") and "[rlalgo.cpu.1]" in done.stderr, (words, done)


@case
def underscores_and_equals_signs(c):
    row = json.dumps({"prompt": "3 + 4 =", "max_new_tokens": 3, "temperature": 0}) + "\n"
    plain = c.run("generate", "--model", MODEL, stdin=row).expect(0).out
    assert plain and c.run("generate", f"--model={MODEL}", "--batch=1", stdin=row).expect(0).out == plain
    greedy = ["--temperature", "0", "--max_new_tokens", "4"]
    assert c.run("inference", MODEL, *greedy, stdin="3 +").expect(0).out == \
        c.run("inference", "--max-new-tokens=4", "--temperature=0", MODEL, stdin="3 +").expect(0).out


@case
def results_that_cannot_be_written(c):
    rows = {"tokenize": {"text": "3 + 4"}, "score": {"prompt": "3 +", "completion": " 4"},
            "generate": {"prompt": "3 +", "max_new_tokens": 2}}
    commands = [([verb, "--model", MODEL], json.dumps(row) + "\n") for verb, row in rows.items()]
    commands += [(["inference", MODEL, "--max-new-tokens", "4"], "3 +"), (["version"], ""), (["help"], ""),
                 (["help", "train"], ""), (["train", "--help"], "")]
    for words, stdin in commands:
        with open("/dev/full", "w") as full:
            done = subprocess.run([c.program, *map(str, words)], input=stdin, stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=120)
        assert done.returncode == 1, f"{words}: exit status {done.returncode}"
        assert "[rlalgo.cli.17]" in done.stderr and "No space left on device" in done.stderr, done.stderr


@case
def standard_streams_that_are_closed(c):
    """No file that is opened takes the place of one, so that what is printed would be written into it, or it be read as the input."""
    def run(stream, *words):
        return subprocess.run([c.program, *map(str, words)], cwd=c.folder, stdin=None if stream == 0 else subprocess.DEVNULL, stdout=subprocess.PIPE if stream != 1 else None,
                              stderr=subprocess.PIPE if stream != 2 else None, text=True, timeout=120, preexec_fn=lambda: os.close(stream))
    for words in (["inference", MODEL], ["tokenize", "--model", MODEL], ["generate", "--model", MODEL]):
        done = run(0, *words)
        assert done.returncode == 1 and "[rlalgo.cli.21]" in done.stderr, (words, done.returncode, done.stderr)
    done = run(1, "version")
    assert done.returncode == 1 and "[rlalgo.cli.17]" in done.stderr, done.stderr
    assert run(2, "generat").returncode == 2
    c.config({"max_steps": 1})
    for stream in (0, 1, 2):
        assert run(stream, "train", "config.yaml", "--output-dir", f"closed{stream}").returncode == 0, stream
    first, *others = [(c.folder / f"closed{stream}" / "model.safetensors").read_bytes() for stream in (0, 1, 2)]
    assert others == [first, first]
    assert all(len(c.metrics(f"closed{stream}")) == 1 for stream in (0, 1, 2))


@case
def a_training_whose_reader_goes_away_ends_well(c):
    c.config({"max_steps": 3, "logging_steps": 1, "save_strategy": "steps", "save_steps": 3})
    for name, reader in {"head": ["head", "-1"], "true": ["true"]}.items():
        run = subprocess.Popen([c.program, "train", "config.yaml", "--output-dir", name], cwd=c.folder, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        subprocess.run(reader, stdin=run.stdout, stdout=subprocess.DEVNULL, timeout=120)
        run.stdout.close()
        errors = run.stderr.read()
        assert run.wait(timeout=120) == 0, f"{name}: exit status {run.returncode}\n{errors}"
        assert len(c.metrics(name)) >= 3 and (c.folder / name / "model.safetensors").exists()


def on_terminal(c, *words, **variables):
    """What the program writes to a terminal (standard output and error)."""
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | variables
    run = subprocess.Popen([c.program, *map(str, words)], cwd=c.folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                           env=environment)
    os.close(slave)
    text = b""
    while True:
        try:
            if not select.select([master], [], [], 120)[0]:
                raise AssertionError("the program says nothing for two minutes")
            piece = os.read(master, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(master)
    return run.wait(timeout=60), text.decode()


@case
def colours_on_a_terminal(c):
    c.config({"max_steps": 1})
    colour = re.compile(r"\x1b\[[0-9;]*m")
    for words, status in ((["train", "config.yaml"], 0), (["dance"], 2)):
        code, text = on_terminal(c, *words)
        assert code == status and colour.search(text), (code, text)
        code, text = on_terminal(c, *words, NO_COLOR="1")
        assert code == status and not colour.search(text), (code, text)
    piped = c.run("train", "config.yaml", env={"TERM": "xterm"}).expect(0)
    assert "\x1b" not in piped.out + piped.err


if __name__ == "__main__":
    main(CASES)
