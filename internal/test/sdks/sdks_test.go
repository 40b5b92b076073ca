// Package sdks has the official clients of OpenAI and Anthropic ask the servers that our own judges
// are tested with. What these clients decode proves the shapes of the servers' answers, and what
// they send is compared with what our judges send. It is a module of its own, so that the program
// depends on neither.
package sdks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

const (
	toolName        = "submit_evaluation"
	toolDescription = "Submit the evaluation"
	system          = "You judge."
	maxTokens       = 100
)

var schema = map[string]any{"type": "object", "required": []any{"score", "justification"},
	"properties": map[string]any{"score": map[string]any{"type": "number"}, "justification": map[string]any{"type": "string"}}}

// models are those that are asked of each API.
var models = map[judge.API]string{judge.APIChat: "gpt-5-mini", judge.APIResponses: "gpt-5-nano", judge.APIMessages: "claude-haiku-4-5"}

// world is a provider, and judges of ours that ask it.
type world struct {
	*testing.T
	server *fakejudge.Server
	judges *judge.Judges

	mu sync.Mutex
	// busy is how many more requests are told to come later. paused is what our judges have waited.
	busy   int
	paused []time.Duration
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{T: t}
	var err error
	if w.server, err = fakejudge.Start(w.rule); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.server.Close() })
	config := judge.Default()
	responses := config.Providers["openai"]
	responses.API = judge.APIResponses
	config.Providers["responses"], config.Models[models[judge.APIResponses]] = responses, "responses"
	values := w.server.Environ()
	w.judges = judge.New(judge.Options{Config: config, CacheDir: t.TempDir(),
		Resolve: func(name string) (string, bool) { value, ok := values[name]; return value, ok },
		Pause: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.paused = append(w.paused, d)
			return ctx.Err()
		}})
	return w
}

// rule answers by what the prompt says.
func (w *world) rule(q fakejudge.Request) fakejudge.Reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch q.Prompt {
	case "refuse":
		return fakejudge.Reply{Refusal: "I would rather not."}
	case "truncate":
		return fakejudge.Reply{Truncated: true}
	case "fail":
		return fakejudge.Reply{Status: http.StatusBadRequest, Error: "that is no question"}
	case "expire":
		return fakejudge.Reply{Hang: true}
	case "no tool":
		if q.Tool != "" {
			return fakejudge.Reply{Status: http.StatusBadRequest, Error: "tool_choice is not supported with this model"}
		}
	case "busy":
		if w.busy > 0 {
			w.busy--
			return fakejudge.Reply{Status: http.StatusTooManyRequests, Error: "slower, please", RetryAfter: "0"}
		}
	}
	return fakejudge.Score(85, "good")
}

func question(api judge.API, prompt string, sample int) eval.Question {
	text, _ := json.Marshal(schema) // it is JSON
	zero := 0.0
	return eval.Question{EvaluatorID: "quality", Sample: sample, Model: models[api], System: system, Prompt: prompt, Temperature: &zero, MaxTokens: maxTokens,
		Tool: eval.Tool{Name: toolName, Description: toolDescription, Schema: text},
		Check: func(arguments json.RawMessage) error {
			var in struct{ Score *float64 }
			if err := json.Unmarshal(arguments, &in); err != nil || in.Score == nil {
				return fmt.Errorf("no score in %s: %w", arguments, err)
			}
			return nil
		}}
}

// ask has our judge ask.
func (w *world) ask(api judge.API, prompt string) (eval.Answer, error) {
	return w.judges.Of("agent", w.TempDir(), "").Ask(w.Context(), question(api, prompt, 0))
}

func category(err error) eval.JudgeCategory {
	var failed *eval.JudgeError
	if errors.As(err, &failed) {
		return failed.Category
	}
	return ""
}

// verdict checks the arguments of a call of the tool.
func (w *world) verdict(arguments string) {
	w.Helper()
	if arguments != `{"justification":"good","score":85}` {
		w.Errorf("the tool is called with %s", arguments)
	}
}

// same checks that the last two requests, ours and the client's, are the same but for what both
// providers take in two forms.
func (w *world) same(headers ...string) {
	w.Helper()
	all := w.server.Requests()
	if len(all) < 2 {
		w.Fatalf("%d requests", len(all))
	}
	ours, theirs := all[len(all)-2], all[len(all)-1]
	if ours.API != theirs.API {
		w.Errorf("we ask %s, the official client %s", ours.API, theirs.API)
	}
	for _, name := range append(headers, "Content-Type") {
		if got, want := ours.Header.Get(name), theirs.Header.Get(name); got != want || want == "" {
			w.Errorf("our header %s is %q, the official client's %q", name, got, want)
		}
	}
	if got, want := plain(ours.Body), plain(theirs.Body); !reflect.DeepEqual(got, want) {
		w.Errorf("we send\n%s\nthe official client\n%s", indented(got), indented(want))
	}
}

// plain is a body with texts in place of lists of one block of text.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = plain(value)
		}
		return out
	case []any:
		if len(v) == 1 {
			if block, _ := v[0].(map[string]any); len(block) == 2 && block["type"] == "text" {
				return block["text"]
			}
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}

func indented(v any) string {
	data, _ := json.MarshalIndent(v, "", "  ") // it came out of JSON
	return string(data)
}

// complete checks that a decoded answer has every field that the official types require; a field
// may be null.
func complete(t *testing.T, answer any) {
	t.Helper()
	for _, path := range lacking(reflect.ValueOf(answer), reflect.TypeOf(answer).String()) {
		t.Errorf("the answer has no valid %s", path)
	}
}

// lacking walks a decoded value. The clients keep beside each field, in a struct JSON, what was sent.
func lacking(v reflect.Value, path string) (out []string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return lacking(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, lacking(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
		return out
	case reflect.Struct:
	default:
		return nil
	}
	if as := v.MethodByName("AsAny"); as.IsValid() {
		variant := as.Call(nil)[0]
		if variant.IsNil() {
			return []string{path + " of a known type"}
		}
		return lacking(variant, path)
	}
	sent := v.FieldByName("JSON")
	if !sent.IsValid() {
		return nil
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		meta := sent.FieldByName(field.Name)
		if !meta.IsValid() || !field.IsExported() || field.Name == "JSON" {
			continue
		}
		seen, ok := meta.Interface().(interface {
			Raw() string
			Valid() bool
		})
		if !ok {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		name = path + "." + name
		constant := v.Field(i).MethodByName("Default")
		switch required := constant.IsValid() || field.Tag.Get("api") == "required" || strings.Contains(options, "required"); {
		case seen.Raw() == "":
			if required {
				out = append(out, name)
			}
		case seen.Raw() == "null":
		case !seen.Valid():
			out = append(out, name+", which is "+seen.Raw())
		case constant.IsValid() && seen.Raw() != fmt.Sprintf("%q", constant.Call(nil)[0].String()):
			out = append(out, name+", which is "+seen.Raw())
		default:
			out = append(out, lacking(v.Field(i), name)...)
		}
	}
	return out
}
