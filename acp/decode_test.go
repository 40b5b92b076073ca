package acp

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

func TestInitializeResultsOfRealAgents(t *testing.T) {
	for name, v := range map[string]struct {
		raw  string
		want Capabilities
	}{
		"opencode": {`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true},"promptCapabilities":{"embeddedContext":true,"image":true},"sessionCapabilities":{"close":{},"fork":{},"list":{},"resume":{}}},"authMethods":[{"description":"Run","name":"Login with opencode","id":"opencode-login"}],"agentInfo":{"name":"OpenCode","version":"1.18.33"}}`,
			Capabilities{LoadSession: true, Resume: true, Close: true, List: true, Fork: true, HTTP: true, SSE: true}},
		"codex": {`{"protocolVersion":1,"agentInfo":{"name":"codex-acp","version":"2.6.0"},"agentCapabilities":{"auth":{"logout":{}},"loadSession":true,"sessionCapabilities":{"resume":{},"list":{},"close":{},"subagents":{}},"mcpCapabilities":{"acp":false,"http":true,"sse":false},"_meta":{"authStatus":{}}},"authMethods":[]}`,
			Capabilities{LoadSession: true, Resume: true, Close: true, List: true, HTTP: true}},
		"gemini": {`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true}}}`,
			Capabilities{LoadSession: true, HTTP: true, SSE: true}},
		"qwen": {`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"list":{},"resume":{}},"mcpCapabilities":{"sse":true,"http":true}}}`,
			Capabilities{LoadSession: true, Resume: true, List: true, HTTP: true, SSE: true}},
		"nothing said":  {`{"protocolVersion":1}`, Capabilities{}},
		"null is no":    {`{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":null,"close":null},"mcpCapabilities":null}}`, Capabilities{}},
		"a wrong field": {`{"protocolVersion":1,"agentCapabilities":{"loadSession":"yes","mcpCapabilities":{"http":true}},"authMethods":"none"}`, Capabilities{HTTP: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := dial(t, &client{}, Options{})
			p.serve(func(rpc) string { return v.raw })
			got, err := c.Initialize(testContext(t), Implementation{})
			if err != nil || string(got.Raw) != v.raw {
				t.Fatalf("got %+v, %v", got, err)
			}
			caps := got.Capabilities
			if caps.Raw = nil; caps.LoadSession != v.want.LoadSession || caps.Resume != v.want.Resume || caps.Close != v.want.Close || caps.List != v.want.List || caps.Fork != v.want.Fork || caps.Delete != v.want.Delete ||
				caps.HTTP != v.want.HTTP || caps.SSE != v.want.SSE {
				t.Errorf("got %+v", caps)
			}
			if !caps.Accepts(TransportStdio) || caps.Accepts(TransportHTTP) != v.want.HTTP || caps.Accepts(TransportSSE) != v.want.SSE || caps.Accepts("acp") {
				t.Errorf("accepts stdio %v, http %v, sse %v", caps.Accepts(TransportStdio), caps.Accepts(TransportHTTP), caps.Accepts(TransportSSE))
			}
		})
	}
}

