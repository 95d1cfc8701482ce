#!/usr/bin/env python3
"""A training against a real NeMo Gym, token by token: what the trainer trains on is what the servers said.

    scripts/gym_servers.sh --servers "string_match example_single_tool_call" --model-url http://127.0.0.1:8100/v1
    scripts/gym_check.py --rlalgo build/release/bin/rlalgo --head-port 11000 --model-port 8100 --agents rows.jsonl
    scripts/gym_check.py --rlalgo build/release/bin/rlalgo --head-port 11000 --verify rows.jsonl

Stands between the trainer and the Gym (head server, agents, resources servers) and, with --agents, between the Gym's model server and the
process that trains, and writes down what passes. Then rows that the trainer keeps in its checkpoint are compared with that: --agents: token
ids, masks, log-probs to the bit, rewards, and that nothing that was drawn is missing; --verify: each completion's reward. Prints one JSON
line; exit status 1 where something differs. Standard library only."""
import argparse
import array
import base64
import http.client
import http.server
import json
import pathlib
import re
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent


def unpacked(text, kind):
    return array.array(kind, base64.b64decode(text)).tolist()


class Proxy(http.server.ThreadingHTTPServer):
    """Passes everything on to a port of this machine, and keeps (path, request, status, reply)."""
    daemon_threads, request_queue_size = True, 256

    def __init__(self, target, port=0, change=None):
        self.target, self.seen, self.change, self.lock = target, [], change, threading.Lock()
        super().__init__(("127.0.0.1", port), Passing)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):  # a client that has gone
        pass


class Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=600)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "accept-encoding", "content-length")}
        try:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            data, status, told = answer.read(), answer.status, answer.getheaders()
        except OSError as error:
            data, status, told = str(error).encode(), 503, []
        finally:
            upstream.close()
        if self.server.change:
            data = self.server.change(self.path, data)
        with self.server.lock:
            self.server.seen.append((self.path, body, status, data))
        self.send_response(status)
        for name, value in told:
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_HEAD = do_GET


def parsed(proxy, path):
    """The replies with status 200 of a path, with what was asked."""
    return [(json.loads(asked), json.loads(reply)) for where, asked, status, reply in list(proxy.seen) if where.rstrip("/").endswith(path) and status == 200]


def stand_between(head_port):
    """A head server whose servers are proxies of the real ones; the head, and the proxies."""
    proxies = {}

    def renamed(path, data):
        if not path.startswith("/global_config_dict_yaml"):
            return data

        def own(match):
            port = int(match[2])
            if port == head_port:
                return match[0]
            if port not in proxies:
                proxies[port] = Proxy(port)
            return f"{match[1]}{proxies[port].port}"
        return json.dumps(re.sub(r"(?m)^(\s+port: )(\d+)$", own, json.loads(data))).encode()
    return Proxy(head_port, change=renamed), proxies


def train(options, folder, rows, head, **more):
    trl = {"num_generations": 4, "max_completion_length": options.length, "num_iterations": 2, "temperature": 0.8, "reward_funcs": [], **more.pop("trl", {})}
    config = {"base_model": options.model, "rl": "grpo", "nemo_gym_enabled": True, "nemo_gym_auto_start": False, "nemo_gym_head_port": head.port,
              "nemo_gym_datasets": [{"path": str(pathlib.Path(path).resolve())} for path in rows], "trl": trl, "micro_batch_size": 8,
              "gradient_accumulation_steps": options.accumulation, "learning_rate": 1e-4, "max_steps": 2, "logging_steps": 1, "save_strategy": "steps",
              "save_steps": 1, "output_dir": str(folder / "out"), **more}
    (folder / "config.yaml").write_text(json.dumps(config, indent=1))
    done = subprocess.run([options.rlalgo, "train", folder / "config.yaml"], capture_output=True, text=True, timeout=options.seconds)
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    state = json.loads((folder / "out/checkpoint-1/rlalgo_state.json").read_text())

    def found(node):  # the generation that the next step trains on again
        if isinstance(node, dict):
            if "rollouts" in node and "reward_names" in node:
                return node
            node = list(node.values())
        for value in node if isinstance(node, list) else []:
            if (inner := found(value)) is not None:
                return inner
        return None
    metrics = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return found(state), metrics


