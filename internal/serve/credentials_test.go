package serve_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestTokensOfMeshClients is G21: a client of MCP Mesh sends no header of ours, so that the token is
// in the URL of its registry. The secrets of the world are in no log and no answer.
func TestTokensOfMeshClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reader := w.newToken(access.Read)
	basic := func(name, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	}
	submit := `{"capability": "greet", "submitted_by": "me", "submitted_payload": {}}`
	var job struct{ ID string }
	w.must(http.StatusCreated, "POST", "/jobs/t/"+w.token+"/jobs", submit, "Authorization", "").decode(t, &job)
	for _, c := range []struct {
		name, method, path, auth string
		status                   int
	}{
		{"a password", "GET", "/jobs/" + job.ID, basic("evalrun", w.token), 200},
		{"a password and no name", "GET", "/jobs/" + job.ID, basic("", w.token), 200},
		{"a name and no password", "GET", "/jobs/" + job.ID, basic(w.token, ""), 200},
		{"a wrong password", "GET", "/jobs/" + job.ID, basic(w.token, "evr_aaaaaaaa_no"), 401},
		{"in the path", "GET", "/jobs/t/" + w.token + "/jobs/" + job.ID, "", 200},
		{"in the path, with a query", "GET", "/jobs/t/" + w.token + "/jobs/" + job.ID + "/events?after=0", "", 200},
		{"the list", "GET", "/jobs/t/" + w.token + "/jobs?limit=1", "", 200},
		{"an unknown job", "GET", "/jobs/t/" + w.token + "/jobs/nope", "", 404},
		{"a wrong one in the path", "GET", "/jobs/t/evr_aaaaaaaa_no/jobs/" + job.ID, "", 401},
		{"nothing in the path", "GET", "/jobs/t//jobs/" + job.ID, "", 401},
		{"without the scope", "POST", "/jobs/t/" + reader + "/jobs/" + job.ID + "/cancel", "", 403},
		{"what is no job", "GET", "/jobs/t/" + w.token + "/v1/runs", "", 404},
		{"a page", "GET", "/jobs/t/" + w.token + "/", "", 404},
		{"two in the path", "GET", "/jobs/t/" + w.token + "/jobs/t/" + w.token + "/jobs", "", 404},
		{"a password for /v1", "GET", "/v1/runs", basic("evalrun", w.token), 401},
	} {
		if a := w.send(c.method, c.path, "", "Authorization", c.auth); a.StatusCode != c.status {
			t.Errorf("%s: %d, not %d: %s", c.name, a.StatusCode, c.status, a.body)
		}
	}
}

// TestHalfABodyIsNotWaitedFor is G23: who sends half a body holds no connection for ever, with a
// valid token neither.
func TestHalfABodyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *serve.Options) { o.BodyTimeout = 50 * time.Millisecond })
	for _, path := range []string{"/v1/runs", "/jobs"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{", path, w.token); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, answer.Status)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil { // until the server has closed it
			t.Errorf("%s: %v", path, err)
		}
		_, _ = answer.Body.Close(), conn.Close()
	}
}

// TestOtherOriginsMayNotRead is G27: what a page of another origin asks is refused, whatever its
// method. Who follows a link names no origin.
func TestOtherOriginsMayNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1/runs", "/jobs", "/", "/metrics"} {
		w.must(http.StatusForbidden, "GET", path, "", "Origin", "https://evil.example")
		w.must(http.StatusForbidden, "GET", path, "", "Origin", "null")
		w.must(http.StatusOK, "GET", path, "", "Origin", w.base)
		w.must(http.StatusOK, "GET", path, "", "Sec-Fetch-Site", "cross-site")
	}
}

// TestWebhooksAndLoginsAreNotGuessed is G27: who guesses is soon told to wait.
func TestWebhooksAndLoginsAreNotGuessed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/hooks/guess", "{}"}, {"GET", "/open?key=guess", ""}, {"POST", "/login", "token=evr_aaaaaaaa_guess"},
	} {
		w := newWorld(t, func(o *serve.Options) { o.Now = func() time.Time { return now } })
		guesses := 0
		for w.send(c.method, c.path, c.body, "Authorization", "", "Content-Type", "application/x-www-form-urlencoded").StatusCode != http.StatusTooManyRequests {
			if guesses++; guesses > 100 {
				t.Fatalf("%s: %d guesses were let through", c.path, guesses)
			}
		}
		w.must(http.StatusOK, "GET", "/v1/runs", "") // who has a token is let through
	}
}

