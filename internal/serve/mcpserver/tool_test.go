package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Each token sees the tools that its scopes allow, and may call no others.
func TestScopes(t *testing.T) {
	t.Parallel()
	w := newIdleWorld(t)
	for _, c := range []struct {
		scopes []access.Scope
		tools  string
	}{
		{[]access.Scope{access.Read}, "get_results compare list_runs list_triggers __mesh_job_status __mesh_job_result"},
		{[]access.Scope{access.Run}, "run_eval_set __mesh_job_cancel"},
		{[]access.Scope{access.Deliver}, "deliver"},
		{[]access.Scope{access.Admin}, "run_eval_set get_results compare list_runs list_triggers deliver __mesh_job_status __mesh_job_result __mesh_job_cancel"},
	} {
		eras(t, func(t *testing.T, era mcp.Era) {
			client := w.connect(t, era, w.newToken("one", c.scopes...))
			listed := idsOf(t, client.Must(mcp.MethodToolsList, `{}`).Get("tools"), "name")
			if got := strings.Join(listed, " "); got != c.tools {
				t.Errorf("%v sees %s", c.scopes, got)
			}
			for _, name := range strings.Fields("run_eval_set get_results compare list_runs list_triggers deliver __mesh_job_status __mesh_job_result __mesh_job_cancel") {
				if !strings.Contains(c.tools, name) {
					said := client.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":%q,"arguments":{}}`, name)
					holds(t, said.Message, "needs the scope")
				}
			}
		})
	}
	r, err := http.Post(w.base+"/mcp", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if _ = r.Body.Close(); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", r.StatusCode)
	}
}

// A client that knows no tasks waits, is told how far the run is, and can come back.
func TestAPlainCallWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.plain(t, w.token)
	first := tool(c, "run_eval_set", `{"evalSet":"waits","idempotencyKey":"k","waitSeconds":0}`)
	if first.Text("status") != "running" || !strings.Contains(first.Text("comeBack"), first.Text("runId")) {
		t.Errorf("%s", first.JSON())
	}
	told := make(chan jsonobj.Object, 100)
	result := make(chan json.RawMessage, 1)
	go func() {
		r, err := c.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall,
			Params: json.RawMessage(`{"name":"run_eval_set","arguments":{"evalSet":"waits","idempotencyKey":"k"},"_meta":{"progressToken":"p"}}`),
			Notified: func(method string, params json.RawMessage) {
				if o, _ := jsonobj.ParseObject(params); method == mcp.NoteProgress {
					told <- o
				}
			}})
		if err != nil {
			t.Error(err)
		}
		result <- r
	}()
	progress := testenv.Receive(t, told, "progress")
	if string(progress.Get("progressToken")) != `"p"` || !strings.Contains(progress.Text("message"), first.Text("runId")) {
		t.Errorf("%s", progress.JSON())
	}
	w.release()
	o, err := jsonobj.ParseObject(testenv.Receive(t, result, "the result"))
	if err != nil {
		t.Fatal(err)
	}
	last := document(t, o)
	if last.Text("status") != "successful" || last.Text("runId") != first.Text("runId") || last.Has("comeBack") {
		t.Errorf("%s", last.JSON())
	}
	// The key of a gateway counts as well.
	call := `{"name":"run_eval_set","arguments":{"evalSet":"done"},"_meta":{"evalrun.dev/idempotencyKey":"g"}}`
	one, two := document(t, c.Must(mcp.MethodToolsCall, "%s", call)), document(t, c.Must(mcp.MethodToolsCall, "%s", call))
	if one.Text("runId") != two.Text("runId") {
		t.Error("two runs for one key")
	}
	holds(t, refusal(c, "run_eval_set", `{"evalSet":"done","idempotencyKey":"k"}`), "used for another request")
}

// A call that waits when the server ends is told how to come back.
func TestACallWaitsWhileTheServerEnds(t *testing.T) {
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newIdleWorld(t)
		c := connect(t, target(w.base, w.token), era, `{}`)
		told := make(chan string, 100)
		result := make(chan json.RawMessage, 1)
		go func() {
			r, err := c.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall,
				Params:   json.RawMessage(`{"name":"run_eval_set","arguments":{"evalSet":"done"},"_meta":{"progressToken":1}}`),
				Notified: func(method string, _ json.RawMessage) { told <- method }})
			if err != nil {
				t.Error(err)
			}
			result <- r
		}()
		testenv.Receive(t, told, "progress")
		w.drain()
		o, err := jsonobj.ParseObject(testenv.Receive(t, result, "the result"))
		if err != nil {
			t.Fatal(err)
		}
		holds(t, document(t, o).Text("comeBack"), "get_results")
	})
}

