package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// addInfo adds what the segments report about agents that live in a sandbox. For an attempt that
// was repeated only the usage counts.
func (o Options) addInfo(out *schemas.Rollout, rv store.RolloutView) error {
	var model *modelproxy.Usage
	for _, s := range rv.Segments {
		if s.Info == nil {
			continue
		}
		var info record.Info
		if err := json.Unmarshal(o.Redact.JSON(s.Info), &info); err != nil {
			return fmt.Errorf("what segment %d reports: %w", s.Number, err)
		}
		out.Isolation, out.Environment, out.AgentVersion, out.Steps =
			cmp.Or(info.Isolation, out.Isolation), info.Environment, info.AgentVersion, steps(info.Steps)
		out.Image = info.Image
		out.LimitsWithoutEffect = nil
		for _, l := range info.WithoutEffect {
			out.LimitsWithoutEffect = append(out.LimitsWithoutEffect, schemas.LimitWithoutEffect{Key: l.Key, Reason: l.Reason})
		}
		out.RefusedConnections = out.RefusedConnections.Plus(info.Refused)
		out.Limit = nil
		if info.Limit != nil {
			out.Limit = &schemas.Fault{Category: string(info.Limit.Category), Message: info.Limit.Message}
		}
		out.SimulatedUser = o.user(out.SimulatedUser, info.User)
		if info.Cached != nil {
			out.Cached = &schemas.Cached{RunID: info.Cached.RunID, RolloutID: info.Cached.RolloutID, At: info.Cached.Time,
				WorkingMs: info.Cached.WorkingMs}
		}
		if info.MCPServers != nil {
			out.MCPServers = servers(info.MCPServers, out.MCPServers)
		}
		if info.Model != nil {
			sum := *info.Model
			if model != nil {
				sum = model.Plus(sum)
			}
			model = &sum
		}
		addUsage(out, info)
		for i := range out.ResumedBy {
			if out.ResumedBy[i].Segment == s.Number {
				out.ResumedBy[i].Session, out.ResumedBy[i].Note = info.ResumedBy, info.ResumeNote
			}
		}
	}
	used, source, err := o.usage(rv)
	if err != nil {
		return err
	}
	if used != nil {
		if out.Usage == nil {
			out.Usage = &schemas.Usage{}
		}
		out.Usage.Source, out.Usage.Models, out.Usage.Total = source, used, eval.TotalUsage(used)
	}
	if model != nil {
		out.Usage.Model = &schemas.ModelUsage{Main: modelCalls(model.Main), Side: modelCalls(model.Side)}
	}
	return nil
}

func addUsage(out *schemas.Rollout, info record.Info) {
	if info.Model == nil && info.AgentUsage == nil && info.ToolCalls == 0 && info.AnswersLeftOut == 0 {
		return
	}
	if out.Usage == nil {
		out.Usage = &schemas.Usage{}
	}
	out.Usage.ToolCalls += info.ToolCalls
	out.Usage.AnswersLeftOut += info.AnswersLeftOut
	out.Usage.Summaries += info.Summaries
	if info.AgentUsage != nil {
		out.Usage.Agent = info.AgentUsage
	}
}

// servers returns the MCP servers of a segment. Their calls include those of the segments before.
func servers(verdicts []record.ServerVerdict, before []schemas.MCPServer) []schemas.MCPServer {
	out := make([]schemas.MCPServer, 0, len(verdicts))
	for _, v := range verdicts {
		one := schemas.MCPServer{
			Name: v.Name, Transport: v.Transport, Verdict: string(v.Verdict), Reason: v.Reason,
			Calls: v.Calls, Held: v.Held, NotOffered: v.NotOffered,
		}
		for _, b := range before {
			if b.Name == v.Name {
				one.Calls += b.Calls
				one.Held += b.Held
			}
		}
		out = append(out, one)
	}
	return out
}

// notOffered names the servers of which the agent's model was not offered all tools.
func notOffered(servers []schemas.MCPServer) (lines []string) {
	for _, s := range servers {
		switch {
		case len(s.NotOffered) > 0:
			lines = append(lines, redact.Line(
				fmt.Sprintf("MCP server %q: the agent's model was not offered: %s", s.Name,
					strings.Join(s.NotOffered, ", "))))
		case s.Verdict == string(record.VerdictHidden), s.Verdict == string(record.VerdictDeferred):
			lines = append(lines, redact.Line(fmt.Sprintf("MCP server %q: %s", s.Name, s.Reason)))
		}
	}
	return lines
}

func steps(results []record.StepResult) (out []schemas.Step) {
	for _, s := range results {
		out = append(out, schemas.Step(s))
	}
	return out
}

func modelCalls(t modelproxy.Tally) schemas.ModelCalls {
	return schemas.ModelCalls{Calls: t.Calls, Aborted: t.Aborted, Unmetered: t.Unmetered, Errors: t.Errors,
		InputTokens: t.InputTokens, CachedInputTokens: t.CachedInputTokens, CacheWriteTokens: t.CacheWriteTokens,
		OutputTokens: t.OutputTokens, ReasoningTokens: t.ReasoningTokens,
		LatencyMs: t.LatencyMs, FirstByteMs: t.FirstByteMs, Models: t.Models}
}

// usage returns the use of models by a rollout in all attempts that are over, by model and with its
// cost. source says who has counted it.
func (o Options) usage(rv store.RolloutView) (used []eval.Usage, source string, err error) {
	var dirs []string
	for _, s := range rv.Segments {
		dir := o.segmentDir(rv, s)
		one, from, err := record.UsageOfSegment(s, dir, dirs)
		if err != nil {
			return nil, "", err
		}
		for _, u := range one {
			u.Model = o.Redact.String(u.Model)
			used = append(used, o.Plan.Set.Prices.Priced(u))
		}
		if one != nil {
			source = string(from)
		}
		dirs = append(dirs, dir)
	}
	return eval.MergeUsage(used...), source, nil
}
