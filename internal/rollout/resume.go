package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// resumeDocument makes the document of deliveries that a resumed agent reads. A fault takes the
// place of a payload; for agents that do not accept faults there is never one.
func resumeDocument(deliveries []store.Trigger) (map[string]json.RawMessage, map[string]agent.Delivery) {
	resume := map[string]json.RawMessage{}
	envelopes := map[string]agent.Delivery{}
	for _, d := range deliveries {
		e := agent.Delivery{TriggerID: d.ID, Status: string(d.Status), Payload: d.Payload, ReceivedAt: d.DeliveredAt}
		if e.Payload == nil {
			e.Payload = json.RawMessage("null")
		}
		resume[d.InterruptID] = e.Payload
		if d.Status != store.StatusSuccessful {
			e.Error = &wait.Error{Code: string(d.Status), Message: "the job was " + string(d.Status)}
			if d.Fault != nil {
				e.Error = &wait.Error{Code: string(d.Fault.Category), Message: d.Fault.Message}
			}
			resume[d.InterruptID], _ = json.Marshal(map[string]any{"error": e.Error}) // two strings always marshal
		}
		envelopes[d.InterruptID] = e
	}
	return resume, envelopes
}

// previousSegments returns what earlier segments have left: the steps that are done, and the
// folders of the segments whose conversation goes on.
func (h *held) previousSegments(ctx context.Context) (done []record.StepResult, history []string, err error) {
	if h.claim.Segment == 1 {
		return nil, nil, nil
	}
	segments, err := h.host.Store.Segments(context.WithoutCancel(ctx), h.claim.RolloutID)
	if err != nil {
		return nil, nil, err
	}
	for _, g := range segments {
		if g.Outcome != store.OutcomeSuspended {
			continue
		}
		var info record.Info
		if err := json.Unmarshal(g.Info, &info); err != nil {
			return nil, nil, fmt.Errorf("segment %d: %w", g.Number, err)
		}
		if len(info.Steps) > len(done) {
			history = nil // a step has ended in this segment, and its conversation with it
		}
		done = info.Steps
		for _, f := range g.Files {
			if name := filepath.Base(f.Name); name == acpagent.FileSession || name == modelagent.FileJournal {
				history = append(history,
					filepath.Join(h.attemptDir(g.Number, g.Attempt), filepath.Dir(filepath.FromSlash(f.Name))))
			}
		}
	}
	// Of several steps that one segment ended, only the last was suspended.
	if len(history) > 1 && len(done) > 0 {
		last := filepath.Base(history[len(history)-1])
		history = slices.DeleteFunc(history, func(dir string) bool { return filepath.Base(dir) != last })
	}
	return done, history, nil
}
