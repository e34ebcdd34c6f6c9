"""Doubles of what GitHub and GitLab answer to those who comment on a pull request, over HTTP."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPOSITORY, NUMBER = "octo/net", 7
PATHS = {
    "github": rf"/repos/{REPOSITORY}/issues/(?:{NUMBER}/comments|comments/(\d+))",
    "gitlab": rf"/projects/{NUMBER}/merge_requests/{NUMBER}/notes(?:/(\d+))?",
}
EDITS = {"github": "PATCH", "gitlab": "PUT"}
MOST = 65_536

Answer = tuple[int, dict[str, str], Any]


class CodeHost:
    """The comments of one pull request. ``refuse`` may answer a request in their place; ``...`` is no JSON."""

    def __init__(self, kind: str) -> None:
        self.kind, self.address = kind, ""
        self.comments: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.refuse: Callable[[str, str], Answer | None] = lambda method, path: None
        self.login: str | None = "tester" if kind == "gitlab" else None
        """Who the token belongs to; a job's own token on GitHub may not ask."""
        self._number = 0

    @property
    def bodies(self) -> list[str]:
        return [one["body"] for one in self.comments]

    def add(self, body: str, login: str = "", kind: str = "Bot") -> dict[str, Any]:
        self._number += 1
        login = login or self.login or "github-actions[bot]"
        author = {"login": login, "type": kind} if self.kind == "github" else {"username": login}
        made = {"id": self._number, "body": body, "user" if self.kind == "github" else "author": author}
        self.comments.append(made)
        return made

    def answer(self, method: str, address: str, data: Any) -> Answer:
        path, query = urlsplit(address).path, parse_qs(urlsplit(address).query)
        self.asked.append(f"{method} {path}")
        refused = self.refuse(method, path)
        if refused is not None:
            return refused
        if path == "/user":
            return (200, {}, {"login": self.login, "username": self.login}) if self.login else (403, {}, {})
        found = re.fullmatch(PATHS[self.kind], path)
        if found is None:
            return 404, {}, {"message": "Not Found"}
        if data is not None and len(data["body"]) > MOST:
            return 422, {}, {"message": "Validation Failed: body is too long (maximum is 65536 characters)"}
        if found[1] is None:
            if method == "POST":
                return 201, {}, self.add(data["body"])
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, {}, self.comments[(page - 1) * size : page * size]
        (one,) = (one for one in self.comments if one["id"] == int(found[1]))
        if method == "DELETE":
            self.comments.remove(one)
            return 204, {}, None
        assert method == EDITS[self.kind]
        one["body"] = data["body"]
        return 200, {}, one

    def environment(self, folder: Path, *, fork: bool = False) -> dict[str, str]:
        """What a job of that host has in its environment."""
        summary, event = folder / "summary.md", folder / "event.json"
        if self.kind == "gitlab":
            number = str(NUMBER)
            known = {"CI_API_V4_URL": self.address, "CI_PROJECT_ID": number, "CI_MERGE_REQUEST_IID": number}
            return {"GITLAB_CI": "true", "CI_JOB_NAME": "net", "CONFORMANCE_GITLAB_TOKEN": "t", **known}
        head = {"repo": {"full_name": "somebody/net" if fork else REPOSITORY}}
        event.write_text(json.dumps({"pull_request": {"number": NUMBER, "head": head}}), encoding="utf-8")
        return {
            "GITHUB_ACTIONS": "true", "GITHUB_JOB": "net", "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_API_URL": self.address,
            "GITHUB_TOKEN": "t", "GITHUB_STEP_SUMMARY": str(summary),
        }  # fmt: skip


@contextlib.contextmanager
def code_host(kind: str = "github") -> Iterator[CodeHost]:
    host = CodeHost(kind)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(length)) if length else None
            assert self.headers.get("Authorization") == "Bearer t" or self.headers.get("PRIVATE-TOKEN") == "t"
            code, headers, content = host.answer(self.command, self.path, data)
            text = b"<html>" if content is ... else b"" if content is None else json.dumps(content).encode()
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *about: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        host.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()
