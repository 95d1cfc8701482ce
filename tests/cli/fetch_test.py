"""`rlalgo fetch` against a Hub of this machine: layout, resume, tokens, refusals, TLS; and training on what was fetched."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases import NotRun, QUICKSTART, ROOT, main  # noqa: E402
from hub_server import Hub, Repository, git_name  # noqa: E402

CASES = {}
GOLDEN = ROOT / "tests" / "golden" / "data" / "columnar"
LARGE = random.Random(1).randbytes(3_000_000)
SMALL = random.Random(2).randbytes(20_000)
FILES = {"config.json": b"{}", "model.safetensors": LARGE, "sub/dir/x y+é.txt": b"hello", "empty.txt": b"", "copy.bin": SMALL,
         "copy2.bin": SMALL, "README.md": b"# x"}


def case(function):
    CASES[function.__name__] = function
    return function


def environment(c, hub, **more):
    """Nothing of this machine's but the Hub."""
    for name in [n for n in os.environ if n.startswith("HF_") or n.lower().endswith("_proxy")]:
        more.setdefault(name, "")
    return {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(c.folder / "hub"), "HF_HOME": str(c.folder / "home"), "no_proxy": "*", **more}


def content(path):
    return "-> " + os.readlink(path) if path.is_symlink() else None if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def layout(folder):
    return {str(p.relative_to(folder)): content(p) for p in folder.rglob("*")}


