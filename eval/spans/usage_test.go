package spans

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
)

func TestUsageOfSpans(t *testing.T) {
	span := func(id, parent, attributes string) string {
		return `{"context":{"trace_id":"t","span_id":"` + id + `"},"parent_id":"` + parent + `","attributes":{` + attributes + `}}`
	}
	for name, c := range map[string]struct {
		spans []string
		want  []eval.Usage
	}{
		"none":                      {[]string{span("a", "", `"tool.name":"x"`), `{"torn`, `7`}, nil},
		"the former names":          {[]string{span("a", "", `"gen_ai.usage.prompt_tokens":3,"gen_ai.usage.completion_tokens":4,"gen_ai.response.model":"m-1"`)}, []eval.Usage{{Model: "m-1", InputTokens: 3, OutputTokens: 4}}},
		"the model asked for":       {[]string{span("a", "", `"gen_ai.usage.output_tokens":4,"gen_ai.response.model":"m-1","gen_ai.request.model":"m"`)}, []eval.Usage{{Model: "m", OutputTokens: 4}}},
		"the last of an id":         {[]string{span("a", "", `"gen_ai.usage.input_tokens":1`), span("a", "", `"gen_ai.usage.input_tokens":2`)}, []eval.Usage{{InputTokens: 2}}},
		"without ids":               {[]string{`{"attributes":{"gen_ai.usage.input_tokens":1}}`, `{"attributes":{"gen_ai.usage.input_tokens":1}}`}, []eval.Usage{{InputTokens: 2}}},
		"a sum around, two above":   {[]string{span("a", "b", `"gen_ai.usage.input_tokens":1`), span("b", "c", ``), span("c", "", `"gen_ai.usage.input_tokens":9`)}, []eval.Usage{{InputTokens: 1}}},
		"spans that go round":       {[]string{span("a", "b", `"gen_ai.usage.input_tokens":1`), span("b", "a", `"gen_ai.usage.input_tokens":1`)}, nil},
		"no counts":                 {[]string{span("a", "", `"gen_ai.usage.input_tokens":"many"`), span("b", "", `"gen_ai.usage.input_tokens":-1`), span("c", "", `"gen_ai.usage.input_tokens":1e300`)}, nil},
		"an export, more cached":    {[]string{`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"t","spanId":"a","attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":"5"}},{"key":"gen_ai.usage.cache_read.input_tokens","value":{"intValue":7}}]}]}]}]}`}, []eval.Usage{{InputTokens: 7, CachedInputTokens: 7}}},
		"one that was counted once": {[]string{span("seen", "", `"gen_ai.usage.input_tokens":5`), span("new", "", `"gen_ai.usage.input_tokens":6`)}, []eval.Usage{{InputTokens: 6}}},
	} {
		var spans []json.RawMessage
		for _, one := range c.spans {
			spans = append(spans, json.RawMessage(one))
		}
		got := Usage(spans, map[string]bool{"t seen": true})
		if len(c.want)+len(got) > 0 && !cmp.Equal(c.want, got) {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, got))
		}
	}
}
