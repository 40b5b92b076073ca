package modelagent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// runner runs commands one after another, each in a bash and a process group of its own. It reads a
// line for each: a token that ends the output, the seconds that it may take, and the command as
// printf's %b reads it.
const runner = `set -m
exec 2>/dev/null
while IFS= read -r line; do
  token=${line%% *} line=${line#* }
  limit=${line%% *}
  command=$(printf '%b.' "${line#* }")
  /bin/bash -c "${command%.}" </dev/null 2>&1 &
  pid=$!
  { sleep "$limit"; kill -TERM -- "-$pid"; sleep 2; kill -KILL -- "-$pid"; } </dev/null >/dev/null &
  watch=$!
  wait "$pid"
  code=$?
  kill -KILL -- "-$watch"
  wait "$watch"
  printf '\n%s %d\n' "$token" "$code"
done`

// shell is a bash in the sandbox, which runs the commands of a segment. What a command leaves
// running goes on until the segment ends.
type shell struct {
	process *sandbox.Process
	out     *bufio.Reader
	log     *program.Log
	ended   chan struct{} // closed when the process has ended
	err     error         // what went wrong with its end
}

// fileSetup has the output of the setup of the sandbox.
const fileSetup = "setup.log"

// startShell starts the shell. The sandbox is set up when it returns.
func (s *segment) startShell(ctx context.Context) (*shell, *fault.Fault, error) {
	box := s.seg.Sandbox
	env := slices.Clone(box.Env)
	if box.Home != "" {
		env = append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "HOME=" + box.Home, "TMPDIR=/tmp"},
			env...)
	}
	hidden := agent.VariablesIn(s.a.entry.Model.Key) // commands must not have the key of the model
	for _, e := range s.seg.Env {
		if name, _, _ := strings.Cut(e, "="); !slices.Contains(hidden, name) {
			env = append(env, e)
		}
	}
	sh := &shell{ended: make(chan struct{}), log: program.OpenLog(filepath.Join(s.seg.Dir, fileSetup), s.a.opts.Redact)}
	command := sandbox.Command{
		Marker: s.seg.Marker, Path: "/bin/bash", Args: []string{"bash", "-c", runner}, Dir: box.Cwd, Env: env,
		Interactive: true, Stderr: io.Discard, Grace: s.a.opts.Grace, Config: &box.Config,
		Executable: box.Executable,
	}
	if box.Setup != nil {
		setup := *box.Setup
		setup.Log = sh.log
		command.Setup = &setup
	}
	var err error
	if sh.process, err = sandbox.Start(command); err != nil {
		if f := program.StartFault(command, err); f != nil {
			return nil, f, sh.log.Close()
		}
		return nil, nil, errors.Join(err, sh.log.Close())
	}
	if err := sh.process.Ready(ctx); err != nil {
		f := program.SetupFault(ctx, err)
		sh.process.End(errOver, 0)
		_, err := sh.process.Wait(context.WithoutCancel(ctx))
		return nil, f, errors.Join(err, sh.log.Close())
	}
	sh.out = bufio.NewReaderSize(sh.process.Stdout, 64<<10)
	go func() {
		defer close(sh.ended)
		_, sh.err = sh.process.Wait(ctx)
	}()
	return sh, nil, nil
}

var errOver = errors.New("the segment is over")

// close ends the shell, and everything that its commands have left running.
func (sh *shell) close() error {
	sh.process.End(errOver, 0)
	<-sh.ended
	return errors.Join(sh.err, sh.log.Close())
}

// errShellEnded means that the shell ended while a command ran.
var errShellEnded = errors.New("the shell has ended")

// run runs a command. Its output goes through redact, if there is one, before a part of it is left
// out, since half of a secret is not recognised. It is also written to log, as it comes.
func (sh *shell) run(command string, limit time.Duration, most int, redact func(io.Writer) io.WriteCloser,
	log io.Writer, now func() time.Time) (string, error) {
	token := rand.Text()
	started := now()
	seconds := strconv.FormatFloat(limit.Seconds(), 'f', 3, 64)
	if _, err := io.WriteString(sh.process.Stdin, token+" "+seconds+" "+escape(command)+"\n"); err != nil {
		return "", errShellEnded
	}
	kept := &excerpt{half: most / 2}
	to := io.WriteCloser(kept)
	if redact != nil {
		to = redact(kept)
	}
	code, err := sh.read(token, io.MultiWriter(to, log))
	_ = to.Close() // an excerpt cannot fail
	text := strings.TrimRight(kept.text(), "\n")
	if err != nil {
		return text, err
	}
	switch {
	case (code == 143 || code == 137) && now().Sub(started) >= limit:
		text += fmt.Sprintf("\n[ended, because it took longer than %s]", limit)
	case code != 0:
		text += fmt.Sprintf("\n[exit status %d]", code)
	case text == "":
		text = "[no output]"
	}
	return strings.TrimPrefix(text, "\n"), nil
}

// read reads the output of a command up to the line with the token, which follows a line break that
// is not part of the output.
func (sh *shell) read(token string, to io.Writer) (code int, err error) {
	begins, broken := true, false // at the beginning of a line; a line break is held back
	for {
		piece, err := sh.out.ReadSlice('\n')
		if rest, ok := bytes.CutPrefix(piece, []byte(token+" ")); ok && begins {
			if code, err := strconv.Atoi(string(bytes.TrimSpace(rest))); err == nil {
				return code, nil
			}
		}
		ended := bytes.HasSuffix(piece, []byte("\n"))
		if broken {
			_, _ = to.Write([]byte("\n")) // what cannot be written is only missing
		}
		_, _ = to.Write(bytes.TrimSuffix(piece, []byte("\n")))
		begins, broken = ended, ended
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, errShellEnded
		}
	}
}

// escape writes a command in one line, as printf's %b reads it.
func escape(command string) string {
	var b strings.Builder
	for _, c := range []byte(command) {
		if c >= ' ' && c != '\\' && c < 0x7f {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\0%03o`, c)
		}
	}
	return b.String()
}

// excerpt keeps the beginning and the end of an output.
type excerpt struct {
	half       int
	head, tail []byte
	size       int64
}

// Write implements io.Writer. It never fails.
func (x *excerpt) Write(p []byte) (int, error) {
	written := len(p)
	x.size += int64(len(p))
	if room := x.half - len(x.head); room > 0 {
		n := min(room, len(p))
		x.head, p = append(x.head, p[:n]...), p[n:]
	}
	if x.tail = append(x.tail, p...); len(x.tail) > 4*x.half {
		x.tail = append(x.tail[:0], x.tail[len(x.tail)-x.half:]...)
	}
	return written, nil
}

// Close implements io.Closer.
func (x *excerpt) Close() error { return nil }

// text returns the output, or its two ends with what is between them left out.
func (x *excerpt) text() string {
	head, tail := string(x.head), x.tail
	if len(tail) > x.half {
		tail = tail[len(tail)-x.half:]
	}
	left := x.size - int64(len(head)) - int64(len(tail))
	if left == 0 {
		return strings.ToValidUTF8(head+string(tail), "\uFFFD")
	}
	return strings.ToValidUTF8(head, "\uFFFD") +
		fmt.Sprintf("\n[%d bytes are left out; print less, or look at parts]\n", left) +
		strings.ToValidUTF8(string(tail), "\uFFFD")
}
