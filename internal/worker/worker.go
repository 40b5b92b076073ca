// Package worker keeps programs that do one job after another, so that a program which takes long to
// start is started once. A [Pool] starts workers when jobs wait for one, gives each worker one job
// at a time, and ends a worker that misbehaves: that harms only the job which it had. docs/python.md
// has the protocol. The package knows nothing of agents, rollouts and Python.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// EnvNonce is the variable with the word that a worker repeats in its greeting.
const EnvNonce = "EVALRUN_NONCE"

// endMarkTime is how long a job waits for the rest of its stderr when its answer is there. Only a
// worker that has closed its stderr makes it wait at all, and only once. Tests change it.
var endMarkTime = 5 * time.Second

// Job is one piece of work for a worker.
type Job struct {
	// Op and Body are the request: a JSON object to which "op" and "id" are added.
	Op   string
	Body any
	// Stderr receives what the worker prints for the job; it is not used when Do has returned.
	Stderr io.Writer
	// Limit is how long the answer may be, in bytes.
	Limit int64
	// Who is what the worker is in messages; "agent" if it is empty.
	Who string
	// Start returns the command of a worker, without its streams. A fault says why there is none.
	Start func(ctx context.Context) (sandbox.Command, *fault.Fault)
}

func (j Job) who() string { return cmp.Or(j.Who, "agent") }

// Answer is what became of a job. Exactly one of Output, Error and Fault is set, unless the context
// was done.
type Answer struct {
	Output json.RawMessage `json:"output"`
	Error  *Error          `json:"error"`
	Stats  Stats           `json:"stats"`
	// Mocks counts the calls of functions that were played; nil if none was.
	Mocks *Mocks `json:"mocks"`
	// Fault says what happened to the worker in place of an answer.
	Fault *fault.Fault `json:"-"`
}

// Mocks counts calls by the names of functions: those that were played, and those of functions that are
// played, but not with these arguments.
type Mocks struct {
	Calls     map[string]int `json:"calls"`
	Unmatched map[string]int `json:"unmatched"`
}

