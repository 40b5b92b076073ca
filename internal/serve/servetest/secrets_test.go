package servetest

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/webhook"
)

func TestSecretsAreHeardWhereverTheyAre(t *testing.T) {
	t.Parallel()
	const secret = "nobody-may-read-this"
	key, err := webhook.LoadKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	token, err := key.Token(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	other := webhook.Key{}
	foreign, err := other.Token(uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *slog.Logger)
		leaks  string
	}{
		"nowhere":            {func(w http.ResponseWriter, _ *slog.Logger) { _, _ = io.WriteString(w, "nobody may read this "+foreign) }, ""},
		"in a body":          {func(w http.ResponseWriter, _ *slog.Logger) { _, _ = io.WriteString(w, "x"+secret+"x") }, "a response has the value"},
		"in a header":        {func(w http.ResponseWriter, _ *slog.Logger) { w.Header().Set("X-Debug", secret) }, "a response has the value"},
		"in the log":         {func(_ http.ResponseWriter, log *slog.Logger) { log.Info("x", "y", secret) }, "the log has the value"},
		"a webhook":          {func(w http.ResponseWriter, _ *slog.Logger) { _, _ = io.WriteString(w, "/v1/hooks/"+token) }, "a response has a webhook's token"},
		"between two chunks": {func(w http.ResponseWriter, _ *slog.Logger) { inChunks(w, secret[:5], secret[5:]) }, "a response has the value"},
	} {
		s := newSecrets(key)
		s.Plant("the value", secret)
		log := slog.New(slog.NewTextHandler(s.Writer("the log", io.Discard), nil))
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w, log) }))
		server.Listener = s.Listener(server.Listener)
		server.Start()
		resp, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		server.Close()
		leaks := strings.Join(s.leaks(), "\n")
		if c.leaks == "" && leaks != "" || !strings.Contains(leaks, c.leaks) {
			t.Errorf("%s: %q", name, leaks)
		}
	}
}

func inChunks(w http.ResponseWriter, parts ...string) {
	for _, p := range parts {
		_, _ = io.WriteString(w, p)
		_ = http.NewResponseController(w).Flush()
	}
}
