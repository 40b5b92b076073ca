package uipath

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

// orchestrator is a job service with its own clock, and a source that asks it.
type orchestrator struct {
	*source
	dir string
	now time.Time
	// steps are those of the source's requests.
	steps waittest.Transport
}

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

const robotToken = "rt_secret"

func newOrchestrator(t *testing.T) *orchestrator {
	t.Helper()
	o := &orchestrator{dir: t.TempDir(), now: noon}
	s, err := service.New(service.Options{Dir: o.dir, Duration: time.Minute, Token: robotToken, Now: func() time.Time { return o.now }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	o.source = robotsOver(t, &http.Client{Transport: &o.steps}, server.URL+"/org/tenant/orchestrator_/", "")
	return o
}

// robots gives the uipath source with more of its configuration.
func robots(t *testing.T, url, config string) *source {
	t.Helper()
	return robotsOver(t, nil, url, config)
}

func robotsOver(t *testing.T, given *http.Client, url, config string) *source {
	t.Helper()
	c := waittest.ParseJobs(t, `{"*":{"source":"uipath","url":"`+url+`","token":"${TOKEN}"`+config+`}}`).ForProcess("P")
	client := httpcall.Client(given)
	t.Cleanup(client.CloseIdleConnections)
	token := func(name string) (string, bool) { return robotToken, name == "TOKEN" }
	env := wait.Env{HTTP: client, Resolve: token, Rand: func() float64 { return 0.5 }, Now: func() time.Time { return noon }}
	settings := c.Settings.(*Config)
	return New(httpcall.Caller{Env: env, Polling: settings.Polling}, *settings).(*source)
}

// waits makes a trigger of what an agent emitted.
func waits(t *testing.T, value string) wait.Job {
	t.Helper()
	specs, err := wait.ParseSpecs(json.RawMessage(value))
	if err != nil {
		t.Fatal(err)
	}
	return wait.Job{TriggerID: "0198d4c2-0000-7000-8000-000000000001", RolloutID: "rollout-1", ItemKey: specs[0].ItemKey, Spec: specs[0]}
}

// begin starts a process, and gives what then waits for it.
func (o *orchestrator) begin(t *testing.T, value string) wait.Job {
	t.Helper()
	p := waits(t, value)
	key, err := o.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	p.ItemKey = key
	return p
}

// ended checks a job after its time.
func (o *orchestrator) ended(t *testing.T, p wait.Job) wait.Status {
	t.Helper()
	o.now = o.now.Add(time.Hour)
	status, err := o.Check(t.Context(), p)
	if err != nil || !status.Done {
		t.Fatal(status, err)
	}
	return status
}

func TestSourceKeepsToItsInterface(t *testing.T) {
	o := newOrchestrator(t)
	waittest.Run(t, waittest.Case{
		Source: o.source, Job: waits(t, `{"name":"invoice","process_folder_path":"Shared","input_arguments":{}}`),
		Starts: func() int {
			starts, err := service.ReadStarts(o.dir)
			if err != nil {
				t.Error(err)
			}
			return len(starts)
		},
		OnStep: o.steps.OnStep,
		End:    func() { o.now = o.now.Add(time.Hour) },
	})
}

func TestUiPathJobIsStartedOnceAndItsOutputIsThePayload(t *testing.T) {
	o := newOrchestrator(t)
	p := o.begin(t, `{"name":"invoice","process_folder_path":"Shared/Überweisungen","input_arguments":{"b":9007199254740993,"a":1.50,"s":"<&'\""}}`)
	if key, found, err := o.Find(t.Context(), p); key != p.ItemKey || !found || err != nil {
		t.Error(key, found, err)
	}
	if again, err := o.Start(t.Context(), p); again != p.ItemKey || err != nil {
		t.Error(again, err)
	}
	starts, err := service.ReadStarts(o.dir)
	want := []service.Start{{Time: noon, Process: "invoice", FolderKey: service.FolderKey("Shared/Überweisungen"), Reference: p.TriggerID, Key: p.ItemKey, New: true}}
	if diff := cmp.Diff(want, starts); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if status, err := o.Check(t.Context(), p); status.Done || status.After != 7500*time.Millisecond || err != nil {
		t.Error("the job goes on:", status, err)
	}
	if got := string(o.ended(t, p).Payload); got != `{"invoice":"INV-1","arguments":{"b":9007199254740993,"a":1.50,"s":"<&'\""}}` {
		t.Error(got)
	}
}

func TestUiPathJobsEnd(t *testing.T) {
	for _, c := range []struct{ name, value, fault, payload string }{
		{"faulted", `{"name":"broken","input_arguments":{"info":"no licence"}}`, ` is faulted: no licence`, ""},
		{"stopped", `{"name":"stopped","input_arguments":{}}`, ` is stopped: The job was stopped.`, ""},
		{"the job itself was asked for", `{"type":"InvokeProcessRaw","name":"broken","input_arguments":{}}`, "", `"State":"Faulted","Source":"Manual","Info":"The document could not be read."`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOrchestrator(t)
			p := o.begin(t, c.value)
			status := o.ended(t, p)
			switch {
			case c.fault == "":
				if status.Fault != nil || !strings.Contains(string(status.Payload), c.payload) {
					t.Errorf("%+v %s", status.Fault, status.Payload)
				}
			case status.Fault == nil || status.Fault.Category != "job" || status.Fault.Message != "the job "+p.ItemKey+c.fault:
				t.Errorf("%+v", status.Fault)
			}
		})
	}
}

// A job that is waited for by its raw name is the payload itself, however it ended, byte for byte.
func TestUiPathJobThatIsWatched(t *testing.T) {
	const raw = `{"@odata.context":"x","Key":"k","State":"Faulted","Info":null,"Id":90071992547409931,"new":{"b":1,"a":1.0}}`
	s := waittest.NewServer(t, waittest.Reply(200, raw+"\n"))
	src := robots(t, s.URL, `,"folderKey":"configured"`)
	for value, want := range map[string]http.Header{
		`{"type":"WaitJobRaw","job":{"key":"k","folder_key":"from the agent"}}`: {"X-Uipath-Folderkey": {"from the agent"}},
		`{"type":"WaitJobRaw","job":{"key":"k"}}`:                               {"X-Uipath-Folderkey": {"configured"}},
	} {
		status, err := src.Check(t.Context(), waits(t, value))
		if err != nil || !status.Done || status.Fault != nil || string(status.Payload) != raw {
			t.Errorf("%s: %+v %v", value, status, err)
		}
		if got := s.Headers()[len(s.Headers())-1]; got.Get("X-UIPATH-FolderKey") != want.Get("X-UIPATH-FolderKey") || got.Get("Authorization") != "Bearer "+robotToken {
			t.Error(value, got)
		}
	}
	if got := s.Requests()[0]; got != "GET /odata/Jobs/UiPath.Server.Configuration.OData.GetByKey(identifier=k)" {
		t.Error(got)
	}
}

func TestUiPathFolders(t *testing.T) {
	for _, c := range []struct{ name, config, value, header, want string }{
		{"the agent's", "", `{"name":"P","process_folder_path":"A/B","input_arguments":{}}`, "X-UIPATH-FolderPath", "A/B"},
		{"the default", "", `{"name":"P","input_arguments":{}}`, "X-UIPATH-FolderPath", "Shared"},
		{"the configured one, to start", `,"folderPath":"Test"`, `{"name":"P","process_folder_path":"A/B","input_arguments":{}}`, "X-UIPATH-FolderPath", "Test"},
		{"by key", `,"folderKey":"k-1"`, `{"name":"P","process_folder_path":"A/B","input_arguments":{}}`, "X-UIPATH-FolderKey", "k-1"},
		{"not ASCII", "", `{"name":"P","process_folder_path":"Ü","input_arguments":{}}`, "X-UIPATH-FolderPath-Encoded", "3AA="},
		{"two lines", "", `{"name":"P","process_folder_path":"a\nX-Evil: 1","input_arguments":{}}`, "X-UIPATH-FolderPath-Encoded", "YQAKAFgALQBFAHYAaQBsADoAIAAxAA=="},
		{"no variable", "", `{"name":"P","process_folder_path":"${TOKEN}","input_arguments":{}}`, "X-UIPATH-FolderPath", "${TOKEN}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := waittest.NewServer(t, waittest.Reply(200, `{"value":[]}`))
			_, _, err := robots(t, s.URL, c.config).Find(t.Context(), waits(t, c.value))
			if err != nil || s.Headers()[0].Get(c.header) != c.want {
				t.Error(err, s.Headers()[0])
			}
			for _, name := range []string{"X-UIPATH-FolderKey", "X-UIPATH-FolderPath", "X-UIPATH-FolderPath-Encoded"} {
				if name != c.header && s.Headers()[0].Get(name) != "" {
					t.Error("two folders:", s.Headers()[0])
				}
			}
		})
	}
	var f *fault.Fault
	src := robots(t, "https://h", "")
	if _, _, err := src.Find(t.Context(), waits(t, `{"name":"P","process_folder_key":"a\nb","input_arguments":{}}`)); !errors.As(err, &f) || f.Category != "job" {
		t.Error(err)
	}
}

