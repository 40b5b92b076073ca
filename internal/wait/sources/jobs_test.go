package sources

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/uipath"
)

func parseJobs(t *testing.T, file, text string) (wait.Jobs, input.Problems) {
	t.Helper()
	n, err := input.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	return wait.ParseJobs(r, n), r.Problems
}

func exampleJobs(t *testing.T) wait.Jobs {
	t.Helper()
	text, err := os.ReadFile("testdata/jobs.json")
	if err != nil {
		t.Fatal(err)
	}
	jobs, problems := parseJobs(t, "jobs.json", string(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return jobs
}

func TestJobsAreStoredAsTheyWereRead(t *testing.T) {
	jobs := exampleJobs(t)
	report, other := jobs["Report"].Settings.(*http.Config), jobs["*"].Settings.(*http.Config)
	if report.StartKind != wait.Idempotent || report.Start.Method != "POST" || report.Status.Method != "GET" || report.Cancel.Method != "DELETE" {
		t.Errorf("wrong defaults: %+v", report)
	}
	if other.StartKind != wait.Searchable || other.Result.Value != ".result" || other.Start != nil {
		t.Errorf("wrong defaults: %+v", other)
	}
	if r := jobs["Robot"].Settings.(*uipath.Config); time.Duration(r.Interval) != 2*time.Second || time.Duration(r.MaxInterval) != time.Minute {
		t.Errorf("wrong defaults: %+v", r.Polling)
	}
	stored, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stored), "${API_KEY}") {
		t.Error("a variable is gone")
	}
	var loaded wait.Jobs
	if err := json.Unmarshal(stored, &loaded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jobs, loaded); diff != "" {
		t.Error("loaded with encoding/json:", diff)
	}
	again, problems := parseJobs(t, "stored.json", string(stored))
	if diff := cmp.Diff(jobs, again); diff != "" || len(problems) > 0 {
		t.Error("read as an eval set's key again:", problems, diff)
	}
}

func TestJobsVariables(t *testing.T) {
	if diff := cmp.Diff([]string{"API_KEY", "BASE", "BUILD_TOKEN", "FOLDER", "MESH_TOKEN", "TENANT", "UIPATH_ACCESS_TOKEN"}, exampleJobs(t).Variables()); diff != "" {
		t.Error(diff)
	}
}

func TestNoJobs(t *testing.T) {
	r := &input.Reader{}
	if jobs := wait.ParseJobs(r, nil); jobs != nil || len(r.Problems) > 0 {
		t.Error(jobs, r.Problems)
	}
	if jobs, problems := parseJobs(t, "x.yaml", "null"); jobs != nil || len(problems) > 0 {
		t.Error(jobs, problems)
	}
}

