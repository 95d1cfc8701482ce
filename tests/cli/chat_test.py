"""inference --chat: a conversation on a terminal, one message in a pipe."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import QUICKSTART, main  # noqa: E402
from first_steps_test import Terminal  # noqa: E402

CASES = {}
MODEL = QUICKSTART / "model"


def case(function):
    CASES[function.__name__] = function
    return function


def saved(c, name):
    return json.loads((c.folder / name).read_text())["messages"]


@case
def turns_and_commands(c):
    on = Terminal(c, "inference", MODEL, "--chat", "--max-new-tokens", "12", "--system", "Add.")
    at = on.wait_for("you> ")
    on.type("3 + 4?\n")
    at = on.wait_for("you> ", begin=at)
    on.type("/save one.json\n")
    at = on.wait_for("saved in one.json", begin=at)
    first = saved(c, "one.json")
    assert [m["role"] for m in first] == ["system", "user", "assistant"] and first[1]["content"] == "3 + 4?", first
    assert first[2]["content"].strip().split("\n")[0] in on.text.replace("\r", ""), (first, on.text)
    on.type("/retry\n")
    at = on.wait_for("you> ", begin=on.wait_for("model> ", begin=at))
    on.type("and 5\\\n")
    at = on.wait_for("...> ", begin=at)
    on.type("more\n")
    at = on.wait_for("you> ", begin=at)
    on.type("/system Be brief.\n")
    at = on.wait_for("system: Be brief.", begin=at)
    on.type("/save two.json\n")
    at = on.wait_for("saved in two.json", begin=at)
    second = saved(c, "two.json")
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user", "assistant"], second
    assert second[0]["content"] == "Be brief." and second[3]["content"] == "and 5\nmore" and second[1] == first[1], second
    on.type("/undo\n")
    at = on.wait_for("1 turns are left", begin=at)
    on.type("/sav x\n")
    at = on.wait_for("did you mean /save?", begin=at)
    (c.folder / "there.json").write_text("mine")
    on.type("/save there.json\n")
    at = on.wait_for("is there already", begin=at)
    on.type("/save two.json\n")  # one's own may be written again
    at = on.wait_for("saved in two.json", begin=at)
    assert len(saved(c, "two.json")) == 3 and (c.folder / "there.json").read_text() == "mine"
    on.type("/clear\n")
    at = on.wait_for("a new conversation", begin=at)
    on.type("/exit\n")
    assert on.end() == 0


@case
def an_answer_is_stopped_and_the_conversation_goes_on(c):
    on = Terminal(c, "inference", MODEL, "--chat", "--max-new-tokens", "100000", "--temperature", "100", "--repetition-penalty", "1", "--top-k", "0", "--top-p", "1")
    at = on.wait_for("you> ")
    stopped = False
    for _ in range(60):  # an answer may end by itself before it can be stopped
        on.type("3 + 4?\n")
        at = on.wait_for("model> ", begin=at)
        on.type("\x03")
        at = on.wait_for("you> ", begin=at)
        stopped = "[stopped]" in on.text
        if stopped:
            break
        on.type("/clear\n")
        at = on.wait_for("you> ", begin=on.wait_for("a new conversation", begin=at))
    assert stopped, on.text[-500:]
    on.type("half a line\x03")
    at = on.wait_for("/exit or Ctrl-D ends", begin=at)
    at = on.wait_for("you> ", begin=at)
    on.type("/save kept.json\n")
    on.wait_for("saved in kept.json", begin=at)
    roles = [m["role"] for m in saved(c, "kept.json")]
    assert roles[:2] == ["user", "assistant"] and "half a line" not in (c.folder / "kept.json").read_text(), roles
    on.type("\x04")
    assert on.end() == 0


@case
def a_turn_that_leaves_no_room_is_taken_back(c):
    on = Terminal(c, "inference", MODEL, "--chat", "--max-new-tokens", "4")
    at = on.wait_for("you> ")
    for _ in range(6):  # a terminal takes 4,095 bytes of a line
        on.type("1 2 3 4 5 " * 60 + "\\\n")
        at = on.wait_for("...> ", begin=at)
    on.type("7\n")
    at = on.wait_for("error:", begin=at)
    at = on.wait_for("you> ", begin=at)
    on.type("/save after.json\n")
    on.wait_for("saved in after.json", begin=at)
    assert saved(c, "after.json") == []
    on.type("/exit\n")
    assert on.end() == 0


@case
def a_pipe_is_one_message(c):
    words = ["inference", MODEL, "--chat", "--temperature", "0", "--max-new-tokens", "8"]
    out = c.run(*words, stdin="3 + 4?\n/exit\n").expect(0).out
    assert "you> " not in out and out.count("\n") >= 1, out
    messages = {"messages": [{"role": "user", "content": "3 + 4?\n/exit"}], "max_new_tokens": 8, "temperature": 0, "repetition_penalty": 1.1}
    same = json.loads(c.run("generate", MODEL, stdin=json.dumps(messages) + "\n").expect(0).out)["text"]
    assert out.rstrip("\n") == same.rstrip("\n"), (out, same)


if __name__ == "__main__":
    main(CASES)
