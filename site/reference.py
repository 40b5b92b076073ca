"""The pages of the reference that evalrun itself makes: commands, keys of files, exit codes and faults."""

import json
import pathlib
import re
import subprocess

# The schemas of the files that people write; evalrun writes the others.
WRITTEN_BY_PEOPLE = ("evalset", "agent", "evaluator")


def write(root, build):
    """Writes the pages into docs/reference of the build and returns them as a part of the navigation."""
    folder = build / "docs" / "reference"
    folder.mkdir()
    program = build / "evalrun"
    subprocess.run(["go", "build", "-o", program, "./cmd/evalrun"], cwd=root, check=True)
    (folder / "commands.md").write_text(commands(program), encoding="utf-8")
    (folder / "exit-codes.md").write_text(exit_codes(program), encoding="utf-8")
    (folder / "faults.md").write_text(faults(root), encoding="utf-8")
    names = run(program, "schema").split()
    for name in names:
        (folder / f"{name}.md").write_text(keys(name, json.loads(run(program, "schema", name))), encoding="utf-8")
    documents = [name for name in names if name not in WRITTEN_BY_PEOPLE]
    return [
        "reference/commands.md", "reference/exit-codes.md", "reference/faults.md",
        {"Keys of files": [f"reference/{name}.md" for name in WRITTEN_BY_PEOPLE]},
        {"Documents": [f"reference/{name}.md" for name in documents]},
    ]


def run(program, *arguments):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


def commands(program):
    lines = ["# Commands", "", "What `--help` says of every command."]
    def command(path):
        text = run(program, *path, "--help")
        name = " ".join(["evalrun", *path])
        lines.extend(["", f"{'##' if len(path) < 2 else '###'} {name}", "", "```text", text.rstrip(), "```"])
        for sub in subcommands(text):
            command([*path, sub])
    command([])
    return "\n".join(lines) + "\n"


def subcommands(text):
    """The names under the titles of groups of commands, in the text of --help."""
    found, title = [], ""
    for line in text[text.index("Usage:\n"):].split("\n"):
        if re.fullmatch(r"\S.*:", line):
            title = line[:-1]
        name = re.match(r"  ([a-z][a-z-]*) +[A-Z]", line)
        if name and title not in ("Usage", "Examples", "Global flags") and name[1] != "help":
            found.append(name[1])
    return found


def exit_codes(program):
    text = run(program, "--help")
    table = text[text.index("Exit codes:"):text.index("\n\nUsage:")]
    return f"# Exit codes\n\n```text\n{table}\n```\n\nIf several apply, the first of 4, 2, 130, 75, 3, 1, 5, 0 counts.\n"


def faults(root):
    source = (root / "internal/fault/category.go").read_text(encoding="utf-8")
    lines = [
        "# Faults", "",
        "A rollout that ends without a result has a fault of one of these categories. A fault of the agent scores 0; one",
        "of the environment is missing data and has no score. The keys `faults` and `retry.on` of an",
        "[eval set](../evalsets.md) name categories.", "",
        "| category | whose | what happened |", "|---|---|---|",
    ]
    for block, whose in zip(re.findall(r"\nconst \(\n(.*?)\n\)", source, re.S), ("the agent's", "the environment's")):
        for name, about in re.findall(r'Category = "([a-z0-9-]+)" +// (.*)', block):
            lines.append(f"| `{name}` | {whose} | {cell(about)} |")
    return "\n".join(lines) + "\n"


def keys(name, schema):
    title = schema["title"]
    lines = [f"# {title}", "", sentence(schema.get("description", "")), "",
             f"`evalrun schema {name}` prints the schema that this page is made of.", ""]
    lines += section(schema)
    for definition, part in schema.get("$defs", {}).items():
        lines += [f"## {definition}", ""] + section(part)
    return "\n".join(lines)


def sentence(text):
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


