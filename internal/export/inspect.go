package export

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// inspectVersion is the version of Inspect's logs (LOG_SCHEMA_VERSION of inspect_ai).
const inspectVersion = 2

// summaryText is the most bytes of an input that Inspect's list of samples shows.
const summaryText = 1024

// WriteInspect writes a log of Inspect: a ZIP file with a member for each sample, their summaries,
// and a header. A log has one task and one model, so agent must be named if there are several.
func WriteInspect(w io.Writer, r *report.Report, agent string) error {
	agent, err := agentOf(r, agent)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	l := inspectLog{zip: z, r: r, agent: agent, usage: map[string]inspectUsage{}}
	if err := r.Traced(func(one *schemas.Rollout) error {
		if one.Agent != agent {
			return nil
		}
		return l.add(one)
	}); err != nil {
		return err
	}
	if err := l.member("summaries.json", l.summaries); err != nil {
		return err
	}
	if err := l.member("header.json", l.header()); err != nil {
		return err
	}
	return z.Close()
}

// AgentError is the error if the agent of a log was not named, or does not exist.
type AgentError string

func (e AgentError) Error() string { return string(e) }

// agentOf returns the agent whose rollouts are written.
func agentOf(r *report.Report, agent string) (string, error) {
	var names []string
	for _, a := range r.Agents {
		names = append(names, a.Name)
	}
	if names == nil { // an earlier version did not list the agents
		if err := r.Rollouts(func(one *schemas.Rollout) error {
			if !slices.Contains(names, one.Agent) {
				names = append(names, one.Agent)
			}
			return nil
		}); err != nil {
			return "", err
		}
	}
	switch {
	case agent != "" && !slices.Contains(names, agent):
		return "", AgentError(fmt.Sprintf("--agent: the run has no agent %q, but %q", agent, names))
	case agent == "" && len(names) != 1:
		return "", AgentError(fmt.Sprintf("a log of Inspect is of one agent, and the run has %q: name one with --agent",
			names))
	case agent == "":
		return names[0], nil
	}
	return agent, nil
}

// inspectLog is a log in the making.
type inspectLog struct {
	zip   *zip.Writer
	r     *report.Report
	agent string

	summaries []inspectSummary
	ids       []string
	completed int
	usage     map[string]inspectUsage
}

func (l *inspectLog) member(name string, v any) error {
	w, err := l.zip.Create(name)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(v)
}

// inspectUsage is ModelUsage of inspect_ai. Its input tokens leave out those that came from a
// cache.
type inspectUsage struct {
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	Total  int64    `json:"total_tokens"`
	Cached int64    `json:"input_tokens_cache_read,omitempty"`
	Cost   *float64 `json:"total_cost,omitempty"`
}

func (u inspectUsage) plus(more inspectUsage) inspectUsage {
	sum := inspectUsage{Input: u.Input + more.Input, Output: u.Output + more.Output,
		Total: u.Total + more.Total, Cached: u.Cached + more.Cached}
	if u.Cost != nil && more.Cost != nil {
		cost := *u.Cost + *more.Cost
		sum.Cost = &cost
	}
	return sum
}

func (l *inspectLog) usageOf(one *schemas.Rollout) map[string]inspectUsage {
	out := map[string]inspectUsage{}
	if one.Usage == nil {
		return out
	}
	for _, m := range one.Usage.Models {
		u := inspectUsage{Input: m.InputTokens - m.CachedInputTokens, Output: m.OutputTokens,
			Total: m.Tokens(), Cached: m.CachedInputTokens}
		if m.CostKnown() {
			u.Cost = m.Cost
		}
		name := m.Model
		if name == "" {
			name = "unknown"
		}
		out[name] = u
		if before, ok := l.usage[name]; ok {
			u = before.plus(u)
		}
		l.usage[name] = u
	}
	return out
}

// inspectHeader is EvalLog of inspect_ai, without samples.
type inspectHeader struct {
	Version int             `json:"version"`
	Status  string          `json:"status"`
	Eval    inspectSpec     `json:"eval"`
	Plan    inspectPlan     `json:"plan"`
	Results *inspectResults `json:"results,omitempty"`
	Stats   inspectStats    `json:"stats"`
}

type inspectSpec struct {
	EvalID   string            `json:"eval_id"`
	RunID    string            `json:"run_id"`
	Created  string            `json:"created"`
	Task     string            `json:"task"`
	TaskID   string            `json:"task_id"`
	TaskFile string            `json:"task_file,omitempty"`
	Solver   string            `json:"solver"`
	Tags     []string          `json:"tags,omitempty"`
	Dataset  inspectDataset    `json:"dataset"`
	Model    string            `json:"model"`
	Config   map[string]any    `json:"config"`
	Revision *inspectRevision  `json:"revision,omitempty"`
	Packages map[string]string `json:"packages"`
	Metadata map[string]any    `json:"metadata"`
	Scorers  []inspectScorer   `json:"scorers,omitempty"`
}

type inspectDataset struct {
	Name      string   `json:"name"`
	Location  string   `json:"location,omitempty"`
	Samples   int      `json:"samples"`
	SampleIDs []string `json:"sample_ids"`
}

type inspectRevision struct {
	Type   string `json:"type"`
	Origin string `json:"origin"`
	Commit string `json:"commit"`
}