func TestJobsProblems(t *testing.T) {
	const status = `"status":{"url":"https://h/{itemKey}"}`
	for _, c := range []struct{ name, text, want string }{
		{"not an object", `[]`, `x.json:1:1: expected an object of process names and their sources, got an array`},
		{"not an object inside", `{"P":1}`, `x.json:1:6: P: expected an object, got a number`},
		{"no source", `{"P":{"command":["x"]}}`, `x.json:1:6: P.source: missing; expected a string`},
		{"a wrong source", `{"P":{"source":"htp"}}`, `x.json:1:16: P.source: expected one of external, exec, http, uipath, mesh, mcp, fixed, got "htp"; did you mean "http"?`},
		{"an unknown key", `{"P":{"source":"exec","command":["x"],"timeuot":"1s"}}`, `x.json:1:39: warning: P.timeuot: unknown key; did you mean "timeout"?`},
		{"no command", `{"P":{"source":"exec"}}`, `x.json:1:6: P.command: missing; expected an array`},
		{"an empty command", `{"P":{"source":"exec","command":[]}}`, `x.json:1:33: P.command: expected the program and its arguments, got none`},
		{"a command with a variable", `{"P":{"source":"exec","command":["x","${TOKEN}"]}}`,
			`x.json:1:38: warning: P.command[1]: variables are not replaced in a command, which every process of the machine can read; use env`},
		{"a bad timeout", `{"P":{"source":"exec","command":["x"],"timeout":10}}`, `x.json:1:49: P.timeout: expected a duration such as "30s" or "10m", got a number`},
		{"a bad variable", `{"P":{"source":"exec","command":["x"],"env":{"A":"${A-B}"}}}`, `x.json:1:50: P.env.A: expected the name of a variable in ${…}, got "A-B"`},
		{"an open variable", `{"P":{"source":"exec","command":["x"],"env":{"A":"${A"}}}`, `x.json:1:50: P.env.A: a ${ is not closed by a }`},
		{"no status", `{"P":{"source":"http"}}`, `x.json:1:6: P.status: missing; expected an object`},
		{"no url", `{"P":{"source":"http","status":{}}}`, `x.json:1:32: P.status.url: missing; expected a string`},
		{"no scheme", `{"P":{"source":"http","status":{"url":"h/{itemKey}"}}}`, `x.json:1:39: P.status.url: {itemKey} stands before the path; what a model says may not choose the host`},
		{"another scheme", `{"P":{"source":"http","status":{"url":"file:///x"}}}`, `x.json:1:39: P.status.url: expected a URL that begins with http:// or https:// and a host`},
		{"a placeholder as host", `{"P":{"source":"http","status":{"url":"https://{process}/x"}}}`, `x.json:1:39: P.status.url: {process} stands before the path; what a model says may not choose the host`},
		{"a placeholder after the host", `{"P":{"source":"http","status":{"url":"${BASE}{process}"}}}`, `x.json:1:39: P.status.url: {process} stands before the path; what a model says may not choose the host`},
		{"a placeholder in the fragment", `{"P":{"source":"http","status":{"url":"https://h/#{itemKey}"}}}`, `x.json:1:39: P.status.url: {itemKey} stands after a '#', which is not sent`},
		{"an unknown placeholder", `{"P":{"source":"http","status":{"url":"https://h/{key}"}}}`,
			`x.json:1:39: P.status.url: expected one of the placeholders {triggerId}, {rolloutId}, {process}, {folderPath}, {folderKey}, {itemKey}, got {key}`},
		{"a key that is not known yet", `{"P":{"source":"http","start":{"url":"https://h/{itemKey}"},` + status + `}}`,
			`x.json:1:38: P.start.url: expected one of the placeholders {triggerId}, {rolloutId}, {process}, {folderPath}, {folderKey}, {webhookUrl}, got {itemKey}`},
		{"an open brace", `{"P":{"source":"http","status":{"url":"https://h/{itemKey"}}}`, `x.json:1:39: P.status.url: a brace has no counterpart`},
		{"jq that does not parse", `{"P":{"source":"http","status":{"url":"https://h/{itemKey}","done":".x ="}}}`, `x.json:1:68: P.status.done: not a jq expression: unexpected EOF`},
		{"jq with an unknown function", `{"P":{"source":"http",` + status + `,"itemKey":"foo(1)"}}`, `x.json:1:72: P.itemKey: not a jq expression: function not defined: foo/1`},
		{"searchable without find", `{"P":{"source":"http",` + status + `,"startKind":"searchable"}}`, `x.json:1:74: P.startKind: searchable needs the key find, a request that looks for a job by {triggerId}`},
		{"find without key", `{"P":{"source":"http",` + status + `,"find":{"url":"https://h/?k={triggerId}"}}}`, `x.json:1:69: P.find: itemKey is missing; expected a jq expression that gives the key of the job, or null`},
		{"value twice", `{"P":{"source":"http",` + status + `,"result":{"value":".a"},"value":".b"}}`, `x.json:1:94: P.value: expected either value or result, got both`},
		{"intervals", `{"P":{"source":"http",` + status + `,"interval":"5m","maxInterval":"1m"}}`, `x.json:1:92: P.maxInterval: expected at least the interval, 5m0s`},
		{"no interval", `{"P":{"source":"http",` + status + `,"interval":"0s"}}`, `x.json:1:73: P.interval: expected a duration above 0`},
		{"a header's name", `{"P":{"source":"http","status":{"url":"https://h/{itemKey}","headers":{"A B":"x"}}}}`, `x.json:1:78: P.status.headers.A B: expected the name of a header, got "A B"`},
		{"a header's value", `{"P":{"source":"http","status":{"url":"https://h/{itemKey}","headers":{"A":"x\ny"}}}}`, `x.json:1:76: P.status.headers.A: expected the value of a header on one line`},
		{"a method", `{"P":{"source":"http","status":{"url":"https://h/{itemKey}","method":"GE T"}}}`, `x.json:1:70: P.status.method: expected an HTTP method, got "GE T"`},
		{"the idempotency header", `{"P":{"source":"http","idempotencyHeader":"a:b",` + status + `}}`, `x.json:1:43: P.idempotencyHeader: expected the name of a header, got "a:b"`},
		{"UiPath without a token", `{"P":{"source":"uipath","url":"https://h/o"}}`, `x.json:1:6: P.token: missing; expected a string`},
		{"UiPath without a URL", `{"P":{"source":"uipath","token":"${T}"}}`, `x.json:1:6: P.url: missing; expected a string`},
		{"UiPath's URL with a placeholder", `{"P":{"source":"uipath","url":"https://h/{process}","token":"${T}"}}`, `x.json:1:31: P.url: expected no placeholder, got {process}`},
		{"UiPath's URL with a query", `{"P":{"source":"uipath","url":"https://h/?a=b","token":"${T}"}}`, `x.json:1:31: P.url: expected the URL that stands before /odata, without a query or a fragment`},
		{"UiPath's URL without a host", `{"P":{"source":"uipath","url":"cloud.uipath.com","token":"${T}"}}`, `x.json:1:31: P.url: expected a URL that begins with http:// or https:// and a host`},
		{"UiPath's token in the file", `{"P":{"source":"uipath","url":"https://h","token":"rt_1"}}`, `x.json:1:51: warning: P.token: what stands here is stored with every run; write it as a variable such as ${UIPATH_ACCESS_TOKEN}`},
		{"UiPath's token, not closed", `{"P":{"source":"uipath","url":"https://h","token":"${T"}}`, `x.json:1:51: P.token: a ${ is not closed by a }`},
		{"two folders", `{"P":{"source":"uipath","url":"https://h","token":"${T}","folderKey":"k","folderPath":"Shared"}}`, `x.json:1:87: P.folderPath: expected either folderKey or folderPath, got both`},
		{"a folder on two lines", `{"P":{"source":"uipath","url":"https://h","token":"${T}","folderPath":"a\nb"}}`, `x.json:1:71: P.folderPath: expected a text on one line`},
		{"UiPath's intervals", `{"P":{"source":"uipath","url":"https://h","token":"${T}","interval":"5m","maxInterval":"1m"}}`, `x.json:1:88: P.maxInterval: expected at least the interval, 5m0s`},
		{"mesh without a URL", `{"P":{"source":"mesh"}}`, `x.json:1:6: P.url: missing; expected a string`},
		{"mesh's URL with a query", `{"P":{"source":"mesh","url":"http://h/?a=b"}}`, `x.json:1:29: P.url: expected the URL that stands before /jobs, without a query or a fragment`},
		{"mesh's token in the file", `{"P":{"source":"mesh","url":"http://h","token":"t"}}`, `x.json:1:48: warning: P.token: what stands here is stored with every run; write it as a variable such as ${MESH_TOKEN}`},
		{"mesh's header", `{"P":{"source":"mesh","url":"http://h","headers":{"A B":"x"}}}`, `x.json:1:57: P.headers.A B: expected the name of a header, got "A B"`},
		{"mesh's duration", `{"P":{"source":"mesh","url":"http://h","maxDuration":"10ms"}}`, `x.json:1:54: P.maxDuration: expected a duration of at least 1s`},
		{"mesh's retries", `{"P":{"source":"mesh","url":"http://h","maxRetries":-1}}`, `x.json:1:53: P.maxRetries: expected a whole number from 0 to 2147483647, got -1`},
		{"mesh's answer without a type", `{"P":{"source":"mesh","url":"http://h","answer":{"payload":"{answer}"}}}`, `x.json:1:49: P.answer.type: missing; expected a string`},
		{"mesh's answer that leaves it out", `{"P":{"source":"mesh","url":"http://h","answer":{"type":"t","payload":{"a":"answer"}}}}`,
			`x.json:1:71: P.answer.payload: expected the string "{answer}" in it: that stands for what was answered`},
		{"the place of a handle", `{"P":{"source":"mcp","handle":"a..b"}}`, `x.json:1:31: P.handle: expected the names of members with dots between them, such as "job.id"`},
		{"mesh's intervals", `{"P":{"source":"mesh","url":"http://h","interval":"5m","maxInterval":"1m"}}`, `x.json:1:70: P.maxInterval: expected at least the interval, 5m0s`},
		{"a key of another source", `{"P":{"source":"uipath","url":"https://h","token":"${T}","status":{}}}`, `x.json:1:58: warning: P.status: unknown key`},
		{"a placeholder in a text", `{"P":{"source":"http","start":{"url":"https://h/","body":{"a":["job {triggerId}"]}},` + status + `}}`,
			`x.json:1:64: warning: P.start.body.a[0]: {triggerId} is replaced only where it is the whole string`},
		{"a placeholder misspelled", `{"P":{"source":"http","start":{"url":"https://h/","body":{"a":"{inputArgument}"}},` + status + `}}`,
			`x.json:1:63: warning: P.start.body.a: {inputArgument} is not a placeholder here and is sent as it is; did you mean "inputArguments"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := parseJobs(t, "x.json", c.text)
			if got := problems.Error(); got != c.want {
				t.Errorf("expected\n%s\ngot\n%s", c.want, got)
			}
		})
	}
}
