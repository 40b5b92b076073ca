"""Checks the site that build.py built: python3 site/check.py

Every link between pages leads to a page and an anchor, every page is in the navigation and in the
search index, and nothing is loaded from another server: not by a page, not by a stylesheet, and what
a script could ask for, the policy in every page refuses.
"""

import html.parser
import json
import pathlib
import posixpath
import re
import sys
import urllib.parse

BUILD = pathlib.Path(__file__).resolve().parent / ".build"
NOT_SEARCHED = ("changelog.html", "decisions/") # what was once done, and why, hides what is
SITE = BUILD / "site"
POLICY = "default-src 'self'"
# What the theme's script loads for diagrams, galleries and the like, of which no page has any. A browser that
# keeps to the policy refuses it.
REFUSED = re.compile(r"https://(unpkg\.com|cdn\.jsdelivr\.net|api\.github\.com|\$\{e\})/")
NAMES = re.compile(r"https?://(www\.w3\.org/|fontawesome\.com)")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.links, self.loads, self.policy, self.scripts = set(), [], [], False, []
        self.in_script = self.in_style = False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.in_script, self.in_style = tag == "script", tag == "style"
        if "id" in attrs:
            self.anchors.add(attrs["id"])
        if tag == "a" and attrs.get("name"):
            self.anchors.add(attrs["name"])
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "link" and attrs.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(attrs.get("href", ""))
        for name in ("src", "poster", "data", "action"):
            if attrs.get(name):
                self.loads.append(attrs[name])
        if attrs.get("srcset"):
            self.loads += [part.split()[0] for part in attrs["srcset"].split(",")]
        if attrs.get("style"):
            self.loads += style_loads(attrs["style"])
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs.get("content", "").startswith(POLICY)

    def handle_endtag(self, tag):
        self.in_script = self.in_style = False

    def handle_data(self, data):
        if self.in_style:
            self.loads += style_loads(data)
        if self.in_script:
            self.scripts.append(data)


def style_loads(text):
    return re.findall(r"""(?:url\(|@import\s+)\s*["']?([^"')\s]+)""", text)


def is_foreign(link):
    return bool(re.match(r"(https?:)?//", link))


def main():
    wrong = []
    pages = {}
    for file in sorted(SITE.rglob("*.html")):
        page = Page()
        page.feed(file.read_text(encoding="utf-8"))
        pages[file.relative_to(SITE).as_posix()] = page

    for name, page in pages.items():
        if not page.policy:
            wrong.append(f"{name} has no Content-Security-Policy that begins with {POLICY}")
        for load in page.loads:
            if is_foreign(load):
                wrong.append(f"{name} loads {load} from another server")
            elif not load.startswith("data:"):
                wrong += leads_nowhere(name, load, pages)
        for link in page.links:
            # 404.html is shown in the place of any page, so its links begin at the root.
            if name != "404.html" and not is_foreign(link) and not re.match(r"[a-z]+:", link):
                wrong += leads_nowhere(name, link, pages)
        for script in page.scripts:
            wrong += [f"{name}: a script names {url}" for url in foreign_names(script)]
    for file in sorted(SITE.rglob("*.css")):
        for load in style_loads(file.read_text(encoding="utf-8")):
            if is_foreign(load):
                wrong.append(f"{file.name} loads {load} from another server")
    for file in sorted(SITE.rglob("*.js")):
        for url in foreign_names(file.read_text(encoding="utf-8")):
            wrong.append(f"{file.name} names {url}; if it loads that, the site is not without other servers")

    index = json.loads((SITE / "search.json").read_text(encoding="utf-8"))
    searched = {item["location"].partition("#")[0] or "index.html" for item in index["items"]}
    navigation = set(pages["404.html"].links)
    for source in json.loads((BUILD / "pages.json").read_text(encoding="utf-8")):
        name = re.sub(r"(^|/)README\.html$", r"\1index.html", source[: -len(".md")] + ".html")
        if name not in pages:
            wrong.append(f"{source} is no page of the site")
        elif name not in searched and not name.startswith(NOT_SEARCHED):
            wrong.append(f"{name} is not found by the search")
        elif not any(urllib.parse.urlparse(link).path.lstrip("/") in (name, "." if name == "index.html" else name)
                     for link in navigation):
            wrong.append(f"{name} is not in the navigation")

    for page in re.findall(r"\]\(([^)]*)\)", (SITE / "llms.txt").read_text(encoding="utf-8")):
        wrong += leads_nowhere("llms.txt", page, pages)

    for line in sorted(set(wrong)):
        print(line)
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file())
    print(f"the site: {len(pages)} pages, {size / 1e6:.1f} MB, {len(set(wrong))} problems")
    sys.exit(1 if wrong else 0)


def foreign_names(script):
    return [url for url in re.findall(r"https?://[^\s\"'`)]+", script) if not REFUSED.match(url) and not NAMES.match(url)]


def leads_nowhere(name, link, pages):
    path, _, anchor = link.partition("#")
    path, anchor = urllib.parse.unquote(path.partition("?")[0]), urllib.parse.unquote(anchor)
    if name == "404.html":
        path = path.lstrip("/")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if (SITE / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (SITE / target).is_file():
        return [f"{name}: the link {link} leads nowhere"]
    if anchor and target in pages and anchor not in pages[target].anchors:
        return [f"{name}: the link {link} leads to {target}, which has no heading #{anchor}"]
    return []


main()
