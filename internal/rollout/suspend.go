package rollout

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	waitmcp "github.com/evalrun/evalrun/internal/wait/mcp"
	"github.com/evalrun/evalrun/tasks"
)

// newTriggers makes the triggers of a suspended segment from the interrupts of its agent.
func (r *Rollout) newTriggers(interrupts []wait.Interrupt) ([]store.NewTrigger, error) {
	var out []store.NewTrigger
	for _, in := range interrupts {
		for _, spec := range in.Specs {
			n, err := r.newTrigger(in.ID, spec)
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}
	return out, nil
}

func (r *Rollout) newTrigger(interruptID string, spec wait.Spec) (store.NewTrigger, error) {
	if err := r.addServer(&spec); err != nil {
		return store.NewTrigger{}, err
	}
	if shown := r.held.run.Redact.JSON(spec.Payload); !bytes.Equal(shown, spec.Payload) {
		spec.Shown = shown
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return store.NewTrigger{}, err
	}
	n := store.NewTrigger{
		InterruptID: interruptID, Type: string(spec.Type), Name: spec.Name, Source: r.held.run.Sources.Name(spec),
		ItemKey: spec.ItemKey, KeyPrefix: keyPrefix(spec.Type), FolderPath: spec.FolderPath, FolderKey: spec.FolderKey, Spec: data,
		Digest: spec.Digest(),
	}
	n.Checked = n.Source != wait.SourceExternal
	n.Start = n.Checked && n.Source != wait.SourceTimer && spec.ItemKey == ""
	if spec.ResumeAt != nil {
		n.NextCheck = *spec.ResumeAt
	}
	return n, nil
}

// keyPrefix begins the key of a trigger that has none of its own: job-…, task-….
func keyPrefix(t wait.Type) string {
	return strings.ReplaceAll(strings.ToLower(string(t)), "_", "-") + "-"
}

// addServer adds to what a rollout waits for the server that has to be asked for it.
func (r *Rollout) addServer(spec *wait.Spec) (err error) {
	if spec.CallID == "" {
		return nil
	}
	server := tasks.MCPServer{Name: spec.Server}
	for _, s := range r.declared {
		if s.Name == spec.Server {
			server = s
		}
	}
	spec.Watch, err = waitmcp.Watch(spec.CallID, server, r.held.entry.Elicitation == agent.PolicySuspend)
	return err
}
