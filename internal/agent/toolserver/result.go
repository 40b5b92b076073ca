package toolserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// Result makes the result of a tool of what was delivered for the work of its call. w is the work as
// the ledger has it, and asked what a person was asked; nil if nobody was. endpoint is that of the
// server, nil if it has none any more, and fetching may take limit. again says that there is no
// result yet: the rollout has to wait for w, as it is then, again.
func Result(ctx context.Context, w *wait.Work, asked *wait.Input, d agent.Delivery, endpoint *gateway.Endpoint,
	jobs wait.Jobs, limit time.Duration) (result json.RawMessage, again bool, f *fault.Fault) {
	if asked != nil {
		return answer(ctx, w, *asked, d, endpoint)
	}
	if d.Error != nil {
		return suspend.TextResult(d.Error.Message, true), false, nil
	}
	switch outcome := wait.ReadWorkResult(d.Payload); {
	case outcome != nil && outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	case outcome != nil:
		return outcome.Result, false, nil
	case w.Task != nil && wait.ReadInput(d.Payload) != nil:
		w.Input = wait.ReadInput(d.Payload)
		return nil, true, nil
	case w.MeshJob != nil:
		return suspend.MeshResult(d.Payload), false, nil
	case w.Task != nil:
		return suspend.TextResult(string(d.Payload), false), false, nil // somebody has delivered the payload by hand
	}
	ending := wait.EndingOf(w.Tool, *w.Job, d.Payload)
	if !ending.Fetch {
		return suspend.TextResult(ending.Text, true), false, nil
	}
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP,
			"the result of %s cannot be fetched: MCP server %q is not behind the gateway any more", w.Tool, w.Server)
	}
	fetching, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := suspend.FetchAt(fetching, endpoint, w)
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrNotDone) && jobs.ForProcess(w.Tool).Source == wait.SourceMCP:
		return nil, true, nil
	case errors.Is(err, suspend.ErrNotDone):
		return suspend.TextResult(fmt.Sprintf("The job is said to be done, but there is no result: %v.", err),
			true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	}
	return result, false, nil
}

// answer gives a person's answer to a server, and returns the result of that.
func answer(ctx context.Context, w *wait.Work, asked wait.Input, d agent.Delivery, endpoint *gateway.Endpoint) (
	result json.RawMessage, again bool, f *fault.Fault) {
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP, "%s cannot be answered: MCP server %q is not behind the gateway any more",
			w.Tool, w.Server)
	}
	if ctx.Err() != nil {
		return nil, false, agent.CauseFault(ctx)
	}
	answering, end := grace.Outlast(ctx, grace.Stop)
	defer end()
	outcome, err := suspend.Answer(answering, endpoint, w, asked, Elicited(d, asked))
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrUnknown):
		return nil, false, fault.Newf(fault.StartUnknown, "%s of MCP server %q: %v", w.Tool, w.Server, err)
	case errors.Is(err, mcptask.ErrTaskLost):
		return suspend.TextResult("The answer came too late: "+err.Error(), true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	case outcome == nil:
		return nil, true, nil
	case outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	}
	return outcome.Result, false, nil
}

// ResultText returns the result of a tool as a person would read it, and whether it is an error.
func ResultText(result json.RawMessage) (text string, failed bool) {
	var r struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if json.Unmarshal(result, &r) != nil {
		return string(result), false
	}
	var parts []string
	for _, raw := range r.Content {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &block) == nil && block.Type == "text" {
			parts = append(parts, block.Text)
		} else {
			parts = append(parts, string(raw))
		}
	}
	return cmp.Or(strings.Join(parts, "\n"), string(r.Structured)), r.IsError
}
