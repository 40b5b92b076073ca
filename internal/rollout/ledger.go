package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// behindGateway puts the MCP servers of the rollout behind the gateway. It returns nil if the agent
// gets them as they are declared.
func (h *held) behindGateway(servers []tasks.MCPServer) *agent.Gateway {
	if h.run.Plan.MCP == plans.MCPDirect || !h.entry.Needs().Gateway {
		return nil
	}
	g := &agent.Gateway{
		Ledger: ledger{h.host.Store, h.claim.Token}, SoftWait: h.run.Plan.Set.Limits.SoftWait, Deadline: h.run.Plan.Deadline,
		Filters: map[string]gateway.Filter{},
		Check:   h.run.Sources.CheckWork, Jobs: h.run.Plan.Jobs,
	}
	for _, s := range servers {
		g.Filters[s.Name] = gateway.Filter{Tools: s.Tools, IncludeTags: s.IncludeTags, ExcludeTags: s.ExcludeTags}
	}
	return g
}

// ledger keeps the calls of a claimed rollout in the store.
type ledger struct {
	store store.Ledger
	token store.Token
}

// Begin implements suspend.Ledger.
func (l ledger) Begin(ctx context.Context, key suspend.CallKey) (suspend.Entry, error) {
	c, err := l.store.BeginCall(ctx, l.token, store.CallKey(key))
	failpoint.Hit("call.begun")
	if err != nil {
		return suspend.Entry{}, err
	}
	work, err := wait.DecodeWork(c.Work)
	return suspend.Entry{ID: c.ID, New: c.New, Work: work}, err
}

// Started implements suspend.Ledger.
func (l ledger) Started(ctx context.Context, w *wait.Work) error {
	failpoint.Hit("call.answered")
	raw, err := json.Marshal(w)
	if err == nil {
		err = l.store.CallStarted(ctx, l.token, w.CallID, raw)
	}
	failpoint.Hit("call.started")
	if err != nil {
		return fmt.Errorf("what was started could not be recorded: %w", err)
	}
	return nil
}

// Work implements suspend.Ledger.
func (l ledger) Work(ctx context.Context, id string) (*wait.Work, error) {
	return WorkOf(ctx, l.store, l.token.RolloutID, id)
}

// WorkOf reads the work that a call of a rollout has started; nil if none is recorded.
func WorkOf(ctx context.Context, s store.Ledger, rolloutID, callID string) (*wait.Work, error) {
	raw, err := s.CallWork(ctx, rolloutID, callID)
	if err != nil {
		return nil, err
	}
	return wait.DecodeWork(raw)
}

// Ended implements suspend.Ledger.
func (l ledger) Ended(ctx context.Context, id string) error {
	err := l.store.EndCall(ctx, l.token, id)
	failpoint.Hit("call.ended")
	return err
}

// permissionCall is the name under which the ledger records that a permission was used. No server's
// tool has that name.
const permissionCall = "permission"

// consume implements [agent.Segment].Consume. The use of a permission is a call that never ends, so
// it cannot be begun again.
func (l ledger) consume(ctx context.Context, triggerID string) (bool, error) {
	c, err := l.store.BeginCall(ctx, l.token, store.CallKey{Tool: permissionCall, Arguments: triggerID})
	failpoint.Hit("permission.used")
	return c.New, err
}
