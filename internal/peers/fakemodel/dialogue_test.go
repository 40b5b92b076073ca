package fakemodel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// dialogue is a tool call and what follows, as clients of one format send it and as its answers are
// read.
type dialogue struct {
	api, path string
	// plain is the path for an answer in one piece, if it differs.
	plain string
	// first asks, second shows the result of the call whose id takes the place of ID.
	first, second string
	// call finds the call in an answer, text the text; of a stream they are given all data.
	call func(events []map[string]any) (id, name, args string)
	text func(events []map[string]any) string
}

const directives = `please [[CALL prob. {\"a\": [[1]], \"b\": \"]]\"}]] and [[SAY good\nbye ä]]`

var dialogues = []dialogue{
	{
		api: OpenAIChat, path: "/v1/chat/completions",
		first: `{"model":"m","stream":STREAM,"messages":[{"role":"system","content":"sys"},{"role":"user","content":[{"type":"text","text":"` + directives + `"}]}],
			"tools":[{"type":"function","function":{"name":"other"}},{"type":"function","function":{"name":"probe_x"}}]}`,
		second: `{"model":"m","stream":STREAM,"messages":[{"role":"system","content":"sys"},{"role":"user","content":"` + directives + `"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"ID","type":"function","function":{"name":"probe_x","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"ID","content":"the result"}]}`,
		call: func(e []map[string]any) (string, string, string) {
			if at(e[0], "object") == "chat.completion" {
				c := []any{"choices", 0, "message", "tool_calls", 0}
				return joined(e, append(c, "id")...), joined(e, append(c, "function", "name")...), joined(e, append(c, "function", "arguments")...)
			}
			c := []any{"choices", 0, "delta", "tool_calls", 0}
			return joined(e, append(c, "id")...), joined(e, append(c, "function", "name")...), joined(e, append(c, "function", "arguments")...)
		},
		text: func(e []map[string]any) string {
			return joined(e, "choices", 0, "message", "content") + joined(e, "choices", 0, "delta", "content")
		},
	},
	{
		api: OpenAIResponses, path: "/v1/responses",
		first: `{"model":"m","stream":STREAM,"input":[{"role":"system","content":"sys"},{"type":"message","role":"user","content":[{"type":"input_text","text":"` + directives + `"}]}],
			"tools":[{"type":"function","name":"other"},{"type":"namespace","name":"mcp__srv","tools":[{"name":"probe_x"}]}]}`,
		second: `{"model":"m","stream":STREAM,"input":[{"role":"system","content":"sys"},{"role":"user","content":"` + directives + `"},
			{"type":"function_call","call_id":"ID","namespace":"mcp__srv","name":"probe_x","arguments":"{\"a\":1}"},
			{"type":"function_call_output","call_id":"ID","output":"the result"}]}`,
		call: func(e []map[string]any) (string, string, string) {
			item := []any{"response", "output", 0}
			if at(e[0], "object") == "response" {
				item = []any{"output", 0}
			} else if deltas := joined(e, "delta"); deltas != joined(e, append(item, "arguments")...) {
				return "", "", "the deltas are " + deltas
			}
			return joined(e, append(item, "call_id")...), joined(e, append(item, "namespace")...) + "::" + joined(e, append(item, "name")...), joined(e, append(item, "arguments")...)
		},
		text: func(e []map[string]any) string {
			if at(e[0], "object") == "response" {
				return joined(e, "output", 0, "content", 0, "text")
			}
			return joined(e, "delta")
		},
	},
	{
		api: AnthropicMessages, path: "/v1/messages?beta=true",
		first: `{"model":"m","stream":STREAM,"system":[{"type":"text","text":"sys"}],"messages":[{"role":"user","content":[{"type":"text","text":"` + directives + `"}]}],
			"tools":[{"name":"other"},{"name":"probe_x"}]}`,
		second: `{"model":"m","stream":STREAM,"system":"sys","messages":[{"role":"user","content":"` + directives + `"},
			{"role":"assistant","content":[{"type":"tool_use","id":"ID","name":"probe_x","input":{"a":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"ID","content":[{"type":"text","text":"the result"}]}]}]}`,
		call: func(e []map[string]any) (string, string, string) {
			if at(e[0], "type") == "message" {
				return joined(e, "content", 0, "id"), joined(e, "content", 0, "name"), asText(e, "content", 0, "input")
			}
			return joined(e, "content_block", "id"), joined(e, "content_block", "name"), joined(e, "delta", "partial_json")
		},
		text: func(e []map[string]any) string { return joined(e, "content", 0, "text") + joined(e, "delta", "text") },
	},
	{
		api: Gemini, path: "/v1beta/models/m:streamGenerateContent?alt=sse", plain: "/v1beta/models/m:generateContent",
		first: `{"systemInstruction":{"parts":[{"text":"sys"}]},"contents":[{"role":"user","parts":[{"text":"` + directives + `"}]}],
			"tools":[{"functionDeclarations":[{"name":"other"},{"name":"probe_x"}]}]}`,
		second: `{"systemInstruction":{"parts":[{"text":"sys"}]},"contents":[{"parts":[{"text":"` + directives + `"}]},
			{"role":"model","parts":[{"functionCall":{"id":"ID","name":"probe_x","args":{"a":1}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"ID","name":"probe_x","response":{"output":"the result"}}}]}]}`,
		call: func(e []map[string]any) (string, string, string) {
			c := []any{"candidates", 0, "content", "parts", 0, "functionCall"}
			return joined(e, append(c, "id")...), joined(e, append(c, "name")...), asText(e, append(c, "args")...)
		},
		text: func(e []map[string]any) string { return joined(e, "candidates", 0, "content", "parts", 0, "text") },
	},
}