// An eval set may be uploaded, as far as the service allows it.
func TestUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.plain(t, w.token)
	const set = `{"version":"1.0","id":"u","name":"Mine","agent":%q,"evaluators":[{"version":"1.0","id":"c","evaluatorTypeId":"uipath-contains","evaluatorConfig":{"name":"C","targetOutputKey":"*"}}],
	 "evaluations":[{"id":"a","name":"A","inputs":{},"evaluationCriterias":{"c":{"searchText":"yes"}}},{"id":"b","name":"B","inputs":{},"evaluationCriterias":{"c":{"searchText":"yes"}}}]}`
	r := tool(c, "run_eval_set", `{"evalSet":`+strings.Replace(set, "%q", `"done"`, 1)+`,"agents":["wrong","done"],"evalIds":["b"],"epochs":2,"inputs":{"n":9007199254740993}}`)
	if r.Object("summary").Get("total") == nil || string(r.Object("summary").Get("total")) != "4" || len(idsOf(t, r.Get("failed"), "rolloutId")) != 2 {
		t.Errorf("%s", r.JSON())
	}
	holds(t, refusal(c, "run_eval_set", `{"evalSet":`+strings.Replace(set, "%q", `{"type":"function","command":["id"]}`, 1)+`}`), "expected the name of an agent")
}

// What is wrong with a call is said to the model, and starts nothing.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	w := newIdleWorld(t)
	c := w.plain(t, w.token)
	for _, one := range []struct{ tool, arguments, says string }{
		{"run_eval_set", `{}`, "evalSet: expected the name of an eval set"},
		{"run_eval_set", `{"evalSet":7}`, "evalSet: expected the name"},
		{"run_eval_set", `{"evalSet":"doen"}`, `did you mean "done"?`},
		{"run_eval_set", `{"evalSet":"../done"}`, "there is no eval set"},
		{"run_eval_set", `{"evalSet":"done","epochs":-1}`, "epochs: expected"},
		{"run_eval_set", `{"evalSet":"done","epochs":"x"}`, "epochs: this cannot be a JSON string"},
		{"run_eval_set", `{"evalSet":"done","agents":["nobody"]}`, "nobody"},
		{"run_eval_set", `{"evalSet":"done","waitSeconds":-1}`, "waitSeconds: expected 0 to"},
		{"run_eval_set", `{"evalSet":"done","tasks":["/etc"]}`, `unknown field "tasks"`},
		{"run_eval_set", `[]`, "arguments"},
		{"get_results", `{"runId":"nothing"}`, "there is no run nothing"},
		{"get_results", `{"runId":"nothing","waitSeconds":1}`, "there is no run nothing"},
		{"get_results", `{"runId":"x","cursor":"rest-1"}`, "cursor: expected"},
		{"get_results", `{"runId":"x","limit":1000}`, "limit: expected 1 to 200"},
		{"list_runs", `{"cursor":"x"}`, "cursor: expected"},
		{"list_triggers", `{"cursor":"x"}`, "cursor: expected"},
		{"compare", `{"baseline":"x","candidate":"y"}`, "there is no run x"},
		{"compare", `{"baseline":"x","candidate":"y","noWorseThan":2}`, "noWorseThan: expected a number from 0 to 1"},
		{"list_triggers", `{"runId":"x"}`, "there is no run x"},
		{"deliver", `{"triggerId":"x","payload":1}`, "there is no trigger x"},
		{"deliver", `{"triggerId":"x"}`, "expected one of payload, approved, fail and cancel"},
		{"deliver", `{"triggerId":"x","payload":1,"cancel":true}`, "expected one of"},
		{"deliver", `{"triggerId":"x","payload":1,"reason":"r"}`, "reason: expected it with approved only"},
		{"__mesh_job_status", `{"job_id":"nothing"}`, "job not found"},
		{"__mesh_job_result", `{"jobId":"nothing"}`, "unknown field"},
		{"__mesh_job_cancel", `{"job_id":""}`, "job_id: expected"},
	} {
		holds(t, refusal(c, one.tool, one.arguments), one.says)
	}
	c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"nothing","arguments":{}}`)
	c.Refused(mcp.CodeMethodNotFound, "prompts/list", `{}`)
	legacy := w.connect(t, mcp.Legacy, w.token)
	legacy.Refused(mcp.CodeMethodNotFound, mcp.MethodToolsCall, `{"name":"list_runs","arguments":{},"task":{}}`)
	legacy.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"run_eval_set","arguments":{"evalSet":"done"},"task":7}`)
	if got := string(tool(c, "list_runs", `{}`).JSON()); got != `{"runs":[]}` {
		t.Errorf("something was started: %s", got)
	}
}