// G27: an error names what was asked for, and no placeholder.
func TestErrorsNameTheProcess(t *testing.T) {
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Releases") {
			waittest.Reply(500, `{"message":"no"}`)(w, r)
			return
		}
		waittest.Reply(200, `{"value":[]}`)(w, r)
	})
	_, err := robots(t, s.URL, "").Start(t.Context(), waits(t, `{"name":"Invoices","input_arguments":{}}`))
	if err == nil || !strings.Contains(err.Error(), "Invoices") || strings.Contains(err.Error(), "{process}") {
		t.Error(err)
	}
}

// What is asked when a process is started: names are escaped for OData and for the URL, and nothing
// that a model said is a template.
func TestUiPathStartRequests(t *testing.T) {
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			waittest.Reply(201, `{"value":[{"Key":"job-1","Id":7}]}`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/Releases"):
			waittest.Reply(200, `{"value":[{"Key":"${TOKEN}","Name":"x"}]}`)(w, r)
		default:
			waittest.Reply(200, `{"value":[]}`)(w, r)
		}
	})
	p := waits(t, `{"name":"O'Neil & Co/ö","input_arguments":{"a":"${TOKEN}","b":"{triggerId}"}}`)
	if key, err := robots(t, s.URL, "").Start(t.Context(), p); key != "job-1" || err != nil {
		t.Error(key, err)
	}
	want := []string{
		"GET /odata/Jobs?$filter=Reference%20eq%20%27" + p.TriggerID + "%27&$select=Id,Key,Reference&$top=1",
		"GET /odata/Releases?$filter=Name%20eq%20%27O%27%27Neil+%26+Co%2F%C3%B6%27&$top=1",
		`POST /odata/Jobs/UiPath.Server.Configuration.OData.StartJobs {"startInfo":{"ReleaseKey":"${TOKEN}","Strategy":"ModernJobsCount","JobsCount":1,` +
			`"InputArguments":"{\"a\":\"${TOKEN}\",\"b\":\"{triggerId}\"}","Reference":"` + p.TriggerID + `"}}`,
	}
	if diff := cmp.Diff(want, s.Requests()); diff != "" {
		t.Error(diff)
	}
}

