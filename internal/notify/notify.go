// Package notify sends notifications of the events of runs: webhooks get a signed CloudEvent,
// commands get it on stdin. Messages wait in the store. Any process that works on the store sends
// them, until the target has accepted them or they are given up.
//
// [ParseTargets] reads the key "notify" of an eval set or a service. A [Sender] sends. The package
// knows targets and messages; its caller decides what a message says of a run.
package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Kind is a kind of messages.
type Kind string

// The kinds.
const (
	Suspended Kind = "suspended" // a rollout waits
	Question  Kind = "question"  // a person is asked a question
	Finished  Kind = "finished"  // a run is final
	Rescored  Kind = "rescored"  // a run was scored again
)

// eventTypes maps a kind of messages to the events that make them.
var eventTypes = map[Kind][]store.EventType{
	Suspended: {store.RolloutSuspended, store.RolloutScoring},
	Question:  {store.RolloutSuspended, store.RolloutScoring, store.QuestionAsked},
	Finished:  {store.RunFinished},
	Rescored:  {store.RunRescored},
}

const (
	defaultTimeout = wait.Duration(10 * time.Second)
	maxTimeout     = wait.Duration(time.Minute)
)

// Target is a webhook or a command. It is stored with a run. URL and Secret may contain ${VAR},
// whose values are not stored.
type Target struct {
	// URL gets messages by POST, signed with Secret.
	URL    string `json:"url,omitempty"`
	Secret string `json:"secret,omitempty"`
	// Command gets each message on stdin. It starts in the folder of the file that names it.
	Command []string `json:"command,omitempty"`
	// Events are the kinds of messages that it gets.
	Events []Kind `json:"events"`
	// Timeout is the most time that one message may take.
	Timeout wait.Duration `json:"timeout"`
}

// Targets are the targets of one file.
type Targets []Target

// ParseTargets reads the value of the key "notify"; n may be nil. Problems are recorded in r
// with their places.
func ParseTargets(r *input.Reader, n *input.Node) (out Targets) {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Array {
		r.Errorf(n, "expected a list of webhooks and commands, got %s", n.Kind)
		return nil
	}
	seen := map[string]bool{}
	for _, item := range n.Items {
		before := len(r.Problems)
		t := parseTarget(r, item)
		if id := t.ID(); seen[id] && len(r.Problems) == before {
			r.Errorf(item, "the same target is there twice")
		} else {
			seen[id] = true
		}
		out = append(out, t)
	}
	return out
}

func parseTarget(r *input.Reader, n *input.Node) (t Target) {
	f := r.Object(n)
	if n.Kind != input.Object {
		return t
	}
	url, command := f.Optional("url", input.String), f.Optional("command", input.Array)
	t.Timeout = wait.Duration(f.Duration("timeout", time.Duration(defaultTimeout)))
	if at := f.Get("timeout"); at != nil && (t.Timeout <= 0 || t.Timeout > maxTimeout) {
		r.Errorf(at, "expected a duration above 0 and up to %s", time.Duration(maxTimeout))
	}
	t.Events = parseEvents(r, f)
	switch {
	case url != nil && command != nil:
		f.Ignore("secret")
		r.Errorf(n, "expected either a url or a command, got both")
	case command != nil:
		if t.Command = f.Strings("command"); len(t.Command) == 0 || t.Command[0] == "" {
			r.Errorf(command, "expected the program and its arguments, got none")
		}
	case url != nil:
		t.URL, t.Secret = url.Text, f.RequiredString("secret")
		if err := template.CheckURL(t.URL, nil); err != nil {
			r.Errorf(url, "%s", err)
		}
		if at := f.Get("secret"); at != nil && t.Secret != "" {
			checkSecret(r, at)
		}
	case !f.Has("url") && !f.Has("command"):
		r.Errorf(n, "expected a url with a secret, or a command")
	}
	f.Done()
	return t
}

