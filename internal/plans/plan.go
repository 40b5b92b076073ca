// Package plans makes, reads and compares the plan of a run. A plan keeps the eval set, the agents
// and the options of the command line as they were when the run was started, so that the run can be
// resumed from it. The package decides which rollouts there are; it runs nothing.
package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/setfiles"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
	"github.com/evalrun/evalrun/tasks"
)

// Version grows when plans get a field that an earlier version of the program must not ignore.
const Version = 4

// The versions of plans that earlier programs can run. In those of version 1 nobody is played.
// Those of version 2 play people and jobs, which an earlier program would take for sources that it
// lacks, those of version 3 tools, which it would call, and those of version 4 functions of agents.
const (
	versionUnplayed = 1
	versionUnmocked = 2
	versionTools    = 3
)

// ErrLater means that a later version of the program has made the plan of a run.
var ErrLater = errors.New("a later version of evalrun has planned it")

// Plan holds everything that a run was started with. It is stored with the run, which is resumed
// from it, so that an eval set may be edited while its runs wait.
type Plan struct {
	// Version is the [Version] of the program that made the plan; 0 if that was before there were
	// versions.
	Version int `json:"planVersion"`
	// Set is the eval set without its evaluations, which the store keeps one by one.
	Set    eval.Set      `json:"set"`
	Agents []agent.Entry `json:"agents"`
	Jobs   wait.Jobs     `json:"jobs,omitempty"`
	// Answers are those of the people who are played; nil if none are.
	Answers *wait.PlayedAnswers `json:"answers,omitempty"`
	// Mocks are those of tools and functions; nil if none are played.
	Mocks *mock.Mocks `json:"mocks,omitempty"`
	// Cache keeps the outputs of agents for later runs, and takes them from earlier ones; nil does not.
	Cache *Cache `json:"cache,omitempty"`
	// Notify are the targets that are told of the run's events.
	Notify notify.Targets `json:"notify,omitempty"`
	// Judges are the models that evaluators ask; nil if they ask none.
	Judges *judge.Config `json:"judges,omitempty"`
	// BaseDir is the eval set's folder relative to the store's, WorkDir the same relative to the
	// folder in which the run was started: if the store has been moved away from the eval set, a
	// resume looks there from its own folder. Slash-separated.
	BaseDir string `json:"baseDir"`
	WorkDir string `json:"workDir"`
	// Folder are files of the eval set's folder, for machines that do not have it; nil if the store
	// takes none. It does not count when plans are compared.
	Folder *setfiles.Kept `json:"folder,omitempty"`
	// Env names the variables that were passed with --env and --env-file.
	Env []string `json:"env,omitempty"`
	// KeepWorkspaces keeps the files of the agents' homes and workspaces when the run is final.
	KeepWorkspaces bool `json:"keepWorkspaces,omitempty"`
	// FailFast cancels the rest of the run when a rollout has faulted, or has no score that passes.
	FailFast bool `json:"failFast,omitempty"`
	// Deadline is when the caller of the run gives up, zero if never. The jobs that its rollouts
	// start are given it.
	Deadline time.Time `json:"deadline,omitzero"`
	Environment
	// Origin says where the plan comes from. Digest covers the parts on which the results depend.
	Origin Origin `json:"origin,omitzero"`
	Digest string `json:"digest,omitempty"`
}

// Origin says where a plan comes from.
type Origin struct {
	// GitCommit is the commit that was checked out in the eval set's folder. Version is the version
	// of the evalrun that made the plan.
	GitCommit string `json:"gitCommit,omitempty"`
	// GitDirty says whether files in that folder then differed from the commit, nil if that is not
	// known. Files that git does not know do not count.
	GitDirty *bool  `json:"gitDirty,omitempty"`
	Version  string `json:"version,omitempty"`
	// EvalIDs and Filter are the selections by which the eval set was narrowed.
	EvalIDs []string `json:"evalIds,omitempty"`
	Filter  string   `json:"filter,omitempty"`
	// Selection says how much of the eval set that is; nil if nothing was to be left out and
	// nothing was.
	Selection *schemas.Selection `json:"selection,omitempty"`
	// CommandLine has the arguments with which the run was started, without those that choose
	// agents, evaluations and outputs. AgentOptions has the values of --agent. Both are empty if it
	// was not started from a command line.
	CommandLine  []string `json:"commandLine,omitempty"`
	AgentOptions []string `json:"agentOptions,omitempty"`
	// Request is the digest of the request by which a service was asked for the run.
	Request string `json:"request,omitempty"`
}