@case
def the_layout_of_the_cache(c):
    """Blobs, links, references, list, locks: each as huggingface_hub writes it; a second call fetches nothing."""
    hub = Hub()
    model = hub.models["team/model"] = Repository(FILES, revisions=("main", "refs/pr/1"))
    with hub.running():
        env = environment(c, hub)
        result = c.run("fetch", "team/model", env=env).expect(0, "7 files, 6 of them fetched")
        folder = c.folder / "hub" / "models--team--model"
        snapshot = folder / "snapshots" / model.commit
        assert result.out.strip() == str(snapshot), result.out
        names = {path: hashlib.sha256(data).hexdigest() if len(data) >= 1000 else git_name(data) for path, data in FILES.items()}
        expected = {"blobs": None, "refs": None, "refs/main": hashlib.sha256(model.commit.encode()).hexdigest(), "snapshots": None,
                    "trees": None, f"snapshots/{model.commit}": None, f"snapshots/{model.commit}/sub": None,
                    f"snapshots/{model.commit}/sub/dir": None}
        for path, name in names.items():
            expected[f"blobs/{name}"] = hashlib.sha256(FILES[path]).hexdigest()
            expected[f"snapshots/{model.commit}/{path}"] = "-> ../../" + "../" * path.count("/") + f"blobs/{name}"
        found = layout(folder)
        tree = json.loads((folder / "trees" / f"{model.commit}.json").read_text())
        assert found.pop(f"trees/{model.commit}.json")
        assert found == expected, set(found.items()) ^ set(expected.items())
        assert tree["format_version"] == 1 and list(tree["files"]) == sorted(FILES)
        assert tree["files"]["copy.bin"]["lfs_sha256"] == names["copy.bin"] and tree["files"]["config.json"]["blob_id"] == names["config.json"]
        locks = {p.name for p in (c.folder / "hub" / ".locks" / "models--team--model").iterdir()}
        assert locks == {f"{name}.lock" for name in names.values()}, locks
        assert (c.folder / "hub" / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
        asked = len(hub.requests)
        c.run("fetch", "team/model", "--repo-type", "model", "--revision", "refs/pr/1", env=env).expect(0, "0 of them fetched")
        assert all("/api/" in r["path"] for r in hub.requests[asked:]), hub.requests[asked:]
        assert (folder / "refs" / "refs" / "pr" / "1").read_text() == model.commit
        c.run("fetch", "team/model", "--revision", model.commit, env=env).expect(0)


@case
def as_huggingface_hub(c):
    """Our cache and that of snapshot_download are the same, file by file; each reads the other's without asking for files."""
    python = os.environ.get("RLALGO_HUB_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode != 0:
        raise NotRun("no huggingface_hub in this Python (RLALGO_HUB_PYTHON names another)")
    hub = Hub()
    hub.models["team/model"] = Repository(FILES)
    with hub.running():
        def theirs(folder, **more):
            env = {**os.environ, **environment(c, hub), "HF_HUB_CACHE": str(folder), "HF_HUB_DISABLE_XET": "1", **more}
            return subprocess.run([python, "-c", "import huggingface_hub as h; print(h.snapshot_download('team/model'))"], env=env,
                                  capture_output=True, text=True)
        c.run("fetch", "team/model", env=environment(c, hub)).expect(0)
        assert theirs(c.folder / "other").returncode == 0
        one, other = layout(c.folder / "hub"), layout(c.folder / "other")
        assert one == other, {k: (one.get(k), other.get(k)) for k in set(one) | set(other) if one.get(k) != other.get(k)}
        offline = theirs(c.folder / "hub", HF_HUB_OFFLINE="1")
        assert offline.returncode == 0 and "snapshots" in offline.stdout, offline.stderr
        env = environment(c, hub, HF_HUB_CACHE=str(c.folder / "other"))
        c.run("fetch", "team/model", env=env).expect(0, "0 of them fetched")


@case
def broken_transfers(c):
    """Goes on where it broke off, in one call and after the end of the program; what is damaged begins anew."""
    hub = Hub()
    hub.models["team/model"] = Repository(FILES)
    with hub.running():
        env = environment(c, hub)
        hub.faults["model.safetensors"] = [("breaks after", 100_000), 503, ("breaks after", 1_234_567)]
        c.run("fetch", "team/model", env=env).expect(0, "model.safetensors: ", "again in", "HTTP 503")
        ranges = [r["range"] for r in hub.requests if r["cdn"] and r["range"]]
        assert ranges == ["bytes=100000-", "bytes=100000-", "bytes=1334567-"], ranges
        shutil.rmtree(c.folder / "hub")
        hub.faults["model.safetensors"] = [("breaks after", 700_000), "drips"]
        process = c.start("fetch", "team/model", env=env)
        blob = c.folder / "hub" / "models--team--model" / "blobs" / (hashlib.sha256(LARGE).hexdigest() + ".incomplete")
        end = time.monotonic() + 60
        while not (blob.exists() and blob.stat().st_size > 700_000) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130, process.returncode
        assert blob.stat().st_size > 700_000
        assert not (blob.parent.parent / "snapshots").exists() and not (blob.parent.parent / "refs").exists()
        at = len(hub.requests)
        c.run("fetch", "team/model", env=env).expect(0)
        first = next(r["range"] for r in hub.requests[at:] if r["cdn"])
        assert first and int(first[6:-1]) >= 700_000, first
        shutil.rmtree(c.folder / "hub")
        hub.faults["model.safetensors"] = [("breaks after", 500_000), "no ranges"]
        c.run("fetch", "team/model", env=env).expect(0)
        shutil.rmtree(c.folder / "hub")
        hub.faults["model.safetensors"] = ["other bytes"]
        c.run("fetch", "team/model", env=env).expect(0, "not what the Hub announced")
        shutil.rmtree(c.folder / "hub")
        hub.faults["model.safetensors"] = ["other bytes"] * 2
        c.run("fetch", "team/model", env=env).expect(1, "remote.88", "SHA-256", "model.safetensors")
        hub.faults["model.safetensors"] = ["silent"]
        c.run("fetch", "team/model", env={**env, "HF_HUB_DOWNLOAD_TIMEOUT": "1"}).expect(0, "time is up")


@case
def tokens_and_refusals(c):
    """Whose token goes where, and what a refusal means."""
    hub = Hub()
    hub.models["team/model"] = Repository(FILES)
    hub.models["team/gated"] = Repository(FILES, gated=True)
    hub.datasets["team/private"] = Repository({"a.jsonl": SMALL}, private=True)
    hub.datasets["team/model"] = Repository({"a.jsonl": b"{}"})
    with hub.running():
        env = environment(c, hub)
        c.run("fetch", "team/model", env=env).expect(2, "remote.91", "--repo-type dataset")
        c.run("fetch", "team/none", env=env).expect(1, "remote.86", "RepoNotFound", "HF_TOKEN")
        c.run("fetch", "team/gated", env=env).expect(1, "remote.86", "gated", f"{hub.url}/team/gated", "HF_TOKEN")
        c.run("fetch", "team/private", env=env).expect(1, "remote.86", "private")
        c.run("fetch", "team/private", env={**env, "HF_TOKEN": "hf_bad"}).expect(1, "remote.86", "does not accept the token")
        c.run("fetch", "team/private", "--repo-type", "dataset", "--revision", "v9", env={**env, "HF_TOKEN": "hf_good"}).expect(
            1, "remote.86", "no such revision")
        (c.folder / "home").mkdir()
        (c.folder / "home" / "token").write_text("hf_good\n")
        c.run("fetch", "team/private", env=env).expect(0)
        c.run("fetch", "team/gated", "--token", "hf_good", env=env).expect(0)
        leaked = [r for r in hub.requests if r["cdn"] and r["authorization"]]
        assert not leaked and [r for r in hub.requests if r["cdn"]], leaked
        c.run("fetch", "team/gated", env={**env, "HF_HUB_OFFLINE": "1"}).expect(2, "remote.91", "HF_HUB_OFFLINE")
        c.run("fetch", "team/gated", "--include", "*.gguf", env=env).expect(1, "remote.92", "config.json")
        c.run("fetch", "team/model", "--repo-type", "model", "--include", "*.json", "--include", "sub/", "--exclude", "empty*", env=env).expect(
            0, "2 files, 2 of them")
        c.run("fetch", "a/b/c", env=env).expect(2, "remote.91")
        c.run("fetch", env=env).expect(2, "cli.3")
        c.run("fetch", "team/model", "--repo-type", "space", env=env).expect(2, "cli.7")
        c.run("fetch", "team/model", env={**env, "HF_ENDPOINT": "localhost"}).expect(2, "http.10")
        hub.faults["info"] = [429]
        c.run("fetch", "team/gated", env=env).expect(0, "HTTP 429")


@case
def no_room(c):
    """A disk that takes no more, a cache that may not be written."""
    hub = Hub()
    hub.models["team/model"] = Repository(FILES)
    with hub.running():
        env = {**os.environ, **environment(c, hub)}
        script = f'trap "" XFSZ; ulimit -f 1000; exec "{c.program}" fetch team/model'
        result = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=120)
        assert result.returncode == 1 and "remote.89" in result.stderr and ".incomplete" in result.stderr, result.stderr
        (c.folder / "file").write_text("")
        c.run("fetch", "team/model", env={**environment(c, hub), "HF_HUB_CACHE": str(c.folder / "file" / "x")}).expect(1, "remote.89")


@case
def over_tls(c):
    """https with an authority of one's own; without it, or with another name, the certificate is refused."""
    if shutil.which("openssl") is None:
        raise NotRun("no openssl program")
    folder = c.folder

    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem", "-days", "2",
        "-extfile", "names")
    (folder / "other").write_text("subjectAltName=DNS:elsewhere.test\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "other.pem", "-days", "2",
        "-extfile", "other")
    hub = Hub()
    hub.models["team/model"] = Repository(FILES)
    trusted = {"SSL_CERT_FILE": str(folder / "ca.pem")}
    with hub.running((folder / "server.pem", folder / "server.key")):
        assert hub.url.startswith("https://")
        c.run("fetch", "team/model", env=environment(c, hub, **trusted)).expect(0, "6 of them fetched")
        assert (c.folder / "hub/models--team--model/refs/main").is_file()
    with hub.running((folder / "server.pem", folder / "server.key")):
        hub.faults["info"] = []
        env = environment(c, hub, SSL_CERT_FILE=str(folder / "server.key"), SSL_CERT_DIR=str(folder / "none"))
        process = c.start("fetch", "team/model", env=env)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1 and "remote.87" in err and "certificate is not accepted" in err and "SSL_CERT_FILE" in err, err
    with hub.running((folder / "other.pem", folder / "server.key")):
        process = c.start("fetch", "team/model", env=environment(c, hub, **trusted))
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1 and "certificate is not accepted" in err and "mismatch" in err, err


