package modelagent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/model"
)

const summed = `, "contextTokens": 100, "history": "summary"`

// counting is a model that runs "echo result N" for each N up to 6, and then is done. It goes on by what it
// is shown alone. Each message that it is shown has 20 tokens.
func counting(t *testing.T) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var raw json.RawMessage
		var in struct {
			Messages []struct {
				Content   string
				ToolCalls []struct{ ID string } `json:"tool_calls"`
			}
		}
		if json.NewDecoder(r.Body).Decode(&raw) != nil || json.Unmarshal(raw, &in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		*bodies = append(*bodies, string(raw))
		turn := 0
		for _, m := range in.Messages {
			if len(m.ToolCalls) > 0 {
				_, _ = fmt.Sscanf(m.ToolCalls[0].ID, "c%d", &turn)
				turn++
			}
		}
		message := `{"role":"assistant","content":"fine"}`
		switch {
		case in.Messages[len(in.Messages)-1].Content == summaryRequest:
			message = fmt.Sprintf(`{"role":"assistant","content":"SUMMARY up to %d"}`, turn)
		case turn < 6:
			message = fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo result %d\"}"}}]}`, turn, turn)
		}
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, message, 20*len(in.Messages))
	}))
	t.Cleanup(server.Close)
	return server.URL, bodies
}

// What becomes too long is summed up by the model. Whatever step it was killed at, the conversation goes on
// with the requests that it would have made, byte for byte, and none of them is made a second time.
func TestAConversationIsSummedUp(t *testing.T) {
	url, bodies := counting(t)
	b := newBench(t)
	out := b.run(t.Context(), model.APIChat, url, summed, "Work.")
	if out.Fault != nil || string(out.Output) != `{"content":"fine"}` {
		t.Fatalf("%s, %v", out.Output, out.Fault)
	}
	whole := slices.Clone(*bodies)
	summaries, before := 0, ""
	tokens := int64(0)
	for _, body := range whole {
		tokens += 20 * int64(strings.Count(body, `"role":`))
		if asks := strings.Contains(body, summaryRequest[:40]); asks {
			summaries++
			var in struct{ Messages []json.RawMessage }
			if err := json.Unmarshal([]byte(body), &in); err != nil || !strings.HasPrefix(before, body[:strings.Index(body, string(in.Messages[len(in.Messages)-1]))-1]) {
				t.Errorf("%v: the request for a summary does not begin as the one before:\n%s\n%s", err, before, body)
			}
		} else if n := strings.Count(body, "SUMMARY"); n != min(summaries, 1) {
			t.Errorf("%d summaries in a request after %d: %s", n, summaries, body)
		}
		before = body
	}
	if summaries < 2 || out.Info.Summaries != summaries || out.Info.AnswersLeftOut < summaries || out.Info.Usage[0].InputTokens != tokens || out.Info.ToolCalls != 6 {
		t.Errorf("%d summaries and %d tokens in the requests, %+v", summaries, tokens, out.Info)
	}

	lines := strings.SplitAfter(readFile(t, filepath.Join(b.seg.Dir, FileJournal)), "\n")
	asked := 0
	for n, line := range lines[:len(lines)-1] {
		var one step
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		if one.Step == stepAnswer || one.Step == stepCut && one.Summary != "" {
			asked++
		}
		if one.Step == stepIntent {
			continue // the model is told that the command may have run
		}
		again := newBench(t)
		again.attempt = 1
		if err := os.Mkdir(filepath.Join(again.dir, "1.1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(again.dir, "1.1", FileJournal), []byte(strings.Join(lines[:n+1], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		*bodies = nil
		out := again.run(t.Context(), model.APIChat, url, summed, "Work.")
		if !slices.Equal(whole[asked:], *bodies) {
			t.Errorf("killed after %s: %d requests, want %d with the same bytes", line, len(*bodies), len(whole)-asked)
		}
		if out.Info == nil || out.Info.Summaries != summaries || string(out.Output) != `{"content":"fine"}` {
			t.Errorf("killed after %s: %s, %v, %+v", line, out.Output, out.Fault, out.Info)
		}
	}
}

// Where there is no summary the answers are left out without one. A fault in the middle is repeated with the
// same bytes.
func TestASummaryThatDoesNotCome(t *testing.T) {
	full := calls("tool_calls", "bash", `{"command":"echo out"}`)
	full.body = strings.ReplaceAll(full.body, `"prompt_tokens":7`, `"prompt_tokens":150`)
	for name, c := range map[string]struct {
		summary answer
		fault   fault.Category
	}{
		"too long":   {answer{status: 400, body: `{"error":{"message":"prompt is too long"}}`}, ""},
		"empty":      {chatAnswer(`{"content":" "}`, "stop"), ""},
		"only calls": {calls("tool_calls", "bash", `{"command":"echo x >>ran"}`), ""},
		"refused":    {chatAnswer(`{"content":null,"refusal":"no"}`, "stop"), ""},
		"no key":     {answer{status: 401, body: "{}"}, fault.Model},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := serve(t, full, full, c.summary, good)
			b := newBench(t)
			out := b.run(t.Context(), model.APIChat, url, summed, "Work.")
			if c.fault != "" {
				if out.Fault == nil || out.Fault.Category != c.fault {
					t.Fatalf("%s, %+v", out.Output, out.Fault)
				}
				b.run(t.Context(), model.APIChat, url, summed, "Work.")
				if len(*bodies) < 4 || (*bodies)[2] != (*bodies)[3] {
					t.Errorf("another request: %s", *bodies)
				}
				return
			}
			last := (*bodies)[len(*bodies)-1]
			if string(out.Output) != `{"content":"fine"}` || len(*bodies) != 4 || !strings.Contains(last, "The first 1 of your answers") || strings.Contains(last, "summary") || out.Info.Summaries != 0 || out.Info.AnswersLeftOut != 1 {
				t.Errorf("%s, %v, %+v, %s", out.Output, out.Fault, out.Info, *bodies)
			}
			if _, err := os.Stat(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err == nil {
				t.Error("a call in place of a summary was run")
			}
		})
	}
}

// With batches a summary is asked for in one, too.
func TestASummaryComesInABatch(t *testing.T) {
	b := newBench(t)
	dir := b.dir
	var asked []string
	for n, reply := range []string{"", `"tool_calls":[{"id":"c0","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo 0\"}"}}]`,
		`"tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo 1\"}"}}]`, `"content":"SUMMARY"`, `"content":"fine"`} {
		if n > 0 {
			b.seg.Deliveries = map[string]agent.Delivery{answerID(n): {Payload: json.RawMessage(`{"batch":"b","body":{"choices":[{"message":{"role":"assistant",` + reply + `},"finish_reason":"stop"}],"usage":{"prompt_tokens":150,"completion_tokens":1}}}`)}}
			b.seg.Number, b.seg.History = n+1, []string{b.seg.Dir}
		}
		b.attempt, b.dir = 0, filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(b.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		out := b.run(t.Context(), model.APIChat, "http://127.0.0.1:1", summed+`, "batch": true`, "Work.")
		if n == 4 {
			if string(out.Output) != `{"content":"fine"}` {
				t.Errorf("%s, %v", out.Output, out.Fault)
			}
			break
		}
		if out.Fault != nil || len(out.Interrupts) != 1 || out.Interrupts[0].ID != answerID(n+1) {
			t.Fatalf("segment %d: %+v", n+1, out)
		}
		asked = append(asked, string(out.Interrupts[0].Request.Body))
	}
	if !strings.Contains(asked[2], summaryRequest[:40]) || strings.Contains(asked[3], summaryRequest[:40]) || !strings.Contains(asked[3], "This is your summary of them.]\\n\\nSUMMARY") || strings.Count(asked[3], `"role":"tool"`) != 1 {
		t.Errorf("%s", asked)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
