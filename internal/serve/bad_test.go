package serve_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/testenv"
)

var update = flag.Bool("update", false, "write what the server answers into the golden file")

// badRequest is a request that is answered with a problem.
type badRequest struct {
	name, method, path, body string
	headers                  []string
}

// TestBadRequests holds what the server says to whatever is wrong against testdata/bad.golden.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	done, waits, polls := w.start("greet").RunID, w.start("ask").RunID, w.start("poll").RunID
	w.reaches(done, "successful")
	w.reaches(waits, "suspended")
	w.reaches(polls, "suspended")
	var used run
	w.must(http.StatusCreated, "POST", "/v1/runs", `{"evalSet": "greet"}`, "Idempotency-Key", "used").decode(t, &used)
	names := strings.NewReplacer(used.RunID, "USED", done, "DONE", waits, "WAITS", polls, "POLLS", w.triggerOf(waits), "TRIGGER", w.triggerOf(polls), "POLLED")
	fill := strings.NewReplacer("DONE", done, "WAITS", waits, "TRIGGER", w.triggerOf(waits), "POLLED", w.triggerOf(polls))
	scoped := func(s access.Scope) []string { return []string{"Authorization", "Bearer " + w.newToken(s)} }

	var got bytes.Buffer
	show := func(name string, a answer) {
		fmt.Fprintf(&got, "-- %s --\n%d", name, a.StatusCode)
		for _, h := range []string{"Content-Type", "Allow", "WWW-Authenticate"} {
			if v := a.Header.Get(h); v != "" {
				fmt.Fprintf(&got, " | %s: %s", h, v)
			}
		}
		fmt.Fprintf(&got, "\n%s\n", names.Replace(strings.TrimSpace(a.body)))
	}
	for _, c := range slicesOf(badAccess(scoped), badRuns(), badEvents(), badTriggers(), badSets()) {
		a := w.send(c.method, fill.Replace(c.path), fill.Replace(c.body), c.headers...)
		if a.StatusCode < 400 {
			t.Errorf("%s: %d %s", c.name, a.StatusCode, a.body)
		}
		show(c.name, a)
	}
	show("a huge body", w.huge("/v1/runs"))
	for _, what := range []string{"deliver", "fail", "cancel"} {
		if a := w.huge("/v1/triggers/" + w.triggerOf(waits) + "/" + what); a.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a huge body for %s: %d", what, a.StatusCode)
		}
	}
	show("half a body", w.half())

	golden := filepath.Join("testdata", "bad.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(testenv.ReadFile(t, golden), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("-update writes what the server says now (-want +got):\n%s", diff)
	}
	if r := w.reaches(waits, "suspended"); r.Seq != 3 {
		t.Errorf("something has changed the run: %+v", r)
	}
}

func slicesOf(parts ...[]badRequest) (out []badRequest) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func badAccess(scoped func(access.Scope) []string) []badRequest {
	return []badRequest{
		{"no token", "GET", "/v1/runs", "", []string{"Authorization", ""}},
		{"no token, and nothing there", "GET", "/v2", "", []string{"Authorization", ""}},
		{"another scheme", "GET", "/v1/runs", "", []string{"Authorization", "Basic eDp5"}},
		{"an invalid token", "GET", "/v1/runs", "", []string{"Authorization", "Bearer evr_aaaaaaaa_bbbbbbbb"}},
		{"scope read starts nothing", "POST", "/v1/runs", `{"evalSet": "greet"}`, scoped(access.Read)},
		{"scope read cancels nothing", "POST", "/v1/runs/WAITS/cancel", "", scoped(access.Read)},
		{"scope run answers nothing", "POST", "/v1/triggers/TRIGGER/deliver", `{"payload": 1}`, scoped(access.Run)},
		{"scope deliver starts nothing", "POST", "/v1/runs", `{"evalSet": "greet"}`, scoped(access.Deliver)},
		{"scope deliver reads nothing", "GET", "/v1/runs", "", scoped(access.Deliver)},
		{"a host that leads here", "GET", "/healthz", "", []string{"Host", "rebound.example.com:8484"}},
		{"an origin of others", "POST", "/v1/runs", `{"evalSet": "greet"}`, []string{"Origin", "https://example.com"}},
		{"an origin without a name", "POST", "/v1/runs", `{"evalSet": "greet"}`, []string{"Origin", "null"}},
		{"a page of another site", "POST", "/v1/runs", `{"evalSet": "greet"}`, []string{"Sec-Fetch-Site", "cross-site"}},
		{"nothing there", "GET", "/v1/nothing", "", nil},
		{"no folder is listed", "GET", "/v1/", "", nil},
		{"a method that does not exist", "BREW", "/v1/runs", "", nil},
		{"another method", "DELETE", "/v1/runs/DONE", "", nil},
	}
}

