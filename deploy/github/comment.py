"""Writes the summary of a run into one comment of the pull request: comment.py NAME FOLDER.

A comment that an earlier run has written under the same NAME is replaced. Where that is not allowed, as
in a pull request from a fork, it is said and nothing fails: the verdict is that of the job.
"""
import json
import os
import pathlib
import sys
import urllib.error
import urllib.request

name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
MOST = 60000  # GitHub takes 65536 characters


def call(method, path, body=None):
    request = urllib.request.Request(
        os.environ["GITHUB_API_URL"] + path, method=method, data=body and json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["GITHUB_TOKEN"], "Accept": "application/vnd.github+json",
                 "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


event = json.loads(pathlib.Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
if "pull_request" not in event:
    print("this is no pull request: there is nothing to comment on")
    sys.exit()
parts = [(folder / file).read_text() for file in ("summary.md", "compared.md") if (folder / file).exists()]
if not parts:
    parts = [f"## {name}: nothing was run\n\nThe log of the job says why."]
marker = f"<!-- evalrun comment: {name} -->"
text = marker + "\n" + "\n\n".join(parts)
if len(text) > MOST:
    text = text[:MOST] + "\n\n… the rest is in the job's summary."
repository = "/repos/" + os.environ["GITHUB_REPOSITORY"]
issue = f"{repository}/issues/{event['pull_request']['number']}/comments"
try:
    page, old = 1, None
    while old is None:
        comments = call("GET", f"{issue}?per_page=100&page={page}")
        old = next((c for c in comments if c["body"].startswith(marker)), None)
        if len(comments) < 100:
            break
        page += 1
    if old:
        call("PATCH", f"{repository}/issues/comments/{old['id']}", {"body": text})
    else:
        call("POST", issue, {"body": text})
except urllib.error.HTTPError as e:
    print(f"::warning title=evalrun {name}::the comment cannot be written (HTTP {e.code}); "
          "the job needs permissions: pull-requests: write, which one from a fork does not get")
