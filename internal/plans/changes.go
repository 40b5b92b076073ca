package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/tasks"
)

// planParts maps names that a person knows ("thresholds", "evaluation b") to the parts of a plan
// that its results depend on. The eval set's location is not among them.
type planParts map[string]json.RawMessage

// partsOf takes a plan apart. It decodes and encodes every part, so that the plan of an earlier
// version takes the form of this one.
func partsOf(p store.Plan, evaluations []store.Evaluation) (planParts, error) {
	plan, err := Read(p)
	if err != nil {
		return nil, err
	}
	parts := planParts{}
	add := func(name string, v any) {
		data, marshalErr := json.Marshal(v)
		if marshalErr != nil {
			err = marshalErr
		}
		parts[name] = data
	}
	for _, def := range plan.Set.Evaluators {
		add("evaluator "+def.ID, def)
	}
	for _, a := range plan.Agents {
		add("agent "+a.Name, a)
	}
	for name, job := range plan.Jobs {
		add("job "+name, job)
	}
	if plan.Answers != nil {
		add("answers", plan.Answers)
	}
	if plan.Mocks != nil {
		add("mocks", plan.Mocks)
	}
	if plan.Judges != nil {
		add("judges", plan.Judges)
	}
	for _, e := range evaluations {
		var one eval.Evaluation
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return nil, fmt.Errorf("evaluation %q: %w", e.ID, err)
		}
		add("evaluation "+e.ID, one)
	}
	set := plan.Set
	add("epochs", set.Epochs)
	add("reduce", set.Reduce)
	if set.Interval != "" { // most sets do not choose
		add("interval", set.Interval)
	}
	add("limits", set.Limits)
	if set.Prices != nil { // runs of earlier versions have none
		add("prices", set.Prices)
	}
	add("retry", set.Retry)
	add("thresholds", set.Thresholds)
	add("faults", set.Faults)
	add("isolation", plan.Isolation)
	add("mcp", plan.MCP)
	add("mcpServers", plan.MCPServers)
	if plan.Overrides != (tasks.Overrides{}) {
		add("overrides", plan.Overrides)
	}
	add("retryOf", p.RetryOf)
	if s := plan.Origin.Selection; s != nil && s.FailedOf != "" {
		add("failedOf", s.FailedOf)
	}
	return parts, err
}

func (p planParts) digest() (string, error) {
	data, err := json.Marshal(p) // with its keys sorted
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Changes lists the differences between a plan and the stored plan of a run: "evaluation b
// (inputs)", "evaluation c is new". The list is empty if both mean the same.
func Changes(stored store.Plan, storedEvaluations []store.Evaluation, plan store.Plan) ([]string, error) {
	before, err := partsOf(stored, storedEvaluations)
	if err != nil {
		return nil, err
	}
	after, err := partsOf(plan, plan.Evaluations)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch a, b := before[name], after[name]; {
		case a == nil:
			changes = append(changes, name+" is new")
		case b == nil:
			changes = append(changes, name+" is gone")
		case !bytes.Equal(a, b):
			changes = append(changes, name+changedMembers(a, b))
		}
	}
	return changes, nil
}

// changedMembers names the members in which two objects differ. For other values it is empty.
func changedMembers(a, b json.RawMessage) string {
	var before, after map[string]json.RawMessage
	if json.Unmarshal(a, &before) != nil || json.Unmarshal(b, &after) != nil {
		return ""
	}
	all := maps.Clone(before)
	if all == nil {
		return ""
	}
	maps.Copy(all, after)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(before[name], after[name]) {
			names = append(names, name)
		}
	}
	return " (" + strings.Join(names, ", ") + ")"
}