func badRuns() []badRequest {
	create := func(name, body string, headers ...string) badRequest {
		return badRequest{name, "POST", "/v1/runs", body, headers}
	}
	return []badRequest{
		create("no body", "", "Content-Type", "application/json"),
		create("no JSON", "{"),
		create("no media type", `{"evalSet": "greet"}`, "Content-Type", ""),
		create("a form", "evalSet=greet", "Content-Type", "application/x-www-form-urlencoded"),
		create("an array", `[]`),
		create("two documents", `{"evalSet": "greet"} {}`),
		create("an unknown key", `{"evalSet": "greet", "epoch": 2}`),
		create("no eval set", `{}`),
		create("an eval set that is a number", `{"evalSet": 1}`),
		create("an unknown eval set", `{"evalSet": "gret"}`),
		create("an eval set outside", `{"evalSet": "../serve"}`),
		create("epochs as a text", `{"evalSet": "greet", "epochs": "2"}`),
		create("half an epoch", `{"evalSet": "greet", "epochs": 0.5}`),
		create("too many epochs", `{"evalSet": "greet", "epochs": 10001}`),
		create("an unknown agent", `{"evalSet": "greet", "agents": ["ecko"]}`),
		create("agents as a text", `{"evalSet": "greet", "agents": "echo"}`),
		create("an agent twice", `{"evalSet": "greet", "agents": ["echo", "echo"]}`),
		create("an unknown evaluation", `{"evalSet": "greet", "evalIds": ["two"]}`),
		create("inputs that are a list", `{"evalSet": "greet", "inputs": [1]}`),
		create("retries below none", `{"evalSet": "greet", "maxRetries": -1}`),
		create("an unknown category", `{"evalSet": "greet", "retryOn": ["timout"]}`),
		create("time below none", `{"evalSet": "greet", "maxDurationMs": -1}`),
		create("a key that was used", `{"evalSet": "ask"}`, "Idempotency-Key", "used"),
		create("a key that is too long", `{"evalSet": "greet"}`, "Idempotency-Key", strings.Repeat("k", 256)),
		{"eval sets by the page", "GET", "/v1/eval-sets?limit=1", "", nil},
		{"an unknown run", "GET", "/v1/runs/0", "", nil},
		{"a part of an id", "GET", "/v1/runs/01", "", nil},
		{"results of an unknown run", "GET", "/v1/runs/0/results", "", nil},
		{"rollouts of an unknown run", "GET", "/v1/runs/0/rollouts", "", nil},
		{"cancelling an unknown run", "POST", "/v1/runs/0/cancel", "", nil},
		{"an unknown rollout", "GET", "/v1/rollouts/0", "", nil},
		{"a cursor that is none", "GET", "/v1/runs?cursor=x", "", nil},
		{"a cursor of rollouts", "GET", "/v1/runs?cursor=MTA", "", nil},
		{"a cursor of runs", "GET", "/v1/runs/DONE/rollouts?cursor=MSAy", "", nil},
		{"a cursor below none", "GET", "/v1/runs/DONE/rollouts?cursor=LTE", "", nil},
		{"no limit", "GET", "/v1/runs?limit=0", "", nil},
		{"a limit that is too high", "GET", "/v1/runs?limit=1001", "", nil},
		{"an unknown parameter", "GET", "/v1/runs?limt=1", "", nil},
		{"a parameter twice", "GET", "/v1/runs?limit=1&limit=2", "", nil},
		{"neither true nor false", "GET", "/v1/runs?final=maybe", "", nil},
		{"a query that is none", "GET", "/v1/runs?%zz", "", nil},
	}
}

func badEvents() []badRequest {
	return []badRequest{
		{"events of an unknown run", "GET", "/v1/runs/0/events", "", nil},
		{"after below none", "GET", "/v1/runs/DONE/events?after=-1", "", nil},
		{"after as a word", "GET", "/v1/runs/DONE/events?after=now", "", nil},
		{"a wait that is too long", "GET", "/v1/runs/DONE/events?wait=61", "", nil},
		{"an unknown type", "GET", "/v1/runs/DONE/events?types=run.finish", "", nil},
		{"an id that is none", "GET", "/v1/runs/DONE/events", "", []string{"Accept", "text/event-stream", "Last-Event-ID", "x"}},
	}
}

