package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/redact"
)

// world is a provider and the judges of a run that ask it.
type world struct {
	*testing.T
	server *fakejudge.Server
	*Judges
	dir string

	mu sync.Mutex
	// paused are the pauses that were made, which took no time.
	paused []time.Duration
}

func newWorld(t *testing.T, rule func(fakejudge.Request) fakejudge.Reply, change func(*Options)) *world {
	t.Helper()
	server, err := fakejudge.Start(rule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	w := &world{T: t, server: server, dir: t.TempDir()}
	o := Options{Config: Default(), CacheDir: files.Store(w.dir).JudgeCache(), Redact: redact.New(map[string]string{"OPENAI_API_KEY": fakejudge.Key})}
	values := server.Environ()
	o.Resolve = func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	o.Pause = func(ctx context.Context, d time.Duration) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paused = append(w.paused, d)
		return ctx.Err()
	}
	if change != nil {
		change(&o)
	}
	w.Judges = New(o)
	return w
}

// provide makes the models pass to a provider with this API.
func provide(api API) func(*Options) {
	return func(o *Options) {
		p := o.Config.Providers["openai"]
		p.API = api
		if api == APIMessages {
			p = o.Config.Providers["anthropic"]
		}
		o.Config.Providers["openai"] = p
	}
}

var tool = eval.Tool{Name: "submit_evaluation", Description: "Submit", Schema: json.RawMessage(`{"type":"object","properties":{"score":{"type":"number"}},"required":["score"]}`)}

func question(prompt string) eval.Question {
	zero := 0.0
	return eval.Question{EvaluatorID: "quality", Model: "gpt-5-mini", System: "You judge.", Prompt: prompt, Tool: tool, Temperature: &zero, MaxTokens: 100,
		TemplateHash: "sha256:t", Check: func(arguments json.RawMessage) error {
			var in struct{ Score *float64 }
			if err := json.Unmarshal(arguments, &in); err != nil {
				return err
			}
			if in.Score == nil || *in.Score > 100 {
				return errors.New("score: expected a number from 0 to 100")
			}
			return nil
		}}
}

func (w *world) ask(q eval.Question) (eval.Answer, error) {
	return w.Of("agent", filepath.Join(w.dir, "judges"), "").Ask(w.Context(), q)
}

func category(err error) eval.JudgeCategory {
	var failed *eval.JudgeError
	if errors.As(err, &failed) {
		return failed.Category
	}
	return ""
}

