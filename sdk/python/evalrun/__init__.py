"""evalrun's side in Python.

evalrun carries these files itself and runs agents and evaluators of a project with the project's own
interpreter; nothing has to be installed for that. They use the standard library only, and Python 3.9 or
later. For code that calls evalrun there are run and results, and a plugin of pytest.
"""

from evalrun.evaluators import evaluator

__all__ = ["EvalrunError", "Run", "evaluator", "results", "run"]


def __getattr__(name):
    # A worker needs none of it, and is to start fast.
    if name in ("EvalrunError", "Run", "results", "run"):
        from evalrun import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'evalrun' has no attribute {name!r}")
