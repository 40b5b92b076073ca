"""evalrun's side in Python: the worker that runs agents of Python projects.

evalrun carries these files itself and runs them with the project's own interpreter; nothing has to be
installed. They use the standard library only, and Python 3.9 or later.
"""

from evalrun.evaluators import evaluator

__all__ = ["evaluator"]