func TestAnswers(t *testing.T) {
	for _, api := range []API{APIChat, APIResponses, APIMessages} {
		t.Run(string(api), func(t *testing.T) {
			w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Score(85, "good") }, func(o *Options) {
				provide(api)(o)
				o.Config.Prices = eval.Prices{"gpt-*": {Input: 1, Output: 10}}
			})
			got, err := w.ask(question("How good is it?"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Arguments) != `{"justification":"good","score":85}` {
				t.Errorf("arguments %s", got.Arguments)
			}
			c := got.Call
			if c.API != string(api) || c.Host != strings.TrimPrefix(w.server.URL(), "http://") || c.Model != "gpt-5-mini" || !strings.HasPrefix(c.ModelReturned, "gpt-5-mini") ||
				c.Attempts != 1 || c.Cached || c.RequestID != "req_1" || c.Usage == nil || c.Usage.Tokens() != 220 || *c.Usage.Cost != 0.0004 {
				t.Errorf("%+v, usage %+v", c, c.Usage)
			}
			sent := w.server.Requests()[0]
			if sent.API != string(api) || sent.System != "You judge." || sent.Prompt != "How good is it?" || sent.Tool != "submit_evaluation" || sent.Body["temperature"] != 0.0 {
				t.Errorf("sent %+v", sent)
			}
			if api == APIResponses && sent.Body["store"] != false {
				t.Error("the provider may store the question")
			}
			// Asked again, by another epoch say, it is not asked at all.
			again, err := w.ask(question("How good is it?"))
			if err != nil || !again.Call.Cached || again.Call.Attempts != 0 || *again.Call.Usage.Cost != 0 || string(again.Arguments) != string(got.Arguments) || again.Call.ModelReturned != c.ModelReturned {
				t.Errorf("again: %+v, %v", again.Call, err)
			}
			other := question("How good is it?")
			other.Sample = 1
			if third, err := w.ask(other); err != nil || third.Call.Cached {
				t.Errorf("another sample: %+v, %v", third.Call, err)
			}
			if n := len(w.server.Requests()); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		replies  []fakejudge.Reply
		want     eval.JudgeCategory
		requests int
		said     string
	}{
		"the key":          {[]fakejudge.Reply{{Status: 401, Error: "bad key " + fakejudge.Key}}, eval.JudgeAuth, 1, "does not accept the key (HTTP status 401): bad key [redacted:OPENAI_API_KEY]"},
		"forbidden":        {[]fakejudge.Reply{{Status: 403}}, eval.JudgeAuth, 1, ""},
		"the model":        {[]fakejudge.Reply{{Status: 404, Error: "no such model"}}, eval.JudgeModel, 1, "does not have the model gpt-5-mini"},
		"too often":        {[]fakejudge.Reply{{Status: 429}}, eval.JudgeRateLimit, model.Tries, ""},
		"overloaded":       {[]fakejudge.Reply{{Status: 529}}, eval.JudgeUnavailable, model.Tries, ""},
		"broken":           {[]fakejudge.Reply{{Status: 500}}, eval.JudgeUnavailable, model.Tries, ""},
		"bad request":      {[]fakejudge.Reply{{Status: 400, Error: "too long"}}, eval.JudgeInvalid, 1, "too long"},
		"refusal":          {[]fakejudge.Reply{{Refusal: "I will not"}}, eval.JudgeRefused, 1, ""},
		"truncated":        {[]fakejudge.Reply{{Truncated: true}}, eval.JudgeTruncated, 1, ""},
		"garbage":          {[]fakejudge.Reply{{Raw: "<html>"}}, eval.JudgeInvalid, 2, ""},
		"text":             {[]fakejudge.Reply{{Text: `GRADE: C {"score": 100}`}}, eval.JudgeInvalid, 2, "has not called the tool"},
		"out of range":     {[]fakejudge.Reply{fakejudge.Score(101, "")}, eval.JudgeInvalid, 2, "from 0 to 100"},
		"NaN":              {[]fakejudge.Reply{{Arguments: `{"score": NaN}`}}, eval.JudgeInvalid, 2, ""},
		"no score":         {[]fakejudge.Reply{{}}, eval.JudgeInvalid, 2, ""},
		"once too often":   {[]fakejudge.Reply{{Status: 429, RetryAfter: "7"}, fakejudge.Score(50, "")}, "", 2, ""},
		"once overloaded":  {[]fakejudge.Reply{{Status: 529}, {Status: 503}, {Status: 408}, {Status: 409}, fakejudge.Score(50, "")}, "", 5, ""},
		"once without":     {[]fakejudge.Reply{{Text: "Well."}, fakejudge.Score(50, "")}, "", 2, ""},
		"JSON for a call":  {[]fakejudge.Reply{{Text: `{"score": 50, "justification": "an agent's echo"}`}}, eval.JudgeInvalid, 2, "has not called the tool"},                                                                               // V7
		"no money":         {[]fakejudge.Reply{{Status: 429, Raw: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`}}, eval.JudgeRateLimit, 1, "has nothing left to spend"}, // V13
		"fails, then text": {[]fakejudge.Reply{{Status: 500}, {Text: "Well."}, {Status: 500}, fakejudge.Score(1, "")}, "", 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, api := range []API{APIChat, APIResponses, APIMessages} {
				if name == "NaN" && api == APIMessages {
					continue // its arguments are no text
				}
				var mu sync.Mutex
				replies := slices.Clone(c.replies)
				w := newWorld(t, func(fakejudge.Request) fakejudge.Reply {
					mu.Lock()
					defer mu.Unlock()
					if len(replies) > 1 {
						defer func() { replies = replies[1:] }()
					}
					return replies[0]
				}, provide(api))
				got, err := w.ask(question("?"))
				if category(err) != c.want || (c.want == "") != (err == nil) {
					t.Errorf("%s: %v, want %q", api, err, c.want)
				}
				if n := len(w.server.Requests()); n != c.requests || got.Call.Attempts != c.requests {
					t.Errorf("%s: %d requests, %d attempts, want %d", api, n, got.Call.Attempts, c.requests)
				}
				if c.said != "" && (err == nil || !strings.Contains(err.Error(), c.said)) {
					t.Errorf("%s: %v does not say %q", api, err, c.said)
				}
				if name == "once too often" && !slices.Equal(w.paused, []time.Duration{7 * time.Second}) {
					t.Errorf("paused %v", w.paused)
				}
				if c.want != "" && err != nil {
					if entries, _ := filepath.Glob(filepath.Join(w.dir, "judge-cache", "*", "*")); len(entries) > 0 {
						t.Errorf("%s: a failure was cached", api)
					}
				}
			}
		})
	}
}

func TestNothingIsAskedAfterTheKeyWasRefused(t *testing.T) {
	status := 401
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{Status: status} }, nil)
	for i := range 3 {
		if _, err := w.ask(question(fmt.Sprint(i))); category(err) != eval.JudgeAuth {
			t.Error(err)
		}
	}
	if n := len(w.server.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	status = 404
	w = newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{Status: status} }, nil)
	other := question("other")
	other.Model = "gpt-4.1"
	for _, q := range []eval.Question{question("1"), question("2"), other} {
		if _, err := w.ask(q); category(err) != eval.JudgeModel {
			t.Error(err)
		}
	}
	if n := len(w.server.Requests()); n != 2 {
		t.Errorf("%d requests, want one for each model", n)
	}
}

func TestWhatAModelDoesNotTakeIsLeftOut(t *testing.T) {
	w := newWorld(t, func(r fakejudge.Request) fakejudge.Reply {
		for _, name := range []string{"max_completion_tokens", "temperature", "seed", "tool_choice"} {
			if _, sent := r.Body[name]; sent {
				return fakejudge.Reply{Status: 400, Error: "Unsupported parameter: '" + name + "' is not supported with this model."}
			}
		}
		return fakejudge.Score(85, "")
	}, nil)
	seed := int64(1)
	for _, prompt := range []string{"one", "two"} {
		q := question(prompt)
		q.Seed = &seed
		got, err := w.ask(q)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"temperature", "seed", "tool_choice"}; !slices.Equal(got.Call.Dropped, want) {
			t.Errorf("dropped %v, want %v", got.Call.Dropped, want)
		}
	}
	requests := w.server.Requests()
	last := requests[len(requests)-1].Body
	if len(requests) != 6 || last["max_tokens"] != 100.0 || last["response_format"] == nil || last["tools"] != nil {
		t.Errorf("%d requests, the last one %v", len(requests), last)
	}
}

func TestSecretsReachNobody(t *testing.T) {
	const secret = "hunter2-is-my-password"
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Score(1, "it says "+secret) }, func(o *Options) {
		o.Redact = redact.New(map[string]string{"DB_PASSWORD": secret, "OPENAI_API_KEY": fakejudge.Key})
	})
	got, err := w.ask(question("The output is: " + secret))
	if err != nil {
		t.Fatal(err)
	}
	if sent := w.server.Requests()[0].Prompt; sent != "The output is: [redacted:DB_PASSWORD]" {
		t.Errorf("sent %q", sent)
	}
	if strings.Contains(string(got.Arguments), secret) {
		t.Errorf("answered %s", got.Arguments)
	}
	files := 0
	err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		for _, one := range []string{secret, fakejudge.Key} {
			if strings.Contains(string(data), one) {
				t.Errorf("%s holds %s", path, one)
			}
		}
		return err
	})
	if err != nil || files != 2 {
		t.Errorf("%d files, %v", files, err)
	}
}

// V7: only calls of the tool that was asked for count, and only if they agree.
func TestCallsThatAreNoVerdict(t *testing.T) {
	type calls = [][2]string // name and arguments
	const asked = "submit_evaluation"
	for name, c := range map[string]struct {
		calls calls
		want  eval.JudgeCategory
		says  string
	}{
		"another tool":            {calls{{"submit_something", `{"score":100,"justification":"x"}`}}, eval.JudgeInvalid, "has not called the tool submit_evaluation"},
		"another tool before":     {calls{{"think", `{}`}, {asked, `{"score":50,"justification":"x"}`}}, "", ""},
		"two that agree":          {calls{{asked, `{"score":50,"justification":"x"}`}, {asked, `{"justification":"y","score":50.0}`}}, "", ""},
		"two that contradict":     {calls{{asked, `{"score":50,"justification":"x"}`}, {asked, `{"score":90,"justification":"x"}`}}, eval.JudgeInvalid, "called 2 times, with verdicts that differ"},
		"a key that comes twice":  {calls{{asked, `{"score":10,"justification":"x","score":100}`}}, eval.JudgeInvalid, "a key of its arguments is given twice"},
		"a text beside the calls": {calls{{"", `{"score": 50, "justification":"x"}`}}, eval.JudgeInvalid, "has not called the tool"},
	} {
		for _, api := range []API{APIChat, APIResponses, APIMessages} {
			w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{Raw: answerWith(api, c.calls)} }, provide(api))
			got, err := w.ask(question("?"))
			if category(err) != c.want || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && !strings.Contains(string(got.Arguments), `50`) {
				t.Errorf("%s, %s: %s, %v", name, api, got.Arguments, err)
			}
		}
	}
}

// answerWith is the answer of a provider with these calls; one without a name is a text.
func answerWith(api API, calls [][2]string) string {
	var parts []string
	text := "null"
	for _, c := range calls {
		quoted := strconv.Quote(c[1])
		switch {
		case c[0] == "" && api == APIChat:
			text = quoted
		case c[0] == "" && api == APIResponses:
			parts = append(parts, `{"type":"message","content":[{"type":"output_text","text":`+quoted+`}]}`)
		case c[0] == "":
			parts = append(parts, `{"type":"text","text":`+quoted+`}`)
		case api == APIChat:
			parts = append(parts, `{"type":"function","function":{"name":"`+c[0]+`","arguments":`+quoted+`}}`)
		case api == APIResponses:
			parts = append(parts, `{"type":"function_call","name":"`+c[0]+`","arguments":`+quoted+`}`)
		default:
			parts = append(parts, `{"type":"tool_use","name":"`+c[0]+`","input":`+c[1]+`}`)
		}
	}
	list := "[" + strings.Join(parts, ",") + "]"
	switch api {
	case APIChat:
		return `{"model":"m","choices":[{"message":{"content":` + text + `,"tool_calls":` + list + `}}]}`
	case APIResponses:
		return `{"model":"m","output":` + list + `}`
	}
	return `{"model":"m","content":` + list + `}`
}

// V13: the patterns of a set go before those that hold without it.
func TestOwnPatternsOfModels(t *testing.T) {
	for models, want := range map[string]string{
		`{"*": "local"}`:                          "local local",
		`{"c*": "local"}`:                         "local openai",
		`{"qwen*": "local"}`:                      "anthropic openai",
		`{"*": "local", "claude-*": "anthropic"}`: "anthropic local",
		`{"claude-haiku-4-5": "openai"}`:          "openai openai",
	} {
		node, err := input.Parse("judges", []byte(`{"providers": {"local": {"api": "chat", "baseUrl": "http://127.0.0.1"}}, "models": `+models+`}`))
		if err != nil {
			t.Fatal(err)
		}
		var r input.Reader
		config := ParseConfig(&r, node)
		claude, _ := config.providerOf("claude-haiku-4-5")
		gpt, _ := config.providerOf("gpt-5-mini")
		if got := claude + " " + gpt; got != want || r.Problems != nil {
			t.Errorf("%s: got %s, expected %s", models, got, want)
		}
	}
}
