package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// failure says why a target did not take a message.
type failure struct {
	err error
	// quote is the answer of the target, possibly with secrets. end is set if its end
	// is of interest, not its beginning.
	quote []byte
	end   bool
	// final is set if another attempt is of no use. after is the least time until then, if the target
	// named one.
	final bool
	after time.Duration
}

// text is the failure without secrets. It removes them before it cuts anything, since a part of a
// secret would not be recognized.
func (f *failure) text(red *redact.Redactor) string {
	quote := strings.Join(strings.Fields(red.String(strings.ToValidUTF8(string(f.quote), ""))), " ")
	switch {
	case len(quote) <= quoted:
	case f.end:
		quote = "…" + strings.ToValidUTF8(quote[len(quote)-quoted:], "")
	default:
		quote = strings.ToValidUTF8(quote[:quoted], "") + "…"
	}
	if quote != "" {
		quote = ": " + quote
	}
	return redact.Line(red.String(f.err.Error()) + quote)
}

func failed(format string, args ...any) *failure { return &failure{err: fmt.Errorf(format, args...)} }

const (
	// kept is the most bytes of an answer or of stderr that are kept, quoted the most that are quoted.
	kept   = 16 << 10
	quoted = 200
)

// post sends a message to a webhook. Its errors do not name the URL, which may hold a secret.
func (s *Sender) post(ctx context.Context, t Target, resolve template.Resolver, m Message) *failure {
	target, err := template.URL(t.URL, resolve, nil)
	if err != nil {
		return failed("%w", err)
	}
	key, err := t.key(resolve)
	if err != nil {
		return failed("secret: %w", err)
	}
	body, err := m.event()
	if err != nil {
		return failed("%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.Timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return failed("the request could not be made") // the error contains the URL
	}
	timestamp, sig := signature(key, m.ID, s.o.Now(), body)
	for name, value := range map[string]string{
		"Content-Type": contentType, "User-Agent": "evalrun",
		"Webhook-Id": m.ID, "Webhook-Timestamp": timestamp, "Webhook-Signature": sig,
	} {
		req.Header.Set(name, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if withURL := (*url.Error)(nil); errors.As(err, &withURL) {
			err = withURL.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", time.Duration(t.Timeout))
		}
		return failed("%w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	// The answer is only for a message. The connection is used again if that was all.
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, kept))
	return judge(resp, answer, s.o.Now())
}

// judge interprets an answer. Only 2xx is success. Redirects are not followed, since the message
// is signed for its receiver. After 410 the receiver wants no more of it. Everything else is tried
// again, unlike elsewhere: a receiver may be mended in the days that the attempts take.
func judge(resp *http.Response, answer []byte, now time.Time) *failure {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	hint := ""
	if status >= 300 && status < 400 {
		hint = " (redirects are not followed)"
	}
	f := failed("it answered %d %s%s", status, http.StatusText(status), hint)
	f.quote, f.final = answer, status == http.StatusGone
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		f.after, _ = retry.After(resp.Header, now)
	}
	return f
}

// run gives a message to a command. It has the environment of evalrun without its own variables, in
// a process group that ends with it.
func (s *Sender) run(ctx context.Context, t Target, dir string, m Message) *failure {
	body, err := m.event()
	if err != nil {
		return failed("%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.Timeout))
	defer cancel()
	var stderr tail
	cmd := exec.CommandContext(ctx, t.Command[0], t.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = dir, sandbox.Environ(os.Environ()),
		bytes.NewReader(append(body, '\n')), &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return failed("it could not be started: %w", err)
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // this ends processes that it left behind
	f := failed("it ended with %s", cmd.ProcessState)
	switch {
	case ctx.Err() != nil:
		f = failed("it was ended after %s", time.Duration(t.Timeout))
	case err == nil || cmd.ProcessState.Success():
		return nil // it may have ignored its input
	}
	f.quote, f.end = stderr.kept, true
	return f
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - kept; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}