// Error is an error that the worker answers with.
type Error struct {
	Code    string `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Stats are what a worker says about a job, as far as it does.
type Stats struct {
	RSSKb int64 `json:"rssKb"`
	// Dirty names what the job has left behind in the worker.
	Dirty []string `json:"dirty"`
}

// greeting is the first line of a worker.
type greeting struct {
	Evalrun int    `json:"evalrun"`
	Nonce   string `json:"nonce"`
	Error   *Error `json:"error"`
	RSSKb   int64  `json:"rssKb"`
	// Marks says that the worker marks on stderr where a job begins and ends.
	Marks bool `json:"marks"`
}

// line is a line of a worker's stdout, or the reason why there is none.
type line struct {
	text []byte
	err  error // errTooLong, or the end of stdout
}

var (
	errTooLong = errors.New("the worker printed a line that is too long")
	errSilent  = errors.New("the worker closed its stdin or its stdout")
	errGarbage = errors.New("the worker printed what is no answer")
	errClosed  = errors.New("the worker is not needed any more")
)

// worker is a running program. Its fields are those of the goroutine that has the worker: one Do at
// a time, or the pool.
type worker struct {
	process *sandbox.Process
	stderr  *cutter
	lines   chan line
	limit   atomic.Int64
	greeted greeting
	// end makes the process end. gone is closed when it has ended, after which exit and err are set.
	end  context.CancelCauseFunc
	gone chan struct{}
	exit sandbox.Exit
	err  error

	// jobs counts those that were sent, and dirty those in a row that have left something behind.
	jobs, dirty int
	spoilt      bool        // it gets no more jobs
	idle        *time.Timer // ends it when nobody needs it; nil while it has a job
}

// launch starts a worker. It has not greeted yet.
func launch(c sandbox.Command, stderr io.Writer) (*worker, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	nonce := hex.EncodeToString(random[:])
	w := &worker{stderr: newCutter(nonce), lines: make(chan line), gone: make(chan struct{}),
		greeted: greeting{Nonce: nonce}}
	w.limit.Store(maxNoise)
	w.stderr.to(stderr)
	c.Marker = "worker/" + nonce
	// What a worker starts for a job may have another marker. This one stays, so that it is found.
	c.Env = append(c.Env, EnvNonce+"="+nonce, sandbox.WorkerVar+"="+c.Marker)
	c.Interactive, c.Tied, c.Stderr = true, true, w.stderr
	var err error
	if w.process, err = sandbox.Start(c); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w.end = cancel
	go func() {
		defer close(w.gone)
		w.exit, w.err = w.process.Wait(ctx)
	}()
	go w.read()
	return w, nil
}

// read reads lines until the end of stdout. Whoever gives the worker up takes what is left.
func (w *worker) read() {
	var all []byte
	buf := make([]byte, 64<<10)
	defer close(w.lines)
	for {
		n, err := w.process.Stdout.Read(buf)
		rest := buf[:n]
		for len(rest) > 0 {
			at := bytes.IndexByte(rest, '\n')
			part := rest
			if at >= 0 {
				part = rest[:at]
			}
			if int64(len(all)+len(part)) > w.limit.Load() {
				w.lines <- line{err: errTooLong}
				_, _ = io.Copy(io.Discard, w.process.Stdout) // until it is ended
				return
			}
			all = append(all, part...)
			if at < 0 {
				break
			}
			w.lines <- line{text: all}
			all, rest = nil, rest[at+1:]
		}
		if err != nil {
			return
		}
	}
}

// kill ends the worker and waits until it is gone.
func (w *worker) kill(reason error) {
	w.spoilt = true
	w.end(reason)
	<-w.gone
}

// leave closes the worker's stdin, at which it should end by itself, and waits until nothing is left
// of it.
func (w *worker) leave() error {
	w.process.End(errClosed, sandbox.DefaultGrace)
	<-w.gone
	for range w.lines {
		continue // nobody wants them
	}
	return w.err
}

// exited describes the end of a worker that was not asked to end.
func (w *worker) exited() string {
	<-w.gone
	return w.exit.State.String()
}

// greet waits for the greeting. Lines before it are those of wrappers and of Python's own start:
// they are kept as stderr is.
func (w *worker) greet(ctx context.Context, who string) *fault.Fault {
	nonce, noise := w.greeted.Nonce, 0
	for {
		var l line
		var ok bool
		select {
		case l, ok = <-w.lines:
		case <-ctx.Done():
			w.kill(context.Cause(ctx))
			return nil
		}
		switch {
		case !ok:
			w.process.End(errSilent, sandbox.DefaultGrace)
			return fault.Newf(fault.Start, "the %s's program ended before it was ready: %s", who, w.exited())
		case l.err == nil && json.Unmarshal(l.text, &w.greeted) == nil && w.greeted.Evalrun == 1 && w.greeted.Nonce == nonce:
			return nil
		}
		w.greeted = greeting{Nonce: nonce}
		if noise += len(l.text) + 1; l.err != nil || noise > maxNoise {
			w.kill(errGarbage)
			return fault.Newf(fault.Start, "the %s's program printed more than %d kB and did not greet evalrun; %s",
				who, maxNoise>>10, `a program with "keep": true speaks the protocol of docs/python.md`)
		}
		w.stderr.add(append(l.text, '\n'))
	}
}

// maxNoise is how much a worker may print before its greeting.
const maxNoise = 64 << 10

// do gives the worker a job and waits for the answer. begun is false if the worker was gone before
// it had begun.
func (w *worker) do(ctx context.Context, id string, j Job) (answer Answer, begun bool) {
	request, err := encode(j.Op, id, j.Body)
	if err != nil {
		return Answer{Fault: fault.Newf(fault.Internal, "the request for the %s: %v", j.who(), err)}, true
	}
	w.jobs++
	w.limit.Store(j.Limit + overhead)
	w.stderr.to(j.Stderr)
	defer w.finish()
	wrote := make(chan error, 1)
	go func() {
		_, err := w.process.Stdin.Write(request)
		wrote <- err
	}()
	for {
		select {
		case err := <-wrote:
			if err != nil {
				w.process.End(errSilent, sandbox.DefaultGrace) // its stdout ends, too
			}
			wrote = nil
		case <-ctx.Done():
			w.kill(context.Cause(ctx))
			return Answer{}, true
		case l, ok := <-w.lines:
			answer, done := w.take(l, ok, id, j)
			if !done {
				continue
			}
			if ok && !w.spoilt && w.greeted.Marks {
				// Without this mark the next ones will not come either. That one is missing then says
				// nothing: a job that had begun is not to be done again.
				w.greeted.Marks = w.stderr.await(id, endMarkTime)
			}
			return answer, ok || !w.greeted.Marks || w.stderr.hasBegun(id)
		}
	}
}

// finish ends the part of stderr that is the job's.
func (w *worker) finish() {
	select {
	case <-w.gone:
		w.stderr.flush()
	default:
	}
	w.stderr.to(nil)
}

// overhead is how much longer than its output a line with an answer may be.
const overhead = 16 << 10

// take judges a line that came while the worker had a job. done is false if it is none of the job's.
func (w *worker) take(l line, ok bool, id string, j Job) (a Answer, done bool) {
	if !ok {
		w.spoilt = true
		w.process.End(errSilent, sandbox.DefaultGrace)
		return Answer{Fault: fault.Newf(fault.Exit, "the %s's worker ended with %s", j.who(), w.exited())}, true
	}
	var said struct {
		ID *string `json:"id"`
		Answer
	}
	var reason string
	switch {
	case l.err != nil:
		w.kill(l.err)
		return Answer{Fault: tooLong(j)}, true
	case json.Unmarshal(l.text, &said) != nil:
		reason = "it is no JSON object that is an answer"
	case said.ID == nil:
		reason = `it has no "id"`
	case *said.ID != id && w.past(*said.ID):
		w.spoilt = true // an earlier job was answered twice; this one is not to suffer from that
		return Answer{}, false
	case *said.ID != id:
		reason = "it has the id of another request: " + *said.ID
	case (said.Output == nil) == (said.Error == nil):
		reason = `it has not exactly one of "output" and "error"`
	case int64(len(said.Output)) > j.Limit:
		w.kill(errTooLong)
		return Answer{Fault: tooLong(j)}, true
	default:
		return said.Answer, true
	}
	w.kill(errGarbage)
	return Answer{Fault: fault.Newf(fault.InvalidOutput, "the worker's answer cannot be used: %s: %q", reason,
		l.text[:min(len(l.text), 120)])}, true
}

func tooLong(j Job) *fault.Fault {
	if j.Who != "" {
		return fault.Newf(fault.OutputLimit, "the %s printed more than %d bytes", j.Who, j.Limit)
	}
	return fault.Newf(fault.OutputLimit, "the agent printed more than %d bytes (limits.outputBytes)", j.Limit)
}

// past reports whether an id is that of a job which this worker has had.
func (w *worker) past(id string) bool {
	n, err := strconv.Atoi(id)
	return err == nil && n > 0 && n < w.jobs
}

// encode makes the line of a request.
func encode(op, id string, body any) ([]byte, error) {
	head, err := jsonobj.Marshal(struct {
		Op string `json:"op"`
		ID string `json:"id"`
	}{op, id})
	if err != nil {
		return nil, err
	}
	rest, err := jsonobj.Marshal(body)
	if err != nil {
		return nil, err
	}
	request := append(head[:len(head)-1], ',')
	return append(append(request, rest[1:]...), '\n'), nil
}

// StartError says that the system could not start a command.
type StartError struct {
	Command sandbox.Command
	Err     error
}

func (e *StartError) Error() string { return e.Err.Error() }

func (e *StartError) Unwrap() error { return e.Err }
