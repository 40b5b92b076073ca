package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/redact"
)

// Given outputs that differ only in a secret, as after its rotation: the judge gets the same prompt
// for each, tags included, so nothing in it depends on the secret and the second answer comes from
// the cache.
func TestThePromptDoesNotDependOnASecret(t *testing.T) {
	for name, c := range map[string]struct{ kind, config string }{
		"llm-judge":                {"llm-judge", `{"prompt": "{{output}} or {{expected}}?", "judges": [{"model": "gpt-5-mini"}]}`},
		"llm-judge, in its prompt": {"llm-judge", `{"prompt": "SECRET: {{output}}?", "judges": [{"model": "gpt-5-mini"}]}`},
		"pairwise":                 {"pairwise", `{"judges": [{"model": "gpt-5-mini"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(r fakejudge.Request) fakejudge.Reply {
				return fakejudge.Reply{Arguments: map[string]any{"justification": "so", "score": 1, "label": "tie", "cannotBeJudged": false}}
			}, nil)
			var last []eval.JudgeCall
			for _, secret := range []string{"hunter2-is-my-password", "correct-horse-battery"} {
				o := w.o
				o.Redact = redact.New(map[string]string{"DB_PASSWORD": secret})
				e, err := kinds.All.New(eval.Definition{ID: "j", Name: "j", Type: c.kind, Config: json.RawMessage(strings.ReplaceAll(c.config, "SECRET", secret))})
				if err != nil {
					t.Fatal(err)
				}
				output, err := json.Marshal("it is " + secret)
				if err != nil {
					t.Fatal(err)
				}
				got := e.Evaluate(t.Context(), eval.Subject{Output: output, Judge: New(o).Of("agent", "", ""),
					Evaluation: eval.Evaluation{ID: "e", Inputs: json.RawMessage(`{}`), ExpectedOutput: output, Criteria: map[string]json.RawMessage{"j": json.RawMessage(`{}`)}}}).Results[0]
				if got.Score == nil {
					t.Fatalf("%+v", got)
				}
				last = got.Judge.Verdicts
			}
			prompts := map[string]bool{}
			for _, r := range w.server.Requests() {
				prompts[r.Prompt] = true
				if !strings.Contains(r.Prompt, "[redacted:DB_PASSWORD]") {
					t.Errorf("sent %s", r.Prompt)
				}
			}
			for _, call := range last {
				if !call.Cached {
					t.Errorf("the same question was asked again: %+v", call)
				}
			}
			if len(prompts) != 1 {
				t.Errorf("%d prompts: %v", len(prompts), prompts)
			}
		})
	}
}

// R22: however often an agent has put a secret with quotes and lines into JSON, the provider gets
// nothing of it.
func TestNoSecretReachesTheProviderFromNestedJSON(t *testing.T) {
	const secret = "-----BEGIN \"KEY\"-----\nMIIEvQIBADAN\n-----END-----"
	for depth := 1; depth <= 8; depth++ {
		w := newWorld(t, func(fakejudge.Request) fakejudge.Reply {
			return fakejudge.Reply{Arguments: map[string]any{"justification": "so", "score": 1, "cannotBeJudged": false}}
		}, nil)
		w.o.Redact = redact.New(map[string]string{"PEM": secret})
		output := json.RawMessage(`"plain"`)
		for i, text := 0, secret; i < depth; i++ {
			nested, err := json.Marshal(map[string]string{"said": text})
			if err != nil {
				t.Fatal(err)
			}
			output, text = nested, string(nested)
		}
		e, err := kinds.All.New(eval.Definition{ID: "j", Name: "j", Type: "llm-judge", Config: json.RawMessage(`{"prompt": "{{output}}?", "judges": [{"model": "gpt-5-mini"}]}`)})
		if err != nil {
			t.Fatal(err)
		}
		e.Evaluate(t.Context(), eval.Subject{Output: output, Judge: New(w.o).Of("agent", "", ""),
			Evaluation: eval.Evaluation{ID: "e", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{"j": json.RawMessage(`{}`)}}})
		requests := w.server.Requests()
		if len(requests) == 0 {
			t.Fatal("nothing was asked")
		}
		for _, r := range requests {
			if strings.Contains(r.Prompt, "MIIEvQIBADAN") || !strings.Contains(r.Prompt, "[redacted:PEM]") {
				t.Errorf("at depth %d this was sent: %s", depth, r.Prompt)
			}
		}
	}
}