@case
def fetched_and_trained(c):
    """Names the command where something is missing; then trains on what it fetched, without the Hub."""
    if not (pathlib.Path(c.program).parent / "librlalgo_arrow.so").exists():
        raise NotRun("built without Arrow")
    hub = Hub()
    model = QUICKSTART / "model"
    hub.models["team/tiny"] = Repository({str(p.relative_to(model)): p.read_bytes() for p in model.rglob("*") if p.is_file()})
    hub.datasets["team/pairs"] = Repository({"README.md": b"---\nlicense: mit\n---\n", **{
        f"data/train-0000{i}-of-00002.parquet": (GOLDEN / f"pairs-{i}.parquet").read_bytes() for i in range(2)}}, revisions=("main", "v1"))
    config = {"base_model": "team/tiny", "rl": "dpo", "datasets": [{"path": "team/pairs"}], "sequence_len": 64, "micro_batch_size": 2,
              "learning_rate": 1e-3, "max_steps": 2, "save_strategy": "no", "output_dir": "out", "float32": True, "chat_template": "chatml"}
    name = c.config(text=json.dumps(config))
    with hub.running():
        env = environment(c, hub)
        c.run("train", name, env=env).expect(2, "config.20", "rlalgo fetch team/tiny")
        assert not hub.requests
        c.run("fetch", "team/tiny", env=env).expect(0)
        c.run("train", name, env=env).expect(1, "data.1", "rlalgo fetch --repo-type dataset team/pairs")
        c.run("train", name, "--datasets.0.revision", "v1", env=env).expect(1, "--revision v1")
        c.run("fetch", "team/pairs", env=env).expect(0)
        asked = len(hub.requests)
        c.run("train", name, env=env).expect(0)
        assert len(hub.requests) == asked
    assert len(c.metrics()) >= 2


main(CASES)