func TestUiPathStartFailures(t *testing.T) {
	const none, release = `{"value":[]}`, `{"value":[{"Key":"r"}]}`
	for _, c := range []struct {
		name          string
		answers       []func(http.ResponseWriter, *http.Request) // to the search, for the release, to the start
		fault         fault.Category
		says          string
		wantsToRepeat bool
	}{
		{name: "no token", answers: answers(waittest.Reply(401, "")), fault: "job", says: "the token is not accepted, it may have expired: GET "},
		{name: "no right", answers: answers(waittest.Reply(200, none), waittest.Reply(403, "")), fault: "job", says: "the token gives no right to this in the folder"},
		{name: "no such folder", answers: answers(waittest.Reply(404, `{"message":"no folder"}`)), fault: "job", says: "no folder"},
		{name: "no such process", answers: answers(waittest.Reply(200, none), waittest.Reply(200, none)), fault: "job", says: `Orchestrator has no process "P" in the folder "Shared"`},
		{name: "a login page", answers: answers(waittest.Reply(200, "<html>")), wantsToRepeat: true, says: "answered something that is not a list of OData: <html>"},
		{name: "somebody else's job", answers: answers(waittest.Reply(200, `{"value":[{"Key":"k","Reference":"another"}]}`)), fault: "job", says: "answered another"},
		{name: "a release without a key", answers: answers(waittest.Reply(200, none), waittest.Reply(200, `{"value":[{}]}`)), wantsToRepeat: true, says: "without a key"},
		{name: "busy", answers: answers(waittest.Reply(200, none), waittest.Reply(200, release), waittest.Reply(429, "")), wantsToRepeat: true, says: "429"},
		{name: "broken", answers: answers(waittest.Reply(200, none), waittest.Reply(200, release), waittest.Reply(500, "")), wantsToRepeat: true, says: "500"},
		{name: "refused", answers: answers(waittest.Reply(200, none), waittest.Reply(200, release), waittest.Reply(400, `{"message":"wrong arguments"}`)), fault: "job", says: "wrong arguments"},
		{name: "no key", answers: answers(waittest.Reply(200, none), waittest.Reply(200, release), waittest.Reply(201, none)), fault: "start-unknown", says: "the job was started, but"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := 0
			s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
				at++
				c.answers[at-1](w, r)
			})
			_, err := robots(t, s.URL, "").Start(t.Context(), waits(t, `{"name":"P","input_arguments":{}}`))
			var f *fault.Fault
			var retry *wait.RetryError
			switch {
			case errors.As(err, &f):
				if f.Category != c.fault {
					t.Error(f.Category, err)
				}
			case !errors.As(err, &retry) || !c.wantsToRepeat || retry.After <= 0:
				t.Errorf("%#v", err)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), robotToken) {
				t.Error(err)
			}
		})
	}
	t.Run("too late", func(t *testing.T) {
		s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				t.Error("it was started")
			}
			body := none
			if strings.HasSuffix(r.URL.Path, "/Releases") {
				body = release
			}
			waittest.Reply(200, body)(w, r)
		})
		p := waits(t, `{"name":"P","input_arguments":{}}`)
		p.Until = noon
		var retry *wait.RetryError
		if _, err := robots(t, s.URL, "").Start(t.Context(), p); !errors.As(err, &retry) {
			t.Error(err)
		}
	})
}