// TestRequestLog is G27: there is one line for each request, without what is secret in it.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(http.StatusOK, "GET", "/v1/runs?limit=1", "")
	w.must(http.StatusNotFound, "GET", "/jobs/t/"+w.token+"/jobs/nope", "", "Authorization", "")
	w.must(http.StatusNotFound, "POST", "/v1/hooks/guessed", "{}")
	w.must(http.StatusNotFound, "GET", "/v1/"+w.token, "")
	reader := w.newToken(access.Read)
	w.must(http.StatusForbidden, "POST", "/v1/runs", "{}", "Authorization", "Bearer "+reader)
	idOf := func(token string) string {
		id, _, _ := strings.Cut(strings.TrimPrefix(token, "evr_"), "_")
		return id
	}
	for _, line := range []string{
		`msg=request method=GET path=/v1/runs status=200 ms=`, ` token=` + idOf(w.token), ` token=` + idOf(reader),
		`msg=request method=GET path=/jobs/nope status=404 ms=`,
		`msg=request method=POST path=/v1/hooks/… status=404 ms=`,
		`msg=request method=GET path=/v1/evr_… status=404 ms=`,
	} {
		if !testenv.Eventually(func() bool { return strings.Contains(w.log.String(), line) }) {
			t.Errorf("the log lacks %q:\n%s", line, w.log)
		}
	}
	if strings.Contains(w.log.String(), "guessed") || strings.Contains(w.log.String(), "limit=1") {
		t.Errorf("the log has what it must not have:\n%s", w.log)
	}
}

// TestFailedAuthenticationIsLogged is G27: there is a line for who was refused, and lines are bounded.
func TestFailedAuthenticationIsLogged(t *testing.T) {
	t.Parallel()
	var log buffer
	now := time.Now()
	w := newWorld(t, func(o *serve.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Now = func() time.Time { return now }
	})
	for range 100 {
		w.send("GET", "/v1/runs", "", "Authorization", "Bearer evr_aaaaaaaa_guess")
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 20 || strings.Contains(log.String(), "guess") {
		t.Fatalf("%d lines: %s", len(lines), &log)
	}
	if want := `msg="failed authentication" reason=invalid-token method=GET path=/v1/runs remote=127.0.0.1 skipped=0`; !strings.Contains(lines[0], want) {
		t.Errorf("%s lacks %s", lines[0], want)
	}
	now = now.Add(time.Minute)
	w.send("GET", "/v1/runs", "", "Authorization", "")
	if want := "reason=no-token method=GET path=/v1/runs remote=127.0.0.1 skipped=80"; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s: %s", want, &log)
	}
}

// TestNothingChosenIsAnError is G27: evalIds without an id do not run everything, nor 0 epochs one.
func TestNothingChosenIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, chosen := range []string{`"evalIds": []`, `"epochs": 0`, `"epochs": -1`} {
		w.must(http.StatusUnprocessableEntity, "POST", "/v1/runs", `{"evalSet": "greet", `+chosen+`}`)
		w.must(http.StatusBadRequest, "POST", "/jobs", `{"capability": "greet", "submitted_by": "me", "submitted_payload": {`+chosen+`}}`)
		a := w.must(http.StatusOK, "POST", "/mcp", `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_eval_set",
			"arguments": {"evalSet": "greet", `+chosen+`}, "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
			"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}}}`,
			"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "run_eval_set")
		if !strings.Contains(a.body, `"isError":true`) {
			t.Errorf("%s: %s", chosen, a.body)
		}
	}
}

// TestWhatIsStrangeIsTold is G27: unknown keys of an eval set that was uploaded are named in the
// answer, as the command line names them, and what is wrong with a request is told in words of JSON.
func TestWhatIsStrangeIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	set := `{"version": "1.0", "id": "u", "name": "U", "agent": "echo", "evaluators": [], "colour": 1,
		"evaluations": [{"id": "a", "name": "A", "inputs": {}, "evaluationCriterias": {}}]}`
	var run struct{ Warnings []string }
	w.must(http.StatusCreated, "POST", "/v1/runs", `{"evalSet": `+set+`}`).decode(t, &run)
	if len(run.Warnings) != 1 || !strings.Contains(run.Warnings[0], "colour") || !strings.Contains(run.Warnings[0], "unknown key") {
		t.Errorf("the warnings are %q", run.Warnings)
	}
	for body, want := range map[string]string{
		`{"capability": 1}`:    "Invalid JSON payload: capability: expected a string, got a JSON number",
		`{"max_retries": "x"}`: "Invalid JSON payload: max_retries: expected a whole number, got a JSON string",
		`[]`:                   "Invalid JSON payload: expected a JSON object, got a JSON array",
	} {
		if a := w.must(http.StatusBadRequest, "POST", "/jobs", body); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s lacks %s", body, a.body, want)
		}
	}
}