// at follows keys and indexes into a JSON value; nil where they lead nowhere.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			a, _ := v.([]any)
			if step >= len(a) {
				return nil
			}
			v = a[step]
		}
	}
	return v
}

// joined are the strings at a path of all events, one after another.
func joined(events []map[string]any, path ...any) string {
	var out strings.Builder
	for _, e := range events {
		if s, ok := at(e, path...).(string); ok {
			out.WriteString(s)
		}
	}
	return out.String()
}

// asText is the first JSON value at a path, where a format has an object in the place of a string.
func asText(events []map[string]any, path ...any) string {
	for _, e := range events {
		if v := at(e, path...); v != nil {
			raw, _ := json.Marshal(v)
			return string(raw)
		}
	}
	return ""
}

// events are the JSON values of an answer, whether it is a stream, a document or an array.
func events(t *testing.T, body string) []map[string]any {
	t.Helper()
	var out []map[string]any
	if strings.HasPrefix(body, "[") {
		if err := json.Unmarshal([]byte(body), &out); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return out
	}
	if !strings.HasPrefix(body, "{") {
		var data []string
		for line := range strings.SplitSeq(body, "\n") {
			if text, ok := strings.CutPrefix(line, "data: "); ok && text != "[DONE]" {
				data = append(data, text)
			}
		}
		body = strings.Join(data, "\n")
	}
	for dec := json.NewDecoder(strings.NewReader(body)); ; {
		var v map[string]any
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		out = append(out, v)
	}
}

// The same dialogue in all formats, streamed and plain: a call, its result, an answer; and the
// history is the same for all.
func TestATurnWithATool(t *testing.T) {
	for _, d := range dialogues {
		for _, stream := range []string{"true", "false"} {
			t.Run(d.api+" stream "+stream, func(t *testing.T) {
				s := start(t, Options{})
				url := s.URL() + d.path
				if stream == "false" && d.plain != "" {
					url = s.URL() + d.plain
				}
				ask := func(body string) []map[string]any {
					status, answer, err := post(t, t.Context(), url, strings.ReplaceAll(body, "STREAM", stream))
					if err != nil || status != 200 {
						t.Fatalf("got %d %s, %v", status, answer, err)
					}
					if strings.HasPrefix(answer, "{") == (stream == "true") {
						t.Errorf("stream %s: got %s", stream, answer)
					}
					return events(t, answer)
				}

				id, name, args := d.call(ask(d.first))
				tool := "probe_x"
				if d.api == OpenAIResponses {
					tool = "mcp__srv::probe_x"
				}
				var got any
				if err := json.Unmarshal([]byte(args), &got); err != nil || id == "" || name != tool {
					t.Fatalf("got the call %q %q %q, %v", id, name, args, err)
				}
				if diff := cmp.Diff(map[string]any{"a": []any{[]any{1.0}}, "b": "]]"}, got); diff != "" {
					t.Error(diff)
				}
				if text := d.text(ask(strings.ReplaceAll(d.second, "ID", id))); text != "good\nbye ä" {
					t.Errorf("got the text %q", text)
				}

				var said string
				if err := json.Unmarshal([]byte(`"`+directives+`"`), &said); err != nil {
					t.Fatal(err)
				}
				result, role := "the result", "tool"
				switch d.api {
				case AnthropicMessages:
					role = "user"
				case Gemini:
					result, role = `{"output":"the result"}`, "user"
				}
				before := []Message{{Role: "system", Text: "sys"}, {Role: "user", Text: said}}
				after := append(before[:2:2], Message{Role: "assistant", Calls: []Call{{id, tool, json.RawMessage(`{"a":1}`)}}},
					Message{Role: role, Results: []Result{{id, result}}})
				want := []Request{
					{API: d.api, Model: "m", Stream: stream == "true", Messages: before, Tools: []string{"other", tool}, Status: 200},
					{API: d.api, Model: "m", Stream: stream == "true", Messages: after, Status: 200},
				}
				settled(t, s)
				if diff := cmp.Diff(want, s.Requests(), cmpopts.IgnoreFields(Request{}, "Time", "Body", "Header", "Path", "Method")); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// settled waits until all requests have been answered.
func settled(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Wait(ctx, func(rs []Request) bool {
		for _, r := range rs {
			if r.Status == 0 && !r.Aborted {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
}

func TestGeminiWithoutSSEStreamsAnArray(t *testing.T) {
	s := start(t, Options{})
	_, answer, err := post(t, t.Context(), s.URL()+"/v1beta/models/m:streamGenerateContent", `{"contents":[{"parts":[{"text":"[[SAY some text]]"}]}]}`)
	if e := events(t, answer); err != nil || len(e) != 2 || joined(e, "candidates", 0, "content", "parts", 0, "text") != "some text" || at(e[1], "usageMetadata", "promptTokenCount") != float64(InputTokens) {
		t.Errorf("got %s, %v", answer, err)
	}
}
