package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/outputs"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// cacheOutputs has the run take the outputs of earlier ones, if the options say so.
func (e *EvalSet) cacheOutputs() error {
	o := e.opts
	if !o.Cache && o.WatchSession == "" {
		return nil
	}
	c := &plans.Cache{Session: o.WatchSession}
	if o.Cache {
		c.Session = ""
	}
	var leave []string
	add := addFile(&leave)
	set := e.req.Set
	for _, path := range slices.Concat([]string{set.Path, o.Answers, o.Mocks}, o.Leave) {
		if path != "" {
			add(e.req.WorkDir, path)
		}
	}
	if e.dataset != nil {
		add("", e.dataset.In(e.req.BaseDir))
	}
	if set.Node != nil {
		for _, key := range []string{"evaluators", "evaluatorConfigs", "judges", "notify"} {
			if n := set.Node.Member(key); n != nil {
				namedFiles(n, e.req.BaseDir, add)
			}
		}
	}
	var programs []string
	for _, a := range e.req.Agents {
		_, files := a.Program(e.req.BaseDir)
		programs = append(programs, files...)
	}
	for _, path := range leave {
		if slices.Contains(programs, path) { // an evaluator and an agent are one program
			continue
		}
		rel, err := filepath.Rel(e.req.BaseDir, path)
		if err != nil {
			return err
		}
		c.Leave = append(c.Leave, filepath.ToSlash(rel))
	}
	e.req.Cache = c
	return nil
}

// Uncached names the agents whose outputs are neither kept nor taken although the options say so, each
// with the reason.
func (e *EvalSet) Uncached() (lines []string) {
	c := e.req.Cache
	if c == nil {
		return nil
	}
	for _, a := range e.req.Agents {
		switch {
		case a.Needs().Sandbox:
			lines = append(lines, fmt.Sprintf("the agent %s always runs: it works in a sandbox, and what it does there counts",
				a.Name))
		case a.Content() == agent.ContentUnseen && c.Session == "":
			lines = append(lines, fmt.Sprintf("the agent %s always runs: it is a service, whose changes cannot be seen from here",
				a.Name))
		}
	}
	return lines
}

// Watch looks for changes of what runs are made from. Its methods are called from one goroutine.
type Watch struct {
	tree  outputs.Tree
	paths map[string]bool
	// before holds the sums of the files when they were looked at last.
	before map[string]string
	// during counts, for each file, the runs in a row during which it was changed. Those that agents
	// write themselves are found so.
	during map[string]int
	// restless counts the runs in a row during which any files were changed.
	restless int
	own      map[string]bool
	leave    map[string]bool
	now      func() time.Time
}

// NewWatch watches files and folders, leaving out others.
func NewWatch(paths, leave []string) (*Watch, error) {
	w := &Watch{paths: map[string]bool{}, during: map[string]int{}, own: map[string]bool{}, leave: map[string]bool{},
		now: time.Now}
	for _, path := range leave {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		w.leave[abs] = true
	}
	return w, w.add(paths)
}

func (w *Watch) add(paths []string) error {
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		w.paths[abs] = true
	}
	return nil
}

// Add also watches what a set is made from: its files, those of its agents, and their programs.
func (w *Watch) Add(e *EvalSet) error {
	set, req := e.req.Set, &e.req
	if set == nil {
		return nil // it could not be read
	}
	paths := e.Files()
	add := addFile(&paths)
	prompts := func(n *input.Node, dir string) {
		namedFiles(n, dir, func(dir, name string) { add(dir, strings.TrimPrefix(name, "file:")) })
	}
	if set.Node != nil {
		add(req.WorkDir, set.Path)
		prompts(set.Node, req.BaseDir)
	}
	for _, path := range slices.Concat(e.opts.Agents, []string{e.opts.Answers, e.opts.Mocks, e.opts.Sandbox.MCPConfig}) {
		if !input.IsFile(path) {
			continue
		}
		add(req.WorkDir, path)
		if data, err := input.ReadFile(path, input.MaxFile); err == nil {
			if n, err := input.Parse(path, data); err == nil {
				prompts(n, filepath.Dir(path))
			}
		}
	}
	for _, a := range req.Agents {
		if a.Content() == agent.ContentFolder {
			folder, files := a.Program(req.BaseDir)
			paths = append(append(paths, folder), files...)
		}
	}
	for _, one := range set.Evaluations {
		if one.Task != nil {
			paths = append(paths, filepath.Join(req.BaseDir, filepath.FromSlash(one.Task.Dir)))
		}
		for _, a := range req.Agents {
			sent, _ := a.Sends(one.Inputs, req.BaseDir) // what cannot be sent was said
			for _, name := range sent {
				add(req.BaseDir, name)
			}
		}
	}
	if err := w.add(paths); err != nil {
		return err
	}
	now, err := w.sums()
	for path, sum := range now {
		if _, ok := w.before[path]; !ok {
			w.before[path] = sum
		}
	}
	return err
}

