package taskcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
)

// gitCommand runs git in a repository, or in none.
type gitCommand struct {
	dir   string
	stdin io.Reader
}

// maxAnswer is how much git may answer. maxTime is how long it may take.
const (
	maxAnswer = 64 << 20
	maxTime   = 30 * time.Minute
)

func (g gitCommand) run(ctx context.Context, args ...string) (out []byte, err error) {
	err = g.read(ctx, func(r io.Reader) error {
		out, err = io.ReadAll(io.LimitReader(r, maxAnswer+1))
		if err == nil && len(out) > maxAnswer {
			err = fmt.Errorf("git answers more than %d bytes", maxAnswer)
		}
		return err
	}, args...)
	return out, err
}

// read runs git and has f read what it prints. It is ended when f fails, when ctx is done, and
// with this process.
func (g gitCommand) read(ctx context.Context, f func(io.Reader) error, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("git has not ended after %v", maxTime))
	defer cancel()
	// Fetched files must not cause any program to run.
	fixed := []string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
		"-c", "protocol.version=2", "-c", "maintenance.auto=false"}
	cmd := exec.CommandContext(ctx, "git", slices.Concat(fixed, args)...)
	cmd.Env = environ(g.dir)
	cmd.Stdin = g.stdin
	var stderr tail
	cmd.Stderr = &stderr
	attr, done := attributes()
	defer done()
	cmd.SysProcAttr = attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, exec.ErrNotFound) {
			return errors.New("tasks of git repositories need the program git, which is not on PATH")
		}
		return err
	}
	read := f(out)
	if read != nil {
		cancel()
	}
	waited := cmd.Wait()
	switch {
	case context.Cause(ctx) != nil && read == nil:
		return context.Cause(ctx)
	case read != nil:
		return read
	case waited != nil:
		return errors.New(stderr.String(waited))
	}
	return nil
}

// local lists the variables by which git finds a repository of its caller, such as that of a hook
// (git rev-parse --local-env-vars), without those that have settings.
var local = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_IMPLICIT_WORK_TREE", "GIT_GRAFT_FILE", "GIT_NO_REPLACE_OBJECTS",
	"GIT_REPLACE_REF_BASE", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_EXEC_PATH"}

// environ returns the environment of git. It is the user's, because of proxies and credentials, but
// git asks nothing on a terminal, and no transport runs a program.
func environ(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(one string) bool {
		name, _, _ := strings.Cut(one, "=")
		return slices.Contains(local, name)
	})
	env = append(env, "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file", "GIT_PROTOCOL_FROM_USER=0", "GIT_TERMINAL_PROMPT=0",
		"GCM_INTERACTIVE=never", "LC_ALL=C", "GIT_NO_REPLACE_OBJECTS=1", "GIT_LFS_SKIP_SMUDGE=1")
	if os.Getenv("GIT_SSH_COMMAND") == "" && os.Getenv("GIT_SSH") == "" {
		env = append(env, "GIT_SSH_COMMAND=ssh -oBatchMode=yes")
	}
	if dir != "" {
		env = append(env, "GIT_DIR="+dir)
	}
	return env
}

// tail keeps the end of git's messages.
type tail struct{ bytes.Buffer }

// Write keeps the last kilobytes.
func (t *tail) Write(p []byte) (int, error) {
	const most = 4096
	n, err := t.Buffer.Write(p)
	if extra := t.Len() - most; extra > 0 {
		t.Next(extra)
	}
	return n, err
}

// String returns git's message in one line, or else how git ended.
func (t *tail) String(ended error) string {
	if text := strings.TrimSpace(t.Buffer.String()); text != "" {
		return redact.Line(strings.Join(strings.Split(text, "\n"), "; "))
	}
	return ended.Error()
}
