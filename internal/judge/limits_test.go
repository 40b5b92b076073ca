package judge

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

func good(fakejudge.Request) fakejudge.Reply { return fakejudge.Score(50, "so so") }

// askAll asks so many different questions at once.
func (w *world) askAll(n int) {
	var asking sync.WaitGroup
	for i := range n {
		asking.Go(func() {
			if _, err := w.ask(question(fmt.Sprint("question ", i))); err != nil {
				w.Error(err)
			}
		})
	}
	asking.Wait()
}

func TestNoMoreAreAskedAtOnceThanAProviderTakes(t *testing.T) {
	var mu sync.Mutex
	begun := make(chan struct{})
	n := 0
	w := newWorld(t, func(r fakejudge.Request) fakejudge.Reply {
		mu.Lock()
		if n++; n == 3 {
			close(begun) // as many as may be are here
		}
		mu.Unlock()
		<-begun
		return good(r)
	}, func(o *Options) {
		p := o.Config.Providers["openai"]
		p.Concurrency = 3
		o.Config.Providers["openai"] = p
	})
	w.askAll(20)
	if most := w.server.MostAtOnce(); most != 3 {
		t.Errorf("%d at once, want 3", most)
	}
}

func TestRequestsAMinute(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := newWorld(t, good, func(o *Options) {
		p := o.Config.Providers["openai"]
		p.RequestsPerMinute = 60
		o.Config.Providers["openai"] = p
		o.Now = func() time.Time { return now }
	})
	for i := range 3 {
		if _, err := w.ask(question(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.paused) != 2 || w.paused[0] != time.Second || w.paused[1] != 2*time.Second {
		t.Errorf("paused %v, want 1s and 2s from the same moment", w.paused)
	}
}

func TestTheSameQuestionIsAskedOnceAtATime(t *testing.T) {
	w := newWorld(t, good, nil)
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			if _, err := w.ask(question("the same")); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if n := len(w.server.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	w = newWorld(t, good, func(o *Options) { o.Config.NoCache = true })
	for range 2 {
		if got, err := w.ask(question("the same")); err != nil || got.Call.Cached {
			t.Error(got, err)
		}
	}
	if n := len(w.server.Requests()); n != 2 {
		t.Errorf("without a cache: %d requests", n)
	}
}

func TestBudgets(t *testing.T) {
	prices := eval.Prices{"gpt-*": {Input: 1000, Output: 10000}} // a question costs 0.4
	for name, c := range map[string]struct {
		budget Budget
		prices eval.Prices
		spent  Spent
		asked  int
	}{
		"calls":          {Budget{Calls: 2}, nil, Spent{}, 2},
		"calls before":   {Budget{Calls: 2}, nil, Spent{Calls: 1}, 1},
		"tokens":         {Budget{Tokens: 221}, nil, Spent{}, 2}, // 220 each: the second one goes beyond
		"money":          {Budget{Cost: 1}, prices, Spent{}, 3},
		"money before":   {Budget{Cost: 1}, prices, Spent{Cost: 0.9}, 1},
		"no price":       {Budget{Cost: 1}, nil, Spent{}, 0},
		"nothing at all": {Budget{Calls: 1}, nil, Spent{Calls: 5}, 0},
	} {
		w := newWorld(t, good, func(o *Options) {
			o.Config.Budget, o.Config.Prices = c.budget, c.prices
			o.Spent = func(context.Context) (Spent, error) { return c.spent, nil }
		})
		for i := range 5 {
			_, err := w.ask(question(fmt.Sprint(i)))
			if over := i >= c.asked; over != (category(err) == eval.JudgeBudget) {
				t.Errorf("%s, question %d: %v", name, i, err)
			}
		}
		if n := len(w.server.Requests()); n != c.asked {
			t.Errorf("%s: %d requests, want %d", name, n, c.asked)
		}
	}
}

func TestAJudgeThatHangs(t *testing.T) {
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Reply{Hang: true} }, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.Of("agent", "", "").Ask(ctx, question("?")); category(err) != eval.JudgeTimeout {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := w.Of("agent", "", "").Ask(ctx, question("?")); err == nil || category(err) != "" {
		t.Errorf("who is ended is no judge that failed: %v", err)
	}
}

func TestAPauseThatIsTooLongIsNotMade(t *testing.T) {
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply {
		return fakejudge.Reply{Status: http.StatusTooManyRequests, RetryAfter: "3600"}
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := w.Of("agent", "", "").Ask(ctx, question("?")); category(err) != eval.JudgeRateLimit || len(w.paused) > 0 {
		t.Errorf("%v, paused %v", err, w.paused)
	}
}

func TestModelsAndKeys(t *testing.T) {
	c := Default()
	c.Models["qwen*"], c.Providers["local"] = "local", Provider{API: APIChat, BaseURL: "http://127.0.0.1:1/v1"}
	with := func(names ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for _, one := range names {
				if one == name {
					return "a-key", true
				}
			}
			return "", false
		}
	}
	for _, v := range []struct {
		model, agents string
		keys          []string
		want          string
	}{
		{"gpt-5-mini", "", nil, "set OPENAI_API_KEY"},
		{"gpt-5-mini", "", []string{"OPENAI_API_KEY"}, ""},
		{"claude-opus-4", "", []string{"OPENAI_API_KEY"}, "set ANTHROPIC_API_KEY"},
		{"qwen3", "", nil, ""},
		{"", "", []string{"OPENAI_API_KEY"}, "--judge-model"},
		{eval.SameAsAgent, "gpt-5", []string{"OPENAI_API_KEY"}, ""},
		{eval.SameAsAgent, "claude-x", []string{"OPENAI_API_KEY"}, "set ANTHROPIC_API_KEY"},
	} {
		got := c.Missing(v.model, v.agents, with(v.keys...))
		if (got == "") != (v.want == "") || !strings.Contains(got, v.want) {
			t.Errorf("%+v: %q", v, got)
		}
	}
	if c.Model = "gpt-5"; c.Missing(eval.SameAsAgent, "", with("OPENAI_API_KEY")) != "" {
		t.Error("the model of the configuration does not count")
	}
	if got := (Config{}).Missing("gpt-5", "", with("OPENAI_API_KEY")); got == "" {
		t.Error("a model without a provider")
	}
}

func TestWrongConfigurations(t *testing.T) {
	for text, want := range map[string]string{
		`{"providers":{"p":{"api":"chat","key":"sk-0123"}}}`:     "expected the name of a variable",
		`{"providers":{"p":{"api":"grpc"}}}`:                     "api",
		`{"providers":{"p":{}}}`:                                 "missing",
		`{"providers":{"p":{"api":"chat","baseUrl":"ftp://x"}}}`: "expected a URL",
		`{"providers":{"p":{"api":"chat","concurrency":0}}}`:     "from 1 to 1000",
		`{"models":{"gpt-*":"opnai"}}`:                           "did you mean",
		`{"models":{"gpt-*":1}}`:                                 "expected the name of a provider",
		`{"prices":{"gpt":{"input":1}}}`:                         "output",
		`{"budget":{"calls":0}}`:                                 "from 1",
	} {
		n, err := input.Parse("x.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var r input.Reader
		ParseConfig(&r, n)
		if err := r.Problems.Err(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAnotherHostGetsNeitherKeyNorQuestion(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	here := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer here.Close()
	w := newWorld(t, good, func(o *Options) {
		o.Config.Providers["openai"] = Provider{API: APIMessages, BaseURL: here.URL, Key: "${OPENAI_API_KEY}", Concurrency: 1}
	})
	if _, err := w.ask(question("?")); category(err) != eval.JudgeInvalid || asked {
		t.Errorf("%v, asked elsewhere: %v", err, asked)
	}
}