def agents(options, folder):
    model = Proxy(options.server_port, options.model_port)
    head, proxies = stand_between(options.head_port)
    generation, metrics = train(options, folder, options.agents, head, nemo_gym_multi_turn=True, nemo_gym_run_timeout=options.seconds,
                                trl={"vllm_server_port": options.server_port})
    calls = []  # of the model, as its server answered them
    for asked, reply in parsed(model, "/chat/completions"):
        message = reply["choices"][0]["message"]
        calls.append((message["prompt_token_ids"], message["generation_token_ids"], message["generation_log_probs"]))
    runs = {}   # rewards of episodes, by the tokens that were drawn in them
    names = {}
    for port, proxy in proxies.items():
        for asked, reply in parsed(proxy, "/run"):
            drawn = tuple(tuple(o["generation_token_ids"]) for o in reply["response"]["output"] if o.get("generation_token_ids"))
            shown = tuple(tuple(o["prompt_token_ids"]) for o in reply["response"]["output"] if o.get("generation_token_ids"))
            runs.setdefault((shown, drawn), []).append(reply["reward"])
            names[asked.get("agent_ref", {}).get("name", port)] = names.get(asked.get("agent_ref", {}).get("name", port), 0) + 1
    wrong, turns, drawn_tokens, told_tokens, used = [], 0, 0, 0, [False] * len(calls)
    for rollout in generation["rollouts"]:
        shown_all, drawn_all = [], []
        for row in [rollout, *rollout.get("further", [])]:
            ids, completion = unpacked(row["prompt_ids"], "i"), unpacked(row["completion_ids"], "i")
            mask, log_probs = list(base64.b64decode(row["loss_mask"])) or [1] * len(completion), unpacked(row["sampling_log_probs"], "f")
            at = 0
            while at < len(completion):
                if not mask[at]:
                    told_tokens += 1
                    at += 1
                    continue
                end = at
                while end < len(completion) and mask[end]:
                    end += 1
                # a stretch that the model drew is one answer, or several in turn with nothing said between
                while at < end:
                    before = ids + completion[:at]
                    fits = [i for i, (shown, drawn, values) in enumerate(calls) if not used[i] and shown == before and drawn == completion[at:at + len(drawn)] and
                            array.array("f", values).tolist() == log_probs[at:at + len(drawn)] and at + len(drawn) <= end]
                    if not fits:
                        wrong.append({"row": rollout["row"], "at": at, "what": "no call of the model was shown and drew this"})
                        at = end
                        break
                    used[fits[0]] = True
                    shown_all.append(tuple(calls[fits[0]][0]))
                    drawn_all.append(tuple(calls[fits[0]][1]))
                    drawn_tokens += len(calls[fits[0]][1])
                    turns += 1
                    at += len(calls[fits[0]][1])
        rewards = runs.get((tuple(shown_all), tuple(drawn_all)), [])
        value = unpacked(rollout["rewards"], "d")
        if value[0] not in rewards:
            wrong.append({"row": rollout["row"], "what": "reward", "found": value[0], "told": rewards})
        else:
            rewards.remove(value[0])
    lost = used.count(False)
    return {"episodes": len(generation["rollouts"]), "rows": sum(1 + len(r.get("further", [])) for r in generation["rollouts"]), "calls of the model": len(calls),
            "turns": turns, "tokens drawn": drawn_tokens, "tokens told": told_tokens, "calls that no row has": lost, "episodes of agents": names,
            "rewards": sorted({unpacked(r["rewards"], "d")[0] for r in generation["rollouts"]}), "failed": metrics[0].get("rollout/failed"), "wrong": wrong}


def verify(options, folder):
    head, proxies = stand_between(options.head_port)
    generation, metrics = train(options, folder, options.verify, head)
    told, servers = {}, {}
    for port, proxy in proxies.items():
        for asked, reply in parsed(proxy, "/verify"):
            text = "".join(part["text"] for item in asked["response"]["output"] if item["type"] == "message" for part in item["content"])
            told.setdefault(text, []).append(reply["reward"])
            servers[port] = servers.get(port, 0) + 1
    samples = [json.loads(line) for line in (folder / "out/samples.jsonl").read_text().splitlines()]
    values = [unpacked(r["rewards"], "d")[0] for r in generation["rollouts"]]
    all_told = sorted(value for rewards in told.values() for value in rewards)
    wrong = [] if sorted(values) == all_told else [{"what": "rewards", "found": sorted(values), "told": all_told}]
    for sample in samples:
        plain = re.sub(r"<tool_call>.*?</tool_call>", "", sample["completion"], flags=re.S).strip()
        if not any(text.strip() in (sample["completion"].strip(), plain) and sample["rewards"]["nemo_gym"] in rewards for text, rewards in told.items()):
            wrong.append({"what": "sample", "found": sample["rewards"], "completion": sample["completion"][:80]})
    return {"completions": len(values), "resources servers": len(servers), "judged by each": sorted(servers.values()), "samples": len(samples),
            "rewards": sorted(set(values)), "failed": metrics[0].get("rollout/failed"), "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlalgo", required=True)
    parser.add_argument("--model", default=str(ROOT / "examples/quickstart/model"))
    parser.add_argument("--head-port", type=int, default=11000)
    parser.add_argument("--model-port", type=int, default=8100, help="where the Gym's model server was told that the model is")
    parser.add_argument("--server-port", type=int, default=8101, help="where the process that trains answers")
    parser.add_argument("--agents", nargs="+", help="rows whose agents play episodes")
    parser.add_argument("--verify", nargs="+", help="rows whose resources servers judge single turns")
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--length", type=int, default=48, help="tokens of a message")
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    if bool(options.agents) == bool(options.verify):
        parser.error("either --agents or --verify")
    with tempfile.TemporaryDirectory() as folder:
        out = (agents if options.agents else verify)(options, pathlib.Path(folder))
    print(json.dumps(out))
    raise SystemExit(bool(out["wrong"]))


if __name__ == "__main__":
    main()
