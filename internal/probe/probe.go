// Package probe measures what an agent does with the Agent Client Protocol. It starts the agent
// against its own MCP servers and scripted model, and believes their logs rather than what the
// agent says of itself.
//
// [Run] makes a [Report]: a [Check] for each question, with the facts that answer it. Each check
// has a process, a home and servers of its own, so that one which fails says nothing of the others.
// The package knows nothing of eval sets, runs and stores.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/redact"
)

// DefaultTimeout is how long a check may take.
const DefaultTimeout = 60 * time.Second

// Options say which agent is probed, and where.
type Options struct {
	// Entry is an agent of type ACP. Its model's URL and key are not used.
	Entry agent.Entry
	// BaseDir is the folder to which the entry's cwd is relative.
	BaseDir string
	// Isolation is the isolation of the agent's sandbox, which has this machine's network.
	Isolation string
	// Executable is this program: its main calls sandbox.InitMain, and tools.StdioMain for the
	// arguments after [StdioCommand].
	Executable string
	// Version is evalrun's own version, which the agent is told.
	Version string
	// Only has the names of the checks to make; empty means all of [Names].
	Only []string
	// Timeout is the timeout of each check; 0 means DefaultTimeout.
	Timeout time.Duration
	// Done, if not nil, is called after each check.
	Done func(Check)
}

// StdioCommand is the command of [Options.Executable] that is an MCP server on stdin and stdout.
const StdioCommand = "probe-mcp-server"

// Report holds the results of a probe.
type Report struct {
	Agent Agent `json:"agent"`
	// Isolation is the isolation in which the agent ran.
	Isolation string    `json:"isolation"`
	StartedAt time.Time `json:"startedAt"`
	TookMs    int64     `json:"tookMs"`
	Checks    []Check   `json:"checks"`
}

