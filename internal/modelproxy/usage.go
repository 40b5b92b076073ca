package modelproxy

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// maxCalls is how many calls a session keeps one by one. All are counted.
const maxCalls = 10_000

// Tokens counts the tokens that calls have used according to the provider, in the same way for all
// providers.
type Tokens struct {
	// InputTokens are all tokens of the input, those read from and written to a cache included.
	InputTokens       int64 `json:"inputTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
	CacheWriteTokens  int64 `json:"cacheWriteTokens"`
	// OutputTokens are all tokens of the output, those of its reasoning included.
	OutputTokens    int64 `json:"outputTokens"`
	ReasoningTokens int64 `json:"reasoningTokens"`
}

func (t *Tokens) add(more Tokens) {
	t.InputTokens += more.InputTokens
	t.CachedInputTokens += more.CachedInputTokens
	t.CacheWriteTokens += more.CacheWriteTokens
	t.OutputTokens += more.OutputTokens
	t.ReasoningTokens += more.ReasoningTokens
}

// Usage is the usage of a session so far, in calls that have ended.
//
// The calls of the agent's own loop are counted apart from those that agents make beside it:
// titles, classifiers, suggestions, memory. A call is main if it began in a turn and offers the
// model tools; where no call in a turn offers any, all that began in a turn are main. So an agent
// without tools has main calls too, and which calls are side is certain only at the end. A call
// whose request cannot be read is taken to offer tools.
//
// Title calls (opencode, claude, codex) and gemini's router offer no tools; what qwen and claude do
// after a turn is outside it. Tested with opencode 1.18.33, claude-agent-acp 0.100.0 and gemini-cli
// 0.61.0. A summary of a long history that is made without tools is counted as side.
type Usage struct {
	Main Tally `json:"main"`
	Side Tally `json:"side"`
}

// Tally counts calls.
type Tally struct {
	Calls int `json:"calls"`
	// Aborted counts the calls that the agent gave up before they were answered.
	Aborted int `json:"aborted"`
	// Unmetered counts the calls whose answers did not say what they used. Their tokens are missing
	// below.
	Unmetered int `json:"unmetered"`
	// Errors counts failed calls by HTTP status, or by ErrorUnreachable or ErrorStream.
	Errors map[string]int `json:"errors"`
	Tokens
	// LatencyMs is the time from request to end of all calls together. FirstByteMs is the time from
	// request to the first byte of the answer.
	LatencyMs   int64 `json:"latencyMs"`
	FirstByteMs int64 `json:"firstByteMs"`
	// Models counts calls by the model that was asked for.
	Models map[string]int `json:"models"`
}

// The keys of Tally.Errors that are not an HTTP status.
const (
	// ErrorUnreachable is for calls that got no answer.
	ErrorUnreachable = "unreachable"
	// ErrorStream is for answers that broke off, or in which the provider reported an error after a
	// status of 200.
	ErrorStream = "stream"
)

func (t *Tally) add(c Call) {
	t.Calls++
	t.LatencyMs += c.LatencyMs
	t.FirstByteMs += c.FirstByteMs
	t.Tokens.add(c.Tokens)
	if c.Model != "" {
		t.Models[c.Model]++
	}
	switch {
	case c.Aborted:
		t.Aborted++
	case c.Error != "":
		t.Errors[c.errorKey()]++
	case c.Unmetered:
		t.Unmetered++
	}
}

func (t *Tally) merge(other Tally) {
	t.Calls += other.Calls
	t.Aborted += other.Aborted
	t.Unmetered += other.Unmetered
	t.Tokens.add(other.Tokens)
	t.LatencyMs += other.LatencyMs
	t.FirstByteMs += other.FirstByteMs
	for key, n := range other.Errors {
		t.Errors[key] += n
	}
	for model, n := range other.Models {
		t.Models[model] += n
	}
}

func newTally() Tally { return Tally{Errors: map[string]int{}, Models: map[string]int{}} }

// Call is one call of a model, for a log. It holds no secret and nothing of the conversation,
// except for the text of an error.
type Call struct {
	Time time.Time `json:"time"`
	// API is the wire format: openai-chat, openai-responses, anthropic-messages or gemini.
	API   string `json:"api"`
	Model string `json:"model"`
	Path  string `json:"path"`
	// Status is the status of the provider's answer; 0 if there was none.
	Status      int   `json:"status"`
	LatencyMs   int64 `json:"latencyMs"`
	FirstByteMs int64 `json:"firstByteMs"`
	Tokens
	// Tools says whether the call offers tools to the model. Turn says whether it began in a turn.
	// Side follows from these, see Usage.
	Tools     bool `json:"tools"`
	Turn      bool `json:"turn"`
	Side      bool `json:"side"`
	Aborted   bool `json:"aborted"`
	Unmetered bool `json:"unmetered"`
	// Error says how the call failed, in at most 2 KiB.
	Error string `json:"error,omitempty"`
}

func (c Call) errorKey() string {
	switch {
	case c.Status == 0:
		return ErrorUnreachable
	case c.Status < 300:
		return ErrorStream
	}
	return strconv.Itoa(c.Status)
}

// Failure is a model that failed.
type Failure struct {
	Model string
	// Status is the status of the last call: 0 if there was no answer, 200 if the answer broke off
	// or reported an error.
	Status  int
	Message string
}

// Error implements error.
func (f *Failure) Error() string {
	text := "the model failed"
	if f.Model != "" {
		text = fmt.Sprintf("the model %s failed", f.Model)
	}
	if f.Status >= 300 {
		text += fmt.Sprintf(" with HTTP status %d", f.Status)
	}
	return text + ": " + f.Message
}

// class is what is known about a call when it begins. Which class is main is known only at the end:
// see Usage.
type class int

const (
	withTools class = iota
	withoutTools
	outsideTurns
	classes
)

func (c Call) class() class {
	switch {
	case !c.Turn:
		return outsideTurns
	case !c.Tools:
		return withoutTools
	}
	return withTools
}

// ledger counts the calls of a session.
type ledger struct {
	tallies [classes]Tally
	// failures has the error of the last call of each class that was not given up; nil if it
	// succeeded.
	failures [classes]*Failure
	// calls holds the last calls. next is the place of the oldest when there are maxCalls.
	calls []Call
	next  int
}

func (l *ledger) add(c Call) {
	k := c.class()
	if l.tallies[k].Calls == 0 {
		l.tallies[k] = newTally()
	}
	l.tallies[k].add(c)
	switch {
	case c.Aborted: // an aborted call says nothing about the model
	case c.Error != "":
		l.failures[k] = &Failure{Model: c.Model, Status: c.Status, Message: c.Error}
	default:
		l.failures[k] = nil
	}
	if len(l.calls) < maxCalls {
		l.calls = append(l.calls, c)
		return
	}
	l.calls[l.next] = c
	l.next = (l.next + 1) % maxCalls
}

func (l *ledger) main() class {
	if l.tallies[withTools].Calls == 0 {
		return withoutTools
	}
	return withTools
}

// Usage returns the usage of the calls that have ended.
func (s *Session) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Main: newTally(), Side: newTally()}
	for k, tally := range s.ledger.tallies {
		if class(k) == s.ledger.main() {
			u.Main.merge(tally)
		} else {
			u.Side.merge(tally)
		}
	}
	return u
}

// Calls returns the last 10,000 calls that have ended, in the order of their ends.
func (s *Session) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Concat(s.ledger.calls[s.ledger.next:], s.ledger.calls[:s.ledger.next])
	for i := range out {
		out[i].Side = out[i].class() != s.ledger.main()
	}
	return out
}

// Failure returns a *[Failure] if the last main call that the agent did not give up has failed:
// with a status of 400 or more, without an answer, by breaking off, or with an error in the stream.
// Otherwise it returns nil: a call that succeeds makes good those before it.
func (s *Session) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.ledger.failures[s.ledger.main()]; f != nil {
		clone := *f
		return &clone
	}
	return nil
}

// Plus returns the sum of two usages and changes neither.
func (u Usage) Plus(more Usage) Usage {
	sum := Usage{Main: newTally(), Side: newTally()}
	for _, one := range []Usage{u, more} {
		sum.Main.merge(one.Main)
		sum.Side.merge(one.Side)
	}
	return sum
}
