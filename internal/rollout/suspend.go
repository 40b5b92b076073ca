package rollout

import (
	"bytes"
	"context"
	"encoding/json"

	mcpsource "github.com/evalrun/evalrun/internal/gateway/source"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// newTriggers makes the triggers of a suspended segment from the interrupts of its agent.
func (r *Rollout) newTriggers(ctx context.Context, interrupts []wait.Interrupt) (out []store.NewTrigger, err error) {
	run := r.held.run
	play, err := r.newPlayer(ctx)
	if err != nil {
		return nil, err
	}
	for _, in := range interrupts {
		for _, spec := range in.Specs {
			n := store.NewTrigger{
				InterruptID: in.ID, Type: string(spec.Type), Name: spec.Name, Source: run.Sources.Name(spec),
				ItemKey: spec.ItemKey, KeyPrefix: spec.Type.KeyPrefix(), FolderPath: spec.FolderPath, FolderKey: spec.FolderKey,
				Digest: spec.Digest(),
			}
			if in.Request != nil {
				n.Source, n.Request = in.Request.Source, run.agentRequest(r.held.entry, *in.Request)
			}
			n.Source, spec.Played = play.of(in.ID, spec, n.Source)
			n.Checked = n.Source != wait.SourceExternal && n.Request == nil
			n.Local = wait.IsLocal(n.Source)
			n.Start = n.Checked && n.Source != wait.SourceTimer && spec.Played == nil && spec.ItemKey == ""
			if spec.ResumeAt != nil {
				n.NextCheck = *spec.ResumeAt
			}
			if n.Source == wait.SourceMCP { // the server has to be asked for the job
				if spec.Watch, err = mcpsource.Watch(spec.CallID, r.declaration(spec.Server),
					r.held.entry.AsksPeople()); err != nil {
					return nil, err
				}
			}
			if shown := run.Redact.JSON(spec.Payload); !bytes.Equal(shown, spec.Payload) {
				spec.Shown = shown
			}
			if shown := run.Redact.String(in.ID); shown != in.ID {
				spec.ShownID = shown
			}
			if n.Spec, err = json.Marshal(spec); err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// declaration returns an MCP server of the sandbox as it is declared.
func (r *Rollout) declaration(server string) tasks.MCPServer {
	for _, s := range r.declared {
		if s.Name == server {
			return s
		}
	}
	return tasks.MCPServer{Name: server}
}