def section(schema):
    lines = []
    if schema.get("properties") or schema.get("additionalProperties") not in (None, True, False):
        rows = list(table(schema, ""))
        if rows:
            lines += ["| key | value | what it is |", "|---|---|---|", *rows, ""]
    elif not any(key in schema for key in ("anyOf", "oneOf", "allOf")):
        lines += [kind(schema), ""]
    choices = [reference(part["$ref"]) for part in variants(schema) if "$ref" in part]
    if choices:
        lines += [f"One of: {', '.join(choices)}.", ""]
    for part in variants(schema):
        if "then" in part:
            when = ", ".join(f"`{key}` is `{value.get('const')}`" for key, value in part["if"]["properties"].items())
            lines += [f"### Where {when}", "", sentence(about(part["then"])), "", *section(part["then"])]
        elif part.get("properties"):
            when = [f"`{key}` is `{value['const']}`" for key, value in part["properties"].items() if "const" in value]
            lines += [f"### Where {' and '.join(when)}" if when else "Or an object:", "", *section(part)]
    return lines


def variants(schema):
    return [part for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, [])]


def about(schema):
    for value in schema.get("properties", {}).values():
        if value.get("description") and value.get("properties"):
            return value["description"]
    return schema.get("description", "")


def table(schema, prefix):
    needed = schema.get("required", [])
    for key, value in schema.get("properties", {}).items():
        if value is True:
            value = {}
        text = value.get("description", "")
        if key in needed:
            text = f"needed{'; ' + text if text else ''}"
        yield f"| `{prefix}{key}` | {kind(value)} | {words(text)} |"
        yield from below(value, f"{prefix}{key}")
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict) and prefix == "":
        yield f"| any other | {kind(extra)} | {words(extra.get('description', ''))} |"
        yield from below(extra, "*")


def below(value, path):
    """The rows of what is inside a value: an object's keys, those of an array's items and of any key."""
    for part in [value, *[part for part in variants(value) if "then" not in part]]:
        if part.get("properties"):
            yield from table({**part, "additionalProperties": None}, f"{path}.")
        if isinstance(part.get("items"), dict):
            yield from below(part["items"], f"{path}[]")
        if isinstance(part.get("additionalProperties"), dict):
            yield from below(part["additionalProperties"], f"{path}.*")


def kind(schema):
    if "$ref" in schema:
        return reference(schema["$ref"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        text = ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"] if value is not None)
    elif "anyOf" in schema or "oneOf" in schema:
        parts = schema.get("anyOf") or schema.get("oneOf")
        text = " or ".join(dict.fromkeys(k for k in map(kind, parts) if k)) or "object"
    else:
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        text = " or ".join(name for name in types if name != "null")
        if schema.get("pattern", "").startswith("^([0-9]+(\\.[0-9]+)?|"):
            text = "duration, such as `90s`"
        elif text == "array" and isinstance(schema.get("items"), dict):
            text = f"array of {kind(schema['items']) or 'values'}"
        elif not text and "null" not in types:
            text = "any value"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None or most is not None:
        text += f", from {least}" if most is None else f", up to {most}" if least is None else f", {least} to {most}"
    if schema.get("default") is not None:
        text += f"; default `{json.dumps(schema['default'])}`"
    return cell(text)


def reference(ref):
    file, _, path = ref.partition("#")
    if path:
        name = path.rsplit("/", 1)[-1]
        page = pathlib.PurePath(file).name.removesuffix(".schema.json")
        return f"[{name}]({page + '.md' if page else ''}#{name.lower()})"
    name = pathlib.PurePath(file).name.removesuffix(".schema.json")
    return f"[{name}]({name}.md)" if name else "the same again"


def words(text):
    """A description in a cell. Its links are those of a page of docs/."""
    return re.sub(r"\]\((?![a-z]+:|#)", "](../", cell(text))


def cell(text):
    """A text as it is in a cell of a table: words between < and > are no tags there."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|").replace("\n", " "))
    for i in range(0, len(parts), 2):
        parts[i] = parts[i].replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    return "".join(parts)
