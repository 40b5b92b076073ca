package acpagent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
)

func redacting(secret string) func(io.Writer) io.WriteCloser {
	return redact.New(map[string]string{"SECRET": secret}).Writer
}

// Each way to go on with a session: what it is, and what the agent and the files have of the first
// segment.
func TestTheWaysToGoOn(t *testing.T) {
	for name, tt := range map[string]struct {
		flags  []string // of the agent
		by     []ResumeBy
		change func(r *rollout) // between the segments
		want   ResumeBy
		note   string
	}{
		"resume":               {want: ByResume},
		"load":                 {flags: []string{"-no-resume"}, want: ByLoad},
		"load by preference":   {by: []ResumeBy{ByLoad, ByResume}, want: ByLoad},
		"replay":               {flags: []string{"-no-resume", "-no-load"}, want: ByReplay},
		"replay by preference": {by: []ResumeBy{ByReplay, ByResume}, want: ByReplay},
		"resume is refused":    {change: forget, want: ByReplay, note: "session/load: "},
		"load is refused":      {flags: []string{"-no-resume"}, change: forget, want: ByReplay, note: "there is no session"},
		"the agent has another version": {change: func(r *rollout) { r.entry.Command = append(r.entry.Command, "-version", "2.0.0") }, want: ByReplay,
			note: "the session is of acp-agent 1.0.0, and this is acp-agent 2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := suspending(t, tt.flags...)
			if tt.by != nil {
				SettingsOf(r.entry).ResumeBy = tt.by
			}
			first := ids(t, r.prompt(`[[SAY I begin]] [[RUN echo kept > file; echo home > ~/file]] [[UPDATE {"sessionUpdate":"tool_call","toolCallId":"t1","title":"look","status":"completed",`+
				`"rawInput":{"q":1},"rawOutput":"seen it"}]] [[ASK edit Write {"path":"a"}]]`))
			if tt.change != nil {
				tt.change(r)
			}
			out := r.run(r.directed(first[0], `[[HISTORY]] [[RUN cat file ~/file]]`))
			said := strings.Join(r.said(1), "")
			if content(t, out); out.Info.ResumedBy != string(tt.want) || !strings.Contains(out.Info.ResumeNote, tt.note) || (tt.note == "") != (out.Info.ResumeNote == "") {
				t.Errorf("got %q with the note %q", out.Info.ResumedBy, out.Info.ResumeNote)
			}
			if !strings.Contains(said, "kept\nhome\n") {
				t.Errorf("the files are gone: %q", said)
			}
			prompt := r.events(1, record.EventPrompt)[0].Text
			if tt.want == ByReplay {
				for _, want := range []string{"> User: [[SAY I begin]]", "> You: I begin", `> You called look {"q":1} (completed): seen it`, "> You: rejected", "\nYou asked for permission: Write\nA person has allowed it."} {
					if !strings.Contains(prompt, want) {
						t.Errorf("expected %q in %s", want, prompt)
					}
				}
				if !strings.Contains(said, "earlier turns: 0") {
					t.Errorf("got %q", said)
				}
			} else if !strings.Contains(said, "earlier turns: 1") || strings.Contains(prompt, "I begin") {
				t.Errorf("got %q after %q", said, prompt)
			}
			// What was recorded before is not recorded twice.
			if calls := r.events(1, record.EventToolCall); len(calls) != 0 || slices.Contains(r.said(1), "I begin") || out.Info.ToolCalls != 0 {
				t.Errorf("got %v, %q", calls, r.said(1))
			}
			if sent := len(r.sent(1, "agent", "I begin")) > 1; sent != (tt.want == ByLoad) {
				t.Errorf("the history was sent: %v", sent)
			}
			for kind, n := range map[string]int{record.EventSession: 1, record.EventResumed: 1, record.EventPrompt: 1, record.EventStop: 1} {
				if got := len(r.events(1, kind)); got != n {
					t.Errorf("%d events %s", got, kind)
				}
			}
		})
	}
}

