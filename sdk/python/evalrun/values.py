"""Values between JSON and Python, and objects that are named as FILE.py:NAME."""

import base64
import dataclasses
import enum
import importlib
import importlib.util
import os
import sys
import typing


class AgentError(Exception):
    """An error of which evalrun knows the code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def kind_of(value):
    """The name of its type, with its article."""
    name = type(value).__name__
    return ("an " if name[0] in "aeioAEIO" else "a ") + name


MAX_DEPTH = 100


def plain(value, depth=0):
    """JSON's values of whatever a framework returns."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise AgentError("invalid-output", f"the output holds {value}, which is not a JSON value")
        return value
    if depth > MAX_DEPTH:
        raise AgentError("too-deep", f"the output nests deeper than {MAX_DEPTH} levels, or in itself")
    depth += 1
    if isinstance(value, dict):
        return {key_of(key): plain(one, depth) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one, depth) for one in value]
    if isinstance(value, type):
        raise AgentError("invalid-output", f"the output holds the class {value.__name__}, which cannot be written as JSON")
    if hasattr(value, "response_metadata") and hasattr(value, "content"):  # a message of LangChain
        dumped = plain(value.model_dump(mode="json"), depth)
        return {key: one for key, one in dumped.items() if key in ("type", "content") or one not in (None, False, [], {})}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json", by_alias=True), depth)
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), depth) for field in dataclasses.fields(value)}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "__dict__") and not callable(value):
        return {name: plain(one, depth) for name, one in vars(value).items() if not name.startswith("_")}
    raise AgentError("invalid-output", f"the output holds {kind_of(value)}, which cannot be written as JSON")


def key_of(key):
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int)):
        return {None: "null", True: "true", False: "false"}[key] if key is None or isinstance(key, bool) else str(key)
    raise AgentError("invalid-output", f"the output has the key {key!r}, which is not a string")


def convert(value, hint):
    """The value as the model or dataclass that a parameter is declared with."""
    if not isinstance(hint, type):
        return value
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        hints = typing.get_type_hints(hint)
        names = {field.name for field in dataclasses.fields(hint) if field.init}
        return hint(**{name: convert(one, hints.get(name)) for name, one in value.items() if name in names})
    return value


def load_object(place, project):
    """What FILE.py:NAME or module:NAME stands for; a file is relative to the folder of the project."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise AgentError("start", f"{place!r} is neither FILE.py:NAME nor module:NAME")
    for folder in (os.path.join(project, "src"), project):
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.insert(0, folder)
    if where.endswith(".py") or "/" in where:
        module = load_file(os.path.normpath(os.path.join(project, where)), where)
    else:
        module = importlib.import_module(where)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = ", ".join(n for n, one in vars(module).items() if callable(one) and not n.startswith("_"))
            raise AgentError("start", f"{where} has no {name!r}; it has {names or 'nothing that can be called'}")
        found = getattr(found, part)
    return found


def load_file(path, shown):
    if not os.path.isfile(path):
        raise AgentError("start", f"there is no file {shown}")
    folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
    name = stem
    while os.path.isfile(os.path.join(folder, "__init__.py")):  # it is a module of a package
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name != stem:
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is not None and os.path.abspath(getattr(known, "__file__", None) or "") == path:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise AgentError("start", f"{shown} is not a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module
