package runner

import (
	"context"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// Limit bounds how many may run at once, over all processes of a store.
type Limit struct {
	// Scope is what it counts: all for the agents that run, agent:NAME for those of one name,
	// source:NAME for the jobs of a source that were started and have not ended.
	Scope string `json:"scope"`
	// Most is how many may run; below 0 there is no limit. Used is how many do, and Waiting how many
	// could if there were none.
	Most    int `json:"most"`
	Used    int `json:"used"`
	Waiting int `json:"waiting"`
}

// NoLimit is what [ParseLimit] reads for a limit that is removed.
const NoLimit = "none"

// ParseLimit reads a limit as the command line names it: all=20, agent:claude=4, source:http=none.
func ParseLimit(text string) (Limit, error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return Limit{}, inputError("%q: expected SCOPE=N, such as agent:claude=4", text)
	}
	l := Limit{Scope: text[:at]}
	if _, err := l.parts(); err != nil {
		return l, err
	}
	if text[at+1:] == NoLimit {
		l.Most = -1
		return l, nil
	}
	n, err := strconv.ParseUint(text[at+1:], 10, 31)
	if err != nil {
		return l, inputError("%q: expected a number from 0, or %s, after the =", text, NoLimit)
	}
	l.Most = int(n)
	return l, nil
}

// parts is the limit as the store has it.
func (l Limit) parts() (store.Limit, error) {
	kind, name, named := strings.Cut(l.Scope, ":")
	out := store.Limit{Kind: store.LimitKind(kind), Name: name, Most: l.Most}
	if out.Kind == store.LimitAll && !named || named && name != "" && (out.Kind == store.LimitAgent || out.Kind == store.LimitSource) {
		return out, nil
	}
	return out, inputError("%q: expected all, agent:NAME or source:NAME", l.Scope)
}

// Limits returns the limits of the store.
func (s *Store) Limits(ctx context.Context) ([]Limit, error) {
	all, err := s.st.Limits(ctx)
	out := []Limit{}
	for _, l := range all {
		scope := string(l.Kind)
		if l.Name != "" {
			scope += ":" + l.Name
		}
		out = append(out, Limit{Scope: scope, Most: l.Most, Used: l.Used, Waiting: l.Waiting})
	}
	return out, err
}

// SetLimits sets limits, all or none of them. What runs goes on, also if it is more than that.
func (s *Store) SetLimits(ctx context.Context, limits ...Limit) error {
	var all []store.Limit
	for _, l := range limits {
		one, err := l.parts()
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	return s.st.SetLimits(ctx, all...)
}

// Queue is what is to be worked on by those who have some tags.
type Queue struct {
	Tags []string `json:"tags"`
	// Ready rollouts can be worked on now, Limited ones if a limit had room, and Held ones are worked
	// on.
	Ready   int `json:"ready"`
	Limited int `json:"limited"`
	Held    int `json:"held"`
}

// Worker is a process that looks after all runs.
type Worker struct {
	Name    string   `json:"name"`
	Tags    []string `json:"tags"`
	Version string   `json:"version"`
	// Lacks says why it could not go on with rollouts.
	Lacks []string `json:"lacks"`
}

// Workforce is what is to be worked on, and by whom.
type Workforce struct {
	Queues  []Queue  `json:"queues"`
	Workers []Worker `json:"workers"`
	// Unmet are the sets of tags that rollouts which wait need and no worker has.
	Unmet [][]string `json:"unmet"`
}

// Workforce says what is to be worked on, by which tags, and which processes look after all runs.
func (s *Store) Workforce(ctx context.Context) (out Workforce, err error) {
	queues, err := s.st.Queues(ctx)
	if err != nil {
		return out, err
	}
	workers, err := s.st.Workers(ctx)
	out.Unmet = store.Unmet(queues, workers)
	for _, q := range queues {
		out.Queues = append(out.Queues, Queue{q.Tags, q.Ready, q.Limited, q.Held})
	}
	for _, w := range workers {
		out.Workers = append(out.Workers, Worker{w.Name, w.Tags, w.Version, w.Lacks})
	}
	return out, err
}