func TestUpdatesAreRead(t *testing.T) {
	read := func(raw string) Update {
		u, ok := parseUpdate([]byte(`{"update":` + raw + `,"sessionId":"s"}`))
		if !ok || u.SessionID != "s" || string(u.Raw) != raw {
			t.Fatalf("%s: got %+v", raw, u)
		}
		return u
	}
	u := read(`{"sessionUpdate":"usage_update","used":5,"size":10,"cost":{"amount":0.5,"currency":"USD"}}`)
	if usage, ok := u.Usage(); !ok || usage.Used != 5 || usage.Size != 10 || usage.Cost == nil || usage.Cost.Amount != 0.5 {
		t.Errorf("got %+v", usage)
	}
	if _, ok := u.Text(); ok {
		t.Error("usage has a text")
	}
	if _, ok := u.Plan(); ok {
		t.Error("usage is a plan")
	}
	u = read(`{"sessionUpdate":"plan","entries":[{"content":"do it","priority":"high","status":"pending"}]}`)
	if plan, ok := u.Plan(); !ok || len(plan) != 1 || plan[0] != (PlanEntry{"do it", "high", "pending"}) {
		t.Errorf("got %+v", plan)
	}
	if mode, ok := read(`{"sessionUpdate":"current_mode_update","currentModeId":"plan"}`).CurrentMode(); !ok || mode != "plan" {
		t.Errorf("got %q", mode)
	}
	if text, ok := read(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm \u00e9"}}`).Text(); !ok || text != "hm é" {
		t.Errorf("got %q", text)
	}
	if _, ok := read(`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"x"}}`).Text(); ok {
		t.Error("an image is a text")
	}
	for _, raw := range []string{`{}`, `null`, `[]`, `{"sessionId":"s"}`, `{"sessionId":"s","update":{}}`, `{"sessionId":1,"update":{"sessionUpdate":"plan"}}`} {
		if u, ok := parseUpdate([]byte(raw)); ok {
			t.Errorf("%s is the update %+v", raw, u)
		}
	}
}

// FuzzDecode holds the decoder against encoding/json: what it takes for messages are objects of
// JSON, with the members that encoding/json finds, and together they are the line; no line makes it
// fail or forget.
func FuzzDecode(f *testing.F) {
	for _, line := range []string{firstAnswer, firstAnswer + chunk("x"), "\x1b[K{" + firstAnswer, `{"jsonrpc":"2.0","id":"a\"]}","method":"\ud83d\ude00","params":[{"a":"}"}]} `,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1},"error":null,"result":1e5}`, `{"jsonrpc":"2.0","method":"a","params":{"\\":"\\\\"}}`, `{"a":}`, `{"`, `{"a":[`, `{"a":"\`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		strict := decoder{started: true}
		messages := strict.decode(line)
		dec := json.NewDecoder(bytes.NewReader(line))
		for _, m := range messages {
			var want map[string]json.RawMessage
			if err := dec.Decode(&want); err != nil {
				t.Fatalf("a message where encoding/json finds none: %v", err)
			}
			var method string
			if raw := want["method"]; raw != nil {
				if err := json.Unmarshal(raw, &method); err != nil {
					t.Fatal(err)
				}
			}
			if m.Method != method || !bytes.Equal(m.ID, want["id"]) || !bytes.Equal(m.Params, want["params"]) || !bytes.Equal(m.Result, want["result"]) {
				t.Fatalf("got %q %s %s %s, want %s", m.Method, m.ID, m.Params, m.Result, want)
			}
		}
		if rest, ok := bytes.CutPrefix(line, line[:dec.InputOffset()]); len(messages) > 0 && (!ok || len(bytes.TrimSpace(rest)) > 0) {
			t.Fatalf("%q was left over", rest)
		}
		// Whole messages are never noise.
		var single struct {
			JSONRPC *string `json:"jsonrpc"`
			Method  *string `json:"method"`
		}
		if len(messages) == 0 && json.Unmarshal(line, &single) == nil && single.JSONRPC != nil && *single.JSONRPC == "2.0" && single.Method != nil && *single.Method != "" {
			var members map[string]json.RawMessage
			if json.Unmarshal(line, &members) == nil && string(members["jsonrpc"]) == `"2.0"` && members["method"] != nil && string(members["method"]) != "null" &&
				members["result"] == nil && members["error"] == nil {
				t.Fatalf("%q is a message", line)
			}
		}
		// The forgiving decoder finds at least what the strict one does.
		var forgiving decoder
		if got := forgiving.decode(line); len(messages) > 0 && len(got) != len(messages) {
			t.Fatalf("%d messages, strictly %d", len(got), len(messages))
		}
		parseUpdate(line)
		if reader := jsonrpc.NewReader(strings.NewReader(string(line)), 64); reader != nil {
			for {
				if l, err := reader.Next(); err != nil {
					break
				} else if len(l) > 64 {
					t.Fatalf("a line of %d bytes", len(l))
				}
			}
		}
	})
}
