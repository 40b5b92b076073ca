package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

const meshID = "7d9c2713-a4e3-4196-93fd-f547b1360c22"

// meshAgent is an agent of MCP Mesh in front of the registry that has one job. Its tool run starts
// the job and answers what handle says. In TypeScript an agent takes jobId and answers with a text,
// in Python job_id and a document.
type meshAgent struct {
	jobServer
	typescript bool
	handle     string

	mu  sync.Mutex
	row string
}

func startMeshAgent(t *testing.T, handle string, typescript bool) (*meshAgent, gateway.Server) {
	t.Helper()
	a := &meshAgent{typescript: typescript, handle: handle, row: `{"id":"` + meshID + `","status":"working"}`}
	argument := "job_id"
	if typescript {
		argument = "jobId"
	}
	helper := func(name string) string {
		return fmt.Sprintf(`{"name":"__mesh_job_%s","inputSchema":{"type":"object","properties":{%q:{"type":"string"}}}}`, name, argument)
	}
	a.tools = `{"tools":[{"name":"run","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},` +
		`{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` + helper("status") + `,` + helper("result") + `,` + helper("cancel") + `]}`
	a.meta = func(int) string { return "" }
	a.call = func(params jsonobj.Object) (string, *mcp.Error) {
		if !strings.HasPrefix(params.Text("name"), meshTools) {
			return a.handle, nil
		}
		if params.Object("arguments").Text(argument) != meshID {
			return `{"content":[{"type":"text","text":"job not found: x"}],"isError":true}`, nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if params.Text("name") == meshCancel {
			a.row = `{"id":"` + meshID + `","status":"cancelled","error":"cancelled: by a client"}`
			return answered(`{"ok":true}`, typescript), nil
		}
		return answered(a.row, typescript), nil
	}
	return a, startJobServer(t, &a.jobServer)
}

// answered is a document as a result of a tool.
func answered(document string, asText bool) string {
	o := jsonobj.Object{{Key: "content", Value: json.RawMessage(`[{"type":"text","text":` + string(jsonobj.Quote(document)) + `}]`)}}
	if !asText {
		o = o.Set("structuredContent", json.RawMessage(document))
	}
	return string(o.JSON())
}

func (a *meshAgent) becomes(row string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.row = row
}

// list lists the tools, as agents do before they are prompted.
func (a *agentOf) list() string {
	a.t.Helper()
	list, err := a.client.Call(a.t.Context(), mcp.Call{Method: mcp.MethodToolsList, Params: json.RawMessage("{}")})
	if err != nil {
		a.t.Fatal(err)
	}
	return string(list)
}

func (a *agentOf) waits() []wait.Work {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.suspended
}

// What a tool of an agent of MCP Mesh answers is the handle of a job if that has been configured,
// or if the agent itself knows a job with the id.
func TestHandlesOfMeshJobs(t *testing.T) {
	for _, c := range []struct {
		name, handle string
		jobs         wait.Jobs
		want         bool
	}{
		{"a document", answered(`{"job_id":"`+meshID+`"}`, false), nil, true},
		{"a text", answered(`{"jobId":"`+meshID+`","status":"working"}`, true), nil, true},
		{"an id that nobody knows", answered(`{"job_id":"00000000-a4e3-4196-93fd-f547b1360c22"}`, false), nil, false},
		{"an id that is none", answered(`{"job_id":"job 17"}`, false), nil, false},
		{"an id of another name", answered(`{"id":"`+meshID+`"}`, false), nil, false},
		{"that is configured", answered(`{"started":{"id":"`+meshID+`"}}`, false), wait.Jobs{"run": {Source: wait.SourceMCP, Handle: "started.id"}}, true},
		{"that is configured, and is not there", answered(`{"job_id":"`+meshID+`"}`, false), wait.Jobs{"run": {Source: wait.SourceMCP, Handle: "started.id"}}, false},
		{"an error", `{"isError":true,"content":[],"structuredContent":{"job_id":"` + meshID + `"}}`, nil, false},
		{"a text that is no document", answered(`done`, true), nil, false},
		{"two texts", `{"content":[{"type":"text","text":"{}"},{"type":"text","text":"{}"}]}`, nil, false},
	} {
		for _, typescript := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", c.name, typescript), func(t *testing.T) {
				t.Parallel()
				_, server := startMeshAgent(t, c.handle, typescript)
				a := behind(t, server, &memory{}, func(h *Hooks) { h.SoftWait, h.Jobs = 20*time.Millisecond, c.jobs })
				if list := a.list(); strings.Contains(list, "outputSchema") {
					t.Error("clients enforce it, and a handle is no such output: " + list)
				}
				_, _ = a.client.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{}}`)})
				waits := a.waits()
				if got := len(waits) == 1 && waits[0].MeshJob != nil && waits[0].MeshJob.ID == meshID; got != c.want {
					t.Errorf("%+v", waits)
				}
				if !c.want {
					return
				}
				if spec, err := waits[0].Spec(); err != nil || spec.Type != wait.TypeMeshJob || spec.ItemKey != meshID || spec.Process != "run" || spec.CallID == "" {
					t.Errorf("%+v, %v", spec, err)
				}
			})
		}
	}
}

// A job that ends within the soft wait gives the agent its result; one that is started by an equal
// call before that is joined.
func TestResultOfAMeshJob(t *testing.T) {
	for row, want := range map[string]string{
		`{"status":"completed","result":{"sun":true}}`:            `{"sun":true}`,
		`{"status":"completed","result":null}`:                    "no result",
		`{"status":"failed","error":"the printer burns"}`:         "the job was failed: the printer burns",
		`{"status":"cancelled","error":"cancelled: by somebody"}`: "the job was cancelled: by somebody",
	} {
		m, server := startMeshAgent(t, answered(`{"job_id":"`+meshID+`"}`, false), false)
		m.becomes(row)
		a := behind(t, server, &memory{}, nil)
		a.list()
		if got := a.text("run", "{}"); !strings.Contains(got, want) || len(a.waits()) != 0 {
			t.Errorf("%s: %q", row, got)
		}
	}
}

// A job whose registry is configured is asked for there, and what it asks is left to whoever looks
// at what the rollout waits for.
func TestAMeshJobWithARegistry(t *testing.T) {
	jobs := wait.Jobs{"run": {Source: wait.SourceMesh}}
	for _, c := range []struct {
		status wait.Status
		want   string
	}{
		{wait.Status{Done: true, Payload: json.RawMessage(`{"sun":true}`)}, `{"sun":true}`},
		{wait.Status{Question: &wait.Question{Title: "may I?"}}, "end your turn"},
		{wait.Status{}, "end your turn"},
	} {
		m, server := startMeshAgent(t, answered(`{"job_id":"`+meshID+`"}`, false), false)
		server.ChildProcess = true // and it would not outlive us; its job does
		a := behind(t, server, &memory{}, func(h *Hooks) {
			h.Jobs, h.SoftWait = jobs, 300*time.Millisecond
			h.Check = func(context.Context, wait.Work) (wait.Status, error) { return c.status, nil }
		})
		a.list()
		if got := a.text("run", "{}"); !strings.Contains(got, c.want) || (len(a.waits()) == 1) != (c.want == "end your turn") {
			t.Errorf("%+v: %q", c.status, got)
		}
		if len(m.made()) != 2 { // run, and the status that has confirmed the handle
			t.Errorf("%d calls", len(m.made()))
		}
	}
}

// While no agent runs the server is asked by the same tools.
func TestMeshJobsAreAskedForLater(t *testing.T) {
	for _, typescript := range []bool{false, true} {
		m, server := startMeshAgent(t, "{}", typescript)
		job := wait.MeshJob{ID: meshID}
		if got, err := CheckMeshJob(t.Context(), server, job); got != nil || err != nil {
			t.Errorf("of one that goes on: %+v, %v", got, err)
		}
		m.becomes(`{"status":"input_required","progress_message":"may I?"}`)
		var asks *MeshAsksError
		if _, err := CheckMeshJob(t.Context(), server, job); !errors.As(err, &asks) || !strings.Contains(err.Error(), `the job asks "may I?"`) {
			t.Errorf("of one that asks: %v", err)
		}
		if err := CancelMeshJob(t.Context(), server, job); err != nil {
			t.Error(err)
		}
		if got, err := CheckMeshJob(t.Context(), server, job); err != nil || !strings.Contains(string(got.Result), "by a client") {
			t.Errorf("of one that was cancelled: %+v, %v", got, err)
		}
		if _, err := CheckMeshJob(t.Context(), server, wait.MeshJob{ID: "another"}); !errors.Is(err, ErrMeshJobLost) {
			t.Errorf("of one that nobody knows: %v", err)
		}
	}
}

// What is known of the deadline goes with calls of tools, and with nothing else. A call for which
// no time is left is not made.
func TestHeadersOfACall(t *testing.T) {
	s := &jobServer{t: t, meta: func(int) string { return "" }, call: func(jsonobj.Object) (string, *mcp.Error) { return ordinary, nil }}
	var mu sync.Mutex
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := r.Header.Get("X-Mesh-Timeout"); v != "" {
			mu.Lock()
			sent = append(sent, v+" "+r.Header.Get("Traceparent")+" "+r.Header.Get("X-Mesh-Job-Id"))
			mu.Unlock()
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	now := time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)
	target := gateway.Server{Name: "rpa", Protocol: mcp.Legacy, Target: mcp.Target{URL: server.URL}, CallHeader: func() (map[string]string, error) {
		mu.Lock()
		defer mu.Unlock()
		return wait.CallHeaders("0a1b2c3d-0a1b-5c3d-8e4f-0123456789ab", now.Add(90*time.Second), now.Add(time.Duration(len(sent))*60*time.Second))
	}}
	a := behind(t, target, &memory{}, nil)
	a.list()
	for range 2 {
		if got := a.text("run", "{}"); got != "42" {
			t.Error(got)
		}
	}
	if got := a.text("run", "{}"); !strings.Contains(got, "the call was not made") {
		t.Error(got)
	}
	trace := wait.Job{TriggerID: "0a1b2c3d-0a1b-5c3d-8e4f-0123456789ab", RolloutID: "0a1b2c3d-0a1b-5c3d-8e4f-0123456789ab"}.Traceparent()
	if want := []string{"90 " + trace + " ", "30 " + trace + " "}; !slices.Equal(sent, want) {
		t.Errorf("%q", sent)
	}
}
