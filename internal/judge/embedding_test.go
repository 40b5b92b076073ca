package judge

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/redact"
)

// embedding is a question for the embedding of a text.
func embedding(model, text string, sample int) eval.Question {
	return eval.Question{EvaluatorID: "meaning", Sample: sample, Model: model, Prompt: text, Embed: true,
		Check: func(raw json.RawMessage) error {
			var vector []float64
			if json.Unmarshal(raw, &vector) != nil || len(vector) == 0 {
				return errors.New("it is no array of numbers")
			}
			return nil
		}}
}

// A text is sent as OpenAI's own client sends it, and paid for once, whatever its place and whoever asks.
func TestEmbeddings(t *testing.T) {
	for _, api := range []API{APIChat, APIResponses} {
		w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{Arguments: []float64{0.25, -1e-7}} }, func(o *Options) {
			p := o.Config.Providers["openai"]
			p.API = api
			o.Config.Providers["openai"] = p
			o.Config.Prices = eval.Prices{"embed-*": {Input: 10}}
			o.Redact = redact.New(map[string]string{"SECRET": "hidden-hidden"})
		})
		got, err := w.Of("a", w.dir, "r1").Ask(t.Context(), embedding("embed-1", "the text hidden-hidden", 0))
		if err != nil || string(got.Arguments) != "[0.25,-1e-7]" {
			t.Fatalf("got %s, %v", got.Arguments, err)
		}
		body := w.server.Bodies()[0]
		if string(body) != `{"encoding_format":"float","input":"the text [redacted:SECRET]","model":"embed-1"}` {
			t.Errorf("sent %s", body)
		}
		if c := got.Call; c.API != "embeddings" || c.Attempts != 1 || c.Usage == nil || c.Usage.InputTokens != fakejudge.InputTokens ||
			*c.Usage.Cost != 10*fakejudge.InputTokens/1e6 {
			t.Errorf("the call: %+v", c)
		}
		again, err := w.Of("b", t.TempDir(), "r2").Ask(t.Context(), embedding("embed-1", "the text hidden-hidden", 7))
		if err != nil || !again.Call.Cached || *again.Call.Usage.Cost != 0 || string(again.Arguments) != "[0.25,-1e-7]" {
			t.Errorf("again: %+v %s, %v", again.Call, again.Arguments, err)
		}
		if n := len(w.server.Requests()); n != 1 {
			t.Errorf("asked %d times", n)
		}
		kept, err := os.ReadFile(filepath.Join(w.dir, "meaning.0.json"))
		if err != nil || strings.Contains(string(kept), "0.25") || !strings.Contains(string(kept), `"request":{`) {
			t.Errorf("kept %s, %v", kept, err)
		}
	}
}

func TestEmbeddingsFail(t *testing.T) {
	for name, c := range map[string]struct {
		reply    fakejudge.Reply
		category eval.JudgeCategory
		asked    int
	}{
		"no array":     {fakejudge.Reply{Raw: `{"data": [{"embedding": "AAAA"}]}`}, eval.JudgeInvalid, 2},
		"no data":      {fakejudge.Reply{Raw: `{"data": []}`}, eval.JudgeInvalid, 2},
		"no JSON":      {fakejudge.Reply{Raw: `<html>`}, eval.JudgeInvalid, 2},
		"too long":     {fakejudge.Reply{Status: 400, Error: "maximum context length is 8192 tokens"}, eval.JudgeInvalid, 1},
		"no model":     {fakejudge.Reply{Status: 404, Error: "no such model"}, eval.JudgeModel, 1},
		"wrong key":    {fakejudge.Reply{Status: 401, Error: "wrong key"}, eval.JudgeAuth, 1},
		"always busy":  {fakejudge.Reply{Status: 429, Error: "slower"}, eval.JudgeRateLimit, 5},
		"out of order": {fakejudge.Reply{Status: 503, Error: "down"}, eval.JudgeUnavailable, 5},
	} {
		w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return c.reply }, nil)
		_, err := w.Of("a", w.dir, "r").Ask(t.Context(), embedding("m", "text", 0))
		var failed *eval.JudgeError
		if !errors.As(err, &failed) || failed.Category != c.category || len(w.server.Requests()) != c.asked {
			t.Errorf("%s: got %v after %d requests, expected %s after %d", name, err, len(w.server.Requests()), c.category, c.asked)
		}
	}
}

// The budget counts embeddings as it counts verdicts; a provider without embeddings is not asked; where
// judges are asked in batches, embeddings are asked for at once.
func TestEmbeddingsLimits(t *testing.T) {
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{} }, func(o *Options) { o.Config.Budget.Calls = 1 })
	none := func(string) map[string]eval.Delivery { return nil }
	if _, err := w.InBatches("a", w.dir, "r", none).Ask(t.Context(), embedding("m", "one", 0)); err != nil {
		t.Error(err)
	}
	var failed *eval.JudgeError
	if _, err := w.Of("a", w.dir, "r").Ask(t.Context(), embedding("m", "two", 1)); !errors.As(err, &failed) || failed.Category != eval.JudgeBudget {
		t.Errorf("over the budget: %v", err)
	}
	var not *eval.NotAsked
	if _, err := w.Of("a", w.dir, "r").Ask(t.Context(), embedding("claude-haiku-4-5", "one", 0)); !errors.As(err, &not) ||
		!strings.Contains(not.Reason, "has no embeddings") {
		t.Errorf("Anthropic: %v", err)
	}
	if n := len(w.server.Requests()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
