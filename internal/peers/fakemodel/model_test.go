package fakemodel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func post(t *testing.T, ctx context.Context, url, body string) (status int, answer string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func TestErrorsAndOtherRequests(t *testing.T) {
	s := start(t, Options{Key: "the-key"})
	for _, c := range []struct {
		name, method, path, body, header, value string
		status                                  int
		want                                    string
	}{
		{"scripted", "POST", "/v1/messages", `{"messages":[{"role":"user","content":"[[ERR 529]]"}]}`, "X-Api-Key", "the-key", 529, "scripted error 529"},
		{"no JSON", "POST", "/v1/messages", `{`, "X-Goog-Api-Key", "the-key", 400, "cannot be read"},
		{"bad script", "POST", "/v1/responses", `{"input":"[[ERR x]]"}`, "Authorization", "Bearer the-key", 400, "directive ERR"},
		{"models", "GET", "/v1/models?key=the-key", "", "", "", 200, `"data"`},
		{"tokens, Anthropic", "POST", "/v1/messages/count_tokens", "{}", "X-Api-Key", "the-key", 200, `{"input_tokens":100}`},
		{"tokens, Gemini", "POST", "/v1beta/models/m:countTokens", "{}", "X-Api-Key", "the-key", 200, `{"totalTokens":100}`},
		{"hello", "GET", "/api/hello", "", "X-Api-Key", "the-key", 200, "{}"},
		{"nothing there", "GET", "/v1/messages", "", "X-Api-Key", "the-key", 404, "nothing at /v1/messages"},
		{"no key", "GET", "/v1/models", "", "", "", 401, "API key"},
		{"a wrong key", "POST", "/v1/responses", `{"input":"x"}`, "Authorization", "Bearer the-key2", 401, "API key"},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), c.method, s.URL()+c.path, strings.NewReader(c.body))
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: got %d %s, %v", c.name, resp.StatusCode, body, err)
		}
	}
}

// A client that does not wait is noticed, and Wait tells.
func TestAnAbortIsSeen(t *testing.T) {
	s := start(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := post(t, ctx, s.URL()+"/v1/responses", `{"input":"[[SLEEP 3600000]]"}`)
		done <- err
	}()
	waiting, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := s.Wait(waiting, func(rs []Request) bool { return len(rs) == 1 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.Wait(waiting, func(rs []Request) bool { return rs[0].Aborted && rs[0].Status == 0 }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	over, end := context.WithCancelCause(t.Context())
	end(errors.New("enough"))
	if err := s.Wait(over, func([]Request) bool { return false }); err == nil || err.Error() != "enough" {
		t.Errorf("got %v", err)
	}
}

func TestASleepIsSlept(t *testing.T) {
	s := start(t, Options{})
	began := time.Now()
	if status, _, err := post(t, t.Context(), s.URL()+"/v1/responses", `{"input":"[[SLEEP 30]]"}`); err != nil || status != 200 || time.Since(began) < 30*time.Millisecond {
		t.Errorf("got %d after %v, %v", status, time.Since(began), err)
	}
}
