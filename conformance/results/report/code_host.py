"""One comment on a pull request of GitHub, or on a merge request of GitLab, that each run writes anew.

https://docs.github.com/rest/issues/comments https://docs.gitlab.com/api/notes/#merge-requests
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from conformance.results.records.sanitize import one_line

_WAITS = (1.0, 2.0, 4.0)
"""Seconds before each other try, unless the host says how long to wait."""
_MOST_SECONDS = 60.0
"""The longest of such waits."""
_PAGE = 100
_BOT = "Bot"
"""GitHub's word for the kind of account that a job's own token belongs to."""


class Thread(NamedTuple):
    """The comments of one pull request."""

    comments: str
    """The address at which they are listed, and new ones made."""
    one: str
    """The address of one, with its number at the end."""
    user: str
    """The address that says whose token it is."""
    edit: str
    """The method that changes a comment."""
    headers: dict[str, str]
    ask: str
    """The permission that the token needs."""


class CommentUnwritten(Exception):
    """No comment was written; the text is a sentence that says why."""


class _Again(Exception):
    """A host that is busy or out of order; how many seconds it wants to be left alone, and what it said."""

    def __init__(self, seconds: float | None, said: str) -> None:
        super().__init__(said)
        self.seconds = seconds


def thread(environment: Mapping[str, str]) -> Thread:
    """Return the comments of the pull request that a job runs for, by the variables that its host sets.

    Raises Unwritten where there is none, or where its token cannot write.
    """
    if environment.get("GITHUB_ACTIONS"):
        return _github(environment)
    if environment.get("GITLAB_CI"):
        return _gitlab(environment)
    raise CommentUnwritten("this is no job of GitHub Actions or GitLab CI, so there is no pull request to comment on")


def _github(environment: Mapping[str, str]) -> Thread:
    try:
        event = json.loads(Path(environment.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        number = int(event["pull_request"]["number"])
        source = (event["pull_request"]["head"].get("repo") or {}).get("full_name")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CommentUnwritten(
            "this job does not run for a pull request, so there is nothing to comment on"
        ) from None
    repository = environment.get("GITHUB_REPOSITORY", "")
    if source != repository and environment.get("GITHUB_EVENT_NAME") == "pull_request":
        raise CommentUnwritten("a pull request from a fork gets no comment, as its token can only read")
    token = environment.get("GITHUB_TOKEN", "")
    if not token:
        raise CommentUnwritten("no comment was written: there is no token in the variable GITHUB_TOKEN")
    api = environment.get("GITHUB_API_URL", "https://api.github.com")
    issues = f"{api}/repos/{quote(repository)}/issues"
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    ask = "`permissions: {pull-requests: write}` in the job"
    return Thread(f"{issues}/{number}/comments", f"{issues}/comments", f"{api}/user", "PATCH", headers, ask)


def _gitlab(environment: Mapping[str, str]) -> Thread:
    number, token = environment.get("CI_MERGE_REQUEST_IID"), environment.get("CONFORMANCE_GITLAB_TOKEN")
    if not number:
        raise CommentUnwritten("this job does not run for a merge request, so there is nothing to comment on")
    if not token:
        raise CommentUnwritten("no note was written: there is no token in the variable CONFORMANCE_GITLAB_TOKEN")
    api = environment.get("CI_API_V4_URL", "")
    notes = f"{api}/projects/{quote(environment.get('CI_PROJECT_ID', ''))}/merge_requests/{quote(number)}/notes"
    ask = "a project access token with the scope `api`"
    return Thread(notes, notes, f"{api}/user", "PUT", {"PRIVATE-TOKEN": token}, ask)


def write(thread: Thread, body: str, sleep: Callable[[float], object] = time.sleep) -> None:
    """Put ``body`` in the place of the earlier comment with the same first line, the marker, or write one.

    Two jobs that wrote at the same time have left two: the first is kept, and the others are deleted. Everything is
    tried again where a host is busy, from looking for the earlier comment on, as an answer may have been lost. Raises
    Unwritten where it was not possible.
    """
    for seconds in (*_WAITS, None):
        try:
            _write(thread, body)
            return
        except _Again as busy:
            wait = seconds if busy.seconds is None else busy.seconds
            if seconds is None or wait is None or wait > _MOST_SECONDS:
                raise CommentUnwritten(f"no comment was written: {busy}") from None
            sleep(wait)


def _write(thread: Thread, body: str) -> None:
    own, data = _find_own(thread, body.partition("\n")[0]), {"body": body}
    if own:
        _call(thread, thread.edit, f"{thread.one}/{own[0]}", data)
    else:
        _call(thread, "POST", thread.comments, data)
    for number in own[1:]:
        _call(thread, "DELETE", f"{thread.one}/{number}")


def _find_own(thread: Thread, marker: str) -> list[int]:
    """Return the numbers of the comments with the marker, oldest first: what others write is left alone, whatever it
    begins with."""
    try:
        me = _call(thread, "GET", thread.user)
        name = me.get("login") or me.get("username")
    except CommentUnwritten:  # a job's own token on GitHub may not ask
        name = None
    return sorted(
        int(one["id"])
        for one in _list(thread)
        if str(one.get("body")).startswith(marker) and _is_own(one.get("user") or one.get("author") or {}, name)
    )


def _is_own(author: Mapping[str, object], name: str | None) -> bool:
    if name is None:
        return author.get("type") == _BOT
    return name in (author.get("login"), author.get("username"))


def _list(thread: Thread) -> Iterator[Mapping[str, Any]]:
    number = 1
    while True:
        page = _call(thread, "GET", f"{thread.comments}?per_page={_PAGE}&page={number}")
        yield from page
        if len(page) < _PAGE:
            return
        number += 1


def _call(thread: Thread, method: str, address: str, data: Mapping[str, str] | None = None) -> Any:
    content = None if data is None else json.dumps(data).encode()
    headers = {"User-Agent": "conformance", "Content-Type": "application/json", **thread.headers}
    request = urllib.request.Request(address, content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        _raise_refusal(thread, error)
    except (OSError, ValueError) as error:
        raise _Again(None, f"{one_line(error, 200)}") from None
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise _Again(None, "the answer was no JSON") from None


def _raise_refusal(thread: Thread, error: urllib.error.HTTPError) -> NoReturn:
    said = error.read(10_000).decode("utf-8", "replace")
    try:
        answer = json.loads(said)
        said = str(answer.get("message") or answer.get("error") or said)
    except (ValueError, AttributeError):
        pass
    text = f"the host answered {error.code}: {one_line(said, 200)}"
    wait = error.headers.get("Retry-After", "")
    limited = error.code == 403 and (wait or "rate limit" in said.lower())
    if limited or error.code == 429 or error.code >= 500:
        raise _Again(float(wait) if wait.isdigit() else None, text) from None
    if error.code in (401, 403, 404):
        raise CommentUnwritten(f"the token may not write a comment ({text}); it needs {thread.ask}") from None
    raise CommentUnwritten(f"no comment was written: {text}") from None