// A comparison says what became worse, and whether the gates are met.
func TestCompare(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	c := w.plain(t, w.token)
	var evaluations []string
	for i := range 8 {
		evaluations = append(evaluations, fmt.Sprintf(`{"id":"e%d","name":"E","inputs":{},"evaluationCriterias":{"contains":{"searchText":"yes"}}}`, i))
	}
	run := func(agents string) string {
		return tool(c, "run_eval_set", `{"evalSet":{"version":"1.0","id":"eight","name":"Eight",`+agents+`,
 "evaluators":[{"version":"1.0","id":"contains","evaluatorTypeId":"uipath-contains","evaluatorConfig":{"name":"C","targetOutputKey":"*"}}],
 "evaluations":[`+strings.Join(evaluations, ",")+`]}}`).Text("runId")
	}
	good, bad, both := run(`"agent":"done"`), run(`"agent":"wrong"`), run(`"agents":["done","wrong"]`)
	for _, arguments := range []string{
		fmt.Sprintf(`{"baseline":%q,"candidate":%q,"noWorseThan":0}`, good, bad),
		fmt.Sprintf(`{"baseline":%q,"candidate":%[1]q,"baselineAgent":"done","candidateAgent":"wrong","noWorseThan":0}`, both),
	} {
		d := tool(c, "compare", arguments)
		if worse := idsOf(t, d.Get("items"), "evaluationId"); d.Text("verdict") != "failed" || len(worse) != 8 {
			t.Errorf("%s: %s", arguments, d.JSON())
		}
	}
	if d := tool(c, "compare", fmt.Sprintf(`{"baseline":%q,"candidate":%[1]q,"by":["score"],"noWorseThan":0.5}`, good)); d.Text("verdict") != "passed" {
		t.Errorf("%s", d.JSON())
	}
	holds(t, refusal(c, "compare", fmt.Sprintf(`{"baseline":%q,"candidate":%q}`, good, both)), "agent")
}

func TestLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.plain(t, w.token)
	var runs []string
	for _, set := range []string{"suspends", "done", "wrong"} {
		runs = append([]string{tool(c, "run_eval_set", `{"evalSet":"`+set+`","waitSeconds":0}`).Text("runId")}, runs...)
	}
	trigger := openTrigger(c, runs[2])
	tool(c, "get_results", `{"runId":"`+runs[0]+`","waitSeconds":20}`)
	tool(c, "get_results", `{"runId":"`+runs[1]+`","waitSeconds":20}`)
	pages := func(name, arguments, key, id string) (all []string) {
		cursor := ""
		for {
			r := tool(c, name, `{"limit":1`+arguments+cursor+`}`)
			all = append(all, idsOf(t, r.Get(key), id)...)
			if !r.Has("nextCursor") {
				return all
			}
			cursor = `,"cursor":"` + r.Text("nextCursor") + `"`
		}
	}
	if got := pages("list_runs", "", "runs", "runId"); strings.Join(got, " ") != strings.Join(runs, " ") {
		t.Errorf("%v, not %v", got, runs)
	}
	if got := pages("list_runs", `,"final":false`, "runs", "runId"); len(got) != 1 || got[0] != runs[2] {
		t.Errorf("%v", got)
	}
	if got := pages("list_triggers", "", "triggers", "triggerId"); len(got) != 1 || got[0] != trigger {
		t.Errorf("%v", got)
	}
	r := tool(c, "get_results", `{"runId":"`+runs[2]+`"}`)
	holds(t, r.Text("comeBack"), "list_triggers")
	// A failure that its agent cannot take ends the rollout.
	tool(c, "deliver", `{"triggerId":"`+trigger+`","fail":"no paper"}`)
	r = tool(c, "get_results", `{"runId":"`+runs[2]+`","waitSeconds":20}`)
	holds(t, string(r.JSON()), `"status":"faulted"`, "no paper")
	// Results come page by page, those that failed first.
	set := `{"version":"1.0","id":"u","name":"U","agents":["done","wrong"],"evaluators":[{"version":"1.0","id":"c","evaluatorTypeId":"uipath-contains","evaluatorConfig":{"name":"C","targetOutputKey":"*"}}],
	 "evaluations":[{"id":"a","name":"A","inputs":{},"evaluationCriterias":{"c":{"searchText":"yes"}}}]}`
	id := tool(c, "run_eval_set", `{"evalSet":`+set+`,"epochs":2}`).Text("runId")
	failed, others := pages("get_results", `,"runId":"`+id+`"`, "failed", "agent"), []string{}
	for _, cursor := range []string{"others-0", "others-1"} {
		r := tool(c, "get_results", `{"runId":"`+id+`","limit":200,"cursor":"`+cursor+`"}`)
		others = append(others, idsOf(t, r.Get("others"), "agent")...)
	}
	if strings.Join(failed, " ") != "wrong wrong" || !strings.HasPrefix(strings.Join(others, " "), "done done") {
		t.Errorf("%v %v", failed, others)
	}
}