func badTriggers() []badRequest {
	return []badRequest{
		{"an unknown trigger", "GET", "/v1/triggers/0", "", nil},
		{"triggers of an unknown run", "GET", "/v1/triggers?runId=0", "", nil},
		{"triggers of an unknown rollout", "GET", "/v1/triggers?rolloutId=0", "", nil},
		{"a cursor that is no place", "GET", "/v1/triggers?cursor=LTE", "", nil},
		{"delivering to an unknown one", "POST", "/v1/triggers/0/deliver", `{"payload": 1}`, nil},
		{"failing an unknown one", "POST", "/v1/triggers/0/fail", `{"message": "no"}`, nil},
		{"cancelling an unknown one", "POST", "/v1/triggers/0/cancel", "", nil},
		{"no payload", "POST", "/v1/triggers/TRIGGER/deliver", `{}`, nil},
		{"a payload that is no JSON", "POST", "/v1/triggers/TRIGGER/deliver", `{"payload": nil}`, nil},
		{"a payload as a form", "POST", "/v1/triggers/TRIGGER/deliver", `payload=1`, []string{"Content-Type", "text/plain"}},
		{"no message", "POST", "/v1/triggers/TRIGGER/fail", `{}`, nil},
		{"a message that is none", "POST", "/v1/triggers/TRIGGER/fail", `{"message": {}}`, nil},
		{"a message as a form", "POST", "/v1/triggers/TRIGGER/fail", `message=no`, []string{"Content-Type", "text/plain"}},
		{"force as a text", "POST", "/v1/triggers/TRIGGER/cancel", `{"force": "yes"}`, nil},
		{"cancelling with a form", "POST", "/v1/triggers/TRIGGER/cancel", `force=1`, []string{"Content-Type", "text/plain"}},
		{"a job that evalrun asks for", "POST", "/v1/triggers/POLLED/deliver", `{"payload": 1}`, nil},
		{"failing a job that evalrun asks for", "POST", "/v1/triggers/POLLED/fail", `{"message": "no"}`, nil},
		{"cancelling a job that evalrun asks for", "POST", "/v1/triggers/POLLED/cancel", "", nil},
	}
}

// badSets are eval sets that cannot be uploaded.
func badSets() (out []badRequest) {
	for _, c := range [][3]string{
		{"an eval set without anything", `{}`}, {"an agent with a command", `"agent": "echo"`, `"agent": {"type": "function", "command": ["id"]}`},
		{"an agent of nobody", `"agent": "echo"`, `"agent": "claude"`}, {"jobs", `"agent": "echo"`, `"agent": "echo", "jobs": {"x": {"source": "exec", "command": ["id"]}}`},
		{"tasks", `"agent": "echo"`, `"agent": "echo", "tasks": ["/etc"]`}, {"a command that scores", `"uipath-contains"`, `"command", "command": ["id"]`},
		{"a variable", `"hello"`, `"${HOME}"`}, {"an unknown type of evaluator", `"uipath-contains"`, `"uipath-contain"`},
	} {
		body := c[1]
		if c[2] != "" {
			body = strings.Replace(set("greet", "echo"), c[1], c[2], 1)
		}
		out = append(out, badRequest{"an upload: " + c[0], "POST", "/v1/runs", `{"evalSet": ` + body + `}`, nil})
	}
	return out
}

// triggerOf is the id of the only trigger of a run.
func (w *world) triggerOf(runID string) string {
	w.Helper()
	var page struct{ Triggers []struct{ TriggerID string } }
	w.must(http.StatusOK, "GET", "/v1/triggers?runId="+runID, "").decode(w, &page)
	if len(page.Triggers) != 1 {
		w.Fatalf("%+v", page)
	}
	return page.Triggers[0].TriggerID
}

// huge sends a body that is larger than any may be. The server may end the connection before it has
// read all of it.
func (w *world) huge(path string) answer {
	w.Helper()
	conn := w.dial()
	defer func() { _ = conn.Close() }()
	w.write(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, w.token, 64<<20)
	go func() { _, _ = io.Copy(conn, io.LimitReader(spaces{}, 64<<20)) }()
	return w.read(conn, "POST", path)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// half sends the beginning of a body.
func (w *world) half() answer {
	w.Helper()
	conn := w.dial()
	defer func() { _ = conn.Close() }()
	w.write(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"evalSet\":", w.token)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		w.Fatal(err)
	}
	return w.read(conn, "POST", "/v1/runs")
}

func (w *world) dial() net.Conn {
	w.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
	if err != nil {
		w.Fatal(err)
	}
	return conn
}

func (w *world) write(conn net.Conn, format string, args ...any) {
	w.Helper()
	if _, err := fmt.Fprintf(conn, format, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(conn net.Conn, method, path string) answer {
	w.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	a := answer{resp, string(body)}
	theContract().holds(w, method, path, a)
	return a
}