func parseEvents(r *input.Reader, f *input.Fields) []Kind {
	all := []Kind{Suspended, Question, Finished, Rescored}
	n := f.Optional("events", input.Array)
	if n == nil {
		return all
	}
	var out []Kind
	for _, item := range n.Items {
		kind := Kind(item.Text)
		switch {
		case item.Kind != input.String || !slices.Contains(all, kind):
			r.Errorf(item, "expected one of suspended, question, finished, rescored, got %s", item.JSON())
		case !slices.Contains(out, kind):
			out = append(out, kind)
		}
	}
	if len(n.Items) == 0 {
		r.Errorf(n, "expected at least one of suspended, question, finished, rescored, got none")
	}
	return out
}

// checkSecret reports problems of a secret that are visible without the values of its
// variables.
func checkSecret(r *input.Reader, n *input.Node) {
	if err := template.Check(n.Text); err != nil {
		r.Errorf(n, "%s", err)
		return
	}
	used := map[string]bool{}
	if template.AddVariables(n.Text, used); len(used) > 0 {
		return
	}
	if _, err := parseSecret(n.Text); err != nil {
		r.Errorf(n, "%s", err)
		return
	}
	r.Warnf(n, "what stands here is stored with every run; write it as a variable such as ${WEBHOOK_SECRET}")
}

// ID names the target in the store. Equal targets have equal ids.
func (t Target) ID() string {
	text, _ := json.Marshal(t) // strings and numbers can always be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Name is the target's name in messages. The path of a URL can be a credential and is left out.
func (t Target) Name() string {
	if t.URL == "" {
		const most = 60
		name := strings.Join(t.Command, " ")
		if len(name) > most {
			name = strings.ToValidUTF8(name[:most], "") + "…"
		}
		return name
	}
	scheme, rest, ok := strings.Cut(t.URL, "://")
	if !ok {
		return t.URL // it begins with a variable
	}
	host, _, _ := strings.Cut(rest, "/")
	if _, after, ok := strings.Cut(host, "@"); ok {
		host = after
	}
	host, _, _ = strings.Cut(host, "?")
	return scheme + "://" + host
}

// ForStore returns the target in the form of the store.
func (t Target) ForStore() store.NotifyTarget {
	out := store.NotifyTarget{ID: t.ID()}
	for _, kind := range t.Events {
		for _, typ := range eventTypes[kind] {
			if !slices.Contains(out.Types, typ) {
				out.Types = append(out.Types, typ)
			}
		}
	}
	return out
}

// Variables returns the names of all ${VAR} in the targets, sorted.
func (ts Targets) Variables() []string {
	names := map[string]bool{}
	for _, t := range ts {
		template.AddVariables(t.URL, names)
		template.AddVariables(t.Secret, names)
	}
	return slices.Sorted(maps.Keys(names))
}

// ForStore returns the targets in the form of the store.
func (ts Targets) ForStore() (out []store.NotifyTarget) {
	for _, t := range ts {
		out = append(out, t.ForStore())
	}
	return out
}

// Find returns the target with an id.
func (ts Targets) Find(id string) (Target, bool) {
	i := slices.IndexFunc(ts, func(t Target) bool { return t.ID() == id })
	if i < 0 {
		return Target{}, false
	}
	return ts[i], true
}

// CheckSecrets reports a secret that is invalid with the current values of its variables.
func (ts Targets) CheckSecrets(resolve template.Resolver) error {
	for _, t := range ts {
		if t.URL == "" {
			continue
		}
		if _, err := template.URL(t.URL, resolve, nil); err != nil {
			return &targetError{t, err}
		}
		if _, err := t.key(resolve); err != nil {
			return &targetError{t, err}
		}
	}
	return nil
}

// targetError names the target of an error.
type targetError struct {
	target Target
	err    error
}

func (e *targetError) Error() string { return "notify " + e.target.Name() + ": " + e.err.Error() }

func (e *targetError) Unwrap() error { return e.err }
