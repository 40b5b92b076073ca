"""A plugin of pytest: an eval set is a test, and its verdict the outcome.

    pytest evaluations/evalset.json

An eval set is collected if it is named on the command line, or if its name is one of the ini option
evalrun_sets (globs, none by default). Undecided and suspended are outcomes of their own: pytest fails by
them, as evalrun does.
"""

import fnmatch
import os

import pytest

from evalrun.runs import EvalrunError, run

OWN = {"undecided": ("undecided", "U", "UNDECIDED"), "suspended": ("suspended", "W", "SUSPENDED")}


class Verdict(Exception):
    """The verdict of a run that has not passed."""

    def __init__(self, ended):
        super().__init__(ended.verdict)
        self.ended = ended


def pytest_addoption(parser):
    parser.addini("evalrun_sets", "names of eval sets that are collected as tests (globs)", type="args", default=[])
    parser.addini("evalrun_options", "options of evalrun run", type="args", default=[])


def pytest_collect_file(file_path, parent):
    if file_path.suffix not in (".json", ".yaml", ".yml"):
        return None
    named = any(os.path.abspath(one.split("::")[0]) == str(file_path) for one in parent.config.args)
    if named or any(fnmatch.fnmatch(file_path.name, glob) for glob in parent.config.getini("evalrun_sets")):
        return File.from_parent(parent, path=file_path)
    return None


class File(pytest.File):
    def collect(self):
        yield Item.from_parent(self, name="evalrun")


class Item(pytest.Item):
    def runtest(self):
        ended = run(self.path, *self.config.getini("evalrun_options"))
        self.add_report_section("call", "evalrun", ended.output)
        if not ended.passed:
            raise Verdict(ended)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Verdict):
            return f"the verdict is {excinfo.value.ended.verdict}: run {excinfo.value.ended.run_id}"
        if isinstance(excinfo.value, EvalrunError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, 0, f"eval set {self.path.name}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Verdict):
        outcome.get_result().evalrun_verdict = call.excinfo.value.ended.verdict


def pytest_report_teststatus(report, config):
    return OWN.get(getattr(report, "evalrun_verdict", ""))


def pytest_terminal_summary(terminalreporter):
    for verdict in OWN:
        for report in terminalreporter.getreports(verdict):
            terminalreporter.section(f"{report.nodeid}: {verdict}")
            terminalreporter.write_line("\n".join(text for _, text in report.sections).strip())
