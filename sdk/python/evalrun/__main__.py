"""python -u evalrun TYPE ENTRYPOINT: one worker of evalrun, in the folder of the agent's project.

Before anything else is imported, the channel to evalrun is put aside: from here on stdin is empty, and
whatever is printed, by whomever, goes to stderr.
"""

import os
import sys

if __name__ == "__main__":  # a child of multiprocessing's "spawn" may import this file again
    channel = os.dup(0), os.dup(1)  # neither is inherited by programs that are started later
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from evalrun import worker

    del sys.path[0]  # the project's own modules come first
    worker.serve(*channel, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
