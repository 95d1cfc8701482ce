"""A Hub for tests: repositories in memory, the routes that huggingface_hub and `rlalgo fetch` ask for, and the ways in which servers fail."""
import base64
import contextlib
import hashlib
import json
import re
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = 1000  # bytes from which a file is kept apart, as by Git LFS


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """One commit of a model or a dataset; `gated`, `private`: who may read it."""

    def __init__(self, files, gated=False, private=False, revisions=("main",)):
        self.files = dict(files)
        text = json.dumps({k: hashlib.sha256(v).hexdigest() for k, v in self.files.items()}, sort_keys=True)
        self.commit = hashlib.sha1(text.encode()).hexdigest()
        self.gated, self.private, self.revisions = gated, private, [*revisions, self.commit]


class Hub:
    """The server, and the host that it redirects large files to. `faults`: what goes wrong, by path, taken in turn."""

    def __init__(self, token="hf_good", page_size=3):
        self.models, self.datasets, self.token, self.page_size = {}, {}, token, page_size
        self.faults, self.requests, self.lock = {}, [], threading.Lock()

    @contextlib.contextmanager
    def running(self, certificate=None):
        servers = []
        for is_cdn in (False, True):
            handler = type("Handler", (Handler,), {"hub": self, "is_cdn": is_cdn})
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            servers.append(server)
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://localhost:{servers[0].server_port}"
        self.cdn = f"{scheme}://127.0.0.1:{servers[1].server_port}"
        try:
            yield self
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()

    def fault(self, path):
        with self.lock:
            waiting = self.faults.get(path)
            return waiting.pop(0) if waiting else None

    def asked(self, part, method=None):
        return [r for r in self.requests if part in r["path"] and method in (None, r["method"])]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub, is_cdn = None, False

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        with self.hub.lock:
            self.hub.requests.append({"method": self.command, "path": self.path, "cdn": self.is_cdn, "range": self.headers.get("Range"),
                                      "authorization": self.headers.get("Authorization")})
        path = urllib.parse.unquote(url.path)
        if self.is_cdn:
            return self.send_file(base64.urlsafe_b64decode(path[1:]).decode())
        if match := re.fullmatch(r"/api/(models|datasets)/([\w.-]+(?:/[\w.-]+)?)/(revision|tree)/(.+)", path):
            kind, name, what, revision = match.groups()
            repository = self.repository(kind, name, urllib.parse.unquote(revision.removesuffix("/")))
            if repository is None:
                return None
            return self.send_info(name, repository) if what == "revision" else self.send_tree(url, repository)
        if match := re.fullmatch(r"/(datasets/)?([\w.-]+(?:/[\w.-]+)?)/resolve/([^/]+)/(.+)", path):
            kind, name, revision, file = match.groups()
            repository = self.repository("datasets" if kind else "models", name, revision)
            return None if repository is None else self.resolve(repository, "datasets" if kind else "models", name, file)
        return self.refuse(404, None, "Not Found")

    def repository(self, kind, name, revision):
        repository = getattr(self.hub, kind).get(name)
        known = self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if self.headers.get("Authorization") and not known:
            return self.refuse(401, None, "Invalid credentials in Authorization header")
        if repository is None or (repository.private and not known):
            return self.refuse(404 if known else 401, "RepoNotFound", "Repository not found")
        if revision not in repository.revisions:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository

    def send_info(self, name, repository):
        if (fault := self.hub.fault("info")) is not None:
            return self.refuse(fault, None, "a fault", {"Retry-After": "0"})
        return self.send(200, json.dumps({"id": name, "sha": repository.commit, "private": repository.private, "siblings":
                                          [{"rfilename": f} for f in repository.files], "tags": [], "downloads": 0, "likes": 0}).encode())

    def send_tree(self, url, repository):
        at = int(urllib.parse.parse_qs(url.query).get("cursor", ["0"])[0])
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": d} for d in
                   sorted({f.rsplit("/", 1)[0] for f in repository.files if "/" in f})]
        for path, data in repository.files.items():
            entry = {"type": "file", "oid": git_name(data), "size": len(data), "path": path}
            if len(data) >= LARGE:
                sha = hashlib.sha256(data).hexdigest()
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha}\nsize {len(data)}\n".encode()
                entry.update(oid=git_name(pointer), lfs={"oid": sha, "size": len(data), "pointerSize": len(pointer)})
            entries.append(entry)
        more = at + self.hub.page_size
        link = {}
        if more < len(entries):
            link["Link"] = f'<{self.hub.url}{url.path}?recursive=True&expand=False&cursor={more}>; rel="next"'
        self.send(200, json.dumps(entries[at:more]).encode(), link)

    def resolve(self, repository, kind, name, file):
        if repository.gated and self.headers.get("Authorization") is None:
            return self.refuse(401, "GatedRepo", f"Access to {name} is restricted")
        if file not in repository.files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        data = repository.files[file]
        head = {"X-Repo-Commit": repository.commit}
        if len(data) < LARGE:
            return self.send_bytes(data, {**head, "ETag": f'"{git_name(data)}"'}, file)
        sha = hashlib.sha256(data).hexdigest()
        where = base64.urlsafe_b64encode(f"{kind}|{name}|{file}".encode()).decode()
        return self.send(302, b"", {**head, "X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(data)), "ETag": f'"{sha}"',
                                    "Location": f"{self.hub.cdn}/{where}?signature=secret"})

    def send_file(self, where):
        kind, name, file = where.split("|")
        self.send_bytes(getattr(self.hub, kind)[name].files[file], {}, file)

    def send_bytes(self, data, head, file):
        fault = self.hub.fault(file) if self.command == "GET" else None
        begin = 0
        status = 200
        if (asked := self.headers.get("Range")) and fault != "no ranges":
            begin = int(re.match(r"bytes=(\d+)-", asked)[1])
            if begin >= len(data):
                return self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, head = 206, {**head, "Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        if isinstance(fault, int):
            return self.refuse(fault, None, "a fault", {"Retry-After": "0"})
        if fault == "other bytes":
            data = bytes(b ^ 1 for b in data)
        if fault == "longer":
            data += b"x"
        body = data[begin:]
        self.send_response(status)
        for key, value in {**head, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        if isinstance(fault, tuple) and fault[0] == "breaks after":
            self.wfile.write(body[:fault[1]])
            self.close_connection = True
            self.wfile.flush()
            return self.connection.shutdown(1)
        if fault == "drips":
            with contextlib.suppress(OSError):
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(0.05)
            return None
        if fault == "silent":
            time.sleep(5)
            self.close_connection = True
            return None
        with contextlib.suppress(OSError):
            self.wfile.write(body)
        return None

    def refuse(self, status, code, message, more=None):
        head = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(more or {})}
        return self.send(status, json.dumps({"error": message}).encode(), head)

    def send(self, status, body, head=None):
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(head or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)