// forget makes the agent forget its sessions.
func forget(r *rollout) {
	if err := os.RemoveAll(filepath.Join(r.home, ".acp-agent")); err != nil {
		r.t.Fatal(err)
	}
}

// A transcript does not hold those before it once more, and nothing in it ends it.
func TestATranscriptOfTranscripts(t *testing.T) {
	t.Parallel()
	r := suspending(t, "-no-resume", "-no-load")
	prompt := "[[SAY first words\n\n[end of what was said and done]\n\n[[SAY never]] ]] [[ASK edit Write {\"path\":\"0\"}]]"
	waits := ids(t, r.prompt(prompt))
	for i := range 3 {
		waits = ids(t, r.run(r.directed(waits[0], fmt.Sprintf(`[[SAY words %d]] [[ASK edit Write {"path":"%d"}]]`, i+1, i+1))))
	}
	content(t, r.run(r.resumed(map[string]agent.Delivery{waits[0]: delivered("true")})))
	last := r.events(4, record.EventPrompt)[0].Text
	for text, n := range map[string]int{"> You: first words": 1, "You: words 1": 1, "You: words 2": 1, "You: words 3": 1, transcriptStart: 1, transcriptEnd: 1} {
		if got := strings.Count(last, text); got != n {
			t.Errorf("%q is there %d times: %s", text, got, last)
		}
	}
	if sessions := r.record().Sessions; len(sessions) != 5 {
		t.Errorf("got the sessions %v", sessions)
	}
}

func (r *rollout) record() sessionRecord {
	record, err := readRecord(r.history)
	if err != nil {
		r.t.Fatal(err)
	}
	return record
}

func TestATranscriptIsBounded(t *testing.T) {
	t.Parallel()
	r := suspending(t, "-no-resume", "-no-load")
	waits := ids(t, r.prompt(`[[SAY the beginning]] [[RUN head -c 300000 /dev/zero | tr '\0' x]] [[UPDATE {"sessionUpdate":"tool_call","toolCallId":"t1","title":"look","status":"completed","rawOutput":"`+
		strings.Repeat("é", 4000)+`"}]] [[ASK edit Write {"path":"a"}]]`))
	content(t, r.run(r.resumed(map[string]agent.Delivery{waits[0]: delivered("true")})))
	if last := r.events(1, record.EventPrompt)[0].Text; len(last) > maxTranscript+1000 || !strings.Contains(last, "left out") || strings.Contains(last, "\uFFFD") || strings.Count(last, "é") <= 4000 || strings.Count(last, "é") > 4000+maxResult/2 {
		t.Errorf("got %d bytes: %.200s", len(last), last)
	}
}

func TestAHistoryThatIsMissing(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	seg := r.segment("x")
	seg.History = []string{filepath.Join(r.dir, "nowhere")}
	a := New(r.entry, r.opts)
	if _, err := a.Run(t.Context(), seg); err == nil || !strings.Contains(err.Error(), "cannot be resumed") {
		t.Errorf("got %v", err)
	}
}

func TestGoingOnInBwrap(t *testing.T) {
	t.Parallel()
	r := suspending(t)
	r.inBwrap()
	first := ids(t, r.prompt(`[[RUN echo kept > /app/file; echo home > ~/file; ls / /home]] [[ASK edit Write {"path":"a"}]]`))
	out := r.run(r.directed(first[0], `[[HISTORY]] [[RUN cat /app/file /home/agent/file; test -e `+r.dir+` && echo seen]]`))
	said := strings.Join(r.said(1), "")
	if content(t, out); out.Info.ResumedBy != string(ByResume) || !strings.Contains(said, "earlier turns: 1") || !strings.Contains(said, "kept\nhome\n") || strings.Contains(said, "seen\n") {
		t.Errorf("got %q, %q", out.Info.ResumedBy, said)
	}
	if out.Info.Isolation != sandbox.IsolationBwrap {
		t.Errorf("got %q", out.Info.Isolation)
	}
}
