package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/serve/servetest"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// planted is the value of ${PLANTED}. Agents and jobs have it, print it and hand it in.
const planted = "planted-value-7c1d2e"

const config = `agents:
  - {type: function, name: echo, command: [sh, echo.sh], env: {PLANTED: "${PLANTED}"}}
  - {type: function, name: asker, command: [sh, asker.sh], env: {PLANTED: "${PLANTED}"}}
  - {type: function, name: person, command: [sh, person.sh]}
jobs:
  Build: {source: external}
  Leak: {source: http, start: {url: "LEAKY/start?token=${PLANTED}", body: {hook: "{webhookUrl}"}}, itemKey: .id, interval: 10ms,
    status: {url: "LEAKY/{itemKey}", headers: {Authorization: "${PLANTED}"}, done: "true"}, value: .}
  Poll: {source: http, start: {url: "http://127.0.0.1:1/?token=${PLANTED}", headers: {Authorization: "${PLANTED}"}}, status: {url: "http://127.0.0.1:1/{itemKey}", done: ".done"}, itemKey: .id}
evalSets: sets
`

const echo = `echo "the key is $PLANTED" >&2
cat
`

const asker = `read line
job=Build
case $line in *Poll*) job=Poll ;; *Leak*) job=Leak ;; esac
echo "$job with $PLANTED" >&2
case $line in
*'"resume":null'*) echo '{"__interrupt__":[{"id":"q","value":{"name":"'$job'","input_arguments":{"key":"'$PLANTED'"}}}]}' ;;
*) echo '{"text":"hello","key":"'$PLANTED'","line":'"$line"'}' ;;
esac
`

// person asks whether it may go on.
const person = `read line
case $line in
*'"resume":null'*) echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Go on?"}}]}' ;;
*) echo '{"text":"hello"}' ;;
esac
`

// leakyService is a service whose jobs hand in what they were given: the key and the URL of their
// webhook.
func leakyService(t testing.TB) string {
	var mu sync.Mutex
	var started json.RawMessage
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			started, _ = io.ReadAll(r.Body) // what is missing is missed by the test
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "job", "key": r.Header.Get("Authorization"), "url": r.URL.String(), "started": started})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// set is an eval set of one evaluation.
func set(name, agent string) string {
	return `{"version": "1.0", "id": "` + name + `", "name": "` + name + `", "agent": "` + agent + `",
 "evaluators": [{"version": "1.0", "id": "contains", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {"text": "hello"}, "evaluationCriterias": {"contains": {"searchText": "hello"}}}]}`
}

// world is a server on loopback, over a store of its own.
type world struct {
	testing.TB
	*service.Service
	server    *serve.Server
	base      string
	variables runner.Variables
	// secrets are in no answer and no log.
	secrets *servetest.Secrets
	// token may do everything.
	token string
	audit *buffer
	log   *buffer
	// stop ends the server, once.
	stop func()
}

// buffer may be written and read by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t testing.TB, change ...func(*serve.Options)) *world {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"serve.yaml": strings.ReplaceAll(config, "LEAKY", leakyService(t)), "variables": "PLANTED=" + planted, "echo.sh": echo, "asker.sh": asker, "person.sh": person, "sets/person.json": set("person", "person"),
		"sets/greet.json": set("greet", "echo"), "sets/ask.json": set("ask", "asker"), "sets/leak.json": strings.Replace(set("leak", "asker"), `"hello"}`, `"Leak"}`, 1),
		"sets/poll.json": strings.Replace(set("poll", "asker"), `"hello"}`, `"Poll"}`, 1)} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := service.ReadConfig(filepath.Join(dir, "serve.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	variables, err := runner.ReadVariables(nil, []string{filepath.Join(dir, "variables")})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, Service: service.New(st, cfg, service.Options{Variables: variables}), variables: variables, secrets: servetest.Watch(t, st.Dir()), audit: &buffer{}, log: &buffer{}}
	w.secrets.Plant("the value of a variable", planted)
	log := slog.NewTextHandler(w.secrets.Writer("the log", w.log), &slog.HandlerOptions{Level: slog.LevelDebug})
	o := serve.Options{Service: w.Service, Audit: serve.NewAudit(w.secrets.Writer("the audit log", w.audit)), Log: slog.New(log)}
	for _, f := range change {
		f(&o)
	}
	if w.server, err = serve.New(o); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.base = "http://" + ln.Addr().String()
	drain, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- w.server.Serve(w.secrets.Listener(ln), drain) }()
	w.stop = sync.OnceFunc(func() {
		close(drain)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	w.token = w.newToken(access.Admin)
	return w
}

func (w *world) newToken(scopes ...access.Scope) string {
	w.Helper()
	token, _, err := access.New(context.Background(), w.Store(), "test", scopes, time.Time{})
	if err != nil {
		w.Fatal(err)
	}
	w.secrets.Plant("a token", token[strings.LastIndex(token, "_"):])
	return token
}

// execute runs an executor until the test ends.
func (w *world) execute() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := runner.Options{Variables: w.variables, PublicURL: w.base, Log: w.secrets.Writer("the executor's log", w.log)}
	go func() { done <- w.Runner().Execute(ctx, runner.ExecuteOptions{Options: o}) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

// answer is a response with its whole body.
type answer struct {
	*http.Response
	body string
}

// decode reads the body into a value.
func (a answer) decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// send sends a request with the world's token. Headers are pairs; an empty value takes one away.
func (w *world) send(method, path, body string, headers ...string) answer {
	w.Helper()
	r, err := http.NewRequest(method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			r.Host = headers[i+1]
		case headers[i+1] == "":
			r.Header.Del(headers[i])
		default:
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	a := answer{resp, string(text)}
	theContract().holds(w, method, path, a)
	return a
}

// must is send for a request that is answered with this status.
func (w *world) must(status int, method, path, body string, headers ...string) answer {
	w.Helper()
	a := w.send(method, path, body, headers...)
	if a.StatusCode != status {
		w.Fatalf("%s %s: %d, not %d: %s", method, path, a.StatusCode, status, a.body)
	}
	return a
}

type run struct {
	RunID  string `json:"runId"`
	Status string `json:"status"`
	Final  bool   `json:"final"`
	Seq    int64  `json:"seq"`
}

// start starts a run of a named set.
func (w *world) start(name string) run {
	w.Helper()
	var r run
	w.must(http.StatusCreated, "POST", "/v1/runs", `{"evalSet": "`+name+`"}`).decode(w, &r)
	return r
}

// reaches waits until a run has a status.
func (w *world) reaches(runID, status string) (r run) {
	w.Helper()
	if !testenv.Eventually(func() bool {
		w.must(http.StatusOK, "GET", "/v1/runs/"+runID, "").decode(w, &r)
		return r.Status == status
	}) {
		w.Fatalf("the run is %s, not %s\n%s", r.Status, status, w.log)
	}
	return r
}