// Cache says which outputs of agents a run takes from earlier runs of its store.
type Cache struct {
	// Session is the session of a command whose runs take each other's outputs; empty for all runs with
	// a cache. A session takes the outputs of services, too.
	Session string `json:"session,omitempty"`
	// Leave are files that are no part of an agent's program although they are in its folder, such as
	// the eval set. They are relative to the eval set's folder and slash-separated.
	Leave []string `json:"leave,omitempty"`
}

// MCPDirect as [Environment].MCP sends MCP servers to agents as they are declared; otherwise they
// are behind the gateway.
const MCPDirect = "direct"

// Environment describes the sandboxes of the agents that need one.
type Environment struct {
	// Isolation is one of the values of package sandbox.
	Isolation string `json:"isolation,omitempty"`
	// IsolationReason says why it is that, if nobody has chosen it and it is not the usual one.
	IsolationReason string `json:"isolationReason,omitempty"`
	// KeepImages says that the images of the run are needed for as long as the run is in the store.
	KeepImages bool `json:"keepImages,omitempty"`
	// MCP is MCPDirect for agents that get their MCP servers as they are declared; otherwise these
	// are behind the gateway.
	MCP string `json:"mcp,omitempty"`
	// MCPServers are the servers of --mcp-config, beside the tasks' own.
	MCPServers []tasks.MCPServer `json:"mcpServers,omitempty"`
	// Overrides change the limits of tasks.
	Overrides tasks.Overrides `json:"overrides,omitzero"`
	// Hidden are paths that no agent may see, even where they lie beside its program: all tasks of
	// the run, the eval set and its evaluators. They are relative to the eval set's folder and
	// slash-separated.
	Hidden []string `json:"hidden,omitempty"`
}

// JobDeadline returns the time until which a job of a rollout may take: the deadline of the trigger
// that waits for it, but not later than that of the run. Either is zero if there is none.
func (p Plan) JobDeadline(waits time.Time) time.Time {
	if waits.IsZero() || !p.Deadline.IsZero() && p.Deadline.Before(waits) {
		return p.Deadline
	}
	return waits
}

// lateEnd is how long after the deadline of its run a rollout still waits, so that the caller of
// the run may end it as they like.
const lateEnd = 10 * time.Second

// SuspendTimeout returns how long a suspension may last that begins now; 0 means no limit.
func (p Plan) SuspendTimeout(now time.Time) time.Duration {
	return p.waitsFor(p.Set.Limits.SuspendTimeout, now)
}

// ScoreTimeout returns how long an evaluator may wait that begins to wait now; 0 means no limit.
func (p Plan) ScoreTimeout(now time.Time) time.Duration {
	return p.waitsFor(p.Set.Limits.ScoreTimeout, now)
}

func (p Plan) waitsFor(limit time.Duration, now time.Time) time.Duration {
	if p.Deadline.IsZero() {
		return limit
	}
	left := max(p.Deadline.Add(lateEnd).Sub(now), time.Millisecond)
	if limit > 0 && limit < left {
		return limit
	}
	return left
}

// Lookup returns the values of the variables that a task may name: those that were passed to the
// run, and no others.
func (p Plan) Lookup(resolve func(string) (string, bool)) tasks.Lookup {
	return func(name string) (string, bool) {
		if !slices.Contains(p.Env, name) {
			return "", false
		}
		return resolve(name)
	}
}

// Request holds everything from which a plan is made.
type Request struct {
	// RunID is the id of the run; empty makes a new one.
	RunID   string
	RetryOf string
	Set     *eval.Set
	Agents  []agent.Entry
	Jobs    wait.Jobs
	Answers *wait.PlayedAnswers
	Mocks   *mock.Mocks
	Cache   *Cache
	Notify  notify.Targets
	Judges  *judge.Config
	// BaseDir is the eval set's folder. WorkDir is the folder in which the command runs.
	BaseDir string
	WorkDir string
	Env     []string
	// KeepWorkspaces, FailFast and Deadline go into the plan.
	KeepWorkspaces bool
	FailFast       bool
	Deadline       time.Time
	Environment
	Origin Origin
	// Only, if not nil, says which rollouts are planned; otherwise all are.
	Only func(evaluationID, agent string, epoch int) bool
}

