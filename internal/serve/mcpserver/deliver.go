package mcpserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

const deliverDescription = `Hand in what a trigger waits for: the payload, a person's decision, that its job failed, or that it was cancelled. ` +
	`The first delivery for a trigger counts. A question to a person must be answered by a person: an agent does not answer one.`

const deliverSchema = `{"type":"object","additionalProperties":false,"required":["triggerId"],"properties":{` +
	`"triggerId":{"type":"string"},` +
	`"payload":{"description":"what is handed to the agent, any JSON value"},` +
	`"approved":{"description":"the decision of a person, in place of a payload","type":"boolean"},` +
	`"reason":{"description":"why it was decided so","type":"string"},` +
	`"fail":{"description":"the job failed, with this message","type":"string"},` +
	`"cancel":{"description":"the job was cancelled","type":"boolean"}}}`

// deliveries is the tool that delivers to triggers.
type deliveries struct {
	service *service.Service
	st      store.Reader
	changed func(ctx context.Context, action, object string)
}

func (d *deliveries) tools() []tool {
	return []tool{{name: "deliver", scope: access.Deliver, description: deliverDescription, schema: deliverSchema,
		annotations: changes, call: d.deliver}}
}

// deliverArguments are the arguments of deliver.
type deliverArguments struct {
	TriggerID string          `json:"triggerId"`
	Payload   json.RawMessage `json:"payload"`
	Approved  *bool           `json:"approved"`
	Reason    string          `json:"reason"`
	Fail      *string         `json:"fail"`
	Cancel    bool            `json:"cancel"`
}

// delivery returns the delivery of the arguments, of which exactly one must be given.
func (a deliverArguments) delivery() (d runner.Delivery, err error) {
	given := 0
	for _, has := range []bool{a.Payload != nil, a.Approved != nil, a.Fail != nil, a.Cancel} {
		if has {
			given++
		}
	}
	switch {
	case given != 1:
		return d, &argumentError{"expected one of payload, approved, fail and cancel"}
	case a.Reason != "" && a.Approved == nil:
		return d, &argumentError{"reason: expected it with approved only"}
	case a.Approved != nil:
		d.Payload = decision(*a.Approved, a.Reason)
	case a.Fail != nil:
		d.Failed, d.Message = true, *a.Fail
	case a.Cancel:
		d.Cancelled = true
	default:
		d.Payload = a.Payload
	}
	return d, nil
}

// decision is the payload of a person's decision, as evalrun approve and deny make it.
func decision(approved bool, reason string) json.RawMessage {
	verb, value := "deny", "false"
	if approved {
		verb, value = "approve", "true"
	}
	o := jsonobj.Object{{Key: "action", Value: jsonobj.Quote(verb)}, {Key: "approved", Value: json.RawMessage(value)}}
	if reason != "" {
		o = o.Set("reason", jsonobj.Quote(reason))
	}
	return o.JSON()
}

// delivered is the outcome of a delivery.
type delivered struct {
	TriggerID   string             `json:"triggerId"`
	RunID       string             `json:"runId"`
	Disposition runner.Disposition `json:"disposition"`
}

// deliver is the tool.
func (d *deliveries) deliver(ctx context.Context, q *request, arguments json.RawMessage) (any, error) {
	var a deliverArguments
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	what, err := a.delivery()
	if err != nil {
		return nil, err
	}
	t, err := d.st.Trigger(ctx, a.TriggerID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && t.ID != a.TriggerID:
		return nil, &argumentError{"there is no trigger " + a.TriggerID +
			"; list_triggers lists those that wait, with their whole ids"}
	case err != nil:
		return nil, err
	case t.Type == store.TriggerTask && !q.mayAnswer():
		return nil, &argumentError{"trigger " + t.ID +
			" asks a person, and the caller is an agent: an agent does not answer questions"}
	}
	receipt, err := d.handIn(ctx, q, t.ID, what)
	if err != nil {
		return nil, err
	}
	return delivered{t.ID, t.RunID, receipt.Disposition}, nil
}

// handIn delivers in the name of the caller.
func (d *deliveries) handIn(ctx context.Context, q *request, triggerID string,
	what runner.Delivery) (runner.Receipt, error) {
	what.By, what.Person = owner(q.caller), q.caller.Name
	receipt, err := d.service.Deliver(ctx, triggerID, what)
	if err == nil {
		d.changed(ctx, "deliver", triggerID)
	}
	return receipt, err
}
