package sources

import (
	"errors"
	"io"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/exec"
	"github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/mesh"
	"github.com/evalrun/evalrun/internal/wait/uipath"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

func TestNamesOfSources(t *testing.T) {
	text, err := os.ReadFile("testdata/jobs.json")
	if err != nil {
		t.Fatal(err)
	}
	s := New(waittest.ParseJobs(t, string(text)), wait.Env{})
	only := New(wait.Jobs{"Build": {Source: "exec", Settings: &exec.Config{Command: []string{"x"}}}}, wait.Env{})
	robots := New(wait.Jobs{"*": {Source: "uipath", Settings: &uipath.Config{URL: "https://h", Token: "${T}"}}}, wait.Env{})
	registry := func(url string) wait.JobConfig {
		return wait.JobConfig{Source: wait.SourceMesh, Settings: &mesh.Config{URL: url}}
	}
	one := New(wait.Jobs{"a": registry("http://h"), "b": registry("http://h"), "c": {Source: "external"}}, wait.Env{})
	two := New(wait.Jobs{"a": registry("http://h"), "b": registry("http://other")}, wait.Env{})
	for _, c := range []struct {
		name    string
		sources *Set
		spec    wait.Spec
		want    string
	}{
		{"a process's entry", s, wait.Spec{Type: wait.TypeJob, Process: "Build"}, "exec"},
		{"http", s, wait.Spec{Type: wait.TypeJob, Process: "Report"}, "http"},
		{"external", s, wait.Spec{Type: wait.TypeJob, Process: "Approval"}, "external"},
		{"uipath starts", s, wait.Spec{Type: wait.TypeJob, Process: "Robot"}, "uipath"},
		{"uipath watches", s, wait.Spec{Type: wait.TypeJob, Process: "Robot", ItemKey: "k"}, "uipath"},
		{"uipath for all, to start", robots, wait.Spec{Type: wait.TypeJob, Process: "Other"}, "uipath"},
		{"uipath for all, to watch", robots, wait.Spec{Type: wait.TypeJob, ItemKey: "k"}, "uipath"},
		{"uipath for all, neither", robots, wait.Spec{Type: wait.TypeJob}, "external"},
		{"uipath has no tasks", robots, wait.Spec{Type: wait.TypeTask, ItemKey: "7"}, "external"},
		{"* cannot start", s, wait.Spec{Type: wait.TypeJob, Process: "Other"}, "external"},
		{"* can watch", s, wait.Spec{Type: wait.TypeJob, Process: "Other", ItemKey: "k"}, "http"},
		{"* watches a job without a process", s, wait.Spec{Type: wait.TypeJob, ItemKey: "k"}, "http"},
		{"a job that exists, of a process that is a command", s, wait.Spec{Type: wait.TypeJob, Process: "Build", ItemKey: "k"}, "external"},
		{"no entry and no *", only, wait.Spec{Type: wait.TypeJob, Process: "Other"}, "external"},
		{"no entry and no *, watched", only, wait.Spec{Type: wait.TypeJob, ItemKey: "k"}, "external"},
		{"mesh starts a process", s, wait.Spec{Type: wait.TypeJob, Process: "Forecast"}, "mesh"},
		{"mesh has a capability", s, wait.Spec{Type: wait.TypeMeshJob, Process: "Forecast"}, "mesh"},
		{"mesh watches", s, wait.Spec{Type: wait.TypeMeshJob, Process: "Forecast", ItemKey: "k"}, "mesh"},
		// G24: WaitMeshJob need not say the capability of the job.
		{"mesh watches what has no capability", one, wait.Spec{Type: wait.TypeMeshJob, ItemKey: "k"}, "mesh"},
		{"mesh watches another capability", one, wait.Spec{Type: wait.TypeMeshJob, Process: "d", ItemKey: "k"}, "mesh"},
		{"mesh watches what is external", one, wait.Spec{Type: wait.TypeMeshJob, Process: "c", ItemKey: "k"}, "external"},
		{"mesh does not start what has no capability", one, wait.Spec{Type: wait.TypeMeshJob, Process: "d"}, "external"},
		{"two registries", two, wait.Spec{Type: wait.TypeMeshJob, ItemKey: "k"}, "external"},
		{"one of two registries", two, wait.Spec{Type: wait.TypeMeshJob, Process: "b", ItemKey: "k"}, "mesh"},
		{"a capability without a registry", s, wait.Spec{Type: wait.TypeMeshJob, Process: "Robot"}, "external"},
		{"a task", s, wait.Spec{Type: wait.TypeTask}, "external"},
		{"an API call", s, wait.Spec{Type: wait.TypeAPI}, "external"},
		{"an inbox", s, wait.Spec{Type: wait.TypeInbox}, "external"},
		{"a timer", s, wait.Spec{Type: wait.TypeTimer}, "timer"},
	} {
		if got := c.sources.Name(c.spec); got != c.want {
			t.Errorf("%s: expected %s, got %s", c.name, c.want, got)
		}
	}
	behind := New(wait.Jobs{"run": {Source: wait.SourceMesh, Settings: &mesh.Config{}}}, wait.Env{MCP: external{}})
	for process, want := range map[string]string{"run": "mesh", "other": "mcp"} {
		if got := behind.Name(wait.Spec{Type: wait.TypeMeshJob, Process: process, CallID: "c", ItemKey: "j"}); got != want {
			t.Errorf("a mesh job that the tool %s has started: expected %s, got %s", process, want, got)
		}
	}
	if _, err := only.For("http", wait.Spec{Type: wait.TypeJob, Process: "Build"}); err == nil || err.Error() != `the jobs of the eval set have no http source for the process "Build"` {
		t.Error(err)
	}
}

// Given any source that can be stored, then a trigger's source is found by that name, and the tests
// of the source's package are those of package waittest. TestExternalKeepsToItsInterface and
// TestTimerKeepsToItsInterface are here, and that of the fixed source.
func TestEverySourceIsKnown(t *testing.T) {
	now := noon
	set := New(wait.Jobs{
		"exec":   {Source: wait.SourceExec, Settings: &exec.Config{Command: []string{"x"}}},
		"http":   {Source: wait.SourceHTTP, Settings: &http.Config{Start: &httpcall.Request{}}},
		"uipath": {Source: wait.SourceUiPath, Settings: &uipath.Config{}},
		"mesh":   {Source: wait.SourceMesh, Settings: &mesh.Config{}},
	}, wait.Env{MCP: external{}})
	for _, name := range wait.SourceNames() {
		if _, err := set.For(name, wait.Spec{Process: name, ResumeAt: &now, Played: &wait.Played{}, Watch: []byte(`{}`)}); err != nil {
			t.Error(err)
		}
		if name == wait.SourceExternal || name == wait.SourceTimer || name == wait.SourceFixed || wait.IsBatch(name) {
			continue
		}
		folder := filepath.Join("..", name)
		if name == wait.SourceMCP { // stands with the gateway, which it uses
			folder = filepath.Join("..", "..", "gateway", "source")
		}
		if name == wait.SourceLangGraph {
			folder = filepath.Join("..", "langgraph")
		}
		if name == wait.SourceHTTPAgent {
			folder = filepath.Join("..", "http")
		}
		tests, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, path := range tests {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
		if !strings.Contains(text.String(), "waittest.Run(") {
			t.Errorf("no test in %s calls waittest.Run", folder)
		}
	}
}

// A job that the call of a tool has started is asked for by the source that the eval set names for
// it. A job that has failed is told as Orchestrator would.
func TestWorkIsCheckedByItsSource(t *testing.T) {
	s := waittest.NewServer(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.WriteString(w, map[string]string{"/done": `{"state":"ok"}`, "/broken": `{"state":"bad"}`, "/runs": `{}`}[r.URL.Path])
	})
	entry := `{"source":"http","status":{"url":"` + s.URL + `/{itemKey}","done":".state==\"ok\"","failed":".state==\"bad\"","error":".state"}}`
	set := New(waittest.ParseJobs(t, `{"watched":`+entry+`,"command":{"source":"exec","command":["x"]},"server":{"source":"mcp"}}`), wait.Env{MCP: external{}})
	defer set.Close()
	for _, c := range []struct {
		tool, key string
		done      bool
		payload   string
		err       error
	}{
		{tool: "watched", key: "runs"},
		{tool: "watched", key: "done", done: true, payload: `{"state":"ok"}`},
		{tool: "watched", key: "broken", done: true, payload: `{"info":"the job failed: bad","state":"Faulted"}`},
		{tool: "command", key: "done", err: wait.ErrUnwatched},
		{tool: "server", key: "done", err: wait.ErrUnwatched},
		{tool: "another", key: "done", err: wait.ErrUnwatched},
	} {
		status, err := set.CheckWork(t.Context(), wait.Work{CallID: "c", Tool: c.tool, Job: &wait.JobHandle{Key: c.key, FolderKey: "f"}})
		if status.Done != c.done || string(status.Payload) != c.payload || !errors.Is(err, c.err) {
			t.Errorf("%s, %s: %+v %s %v", c.tool, c.key, status, status.Payload, err)
		}
	}
}