// Agent is the agent that was probed.
type Agent struct {
	// Entry is the name of the entry. Name and Version are what the agent reports about itself.
	Entry   string `json:"entry"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Initialize is its answer to initialize.
	Initialize json.RawMessage `json:"initialize"`
}

// Check is the answer to one question.
type Check struct {
	Name string `json:"name"`
	// Verdict is Yes, No or Failed, or a few words where these would say too little.
	Verdict string `json:"verdict"`
	// TookMs is how long the whole check took, including the start of the agent.
	TookMs int64 `json:"tookMs"`
	// Detail says why the verdict is no, or why the check failed.
	Detail string `json:"detail,omitempty"`
	Facts  []Fact `json:"facts"`
}

// Fact is one observation.
type Fact struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	// TookMs is how long it took; nil where time does not matter.
	TookMs *int64 `json:"tookMs,omitempty"`
	// Detail is the evidence.
	Detail string `json:"detail,omitempty"`
}

// The verdicts that are no words of their own.
const (
	Yes    = "yes"
	No     = "no"
	NA     = "n/a"    // the fact cannot be found out for this agent
	Failed = "failed" // the check could not be made

	notAdvertised = "not advertised"
)

// StartError says why an agent cannot be probed: it does not start, or does not answer initialize.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "the agent cannot be probed: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// question is a check before it is answered.
type question struct {
	name string
	// answer fills in the check. Its error makes it a failed one.
	answer func(ctx context.Context, r *rig, c *Check) error
}

// questions lists all checks, in the order in which they are made.
var questions = []question{
	{"initialize", askInitialize},
	{"stdio", transport(onStdio)},
	{"http", transport(onHTTP)},
	{"sse", transport(onSSE)},
	{"slow-server", askSlowServer},
	{"dead-server", askDeadServer},
	{"cancel-tool", askCancelTool},
	{"cancel-model", askCancelModel},
	{"resume", continueSession(byResume)},
	{"load", continueSession(byLoad)},
	{"sessions", askSessions},
	{"exit", askExit},
	{"orphans", askOrphans},
}

// Names returns the names of the checks, in their order.
func Names() []string {
	var names []string
	for _, q := range questions {
		names = append(names, q.name)
	}
	return names
}

// Supports reports whether an agent can be probed: whether it speaks the Agent Client Protocol.
func Supports(e agent.Entry) bool { return acpagent.SettingsOf(e) != nil }

// Run makes the checks, one after another: they measure times. It always begins with initialize.
// The error is a [*StartError] if that fails, and the cause of ctx if ctx ends. The report has the
// results up to then.
func Run(ctx context.Context, o Options) (*Report, error) {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("there is no check %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	if !Supports(o.Entry) || len(o.Entry.Command) == 0 {
		return nil, fmt.Errorf("agent %q does not speak the Agent Client Protocol", o.Entry.Name)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	o.Entry.Model = scriptedModel(o.Entry.Model)
	dir, err := os.MkdirTemp("", "evalrun-probe-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // files that an agent has left there harm nobody
	report := &Report{Agent: Agent{Entry: o.Entry.Name}, Isolation: o.Isolation, StartedAt: time.Now().UTC()}
	for _, q := range questions {
		if q.name != "initialize" && len(o.Only) > 0 && !slices.Contains(o.Only, q.name) {
			continue
		}
		check, err := o.ask(ctx, dir, q, &report.Agent)
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		report.TookMs = time.Since(report.StartedAt).Milliseconds()
		if q.name == "initialize" && err != nil {
			return report, &StartError{err}
		}
		report.Checks = append(report.Checks, check)
		if o.Done != nil {
			o.Done(check)
		}
	}
	return report, nil
}

// ask makes one check.
func (o *Options) ask(ctx context.Context, dir string, q question, about *Agent) (Check, error) {
	c := Check{Name: q.name, Verdict: Failed, Facts: []Fact{}}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("it was not done within %v", o.Timeout))
	defer cancel()
	r, err := newRig(o, dir, about)
	if err == nil {
		err = q.answer(ctx, r, &c)
		err = errors.Join(err, r.close())
		err = r.explain(ctx, err)
	}
	c.TookMs = time.Since(began).Milliseconds()
	if err != nil {
		c.Verdict, c.Detail = Failed, err.Error()
	}
	return c, err
}

// add adds a fact. took is how long it took; it is negative if that does not matter.
func (c *Check) add(name, verdict string, took time.Duration, format string, args ...any) {
	f := Fact{Name: name, Verdict: verdict, Detail: fmt.Sprintf(format, args...)}
	if took >= 0 {
		ms := took.Milliseconds()
		f.TookMs = &ms
	}
	c.Facts = append(c.Facts, f)
}

// timeless stands for the time of facts that have none.
const timeless time.Duration = -1

// Fact returns the verdict of a fact, "" if it was not found out.
func (c *Check) Fact(name string) string {
	for _, f := range c.Facts {
		if f.Name == name {
			return f.Verdict
		}
	}
	return ""
}

// whether returns Yes or No.
func whether(b bool) string {
	if b {
		return Yes
	}
	return No
}

// models has names that are accepted by agents which know the models of their provider.
var models = map[string]string{"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}

// scriptedModel returns an entry's model as the scripted one: without its own URL and key, and with
// a name.
func scriptedModel(own *agent.Model) *agent.Model {
	m := agent.Model{Name: "gpt-5"}
	if own != nil {
		m.API = own.API
		m.Name = cmp.Or(own.Name, models[own.API], m.Name)
	}
	return &m
}

// maxDetail is how much of a detail the table shows; the report has all of it.
const maxDetail = 160

// WriteTable writes the report for people: each check, and indented below it its facts.
func (r *Report) WriteTable(w io.Writer) error {
	took := time.Duration(r.TookMs) * time.Millisecond
	if _, err := fmt.Fprintf(w, "%s: %s %s, isolation %s, probed in %v\n\n", redact.Line(r.Agent.Entry),
		redact.Line(r.Agent.Name), redact.Line(r.Agent.Version),
		r.Isolation, took.Round(100*time.Millisecond)); err != nil {
		return err
	}
	rows := [][4]string{{"CHECK", "VERDICT", "TIME", "DETAIL"}}
	for _, c := range r.Checks {
		rows = append(rows, [4]string{c.Name, line(c.Verdict), seconds(&c.TookMs), line(c.Detail)})
		for _, f := range c.Facts {
			rows = append(rows, [4]string{"  " + f.Name, line(f.Verdict), seconds(f.TookMs), line(f.Detail)})
		}
	}
	var widest [3]int
	for _, cells := range rows {
		for i := range widest {
			widest[i] = max(widest[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, c := range rows {
		text := fmt.Sprintf("%-*s  %-*s  %*s  %s", widest[0], c[0], widest[1], c[1], widest[2], c[2], c[3])
		if _, err := fmt.Fprintln(w, strings.TrimRight(text, " ")); err != nil {
			return err
		}
	}
	return nil
}

// line returns a text as it is shown on one line, shortened if it is long.
func line(s string) string {
	if s = redact.Line(s); len(s) > maxDetail {
		return strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

func seconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf("%.2f s", float64(*ms)/1000)
}
