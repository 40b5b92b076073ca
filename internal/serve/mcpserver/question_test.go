package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// idsOf are the values of a key in a list of objects.
func idsOf(t *testing.T, list json.RawMessage, key string) (ids []string) {
	t.Helper()
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	for _, item := range items {
		id, _ := jsonobj.Unquote(jsonobj.Get(item, key))
		ids = append(ids, id)
	}
	return ids
}

// openTrigger waits until a run waits for something, and returns the id of its trigger.
func openTrigger(c *gatewaytest.TaskClient, runID string) string {
	c.T.Helper()
	var ids []string
	if !testenv.Eventually(func() bool {
		ids = idsOf(c.T, tool(c, "list_triggers", `{"runId":"`+runID+`"}`).Get("triggers"), "triggerId")
		return len(ids) > 0
	}) {
		c.T.Fatal("it waits for nothing")
	}
	return ids[0]
}

func TestAQuestionIsAnsweredByDeliver(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := connect(t, target(w.base, w.token), era, "{"+knowsTasks+"}") // it cannot be asked
		id := c.Task("run_eval_set", `{"evalSet":"asks"}`)
		asked := c.Until(id, "input_required")
		trigger := openTrigger(c, id)
		holds(t, asked.Text("statusMessage"), "Go on?", trigger)
		if era == mcp.Modern && string(asked.Get("inputRequests")) != "{}" {
			t.Errorf("%s", asked.JSON())
		}
		if got := tool(c, "deliver", `{"triggerId":"`+trigger+`","approved":true,"reason":"fine"}`).Text("disposition"); got != "accepted" {
			t.Error(got)
		}
		text, isError, err := c.Result(id)
		if isError || err != nil {
			t.Error(isError, err)
		}
		holds(t, text, `"status":"successful"`)
		holds(t, string(tool(c, "get_results", `{"runId":"`+id+`","cursor":"others-0"}`).JSON())+text, `"approved":true`, `"reason":"fine"`)
		if got := tool(c, "deliver", `{"triggerId":"`+trigger+`","approved":false}`).Text("disposition"); got != "duplicate" && got != "late" {
			t.Error(got)
		}
		holds(t, w.audit.String(), `"action":"deliver","object":"`+trigger+`"`)
	})
}

// A client that can ask a person is asked in the way of its era.
func TestAQuestionIsAnsweredByTheClient(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := w.connect(t, era, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"asks"}`)
		trigger := openTrigger(c, id)
		if era == mcp.Modern {
			asked := c.Until(id, "input_required").Object("inputRequests")
			one := asked.Object(trigger)
			if len(asked) != 1 || one.Text("method") != mcp.AskElicitation || one.Object("params").Text("message") != "Go on?" {
				t.Fatalf("%s", asked.JSON())
			}
			// Who does not want to decide leaves it open.
			c.Must(mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{%q:{"action":"decline"},"other":{"action":"accept","content":{"approved":true}}}}`, id, trigger)
			c.Until(id, "input_required")
			c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{}}}}`, id, trigger)
		}
		text, isError, err := c.Result(id)
		if isError || err != nil {
			t.Error(isError, err)
		}
		holds(t, text, `"status":"successful"`, `"approved":true`)
		if era == mcp.Legacy && !c.Seen.Has("Go on?") {
			t.Error("it was not asked")
		}
	})
}

// What a legacy client is asked is withdrawn when somebody else has answered.
func TestAQuestionIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked, withdrawn := make(chan struct{}), make(chan struct{})
	c := w.connect(t, mcp.Legacy, w.token)
	id := c.Task("run_eval_set", `{"evalSet":"asks"}`)
	result := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), mcp.Call{Method: mcp.MethodTasksResult, Params: json.RawMessage(`{"taskId":"` + id + `"}`),
			Asked: func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, *mcp.Error) {
				close(asked)
				<-ctx.Done()
				close(withdrawn)
				return mcp.CancelAnswer, nil
			}})
		result <- err
	}()
	testenv.Receive(t, asked, "the question")
	other := w.plain(t, w.token)
	tool(other, "deliver", `{"triggerId":"`+openTrigger(other, id)+`","approved":true}`)
	testenv.Receive(t, withdrawn, "the withdrawal")
	if err := testenv.Receive(t, result, "the result"); err != nil {
		t.Error(err)
	}
}

// Questions are answered with the scope deliver only, and never by an agent.
func TestAnAgentAnswersNoQuestion(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		agent := w.connect(t, era, w.token, mcp.HeaderCallingJob, "a-rollout")
		id := agent.Task("run_eval_set", `{"evalSet":"asks"}`)
		trigger := openTrigger(agent, id)
		if got := agent.Get(id); got.Text("status") != "working" || got.Has("inputRequests") || !strings.Contains(got.Text("statusMessage"), trigger) {
			t.Errorf("%s", got.JSON())
		}
		holds(t, refusal(agent, "deliver", `{"triggerId":"`+trigger+`","approved":true}`), "an agent does not answer")
		if era == mcp.Modern {
			agent.Refused(mcp.CodeInvalidParams, mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{"approved":true}}}}`, id, trigger)
		}
		w.connect(t, era, w.newToken("runner", access.Read, access.Run)).
			Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"deliver","arguments":{"triggerId":%q,"approved":true}}`, trigger)
		if got := agent.Get(id).Text("status"); got != "working" {
			t.Error(got)
		}
		// What no person is asked it may deliver.
		id = agent.Task("run_eval_set", `{"evalSet":"suspends"}`)
		tool(agent, "deliver", `{"triggerId":"`+openTrigger(agent, id)+`","payload":1}`)
		agent.Until(id, "completed")
	})
}

// G27: a plain call, of a client that wants no task, asks the person too, in the way of its era. Who
// declines is not asked again in that call, and the question stays open.
func TestAPlainCallAsks(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := connect(t, target(w.base, w.token), era, "{"+canBeAsked+"}")
		call := `{"name":"run_eval_set","arguments":{"evalSet":"asks"}%s,"_meta":{"progressToken":1}}`
		asked, round := c.Must(mcp.MethodToolsCall, call, ""), ""
		answer := func(c *gatewaytest.TaskClient, answer string) jsonobj.Object {
			requests := asked.Object("inputRequests")
			if len(requests) != 1 || requests.Object(requests[0].Key).Object("params").Text("message") != "Go on?" {
				t.Fatalf("%s", asked.JSON())
			}
			round = `,"inputResponses":{` + string(jsonobj.Quote(requests[0].Key)) + `:` + answer + `},"requestState":` + string(asked.Get("requestState"))
			return c.Must(mcp.MethodToolsCall, call, round)
		}
		done := asked
		if era == mcp.Modern {
			done = answer(c, `{"action":"accept","content":{"approved":true}}`)
		} else if !c.Seen.Has("Go on?") {
			t.Error("it was not asked")
		}
		if got := document(t, done); got.Text("status") != "successful" {
			t.Errorf("%s", got.JSON())
		}
		if era != mcp.Modern {
			return
		}
		call = strings.Replace(call, `"asks"`, `"asks","waitSeconds":1`, 1)
		asked = c.Must(mcp.MethodToolsCall, call, "")
		if got := document(t, answer(c, `{"action":"decline"}`)); got.Text("status") != "suspended" {
			t.Errorf("%s", got.JSON())
		}
		stranger := connect(t, target(w.base, w.newToken("stranger", access.Run, access.Deliver)), era, "{"+canBeAsked+"}")
		if got := stranger.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, call, round); !strings.Contains(got.Message, "task") {
			t.Error(got)
		}
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, call, `,"inputResponses":{},"requestState":"mine"`)
	})
}
