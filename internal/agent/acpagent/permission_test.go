package acpagent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

func TestPermissionsByPolicy(t *testing.T) {
	for policy, want := range map[Policy][2]string{PolicyAllow: {"allowed", "always"}, PolicyDeny: {"rejected", "deny"}} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			SettingsOf(r.entry).Permissions = policy
			if got := content(t, r.prompt(`[[ASK edit Write a file {"path":"a"}]]`)); got != want[0] {
				t.Errorf("got %q", got)
			}
			asked := r.events(0, record.EventPermission)
			if len(asked) != 1 || !strings.Contains(string(asked[0].Data), fmt.Sprintf(`"optionId":%q`, want[1])) || !strings.Contains(string(asked[0].Data), `"by":"policy"`) {
				t.Errorf("got %+v", asked)
			}
		})
	}
}

// suspending is a rollout whose permissions wait for a person.
func suspending(t *testing.T, flags ...string) *rollout {
	r := newRollout(t, flags...)
	SettingsOf(r.entry).Permissions = PolicySuspend
	return r
}

// said are the agent's messages of a segment.
func (r *rollout) said(segment int) (texts []string) {
	for _, e := range r.events(segment, record.EventMessage) {
		texts = append(texts, e.Text)
	}
	return texts
}

// ids are the interrupts of a segment that is suspended.
func ids(t *testing.T, out agent.Outcome) (ids []string) {
	t.Helper()
	if out.Interrupts == nil {
		t.Fatalf("expected interrupts, got %+v %v", out, out.Fault)
	}
	for _, in := range out.Interrupts {
		if len(in.Specs) != 1 || in.Specs[0].Type != wait.TypeTask {
			t.Errorf("got the interrupt %+v", in)
		}
		ids = append(ids, in.ID)
	}
	return ids
}

// resumed is the segment that follows when answers have come.
func (r *rollout) resumed(deliveries map[string]agent.Delivery) agent.Segment {
	seg := r.segment("the prompt of the task, which is not repeated")
	seg.Resume, seg.Deliveries = map[string]json.RawMessage{}, deliveries
	for id, d := range deliveries {
		seg.Resume[id] = d.Payload
	}
	return seg
}

func delivered(payload string) agent.Delivery {
	return agent.Delivery{TriggerID: "t", Status: "successful", Payload: json.RawMessage(payload)}
}

func TestAPermissionThatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := suspending(t)
	out := r.prompt(`[[ASK edit Write a file {"path":"a","n":1}]] [[ASK edit Write it again {"n":1, "path":"a"}]] [[ASK execute Run it {"command":"x"}]] [[SAY bye]]`)
	waits := ids(t, out)
	if len(waits) != 2 {
		t.Fatalf("got the interrupts %v", waits)
	}
	if payload := string(out.Interrupts[0].Specs[0].Payload); payload != `{"input":{"path":"a","n":1},"kind":"edit","title":"Write a file","tool":"Write","what":"permission"}` {
		t.Errorf("got the payload %s", payload)
	}
	if got := r.said(0); len(got) != 3 || got[0] != "rejected" || got[2] != "rejectedbye" {
		t.Errorf("got %q", got)
	}
	if n := len(r.sent(0, "client", `"optionId":"deny"`)); n != 3 || len(r.sent(0, "client", "session/cancel")) != 0 {
		t.Errorf("%d requests were rejected once", n)
	}

	// When one is allowed and one denied.
	seg := r.resumed(map[string]agent.Delivery{waits[0]: delivered(`{"approved":true,"reason":"fine"}`), waits[1]: delivered(`{"action":"deny","reason":"too risky"}`)})
	SettingsOf(r.entry).ResumeBy = []ResumeBy{ByLoad}
	out = r.run(seg)
	content(t, out)
	prompt := r.events(1, record.EventPrompt)[0].Text
	for _, want := range []string{"Write a file\nA person has allowed it.", "They said: fine", "Run it\nIt was denied.", "They said: too risky"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("expected %q in the prompt: %s", want, prompt)
		}
	}
	if strings.Contains(prompt, "not repeated") {
		t.Errorf("got the prompt %s", prompt)
	}
}

