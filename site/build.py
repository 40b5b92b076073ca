"""Builds the site of the documentation: python3 site/build.py PYTHON_WITH_ZENSICAL

docs/ and the pages of the root are copied to site/.build, links to other files of the repository
become links to where it is published, and Zensical makes the pages, into site/.build/site. Needs
Python 3.11 with nothing but its standard library, and Go, because reference.py asks the program.
check.py says whether what was built is right.
"""

import json
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib

import reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "site" / ".build"
REPOSITORY = "https://github.com/evalrun/evalrun"
# The pages outside docs/: their places in the repository and in the site.
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


def main():
    shutil.rmtree(BUILD, ignore_errors=True)
    places = dict(ROOT_PAGES)
    for file in sorted((ROOT / "docs").rglob("*")):
        if file.is_file():
            place = file.relative_to(ROOT / "docs").as_posix()
            # docs/README.md is the list of pages for those who read on GitHub; here it is the navigation.
            places[f"docs/{place}"] = "index.md" if place == "README.md" else place
    for source, place in places.items():
        if source == "docs/README.md":
            continue
        target = BUILD / "docs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(with_links(text, source, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    for name in ("extra.css", "extra.js"):
        shutil.copyfile(ROOT / "site" / name, BUILD / "docs" / name)
    shutil.copytree(ROOT / "site" / "theme", BUILD / "theme")

    generated = reference.write(ROOT, BUILD)
    pages = sorted(page.relative_to(BUILD / "docs").as_posix() for page in (BUILD / "docs").rglob("*.md"))
    nav = navigation(pages, generated)
    settings = (ROOT / "site" / "zensical.toml").read_text(encoding="utf-8")
    # A string of JSON is one of TOML, too.
    lines = ", ".join(f"{{ {json.dumps(title)} = {json.dumps(names)} }}" for title, names in nav).replace('": ', '" = ')
    (BUILD / "zensical.toml").write_text(
        settings.replace("[project]\n", f'[project]\nnav = [{lines}]\ndocs_dir = "docs"\nsite_dir = "site"\n', 1),
        encoding="utf-8",
    )
    (BUILD / "pages.json").write_text(json.dumps(pages), encoding="utf-8")
    zensical = [sys.argv[1], "-m", "zensical", "build", "--clean", "-f", "zensical.toml"]
    # What it says of links, check.py says in fewer words.
    built = subprocess.run(zensical, cwd=BUILD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode != 0:
        sys.exit(f"Zensical did not build the site:\n{built.stdout}")
    leave_out_of_search(BUILD / "site" / "search.json", ("changelog.html", "decisions/"))
    for page in pages: # for programs that read, which llms.txt names
        shutil.copyfile(BUILD / "docs" / page, BUILD / "site" / page)
    (BUILD / "site" / "llms.txt").write_text(llms(nav), encoding="utf-8")


def leave_out_of_search(index, pages):
    """Takes pages out of the search: what was once done, and why, hides what is."""
    found = json.loads(index.read_text(encoding="utf-8"))
    found["items"] = [item for item in found["items"] if not item["location"].startswith(pages)]
    index.write_text(json.dumps(found), encoding="utf-8")


def navigation(pages, generated):
    """The groups with their pages. The generated ones, and what is in no group, are put at the end of Reference."""
    with open(ROOT / "site" / "groups.toml", "rb") as file:
        groups = [(group["title"], group["pages"]) for group in tomllib.load(file)["group"]]
    named, nav = set(), []
    for title, names in groups:
        listed = []
        for name in names:
            found = [page for page in pages if page == name]
            if name.endswith("/*"):
                folder = [page for page in pages if page.startswith(name[:-1])]
                # The page README of a folder comes first.
                folder.sort(key=lambda page: (not page.endswith("/README.md"), page))
                listed.append({name[:-2].capitalize(): folder})
                named.update(folder)
                continue
            if not found:
                print(f"site/groups.toml: {title}: there is no page {name}")
                continue
            if name in named:
                sys.exit(f"site/groups.toml: {title}: the page {name} is named twice")
            named.add(name)
            listed.append(name)
        nav.append((title, listed))
    more = [page for page in pages if page not in named and not page.startswith("reference/")]
    listed = next(listed for title, listed in nav if title == "Reference")
    listed += generated
    if more:
        print(f"in no group of site/groups.toml, and so at the end of Reference: {', '.join(more)}")
        listed.append({"More": more})
    return nav


def llms(nav):
    """The list of pages that https://llmstxt.org describes."""
    lines = ["# evalrun", "", f"> {heading('index.md')[1]}"]
    def add(names):
        for name in names:
            if isinstance(name, dict):
                for below in name.values():
                    add(below)
            else:
                title, begins = heading(name)
                lines.append(f"- [{title}]({name}): {begins}")
    for title, names in nav:
        lines.extend(["", f"## {title}", ""])
        add(names)
    return "\n".join(lines) + "\n"


def heading(page):
    """The title of a page and the first sentence of its first paragraph."""
    text = (BUILD / "docs" / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    title = re.search(r"^# (.+)$", text, re.M)[1]
    paragraph = re.search(r"^(?![#<|`\-\s!])(.+(?:\n\S.*)*)$", text, re.M)
    words = " ".join(paragraph[1].split()) if paragraph else ""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).replace("**", "")
    return title, re.split(r"(?<=[.:?])\s", words)[0]


def with_links(text, source, places):
    """The page with its links to other files of the repository as they are in the site."""
    lines, fence = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
        if not fence and not line.startswith("    "):
            # Every second part is between backticks.
            parts = re.split(r"(`[^`]*`)", line)
            for i in range(0, len(parts), 2):
                parts[i] = re.sub(
                    r"\]\(([^)\s]+)\)", lambda m: f"]({site_link(m[1], source, places)})", parts[i]
                )
            line = "".join(parts)
        lines.append(line)
    return "\n".join(lines)


def site_link(link, source, places):
    if re.match(r"[a-z]+:", link) or link.startswith("#"):
        return link
    path, _, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    anchor = f"#{anchor}" if anchor else ""
    if path == "docs":
        path = "docs/README.md" if "docs/README.md" in places else "README.md"
    if f"{path}/README.md" in places:
        path += "/README.md"
    if path in places:
        return posixpath.relpath(places[path], posixpath.dirname(places[source]) or ".") + anchor
    if not (ROOT / path).exists():
        sys.exit(f"{source}: the link {link} leads nowhere")
    kind = "tree" if os.path.isdir(ROOT / path) else "blob"
    return f"{REPOSITORY}/{kind}/main/{path}{anchor}"


main()