// New makes the plan of a run for the store in storeDir: one rollout for each evaluation, agent and
// epoch.
func New(req Request, storeDir string) (store.Plan, error) {
	set := *req.Set
	evaluations := set.Evaluations
	set.Evaluations = nil
	plan := Plan{Version: Version, KeepWorkspaces: req.KeepWorkspaces, FailFast: req.FailFast, Deadline: req.Deadline,
		Set: set, Agents: req.Agents, Jobs: req.Jobs, Answers: req.Answers, Mocks: req.Mocks, Cache: req.Cache, Notify: req.Notify,
		Judges: req.Judges, Env: req.Env, Environment: req.Environment, Origin: req.Origin}
	switch {
	case req.Mocks != nil && req.Mocks.Functions != nil:
	case req.Mocks != nil:
		plan.Version = versionTools
	case req.Answers != nil || req.Jobs.Played():
		plan.Version = versionUnmocked
	default:
		plan.Version = versionUnplayed
	}
	var err error
	if plan.BaseDir, err = relative(storeDir, req.BaseDir); err != nil {
		return store.Plan{}, err
	}
	if plan.WorkDir, err = relative(req.WorkDir, req.BaseDir); err != nil {
		return store.Plan{}, err
	}
	out := store.Plan{RunID: req.RunID, Name: set.Name, EvaluationSetID: set.ID, EvaluationSetName: set.Name,
		RetryOf: req.RetryOf, Notify: req.Notify.ForStore()}
	if out.RunID == "" {
		out.RunID = store.NewRunID()
	}
	for i, e := range evaluations {
		data, err := jsonobj.Marshal(e)
		if err != nil {
			return store.Plan{}, fmt.Errorf("evaluation %q: %w", e.ID, err)
		}
		out.Evaluations = append(out.Evaluations, store.Evaluation{ID: e.ID, Data: data})
		for _, a := range req.Agents {
			for epoch := 1; epoch <= set.Epochs; epoch++ {
				if req.Only != nil && !req.Only(e.ID, a.Name, epoch) {
					continue
				}
				r := plannedRollout(out.RunID, i, e, a, epoch)
				if r.Fault == nil && req.Mocks.OfFunctions(e.ID) != nil && !a.Needs().Mockable {
					r.Fault = fault.Newf(fault.NotRunnable,
						"mockingStrategy: only functions in Python can be played, and the agent %s has the type %s", a.Name, a.Type)
				}
				out.Rollouts = append(out.Rollouts, r)
			}
		}
	}
	if out.Data, err = jsonobj.Marshal(plan); err != nil {
		return store.Plan{}, err
	}
	parts, err := partsOf(out, out.Evaluations)
	if err != nil {
		return store.Plan{}, err
	}
	if plan.Digest, err = parts.digest(); err != nil {
		return store.Plan{}, err
	}
	out.Data, err = jsonobj.Marshal(plan)
	return out, err
}

func plannedRollout(runID string, i int, e eval.Evaluation, a agent.Entry, epoch int) store.PlannedRollout {
	r := store.PlannedRollout{
		ID: store.RolloutID(runID, e.ID, a.Name, epoch), Evaluation: i, EvaluationName: e.Name, Agent: a.Name, Epoch: epoch,
		All: a.ResumeWhen == agent.ResumeAll, AcceptsFaults: a.AcceptsFaults,
		Tags: slices.Concat(a.WorkerTags, e.WorkerTags),
	}
	why := e.NotRunnable
	switch {
	case why != "":
	case e.Task == nil && a.Needs().Task:
		why = "the agent " + a.Type + " is only for tasks"
	case e.Task != nil && !a.Needs().Sandbox && a.Type == modelagent.Name:
		why = `the model has no tools with which it could work in the environment of a task; "tools": ["bash"] gives it one`
	case e.Task != nil && !a.Needs().Sandbox:
		why = "a " + a.Type + " agent runs as its owner's program, not in the environment of a task"
	}
	if why != "" {
		r.Fault = fault.New(fault.NotRunnable, why)
	}
	return r
}

// Read returns the plan of a stored run.
func Read(p store.Plan) (Plan, error) {
	var plan Plan
	var made struct {
		Version int `json:"planVersion"`
	}
	if json.Unmarshal(p.Data, &made) == nil && made.Version > Version {
		return plan, fmt.Errorf("run %s: %w (plan version %d, this one knows %d); go on with it there, or update evalrun",
			p.RunID, ErrLater, made.Version, Version)
	}
	if err := json.Unmarshal(p.Data, &plan); err != nil {
		return plan, fmt.Errorf("the plan of run %s is damaged: %w", p.RunID, err)
	}
	return plan, nil
}

