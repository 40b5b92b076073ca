// Package evalworker runs the code of evaluators that are written in Python. It keeps workers of
// sdk/python, started with the interpreter of the project to which the code belongs, for one rollout
// after another. Package eval/python says what they are asked.
package evalworker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent/pyagent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/worker"
)

const (
	// maxAnswer is how long an answer may be.
	maxAnswer = 1 << 20
	// maxTail is how much of what a worker has printed stands in an error.
	maxTail = 2 << 10
)

// Workers implements [eval.Python]. A worker has the evaluators of one project.
type Workers struct {
	fresh bool

	mu    sync.Mutex
	pools map[eval.Code]*worker.Pool
	// requests counts those that are being done. closed says that none is expected any more.
	requests int
	closed   bool
}

// New makes workers, which are started when they are needed. If fresh is set, each request has a
// worker of its own.
func New(fresh bool) *Workers { return &Workers{fresh: fresh, pools: map[eval.Code]*worker.Pool{}} }

// Do implements [eval.Python].
func (w *Workers) Do(ctx context.Context, c eval.Code, op string, request any) (json.RawMessage, error) {
	name := c.Interpreter
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(c.Dir, name)
	}
	c = eval.Code{Kind: c.Kind, Dir: Project(c.Dir), Interpreter: name}
	printed := &tail{}
	lacking := false
	pool := w.acquire(c)
	answer, err := pool.Do(ctx, worker.Job{Op: op, Body: request, Stderr: printed, Limit: maxAnswer, Who: "evaluator",
		Start: func(ctx context.Context) (sandbox.Command, *fault.Fault) {
			command, bad := pyagent.Worker(ctx, c.Kind, c.Interpreter, c.Dir)
			lacking = bad != nil
			return command, bad
		},
	})
	err = errors.Join(err, w.release())
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) && answer.Output == nil && answer.Error == nil:
		return nil, fmt.Errorf("the evaluator timed out%s", printed)
	case ctx.Err() != nil && answer.Output == nil && answer.Error == nil:
		return nil, fmt.Errorf("the evaluator was ended: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("cannot start the evaluator: %w", err)
	case lacking && answer.Fault != nil:
		return nil, &eval.NotAsked{Reason: "it needs Python: " + answer.Fault.Message}
	case answer.Fault != nil:
		return nil, errors.New(answer.Fault.Message + printed.String())
	case answer.Error != nil && answer.Error.Code == "no-package":
		return nil, &eval.NotAsked{Reason: answer.Error.Message}
	case answer.Error != nil:
		return nil, errors.New(cmp.Or(answer.Error.Message, answer.Error.Type))
	}
	return answer.Output, nil
}

// acquire returns the workers of a project, for one request.
func (w *Workers) acquire(c eval.Code) *worker.Pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	if w.pools[c] == nil {
		w.pools[c] = worker.New(w.fresh)
	}
	return w.pools[c]
}

func (w *Workers) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests--
	return w.closeUnused()
}

// Close ends all workers. Requests that are being done, or come later, are done before.
func (w *Workers) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.closeUnused()
}

func (w *Workers) closeUnused() (err error) {
	if !w.closed || w.requests > 0 {
		return nil
	}
	for _, pool := range w.pools {
		err = errors.Join(err, pool.Close())
	}
	clear(w.pools)
	return err
}

// marks are the files by which a project is known.
var marks = []string{"uipath.json", "langgraph.json", "pyproject.toml", "setup.py", "requirements.txt", ".venv", ".git"}

// Project returns the folder of the project to which a folder belongs: the nearest with a file of
// projects, or the folder itself.
func Project(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		for _, mark := range marks {
			if _, err := os.Stat(filepath.Join(at, mark)); err == nil {
				return at
			}
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-maxTail):]
	return len(p), nil
}

// String returns the end of a message: the text after a colon, nothing if there is none.
func (t *tail) String() string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(*t)), "")
	if text == "" {
		return ""
	}
	return ": " + text
}
