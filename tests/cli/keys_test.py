"""`rlalgo keys`, and the tables of docs/configuration.md that it prints."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import NotRun, main  # noqa: E402

CASES = {}
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def case(function):
    CASES[function.__name__] = function
    return function


@case
def the_page_has_the_tables_of_the_rows(c):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/key_tables.py"), "--check", "--rlalgo", str(c.program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@case
def the_page_names_every_section(c):
    text = (ROOT / "docs/configuration.md").read_text()
    known = re.search(r"expected (.*)", c.run("keys", "--markdown", "none").expect(2, "[rlalgo.cli.32]").err).group(1)
    for section in known.strip().split(", "):
        assert text.count(f"<!-- keys: {section} -->") == 1, section


@case
def keys_are_found_by_parts_of_their_names(c):
    text = c.run("keys", "epsilon_high").expect(0).out
    assert text.startswith("trl.epsilon_high: number, more than 0 (default: `epsilon`)\n") and "loss_type" in text, text
    assert "methods: all that generate (grpo, gdpo, rloo, ebft)" in text, text
    assert text.count("\n    ") == text.count("\n") - 1, "one key, one line for each thing about it"
    assert "a resumed run may change it" in c.run("keys", "request_timeout").expect(0).out
    assert len(c.run("keys").expect(0).out.splitlines()) > 400
    c.run("keys", "epsilon_hihg").expect(2, "[rlalgo.cli.32]", "epsilon_high?")


@case
def a_key_is_found_by_its_name_alone_and_by_how_it_is_typed(c):
    assert c.run("keys", "rl").expect(0).out.startswith("rl: grpo, gdpo"), "not all that have these letters"
    assert c.run("keys", "trl.max-turns").expect(0).out.startswith("trl.max_turns: ")
    assert c.run("keys", "trl").expect(0).out.count("\ntrl.") > 50, "a section"
    assert c.run("keys", "max_length").expect(0).out.startswith("max_length: it is written sequence_len here\nsequence_len: ")
    assert "gradient_checkpointing" in c.run("keys", "backward").expect(0).out, "a word of a sentence"


@case
def names_from_elsewhere_are_answered(c):
    assert c.run("keys", "per_device_train_batch_size").expect(0).out.startswith(
        "per_device_train_batch_size: it is written micro_batch_size here\nmicro_batch_size: whole number")
    assert "nothing is uploaded" in c.run("keys", "push_to_hub").expect(0).out
    assert "without effect" in c.run("keys", "flash_attention").expect(0).out


@case
def every_argument_of_trl_is_answered(c):
    """In a configuration: a key of ours, a warning, or an error that says what is written instead or why nothing is."""
    arguments = json.loads((ROOT / "tests/cli/trl_arguments.json").read_text())
    common = arguments["TrainingArguments"] + arguments["ModelConfig"] + arguments["ScriptArguments"]
    for rl, config in (("grpo", "GRPOConfig"), ("rloo", "RLOOConfig"), ("dpo", "DPOConfig"), ("kto", "KTOConfig"), ("orpo", "ORPOConfig"),
                       ("cpo", "CPOConfig")):
        names = arguments[config] + (common if rl in ("grpo", "dpo") else [])
        for first in range(0, len(names), 40):
            some = [name for name in names[first:first + 40] if name not in c_keys(rl)]
            text = json.dumps({**c_keys(rl), **{name: "x" for name in some}}, indent=1)
            err = c.run("train", c.config(text=text)).expect(2).err
            for name in some:
                lines = [line for line in err.splitlines() if re.search(rf"unknown key {name}\b", line)]
                assert all(re.search("it is written|this key is written|remove it: ", line) for line in lines), lines


def c_keys(rl):
    keys = {"base_model": "m", "rl": rl, "learning_rate": 1e-6, "micro_batch_size": 4, "output_dir": "out", "datasets": [{"path": "r.jsonl"}]}
    return {**keys, "trl": {"reward_funcs": ["a.b"], "num_generations": 4}} if rl in ("grpo", "rloo") else keys


def yaml_files():
    """The configurations of the examples, by a reader of YAML 1.1; NotRun without one."""
    try:
        import yaml
    except ImportError:
        raise NotRun("Python has no yaml") from None
    return {path: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "examples").glob("**/*.yaml"))}


@case
def the_schema_takes_the_examples_and_refuses_what_is_wrong(c):
    schema = json.loads(c.run("keys", "--json-schema").expect(0).out)
    try:
        import jsonschema
    except ImportError:
        raise NotRun("Python has no jsonschema") from None
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    files = yaml_files()
    assert len(files) >= 10
    for path, content in files.items():
        wrong = [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(content)]
        assert not wrong, f"{path}: {wrong}"
    good = {"base_model": "m", "rl": "dpo", "learning_rate": "1e-6", "eval_strategy": False, "evals_per_epoch": 0, "wandb_project": "p",
            "datasets": [{"path": "r", "split": "train"}], "trl": {"loss_type": None}, "flash_attention": True, "relora": False,
            "bnb_config_kwargs": {"llm_int8_threshold": 6.0, "bnb_4bit_quant_storage": "uint8", "blocksize": 64}, "optim_args": {"relative_step": False}}
    validator.validate(good)
    for more in ({"learning_rat": 1}, {"rl": "ppo"}, {"learning_rate": -1}, {"micro_batch_size": 0}, {"datasets": "r"}, {"datasets": [{"paht": "r"}]},
                 {"trl": {"epsilon": 2}}, {"use_tensorboard": "maybe"}, {"relora": True}, {"lora_r": 1.5},
                 {"bnb_config_kwargs": {"blocksize": 48}}, {"bnb_config_kwargs": {"llm_int8_has_fp16_weight": True}}, {"optim_args": {"relative_step": True}}):
        assert not validator.is_valid({**good, **more}), more
    assert not validator.is_valid({"rl": "dpo"}), "required keys"


def completed(shell, script, line):
    """What bash offers at the end of `line`."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _rlalgo; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run([shell, "--norc", "-c", program], capture_output=True, text=True, timeout=60, cwd=script.parent)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@case