// FindBaseDir finds the eval set's folder again. It tries the folder's place relative to the store
// and then, since the store may have been moved, its place relative to workDir. A folder that lacks
// what the run needs is another one. Otherwise it returns the folder that the store is in, and found
// is false.
func (p Plan) FindBaseDir(storeDir, workDir string) (dir string, found bool) {
	for _, dir := range []string{
		filepath.Join(storeDir, filepath.FromSlash(p.BaseDir)),
		filepath.Join(workDir, filepath.FromSlash(p.WorkDir)),
	} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && (p.Folder == nil || p.Folder.IsIn(dir)) {
			return dir, true
		}
	}
	return filepath.Join(storeDir, ".."), false
}

// Place is where the files of runs are, and what the plan keeps of an eval set's folder.
type Place interface {
	store.Place
	store.Blocks
}

// OpenBaseDir is FindBaseDir of a run. If the folder is not on this machine, it is made of what the
// plan keeps of it.
func (p Plan) OpenBaseDir(ctx context.Context, st Place, runID, workDir string) (dir string, found bool, err error) {
	dir, found = p.FindBaseDir(st.Dir(), workDir)
	if found || p.Folder == nil {
		return dir, found, nil
	}
	dir = files.Of(st).Run(runID).Set()
	return dir, true, p.Folder.Get(ctx, st, dir)
}

// KeepFolder adds what is kept of the eval set's folder to a plan that New has made.
func KeepFolder(p *store.Plan, k *setfiles.Kept, blocks []string) error {
	plan, err := Read(*p)
	if err != nil {
		return err
	}
	plan.Folder, p.Blocks = k, blocks
	p.Data, err = jsonobj.Marshal(plan)
	return err
}

// StartDir returns the folder in which the run was started. It is empty if this is not known,
// because the store may have been moved.
func (p Plan) StartDir(storeDir string) string {
	base := filepath.Join(storeDir, filepath.FromSlash(p.BaseDir))
	work := filepath.FromSlash(p.WorkDir)
	above := base // the folder above all parts of work
	if work != "." {
		for range strings.Split(work, string(filepath.Separator)) {
			above = filepath.Dir(above)
		}
	}
	for _, dir := range []string{above, filepath.Dir(storeDir)} {
		if rel, err := filepath.Rel(dir, base); err == nil && rel == work {
			return dir
		}
	}
	return ""
}

// Variables returns the names of the environment variables that the run needs, sorted.
func (p Plan) Variables() []string {
	names := slices.Concat(p.Jobs.Variables(), p.Notify.Variables(), p.Env)
	for _, a := range p.Agents {
		names = append(names, a.Variables()...)
	}
	if p.Judges != nil {
		names = append(names, p.Judges.Variables()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Marked reports whether segments of the run may have outputs of earlier runs, or users who are played.
func (p *Plan) Marked() bool {
	return p.Cache != nil || slices.ContainsFunc(p.Agents, modelagent.HasUser)
}

func relative(base, target string) (string, error) {
	rel, err := filepath.Rel(base, target)
	return filepath.ToSlash(rel), err
}

// ModelOf returns the name of an agent's model; empty if evalrun does not know it.
func ModelOf(e agent.Entry) string {
	if e.Model == nil {
		return ""
	}
	return e.Model.Name
}

// Redactor returns the redactor of everything that is written about the run. It removes the secrets
// of the process, the values of the ${VAR}s of the plan, and the variables that were passed when
// the run was started. It is nil if there are none.
func (p Plan) Redactor(secrets map[string]string, resolve func(string) (string, bool)) *redact.Redactor {
	all := maps.Clone(secrets)
	if all == nil {
		all = map[string]string{}
	}
	names := slices.Concat(p.Jobs.Variables(), p.Notify.Variables(), p.Env)
	for _, a := range p.Agents {
		for _, name := range a.Variables() {
			// The address of a model is no secret unless there is more in it. Errors need it.
			if value, _ := resolve(name); !slices.Contains(a.BaseURLs(), name) || strings.ContainsAny(value, "@?") {
				names = append(names, name)
			}
		}
		if a.Model != nil && a.Model.Key != "" && !strings.Contains(a.Model.Key, "${") {
			all["MODEL_KEY"] = a.Model.Key
		}
	}
	if p.Judges != nil {
		urls := p.Judges.BaseURLs()
		for _, name := range p.Judges.Variables() {
			if value, _ := resolve(name); !slices.Contains(urls, name) || strings.ContainsAny(value, "@?") {
				names = append(names, name) // as for agents
			}
		}
	}
	for _, name := range names {
		if value, ok := resolve(name); ok {
			all[name] = value
		}
	}
	return redact.New(all)
}