type inspectScorer struct {
	Name string `json:"name"`
}

type inspectPlan struct {
	Name  string        `json:"name"`
	Steps []inspectStep `json:"steps"`
}

type inspectStep struct {
	Solver string         `json:"solver"`
	Params map[string]any `json:"params"`
}

type inspectStats struct {
	StartedAt   string                  `json:"started_at"`
	CompletedAt string                  `json:"completed_at"`
	ModelUsage  map[string]inspectUsage `json:"model_usage"`
}

type inspectResults struct {
	Total     int            `json:"total_samples"`
	Completed int            `json:"completed_samples"`
	Scores    []inspectScore `json:"scores"`
	Metadata  map[string]any `json:"metadata"`
}

type inspectScore struct {
	Name     string                   `json:"name"`
	Scorer   string                   `json:"scorer"`
	Scored   int                      `json:"scored_samples"`
	Unscored int                      `json:"unscored_samples"`
	Metrics  map[string]inspectMetric `json:"metrics"`
}

type inspectMetric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// header makes the header. It is written last, since it lists the samples.
func (l *inspectLog) header() inspectHeader {
	h := l.r.Head
	var a schemas.Agent
	if i := slices.IndexFunc(h.Agents, func(a schemas.Agent) bool { return a.Name == l.agent }); i >= 0 {
		a = h.Agents[i]
	}
	out := inspectHeader{Version: inspectVersion, Status: l.status(), Eval: inspectSpec{
		EvalID: h.RunID + "/" + l.agent, RunID: h.RunID, Created: stamp(h.StartedAt),
		Task: h.EvaluationSetName, TaskID: h.EvaluationSetID, TaskFile: h.EvaluationSetPath, Solver: l.agent, Tags: h.Tags,
		Dataset: inspectDataset{
			Name: h.EvaluationSetName, Location: h.EvaluationSetPath, Samples: len(l.ids), SampleIDs: l.ids,
		},
		Model: a.Model, Config: map[string]any{}, Packages: map[string]string{"evalrun": h.EvalrunVersion},
		Metadata: map[string]any{
			"evalrun_store_id": h.StoreID, "evalrun_revision": h.Revision, "evalrun_status": h.Status,
			"evalrun_plan_digest": h.PlanDigest,
		}},
		Plan:  inspectPlan{Name: "evalrun", Steps: []inspectStep{{l.agent, map[string]any{"type": a.Type}}}},
		Stats: inspectStats{stamp(h.StartedAt), stamp(h.FinishedAt), l.usage}}
	if out.Eval.Model == "" {
		out.Eval.Model = l.onlyModel()
	}
	if h.GitCommit != "" {
		out.Eval.Revision = &inspectRevision{"git", "", h.GitCommit}
	}
	out.Results = l.results()
	for _, s := range out.Results.Scores {
		out.Eval.Scorers = append(out.Eval.Scorers, inspectScorer{s.Name})
	}
	return out
}

// status returns the status of the log. Inspect has no word for a run that waits: its log has only
// begun.
func (l *inspectLog) status() string {
	switch {
	case !l.r.Final:
		return "started"
	case l.r.Status == schemas.Cancelled:
		return "cancelled"
	}
	return "success"
}

// onlyModel returns the model that was used; none/none, as in Inspect, if that is not known.
func (l *inspectLog) onlyModel() string {
	if len(l.usage) == 1 {
		for name := range l.usage {
			return name
		}
	}
	return "none/none"
}

// results computes the results as Inspect does: over the samples that have a score, which is the
// mean of its epochs. Samples that ended with an error count nowhere. The metadata has evalrun's
// own figures.
func (l *inspectLog) results() *inspectResults {
	stats := l.statistics()
	out := &inspectResults{Total: len(l.summaries), Completed: l.completed, Scores: []inspectScore{},
		Metadata: map[string]any{"evalrun_score": stats.Score.Mean, "evalrun_score_completed": stats.ScoreCompleted.Mean}}
	for _, e := range stats.Evaluators {
		one := inspectScore{Name: e.Name, Scorer: e.Name, Metrics: map[string]inspectMetric{}, Unscored: e.Errors + e.NotRun}
		epochs := map[string][]float64{}
		for _, s := range l.summaries {
			if score, ok := s.Scores[e.Name]; ok {
				one.Scored++
				epochs[s.ID] = append(epochs[s.ID], score.Value)
			}
		}
		var samples []float64
		for _, id := range l.ids {
			if len(epochs[id]) > 0 {
				samples = append(samples, mean(epochs[id]))
			}
		}
		if len(samples) > 0 {
			one.Metrics["mean"] = inspectMetric{"mean", mean(samples)}
		}
		if len(samples) > 1 {
			one.Metrics["stderr"] = inspectMetric{"stderr", standardError(samples)}
		}
		out.Scores = append(out.Scores, one)
	}
	return out
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

func standardError(values []float64) float64 {
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	n := float64(len(values))
	return math.Sqrt(squares / (n - 1) / n)
}

func (l *inspectLog) statistics() summary.AgentSummary {
	if l.r.Statistics == nil {
		return summary.AgentSummary{}
	}
	for _, a := range l.r.Statistics.Agents {
		if a.Agent == l.agent {
			return a
		}
	}
	return l.r.Statistics.AgentSummary
}
