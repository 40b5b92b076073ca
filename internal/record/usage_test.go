package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
)

func TestSplitUsage(t *testing.T) {
	for doc, want := range map[string]struct {
		rest, err string
		used      []eval.Usage
	}{
		`{"a":1}`:                  {rest: `{"a":1}`},
		`["__usage__"]`:            {rest: `["__usage__"]`},
		`{"a":"usage","b":2}`:      {rest: `{"a":"usage","b":2}`},
		`{"__usage__":null,"a":1}`: {rest: `{"a":1}`},
		`{"__usage__":[]}`:         {rest: `{}`},
		`{"\u005f_usage__":{"inputTokens":1,"outputTokens":2.0},"a":1e3}`: {rest: `{"a":1e3}`, used: []eval.Usage{{InputTokens: 1, OutputTokens: 2}}},
		`{"__usage__":{"model":"m","cost":0.5}}`:                          {rest: `{}`, used: []eval.Usage{{Model: "m", Cost: dollars(0.5)}}},
		`{"__usage__":[{"model":"b","input_tokens":9,"cached_input_tokens":4,"output_tokens":1},{"model":"b","inputTokens":1,"outputTokens":0}]}`: {rest: `{}`, used: []eval.Usage{{Model: "b", InputTokens: 10, CachedInputTokens: 4, OutputTokens: 1}}},
		`{"__usage__":7}`:                                                        {err: "it is no object"},
		`{"__usage__":{}}`:                                                       {err: "inputTokens is missing"},
		`{"__usage__":{"inputTokens":1}}`:                                        {err: "outputTokens is missing"},
		`{"__usage__":{"inputTokens":"1","outputTokens":1}}`:                     {err: `inputTokens is no number from 0 on: "1"`},
		`{"__usage__":{"inputTokens":-1,"outputTokens":1}}`:                      {err: `inputTokens is no number from 0 on: -1`},
		`{"__usage__":{"inputTokens":1e99,"outputTokens":1}}`:                    {err: `inputTokens is no number from 0 on: 1e99`},
		`{"__usage__":{"inputTokens":1.5,"outputTokens":1}}`:                     {err: `inputTokens is no whole number: 1.5`},
		`{"__usage__":{"inputTokens":1,"cachedInputTokens":2,"outputTokens":1}}`: {err: "less than cachedInputTokens (2)"},
		`{"__usage__":{"model":3,"cost":1}}`:                                     {err: "model is no string"},
		`{"__usage__":{"cost":"free"}}`:                                          {err: `cost is no number from 0 on: "free"`},
		`{"__usage__":[{"cost":1},{}]}`:                                          {err: "__usage__[1]: inputTokens is missing"},
	} {
		used, rest, err := SplitUsage([]byte(doc))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: got %v, want %s", doc, err, want.err)
			}
			continue
		}
		if diff := cmp.Diff(want.used, used); err != nil || diff != "" || string(rest) != want.rest {
			t.Errorf("%s: rest %s, %v, %s", doc, rest, err, diff)
		}
	}
}

func dollars(x float64) *float64 { return &x }

// A span that was in the trace of an earlier attempt is not counted again, and a document says more
// than a trace.
func TestWhatAnAttemptHasLeft(t *testing.T) {
	span := func(id, tokens string) string {
		return `{"traceId":"t","spanId":"` + id + `","attributes":[{"key":"gen_ai.usage.input_tokens","value":{"intValue":"` + tokens + `"}}]}` + "\n"
	}
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first, FileTrace, span("a", "1"))
	write(second, FileTrace, span("a", "1")+span("b", "10")+`{"torn`)
	write(third, FileTrace, span("c", "100"))
	write(third, FileOutput, `{"__usage__":{"inputTokens":1000,"outputTokens":0}}`+"\n")
	dirs := []string{first, second, third}
	for i, want := range []int64{1, 10, 1000} {
		used, _, err := UsageLeft(dirs[i], dirs[:i])
		if err != nil || len(used) != 1 || used[0].InputTokens != want {
			t.Errorf("attempt %d: got %+v, %v, want %d", i+1, used, err, want)
		}
	}
	if used, source, err := UsageLeft(t.TempDir(), nil); used != nil || source != "" || err != nil {
		t.Errorf("of nothing: %v, %s, %v", used, source, err)
	}
}
