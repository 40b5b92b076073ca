package record

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/schemas"
)

// EnvironmentHost is the Environment of a task that ran on this machine's own system, without an
// image.
const EnvironmentHost = "host"

// EnvironmentImage is the Environment of a task that ran in its image.
const EnvironmentImage = "image"

// Info is the report of a segment besides its outcome. It is stored with the segment.
type Info struct {
	Isolation string `json:"isolation,omitempty"`
	// Environment is the environment of a task; empty if the rollout is not one of a task.
	Environment string `json:"environment,omitempty"`
	// Image is the digest of the image in which the agent worked; empty if it was none.
	Image string `json:"image,omitempty"`
	// AgentName and AgentVersion are the agent's own statements.
	AgentName    string `json:"agentName,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`
	SessionID    string `json:"sessionId,omitempty"`
	// ResumedBy says how the segment continued the session of the one before: resume, load or
	// replay. It is empty in a rollout's first segment.
	ResumedBy string `json:"resumedBy,omitempty"`
	// ResumeNote says why a better way was not taken.
	ResumeNote string `json:"resumeNote,omitempty"`
	StopReason string `json:"stopReason,omitempty"`
	// MCPServers has a verdict for each server of the task.
	MCPServers []ServerVerdict `json:"mcpServers,omitempty"`
	ToolCalls  int             `json:"toolCalls,omitempty"`
	// AnswersLeftOut counts the answers of a model that were left out of a conversation that had become
	// too long, and Summaries the summaries in their place.
	AnswersLeftOut int `json:"answersLeftOut,omitempty"`
	Summaries      int `json:"summaries,omitempty"`
	// HeldMs is the time in milliseconds for which calls were held open: the segment waited, and did
	// not work.
	HeldMs int64 `json:"heldMs,omitempty"`
	// Model is the count of the model proxy, AgentUsage the last report of the agent itself.
	Model      *modelproxy.Usage `json:"model,omitempty"`
	AgentUsage json.RawMessage   `json:"agentUsage,omitempty"`
	// Usage is the use of models, by model. UsageSource says who counted it.
	Usage       []eval.Usage `json:"usage,omitempty"`
	UsageSource UsageSource  `json:"usageSource,omitempty"`
	// Steps are the steps of a task that were finished in this segment or before.
	Steps []StepResult `json:"steps,omitempty"`
	// WithoutEffect are the limits of a task that this machine could not keep.
	WithoutEffect []LimitWithoutEffect `json:"limitsWithoutEffect,omitempty"`
	// Refused are the connections that were refused because of the task's allowlist.
	Refused *schemas.RefusedConnections `json:"refusedConnections,omitempty"`
	// Limit is the limit that ended the segment, if its work until then is scored all the same.
	Limit *fault.Fault `json:"limit,omitempty"`
	// Mocks counts the calls of tools that were played; nil if none was.
	Mocks *Mocks `json:"mocks,omitempty"`
	// User is the user who was played by a model; nil if there was none.
	User *SimulatedUser `json:"user,omitempty"`
	// Cached says where the output comes from if the agent was not run; nil if it was.
	Cached *Cached `json:"cached,omitempty"`
}

// SimulatedUser is a user who was played by a model.
type SimulatedUser struct {
	// Messages counts what they have written.
	Messages int `json:"messages"`
	// Ended is why the conversation was over; empty if it was not.
	Ended string `json:"ended,omitempty"`
	// Usage is what they have used of models, which is no use of the agent's.
	Usage []eval.Usage `json:"usage,omitempty"`
}

// Cached is the rollout that has put out what this one would have.
type Cached struct {
	RunID     string    `json:"runId"`
	RolloutID string    `json:"rolloutId"`
	Time      time.Time `json:"time"`
	// WorkingMs is the time that it took then.
	WorkingMs int64 `json:"workingMs"`
}

// Mocks counts the calls of tools that were played: by the places of their mocks, and by server and
// tool those that no mock has matched.
type Mocks struct {
	Calls     map[string]int `json:"calls,omitempty"`
	Unmatched map[string]int `json:"unmatched,omitempty"`
	// Usage is what models have used that have written results of calls, which is no use of the agent's.
	Usage []eval.Usage `json:"usage,omitempty"`
}

// LimitWithoutEffect is a limit of a task that could not be kept.
type LimitWithoutEffect struct {
	// Key is its key in task.toml.
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// ServerVerdict is the outcome for an MCP server that was declared for an agent.
type ServerVerdict struct {
	Name      string  `json:"name"`
	Transport string  `json:"transport"`
	Verdict   Verdict `json:"verdict"`
	// Reason explains a verdict other than VerdictSent.
	Reason string `json:"reason,omitempty"`
	// Calls counts the calls of its tools. Held counts those that were held open because the work that
	// they started would not outlive evalrun.
	Calls int `json:"calls"`
	Held  int `json:"held,omitempty"`
	// NotOffered are its tools that no request to the agent's model offered, if other tools
	// were offered.
	NotOffered []string `json:"notOffered,omitempty"`
}

// Verdict is the outcome for a server.
type Verdict string

// The verdicts.
const (
	VerdictSent        Verdict = "sent"        // declared to the agent in session/new, session/load or session/resume
	VerdictUnsupported Verdict = "unsupported" // the agent does not take its transport
	// It is declared as a stdio server, the bridge to the gateway, since the agent does not take HTTP.
	VerdictBridged     Verdict = "bridged"
	VerdictUnreachable Verdict = "unreachable" // nothing answers there, or its program is missing
	VerdictNoTools     Verdict = "no-tools"    // the agent did not get its tools in time
	VerdictHidden      Verdict = "hidden"      // the agent has its tools, and no request to its model offered one
	VerdictDeferred    Verdict = "deferred"    // the same, but the model can search for tools
)

// StepResult is the end of one step of a task.
type StepResult struct {
	Name string `json:"name"`
	// Reward is nil if the step's verifier left none; then Error says why.
	Reward *float64 `json:"reward"`
	// RewardName has the meaning of tasks.Reward.
	RewardName string             `json:"rewardName,omitempty"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	Error      string             `json:"error,omitempty"`
	// Notes say which parts of the step's results were left out, and which are missing.
	Notes []string `json:"notes,omitempty"`
}

// Add adds the report of a further step of the same segment.
func (i *Info) Add(more *Info) {
	if more == nil {
		return
	}
	sum := *more
	sum.Usage, sum.UsageSource = eval.MergeUsage(slices.Concat(i.Usage, more.Usage)...),
		cmp.Or(more.UsageSource, i.UsageSource)
	sum.Steps, sum.ToolCalls, sum.HeldMs = i.Steps, i.ToolCalls+more.ToolCalls, i.HeldMs+more.HeldMs
	sum.AnswersLeftOut, sum.Summaries = i.AnswersLeftOut+more.AnswersLeftOut, i.Summaries+more.Summaries
	sum.Refused = i.Refused.Plus(more.Refused)
	if i.ResumedBy != "" {
		sum.ResumedBy, sum.ResumeNote = i.ResumedBy, i.ResumeNote
	}
	switch {
	case more.Model == nil:
		sum.Model = i.Model
	case i.Model != nil:
		model := i.Model.Plus(*more.Model)
		sum.Model = &model
	}
	*i = sum
}