func (w *Watch) sums() (map[string]string, error) {
	return w.tree.Sums(slices.Sorted(maps.Keys(w.paths)), func(path string) bool { return w.leave[path] || w.own[path] })
}

// Begin notes the files with which a run begins.
func (w *Watch) Begin() (err error) {
	w.before, err = w.sums()
	return err
}

// mostOwn is during how many runs in a row a file is changed until it is one that agents write.
const mostOwn = 3

// Ended returns the files that were changed while the run was made, and those of them that agents write
// themselves: they were changed during each of the last three runs, and count no more.
func (w *Watch) Ended() (changed, own []string, err error) {
	changed, err = w.changed()
	if w.restless++; len(changed) == 0 {
		w.restless = 0
	}
	during := map[string]int{}
	for _, path := range changed {
		if during[path] = w.during[path] + 1; during[path] >= mostOwn {
			own = append(own, path)
			w.own[path] = true
			delete(w.before, path)
		}
	}
	w.during = during
	return slices.DeleteFunc(changed, func(path string) bool { return w.own[path] }), own, err
}

// Restless reports whether files were changed during each of the last three runs, such as new ones that
// agents write. If that began another run, there would be no end.
func (w *Watch) Restless() bool { return w.restless >= mostOwn }

// Next waits until files have changed, and until they stay as they are for a moment. It returns their
// paths, or none if the context has ended.
func (w *Watch) Next(ctx context.Context) ([]string, error) {
	var changed []string
	for {
		began := w.now()
		more, err := w.changed()
		if err != nil {
			return nil, err
		}
		if len(more) == 0 && len(changed) > 0 {
			slices.Sort(changed)
			return slices.Compact(changed), nil
		}
		changed = append(changed, more...)
		agent.Pause(ctx, max(lookEvery, 10*w.now().Sub(began)))
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}

// lookEvery is how often a watch looks at the files.
const lookEvery = 250 * time.Millisecond

// changed returns the files that have changed since they were looked at last.
func (w *Watch) changed() (out []string, err error) {
	now, err := w.sums()
	if err != nil {
		return nil, err
	}
	for path, sum := range now {
		if w.before[path] != sum {
			out = append(out, path)
		}
	}
	for path := range w.before {
		if _, ok := now[path]; !ok {
			out = append(out, path)
		}
	}
	w.before = now
	slices.Sort(out)
	return out, nil
}

// NewSession returns the name of a session, for LoadOptions.WatchSession.
func NewSession() string { return store.NewRunID() }

// EndSession removes the outputs that a session has kept.
func (s *Store) EndSession(session string) error {
	return os.RemoveAll(rollout.OutputsOf(s.Dir(), session))
}

// Standings are the states and scores of the rollouts of a run, by what stays the same from run to run.
type Standings map[string]string

// Standings returns how the rollouts of a run stand.
func (s *Store) Standings(ctx context.Context, runID string, v Variables) (Standings, error) {
	out := Standings{}
	err := s.Report(ctx, runID, v, func(r *Report) error {
		clear(out)
		return r.Rollouts(func(one *schemas.Rollout) error {
			label := one.EvaluationName
			if agents := r.Head().Agents; len(agents) > 1 {
				label += " (" + one.Agent + ")"
			}
			if one.Epoch > 1 {
				label += fmt.Sprintf(" epoch %d", one.Epoch)
			}
			state := string(one.Status)
			switch {
			case one.Status != schemas.StateCompleted || one.Score == nil:
			case r.Failed(one):
				state = "failed"
			default:
				state = "passed"
			}
			out[label] = state
			return nil
		})
	})
	return out, err
}

// Since returns what differs from earlier standings, a line each.
func (s Standings) Since(before Standings) (lines []string) {
	for _, label := range slices.Sorted(maps.Keys(s)) {
		if old, ok := before[label]; ok && old != s[label] {
			lines = append(lines, fmt.Sprintf("%s: %s, was %s", label, s[label], old))
		}
	}
	return lines
}

// StopWaiting cancels what a run still waits for, because a newer one has taken its place. It returns
// how many rollouts that were.
func (s *Store) StopWaiting(ctx context.Context, runID string) (int, error) {
	n, err := s.Cancel(ctx, runID, CancelOptions{})
	if errors.As(err, new(*InputError)) {
		return 0, nil // it has ended
	}
	return n, err
}
