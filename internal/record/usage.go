package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// UsageKey is the key of a document under which a function agent reports its use of models in the
// segment: an object, or a list of them.
const UsageKey = "__usage__"

// UsageSource says who counted the use of models by a segment. Of several sources only the first
// counts.
type UsageSource string

// The sources.
const (
	UsageOfProxy  UsageSource = "proxy"  // evalrun's model proxy
	UsageOfOutput UsageSource = "output" // the agent, under UsageKey
	UsageOfTrace  UsageSource = "trace"  // spans of the agent's trace
	UsageOfAgent  UsageSource = "agent"  // an agent that speaks ACP
)

// maxCount is the largest number that an agent may report.
const maxCount = 1e15

// SplitUsage takes the usage out of a valid document. It searches only where the usage can be, so
// that a large document is not copied. The error says what is wrong with the usage.
func SplitUsage(doc json.RawMessage) (used []eval.Usage, rest json.RawMessage, err error) {
	if len(doc) == 0 || doc[0] != '{' || !mayTellUsage(doc) {
		return nil, doc, nil
	}
	o, err := jsonobj.ParseObject(doc)
	if err != nil || !o.Has(UsageKey) {
		return nil, doc, nil
	}
	value := o.Get(UsageKey)
	rest = o.Delete(UsageKey).JSON()
	var list []json.RawMessage
	switch {
	case jsonobj.IsNull(value):
		return nil, rest, nil
	case json.Unmarshal(value, &list) != nil:
		list = []json.RawMessage{value}
	}
	for i, one := range list {
		u, err := parseUsage(one)
		if err != nil {
			at := UsageKey
			if len(list) > 1 {
				at = fmt.Sprintf("%s[%d]", UsageKey, i)
			}
			return nil, rest, fmt.Errorf(
				`%s: %w; expected an object such as {"model": "gpt-5-mini", "inputTokens": 1200, "cachedInputTokens": 0, "outputTokens": 80}, or a list of them`,
				at, err)
		}
		used = append(used, u)
	}
	return eval.MergeUsage(used...), rest, nil
}

// mayTellUsage is a quick test. It does not look for the underscores, which may be escaped.
func mayTellUsage(doc []byte) bool { return bytes.Contains(doc, []byte("usage")) }

// parseUsage reads one usage, whose names may also be in snake_case. It ignores other members.
func parseUsage(raw json.RawMessage) (u eval.Usage, err error) {
	o, err := jsonobj.ParseObject(raw)
	if err != nil {
		return u, errors.New("it is no object")
	}
	// number reads the first member that exists.
	number := func(required bool, names ...string) (found *float64) {
		for _, name := range names {
			v := o.Get(name)
			if err != nil || jsonobj.IsNull(v) {
				continue
			}
			if json.Unmarshal(v, &found) != nil || *found < 0 || *found > maxCount {
				err = fmt.Errorf("%s is no number from 0 on: %s", name, v)
			}
			return found
		}
		if required && err == nil {
			err = fmt.Errorf("%s is missing", names[0])
		}
		return nil
	}
	count := func(required bool, names ...string) int64 {
		n := number(required, names...)
		if n == nil || err != nil {
			return 0
		}
		if *n != math.Trunc(*n) {
			err = fmt.Errorf("%s is no whole number: %v", names[0], *n)
		}
		return int64(*n)
	}
	if model := o.Get("model"); !jsonobj.IsNull(model) && json.Unmarshal(model, &u.Model) != nil {
		return u, errors.New("model is no string")
	}
	u.Cost = number(false, "cost")
	required := u.Cost == nil
	u.InputTokens = count(required, "inputTokens", "input_tokens")
	u.CachedInputTokens = count(false, "cachedInputTokens", "cached_input_tokens")
	u.OutputTokens = count(required, "outputTokens", "output_tokens")
	if err == nil && u.CachedInputTokens > u.InputTokens {
		err = fmt.Errorf("inputTokens (%d) is less than cachedInputTokens (%d), which are part of it",
			u.InputTokens, u.CachedInputTokens)
	}
	return u, err
}