def bash_completes_verbs_options_keys_and_words(c):
    bash = shutil.which("bash")
    if not bash:
        raise NotRun("there is no bash")
    script = c.folder / "completion.bash"
    script.write_text(c.run("completion", "bash").expect(0).out)
    (c.folder / "config.yaml").write_text("")
    assert completed(bash, script, "rlalgo tr") == ["train"]
    assert "merge-lora" in completed(bash, script, "rlalgo help m")
    assert completed(bash, script, "rlalgo train c") == ["completion.bash", "config.yaml"]
    assert completed(bash, script, "rlalgo train config.yaml --trl.epsilon") == ["--trl.epsilon", "--trl.epsilon_high"]
    assert "--checkpoint" in completed(bash, script, "rlalgo evaluate config.yaml --che")
    assert completed(bash, script, "rlalgo train config.yaml --rl g") == ["grpo", "gdpo"]
    assert completed(bash, script, "rlalgo train config.yaml --rl = g") == ["grpo", "gdpo"]
    assert completed(bash, script, "rlalgo keys trl.vespo_k") == ["trl.vespo_k_pos", "trl.vespo_k_neg"]
    assert completed(bash, script, "rlalgo tokenize --rl") == [], "no key where none is taken"


@case
def other_shells_read_their_completions(c):
    missing = []
    for shell in ("zsh", "fish"):
        script = c.folder / f"completion.{shell}"
        script.write_text(c.run("completion", shell).expect(0).out)
        assert "trl.epsilon_high" in script.read_text() and "merge-lora" in script.read_text()
        if not shutil.which(shell):
            missing.append(shell)
            continue
        done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
    c.run("completion", "tcsh").expect(2, "[rlalgo.cli.7]", "bash, zsh or fish")
    if shutil.which("fish"):
        done = subprocess.run(["fish", "-c", f"source {c.folder}/completion.fish; complete -C 'rlalgo train c.yaml --trl.epsilon_h'"],
                              capture_output=True, text=True, timeout=60)
        assert "--trl.epsilon_high" in done.stdout, done.stdout + done.stderr
    if missing:
        raise NotRun("there is no " + " and no ".join(missing))


if __name__ == "__main__":
    main(CASES)