func answers(list ...func(http.ResponseWriter, *http.Request)) []func(http.ResponseWriter, *http.Request) {
	return list
}

func TestUiPathCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		header string
		// What is expected: the payload, or that the job goes on, or a fault with a category, or an
		// error that says something.
		payload, says string
		fault         fault.Category
		after         time.Duration
	}{
		{name: "pending", status: 200, body: `{"State":"Pending"}`, after: 7500 * time.Millisecond},
		{name: "resumed", status: 200, body: `{"State":"Resumed"}`, after: 7500 * time.Millisecond},
		{name: "suspended", status: 200, body: `{"State":"Suspended"}`, after: 7500 * time.Millisecond},
		{name: "stopping", status: 200, body: `{"State":"Stopping"}`, after: 7500 * time.Millisecond},
		{name: "terminating", status: 200, body: `{"State":"Terminating"}`, after: 7500 * time.Millisecond},
		{name: "a state that is yet to be invented", status: 200, body: `{"State":"Dreaming"}`, after: 7500 * time.Millisecond},
		{name: "the server says when", status: 200, body: `{"State":"Running"}`, header: "30", after: 30 * time.Second},
		{name: "in camel case", status: 200, body: `{"state":"successful","outputArguments":"{\"a\":1.0}"}`, payload: `{"a":1.0}`},
		{name: "no members", status: 200, body: `{"State":"Successful","OutputArguments":"{ }"}`, payload: string(noContent)},
		{name: "no output", status: 200, body: `{"State":"Successful","OutputArguments":null}`, payload: `null`},
		{name: "no JSON", status: 200, body: `{"State":"Successful","OutputArguments":"done"}`, payload: `"done"`},
		{name: "a file", status: 200, body: `{"State":"Successful","OutputArguments":null,"OutputFile":"f-1"}`, fault: "job", says: "its output is the file f-1"},
		{name: "an error", status: 200, body: `{"Key":"k","State":"Faulted","Info":"long","JobError":{"Code":"C","Title":"No licence","Detail":"buy one"}}`, fault: "job",
			says: "the job k is faulted: No licence: buy one"},
		{name: "lost", status: 404, body: `{"message":"gone"}`, fault: "job-lost", says: "gone"},
		{name: "a wrong key", status: 400, body: `{"message":"not a UUID"}`, fault: "job", says: "not a UUID"},
		{name: "an expired token", status: 401, says: "the token is not accepted", after: 7500 * time.Millisecond},
		{name: "no right any more", status: 403, says: "the token gives no right", after: 7500 * time.Millisecond},
		{name: "too many", status: 429, header: "120", says: "429", after: 2 * time.Minute},
		{name: "broken", status: 502, says: "502", after: 7500 * time.Millisecond},
		{name: "a login page", status: 200, body: "<html>", says: "something that is not a job", after: 7500 * time.Millisecond},
		{name: "no state", status: 200, body: `{}`, says: "something that is not a job", after: 7500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				waittest.Reply(c.status, c.body)(w, nil)
			})
			p := waits(t, `{"name":"P","input_arguments":{}}`)
			p.ItemKey = "a b)/x"
			status, err := robots(t, s.URL, "").Check(t.Context(), p)
			if got := s.Requests()[0]; got != "GET /odata/Jobs/UiPath.Server.Configuration.OData.GetByKey(identifier=a%20b%29%2Fx)" {
				t.Error(got)
			}
			var retry *wait.RetryError
			switch {
			case errors.As(err, &retry):
				if retry.After != c.after || !strings.Contains(err.Error(), c.says) || c.says == "" || strings.Contains(err.Error(), robotToken) {
					t.Error(retry.After, err)
				}
			case err != nil:
				t.Error(err)
			case status.Fault != nil:
				if !status.Done || status.Fault.Category != c.fault || !strings.Contains(status.Fault.Message, c.says) {
					t.Errorf("%+v", status.Fault)
				}
			case status.Done != (c.payload != "") || string(status.Payload) != c.payload || !status.Done && status.After != c.after:
				t.Errorf("%+v", status)
			}
		})
	}
}