// directed makes the agent ask again in the segment that is resumed: its answer to the delivery is
// what it is told.
func (r *rollout) directed(id, directives string) agent.Segment {
	d := delivered(`{"approved":true,"reason":` + string(must(json.Marshal("\n"+directives))) + `}`)
	return r.resumed(map[string]agent.Delivery{id: d})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAnApprovedRequestIsAllowedOnceUnasked(t *testing.T) {
	t.Parallel()
	r := suspending(t)
	first := ids(t, r.prompt(`[[ASK edit Write {"path":"a","mode":{"x":1,"y":2}}]]`))
	out := r.run(r.directed(first[0], `[[ASK edit Other {"path":"b"}]] [[ASK edit Write as before {"mode":{"y":2,"x":1},"path":"a"}]] [[ASK edit Write {"path":"a","mode":{"x":1,"y":2}}]]`))
	second := ids(t, out)
	if len(second) != 2 || second[1] != first[0] || second[0] == first[0] {
		t.Fatalf("got %v after %v", second, first)
	}
	var by []string
	for _, e := range r.events(1, record.EventPermission) {
		var data struct{ By, OptionID string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		by = append(by, data.By+" "+data.OptionID)
	}
	if want := []string{"suspended deny", "person allow", "suspended deny"}; !slices.Equal(by, want) {
		t.Errorf("got %q, want %q", by, want)
	}
}

func TestAnApprovalLastsUntilItIsUsed(t *testing.T) {
	t.Parallel()
	r := suspending(t)
	first := ids(t, r.prompt(`[[ASK edit Write {"path":"a"}]]`))
	second := ids(t, r.run(r.directed(first[0], `[[ASK edit Other {"path":"b"}]]`)))
	out := r.run(r.directed(second[0], `[[ASK edit Write {"path":"a"}]] [[ASK edit Other {"path":"b"}]]`))
	content(t, out)
	if got := r.said(2); !slices.Equal(got, []string{"allowed", "allowed"}) {
		t.Errorf("got %q", got)
	}
}

// Two tools with the same arguments are not each other, nor are two that need none.
func TestAnApprovalOfOneToolIsNoneOfAnother(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string][2]string{
		"with arguments":     {`[[ASK other lab.read {"id":1}]]`, `[[ASK other lab.delete {"id":1}]]`},
		"without arguments":  {`[[ASK other read everything]]`, `[[ASK other delete everything]]`},
		"without, of a kind": {`[[ASK execute status]]`, `[[ASK execute reset]]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			first := ids(t, r.prompt(asks[0]))
			if second := ids(t, r.run(r.directed(first[0], asks[1]))); second[0] == first[0] {
				t.Errorf("both are %v", first)
			}
		})
	}
}

func TestADeliveryThatFailedIsTold(t *testing.T) {
	for status, message := range map[string]string{"faulted": "the queue is gone", "expired": "nobody was there"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			first := ids(t, r.prompt(`[[ASK edit Write {"path":"a"}]]`))
			content(t, r.run(r.resumed(map[string]agent.Delivery{first[0]: {TriggerID: "t", Status: status, Error: &wait.Error{Message: message}}})))
			if prompt := r.events(1, record.EventPrompt)[0].Text; !strings.Contains(prompt, message) || !strings.Contains(prompt, "denied") {
				t.Errorf("got the prompt %q", prompt)
			}
		})
	}
}

func TestATurnThatGoesOnAfterItHasAskedIsEnded(t *testing.T) {
	for name, bounds := range map[string]bounds{"at once": {suspend: 300 * time.Millisecond, idle: time.Minute}, "when it is idle": {suspend: time.Minute, idle: 300 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			r.bounds.suspend, r.bounds.idle = bounds.suspend, bounds.idle
			first := ids(t, r.prompt(`[[ASK edit Write {"path":"a"}]] [[WAIT]]`))
			if len(first) != 1 || len(r.sent(0, "client", "session/cancel")) != 0 {
				t.Errorf("got %v", first)
			}
		})
	}
}

func TestAQuestionThatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	SettingsOf(r.entry).Elicitation = PolicySuspend
	const schema = `"requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}}}`
	out := r.prompt(`[[REQUEST elicitation/create {"mode":"form","message":"Which colour?",` + schema + `}]] [[REQUEST elicitation/create {"mode":"form","message":"Which size?",` + schema +
		`}]] [[REQUEST elicitation/create {"mode":"url","message":"Sign in","url":"https://example.com/login"}]]`)
	waits := ids(t, out)
	if len(waits) != 3 || !strings.Contains(string(out.Interrupts[2].Specs[0].Payload), "https://example.com/login") {
		t.Fatalf("got %v", out.Interrupts)
	}
	if n := len(r.sent(0, "client", `{"action":"cancel"}`)); n != 3 {
		t.Errorf("%d questions were answered", n)
	}
	content(t, r.run(r.resumed(map[string]agent.Delivery{waits[0]: delivered(`{"answer":"blue"}`), waits[1]: delivered(`"large"`), waits[2]: delivered(`true`)})))
	prompt := r.events(1, record.EventPrompt)[0].Text
	for _, want := range []string{`Which colour?` + "\n" + `The answer is: {"answer":"blue"}`, "Which size?\nThe answer is: large", "Sign in\nThe answer is: yes"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("expected %q in the prompt: %s", want, prompt)
		}
	}
}

func TestAQuestionIsNotTakenByDefault(t *testing.T) {
	t.Parallel()
	if got := content(t, newRollout(t).prompt(`[[REQUEST elicitation/create {"mode":"form","message":"Which?"}]]`)); !strings.Contains(got, "-32601") {
		t.Errorf("got %q", got)
	}
}

func TestTheRecordHasNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-the-run"
	r := suspending(t)
	r.opts.Redact = redacting(secret)
	ids(t, r.prompt(`[[ASK execute curl -H `+secret+` {"command":"curl `+secret+`"}]]`))
	for _, name := range []string{FileSession, record.FileTrajectory, FileWire} {
		if text := testenv.ReadFile(t, r.history[0], name); strings.Contains(text, secret) || !strings.Contains(text, "[redacted:") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// asked is a request for permission as an agent sends it, after the update that announces the call.
func asked(announced, request string) string {
	out := ""
	if announced != "" {
		out = `[[UPDATE {"sessionUpdate":"tool_call","toolCallId":"c","status":"pending",` + announced + `}]] `
	}
	return out + `[[REQUEST session/request_permission {"toolCall":{"toolCallId":"c",` + request + `},"options":[{"optionId":"once","name":"Once","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}]]`
}

// A22: an approval of a server's tool is carried over however the agent names the tool: when it
// announces the call, in a title, or in what it shows a person.
func TestApprovalsOfServersToolsAreCarriedOver(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for name, c := range map[string]struct {
		announced, request string
		atGateway          bool // where a person is asked
	}{
		"copilot": {announced: `"title":"records-write","kind":"edit","rawInput":{"id":"1"}`, request: `"title":"write","kind":"other","rawInput":{"id":"1"}`},
		"codex of Zed": {announced: `"title":"Tool: records/write","rawInput":{"server":"records","tool":"write","arguments":{"id":"1"}}`,
			request: `"title":"Approve MCP tool call","rawInput":{"turn_id":"TURN","server_name":"records","request":{"_meta":{"tool_params":{"id":"1"}}}}`},
		"kimi": {atGateway: true, announced: `"title":"mcp__records__write","kind":"other","content":[{"type":"content","content":{"type":"text","text":"{\"id\":\"1\"}"}}]`,
			request: `"title":"mcp__records__write","content":[{"type":"content","content":{"type":"text","text":"Requesting approval"}}]`},
		"a title alone": {request: `"title":"write","rawInput":{"id":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			r.behindGateway(recordServer(t, "records", "write", "read"), recordServer(t, "mail", "send"))
			call := ` [[CALL records.write {"id":"1"}]]`
			ask := func(turn string) string {
				text := strings.ReplaceAll(asked(c.announced, c.request), "TURN", turn)
				if c.atGateway {
					text += call
				}
				return text
			}
			out := r.prompt(ask("a"))
			waits := ids(t, out)
			payload := string(out.Interrupts[0].Specs[0].Payload)
			if len(waits) != 1 || !strings.Contains(payload, `"input":{"id":"1"}`) || !strings.Contains(payload, `"server":"records"`) || !strings.Contains(payload, `"tool":"write"`) || strings.Contains(payload, "note") {
				t.Fatalf("got %v: %s", waits, payload)
			}
			more := ask("b")
			if !c.atGateway {
				more += call
			}
			// And once only.
			out = r.run(r.directed(waits[0], more+" "+strings.ReplaceAll(ask("d"), `"toolCallId":"c"`, `"toolCallId":"d"`)))
			if again := ids(t, out); len(again) != 1 || again[0] != waits[0] || out.Info.MCPServers[0].Calls != 1 {
				t.Errorf("got %v after %v: %+v, %q", again, waits, out.Info.MCPServers, r.said(1))
			}
		})
	}
}

// A22: what looks like a server's tool and is none that a server lists is unknown: an approval has
// no effect, and the question says so.
func TestApprovalsWithoutEffectSaySo(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"a command with a server's name": `"title":"mcp__records__write","kind":"execute"`,
		"no tool of the server":          `"title":"records-remove","rawInput":{"id":"1"}`,
		"no tool at all":                 `"title":"Approve","rawInput":{"id":"1"}`,
		"another's arguments":            `"title":"add","rawInput":{"command":"rm"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t)
			r.behindGateway(recordServer(t, "records", "write"), labServer(t))
			out := r.prompt(asked("", request))
			ids(t, out)
			if got := wait.ApprovalNote(out.Interrupts[0].Specs[0].Payload); !strings.Contains(got, "an approval lets nothing through, because the agent does not say") {
				t.Errorf("got %q for %s", got, out.Interrupts[0].Specs[0].Payload)
			}
		})
	}
}
