package serve_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/webhook"
)

// The agent of the set "leak" and its job print a key and a webhook URL wherever they can. Whoever
// reads everything about the run sees that something was taken out, and never what: the world of
// this test fails it if a secret is in any answer or log.
func TestNoAnswerAndNoLogHasASecret(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	w.execute()
	var job struct{ ID string }
	w.must(http.StatusCreated, "POST", "/jobs", `{"capability": "leak", "submitted_by": "test", "submitted_payload": {}}`).decode(t, &job)
	for _, id := range []string{job.ID, w.start("leak").RunID} {
		w.reaches(id, "successful")
		var rollouts struct{ Rollouts []struct{ RolloutID string } }
		w.must(http.StatusOK, "GET", "/v1/runs/"+id+"/rollouts", "").decode(t, &rollouts)
		var triggers struct{ Triggers []struct{ TriggerID string } }
		w.must(http.StatusOK, "GET", "/v1/triggers?all=true&runId="+id, "").decode(t, &triggers)
		if len(rollouts.Rollouts) != 1 || len(triggers.Triggers) != 1 {
			t.Fatalf("%+v, %+v", rollouts, triggers)
		}
		w.must(http.StatusOK, "GET", "/v1/runs/"+id+"/events", "", "Accept", "text/event-stream")
		for _, path := range []string{"/v1/runs/" + id, "/v1/runs/" + id + "/events", "/v1/rollouts/" + rollouts.Rollouts[0].RolloutID, "/v1/triggers", "/v1/runs", "/metrics",
			"/jobs", "/jobs/" + rollouts.Rollouts[0].RolloutID} {
			w.must(http.StatusOK, "GET", path, "")
		}
		for path, markers := range map[string][]string{"/v1/runs/" + id + "/results": {"PLANTED", "EVALRUN_WEBHOOK_URL"}, "/v1/triggers/" + triggers.Triggers[0].TriggerID: {"PLANTED"}} {
			a := w.must(http.StatusOK, "GET", path, "")
			for _, marker := range markers {
				if !strings.Contains(a.body, "[redacted:"+marker+"]") {
					t.Errorf("%s has no %s: %s", path, marker, a.body)
				}
			}
		}
		for _, tool := range []string{`get_results", "arguments": {"runId": "` + id + `"}`, `list_triggers", "arguments": {}`} {
			w.must(http.StatusOK, "POST", "/mcp", `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "`+tool+`, "_meta": {
 "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}`,
				"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool[:strings.Index(tool, `"`)])
		}
		w.postToEndedWebhook(triggers.Triggers[0].TriggerID)
	}
	w.must(http.StatusOK, "GET", "/jobs/"+job.ID, "")
	w.must(http.StatusOK, "GET", "/jobs/"+job.ID+"/events", "")
}

// What somebody else put into a job is shown without the secrets of its run, too.
func TestAJobIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var job struct{ ID string }
	w.must(http.StatusCreated, "POST", "/jobs", `{"capability": "leak", "submitted_by": "test", "submitted_payload": {"inputs": {"key": "`+planted+`"}}}`).decode(t, &job)
	w.must(http.StatusOK, "POST", "/jobs/"+job.ID+"/events", `{"type": "note", "payload": {"key": "`+planted+`"}}`)
	for _, path := range []string{"/jobs", "/jobs/" + job.ID, "/jobs/" + job.ID + "/events"} {
		if a := w.must(http.StatusOK, "GET", path, ""); !strings.Contains(a.body, "[redacted:PLANTED]") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// postToEndedWebhook posts again what a job has answered already, and what is wrong.
func (w *world) postToEndedWebhook(triggerID string) {
	w.Helper()
	key, err := webhook.LoadKey(w.Store().Dir())
	if err != nil {
		w.Fatal(err)
	}
	url, err := key.URL("", triggerID)
	if err != nil {
		w.Fatal(err)
	}
	for _, body := range []string{`{}`, `{`, `{"url": "` + url + `"}`} {
		w.send("POST", url, body, "Authorization", "")
	}
	w.send("GET", url, "")
	w.send("POST", url+"/x", "", "Authorization", "")
}