func TestUiPathCancel(t *testing.T) {
	o := newOrchestrator(t)
	p := o.begin(t, `{"name":"invoice","input_arguments":{}}`)
	for range 2 { // the second finds that it has ended
		if err := o.Cancel(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if status := o.ended(t, p); status.Fault == nil || !strings.Contains(status.Fault.Message, "is stopped") {
		t.Errorf("%+v", status)
	}
	for name, key := range map[string]string{"never started": "", "lost": "0198d4c2-0000-7000-8000-00000000000f"} {
		if p.ItemKey = key; o.Cancel(t.Context(), p) != nil {
			t.Error(name)
		}
	}
	s := waittest.NewServer(t, waittest.Reply(200, `{"State":"Running","Id":"7/../8"}`))
	p.ItemKey = "k"
	if err := robots(t, s.URL, "").Cancel(t.Context(), p); err == nil || len(s.Requests()) != 1 {
		t.Error("a number of a job that is none:", err, s.Requests())
	}
}

func TestUiPathTokenHasNoValue(t *testing.T) {
	src := robots(t, "http://127.0.0.1:1", "")
	src.Resolve = nil
	var retry *wait.RetryError
	if _, err := src.Start(context.Background(), waits(t, `{"name":"P","input_arguments":{}}`)); !errors.As(err, &retry) || !strings.Contains(err.Error(), "${TOKEN}") {
		t.Error(err)
	}
}