// The helper tools show runs and rollouts as the job interface does.
func TestHelperTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.plain(t, w.token)
	id := tool(c, "run_eval_set", `{"evalSet":"done"}`).Text("runId")
	row := tool(c, "__mesh_job_status", `{"job_id":"`+id+`"}`)
	if row.Text("status") != "completed" || row.Text("capability") != "done" || !row.Has("attempt_count") || row.Has("claim_epoch") || row.Has("recv_cursor") {
		t.Errorf("%s", row.JSON())
	}
	if got := tool(c, "__mesh_job_result", `{"job_id":"`+id+`"}`); got.Object("result").Text("verdict") != "finished" || len(got) != 3 || string(got.Get("error")) != "null" {
		t.Errorf("%s", got.JSON())
	}
	holds(t, refusal(c, "__mesh_job_cancel", `{"job_id":"`+id+`"}`), "conflict")
	id = tool(c, "run_eval_set", `{"evalSet":"suspends","waitSeconds":0}`).Text("runId")
	openTrigger(c, id)
	if got := string(tool(c, "__mesh_job_cancel", `{"job_id":"`+id+`","reason":"enough"}`).JSON()); got != `{"ok":true,"job_id":"`+id+`"}` {
		t.Error(got)
	}
	if got := tool(c, "__mesh_job_result", `{"job_id":"`+id+`"}`); got.Text("status") != "cancelled" || got.Text("error") != "cancelled: enough" {
		t.Errorf("%s", got.JSON())
	}
	holds(t, w.audit.String(), `"action":"cancel","object":"`+id+`"`)
}

// What the handshakes say.
func TestHandshake(t *testing.T) {
	t.Parallel()
	w := newIdleWorld(t)
	eras(t, func(t *testing.T, era mcp.Era) {
		c := w.connect(t, era, w.token)
		hello, err := jsonobj.ParseObject(c.InitializeResult())
		if err != nil {
			t.Fatal(err)
		}
		capabilities := hello.Object("capabilities")
		legacy, modern := capabilities.Has("tasks"), capabilities.Object("extensions").Has(mcp.ExtensionTasks)
		if legacy != (era == mcp.Legacy) || modern != (era == mcp.Modern) || !hello.Object("_meta").Has(mcp.MetaIdempotency) || !capabilities.Has("tools") {
			t.Errorf("%s", hello.JSON())
		}
	})
}

// A caller whose own time is over starts nothing.
func TestTheTimeOfTheCallerBoundsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	late := connect(t, target(w.base, w.token, "X-Mesh-Timeout", "0"), mcp.Modern, `{}`)
	r := tool(late, "run_eval_set", `{"evalSet":"done"}`)
	if r.Text("status") != "cancelled" {
		t.Errorf("%s", r.JSON())
	}
	if row := tool(late, "__mesh_job_status", `{"job_id":"`+r.Text("runId")+`"}`); row.Text("error") != "deadline_exceeded" {
		t.Errorf("%s", row.JSON())
	}
	task := w.connect(t, mcp.Modern, w.token, "X-Mesh-Timeout", "0")
	text, isError, err := task.Result(task.Task("run_eval_set", `{"evalSet":"done"}`))
	if !isError || err != nil {
		t.Error(isError, err)
	}
	holds(t, text, `"error":"deadline_exceeded"`)
	odd := connect(t, target(w.base, w.token, "X-Mesh-Timeout", "soon"), mcp.Modern, `{}`)
	holds(t, refusal(odd, "run_eval_set", `{"evalSet":"done"}`), "X-Mesh-Timeout must be a whole number of seconds")
}
