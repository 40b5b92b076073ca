package rollout

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/outputs"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
)

// FolderOutputs is the folder of a store with the outputs that later runs may take.
const FolderOutputs = "output-cache"

// takenOutputs are the outputs of earlier runs that a run may take.
type takenOutputs struct {
	cache   *outputs.Cache
	plan    plans.Cache
	dir     string
	leave   map[string]bool
	resolve func(string) (string, bool)
	tree    outputs.Tree

	mu sync.Mutex
	// programs are the sums of the agents' programs when the first rollout asked for them. A worker may
	// have been started from those.
	programs map[string]string
	// warned are the agents of which has been said that their programs change.
	warned map[string]bool
}

// newTakenOutputs returns nil if the run takes none.
func newTakenOutputs(plan plans.Plan, dir, storeDir string, o agent.Options) *takenOutputs {
	if plan.Cache == nil {
		return nil
	}
	t := &takenOutputs{cache: outputs.New(OutputsOf(storeDir, plan.Cache.Session)), plan: *plan.Cache, dir: dir,
		leave: map[string]bool{storeDir: true}, resolve: o.Resolve, programs: map[string]string{},
		warned: map[string]bool{}}
	if t.resolve == nil {
		t.resolve = os.LookupEnv
	}
	for _, path := range plan.Cache.Leave {
		t.leave[filepath.Join(dir, filepath.FromSlash(path))] = true
	}
	return t
}

// OutputsOf returns the folder in which a store keeps the outputs of a session, or of all runs if it is
// empty.
func OutputsOf(storeDir, session string) string {
	if session != "" {
		return filepath.Join(storeDir, FolderOutputs, "session-"+session)
	}
	return filepath.Join(storeDir, FolderOutputs)
}

// program returns the sum of an agent's program as it is now.
func (t *takenOutputs) program(e agent.Entry) (string, error) {
	if e.Content() != agent.ContentFolder {
		return "", nil
	}
	folder, files := e.Program(t.dir)
	sums, err := t.tree.Sums(append(files, folder), func(path string) bool { return t.leave[path] })
	if err != nil {
		return "", err
	}
	named := map[string]string{}
	for path, sum := range sums { // so that a checkout may be anywhere
		name, _ := strings.CutPrefix(path, folder+string(filepath.Separator))
		named[filepath.ToSlash(name)] = sum
	}
	return outputs.Digest(named), nil
}

// question returns the question that a rollout asks; nil if its output is neither kept nor taken.
func (t *takenOutputs) question(h *held) (*outputs.Question, error) {
	if t == nil || h.claim.Segment != 1 || h.evaluation.Task != nil || h.entry.Needs().Sandbox ||
		h.entry.Content() == agent.ContentUnseen && t.plan.Session == "" {
		return nil, nil
	}
	program, err := t.programOnce(h.entry)
	if err != nil {
		return nil, err
	}
	entry, err := json.Marshal(h.entry)
	if err != nil {
		return nil, err
	}
	q := &outputs.Question{Session: t.plan.Session, Evaluation: h.evaluation.ID, Epoch: h.claim.Epoch,
		Input: h.evaluation.Inputs, Agent: entry, Program: program}
	if q.Files, err = t.sent(h.entry, h.evaluation.Inputs); err != nil {
		return nil, err
	}
	if f := h.run.Plan.Mocks.OfFunctions(h.evaluation.ID); f != nil {
		q.Functions = f.Strategy
	}
	for _, name := range h.entry.Variables() {
		if q.Variables == nil {
			q.Variables = map[string]string{}
		}
		q.Variables[name], _ = t.resolve(name)
	}
	return q, nil
}

// sent returns the sum of the files that an agent sends with an input; empty if it sends none.
func (t *takenOutputs) sent(e agent.Entry, inputs json.RawMessage) (string, error) {
	names, err := e.Sends(inputs, t.dir)
	if err != nil || len(names) == 0 {
		return "", err
	}
	for i, name := range names {
		names[i] = filepath.Join(t.dir, filepath.FromSlash(name))
	}
	sums, err := t.tree.Sums(names, func(string) bool { return false })
	if err != nil {
		return "", err
	}
	named := map[string]string{}
	for path, sum := range sums {
		named[strings.TrimPrefix(path, t.dir+string(filepath.Separator))] = sum
	}
	return outputs.Digest(named), nil
}

func (t *takenOutputs) programOnce(e agent.Entry) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sum, ok := t.programs[e.Name]; ok {
		return sum, nil
	}
	sum, err := t.program(e)
	if err == nil {
		t.programs[e.Name] = sum
	}
	return sum, err
}

// tellOnce reports whether something is told of an agent for the first time.
func (t *takenOutputs) tellOnce(agent string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	warned := t.warned[agent]
	t.warned[agent] = true
	return !warned
}

// takeOutput returns the outcome of an earlier rollout that was asked the same; nil if the agent has to
// be run.
func (r *Rollout) takeOutput() (*agent.Outcome, error) {
	t := r.held.run.outputs
	q, err := t.question(r.held)
	if err != nil {
		r.held.host.Logger.Warn("outputs are not kept", "agent", r.held.entry.Name, "error", err)
		return nil, nil
	}
	if q == nil {
		return nil, nil
	}
	dir := r.held.segmentDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	e, err := t.cache.Get(*q, dir)
	if err != nil || e == nil {
		r.question = q
		return nil, err
	}
	info := &record.Info{}
	if e.Info != nil && json.Unmarshal(e.Info, info) != nil {
		r.question = q // it is of another version of the program
		return nil, nil
	}
	info.Cached = &record.Cached{RunID: e.RunID, RolloutID: e.RolloutID, Time: e.Time, WorkingMs: e.WorkingMs}
	out := &agent.Outcome{Output: e.Output, Info: info}
	for _, f := range e.Files {
		out.Files = append(out.Files, f.Name)
	}
	return out, nil
}

// keepOutput keeps the output of a rollout for later runs, if it has ended with one and left nothing
// else, and if its program is still the one with which the run began.
func (r *Rollout) keepOutput(end store.SegmentEnd) {
	t, q := r.held.run.outputs, r.question
	if q == nil || end.Outcome != store.OutcomeCompleted {
		return
	}
	if left, err := os.ReadDir(r.held.workspace()); err == nil && len(left) > 0 {
		return // evaluators may look at what is in the workspace
	}
	now, err := t.program(r.held.entry)
	files, errFiles := t.sent(r.held.entry, r.held.evaluation.Inputs)
	err = errors.Join(err, errFiles)
	if err == nil && now == q.Program && files == q.Files {
		e := outputs.Entry{RunID: r.held.claim.RunID, RolloutID: r.held.claim.RolloutID, Time: time.Now().UTC(),
			WorkingMs: time.Since(r.started).Milliseconds(), Output: end.Output, Info: end.Info}
		for _, f := range end.Files {
			e.Files = append(e.Files, outputs.File{Name: f.Name, SHA256: f.SHA256})
		}
		err = t.cache.Put(*q, e, r.held.segmentDir())
	}
	if err == nil && (now != q.Program || files != q.Files) && t.tellOnce(r.held.entry.Name) {
		r.held.host.Logger.Warn("outputs are not kept: files of the agent's program, or that it sends, were changed while it ran",
			"agent", r.held.entry.Name)
	}
	if err != nil {
		r.held.host.Logger.Warn("the output is not kept", "rollout", r.held.claim.RolloutID, "error", err)
	}
}
