package acpagent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// records are calls as the ledger has them, by their ids.
type records map[string]*wait.Work

func (records) Begin(context.Context, suspend.CallKey) (suspend.Entry, error) {
	return suspend.Entry{}, nil
}

func (records) Started(context.Context, *wait.Work) error { return nil }

func (r records) Work(_ context.Context, id string) (*wait.Work, error) { return r[id], nil }

func (records) Ended(context.Context, string) error { return nil }

// waitingCalls are a job and an MCP task that two calls have started.
func waitingCalls() records {
	session := mcp.SessionState{Era: mcp.Legacy, Version: "2025-11-25", SessionID: "session"}
	return records{
		"c1": {CallID: "c1", Server: "s", Tool: "build", Arguments: json.RawMessage(`{"n":1}`), Job: &wait.JobHandle{Key: "k", FolderKey: "f"}},
		"c2": {CallID: "c2", Server: "s", Tool: "train", Arguments: json.RawMessage(`{"n":2}`),
			Task: &wait.MCPTask{ID: "t2", Era: mcp.Legacy, Status: "working", CreatedAt: time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC), Session: session}},
	}
}

// resumeRecord goes on with the session of a record, when the job has ended and the task has not.
// It returns the prompt, and what the rollout waits for afterwards.
func resumeRecord(t *testing.T, dir string, calls records) (string, agent.Outcome) {
	t.Helper()
	earlier, err := readRecord([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	trail := record.OpenTrajectory(t.TempDir(), nil, time.Now)
	recorder := newCallRecorder(time.Now, toolNames{}, &servers{})
	c := &conversation{record: earlier, trail: trail, calls: recorder}
	r := &resumption{
		deliveries: map[string]agent.Delivery{"call-c1": {Payload: json.RawMessage(`{"state":"Faulted","info":"out of disk"}`)}},
		gateway:    &agent.Gateway{Ledger: calls}, now: time.Now, conversation: c, calls: recorder,
	}
	prompt, err := r.prompt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return prompt, c.suspend(nil)
}

// mustStillWait checks that the one thing that is waited for is what the call has started. A
// trigger with another digest would supersede the one before, whose task would then be cancelled.
func mustStillWait(t *testing.T, out agent.Outcome, w *wait.Work) {
	t.Helper()
	want, err := w.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if out.Fault != nil || len(out.Interrupts) != 1 || len(out.Interrupts[0].Specs) != 1 {
		t.Fatalf("%+v", out)
	}
	in := out.Interrupts[0]
	if in.ID != "call-"+w.CallID || in.Specs[0].Digest() != want.Digest() {
		t.Errorf("it waits for %s %+v, want %+v", in.ID, in.Specs[0], want)
	}
}

// With resumeWhen "any" a rollout is resumed while it still waits for other work. What it waits for
// then is the same as before, and so its trigger stays.
func TestWorkThatIsStillWaitedForStaysTheSame(t *testing.T) {
	calls, dir := waitingCalls(), t.TempDir()
	trail := record.OpenTrajectory(t.TempDir(), nil, time.Now)
	c := &conversation{trail: trail, calls: newCallRecorder(time.Now, toolNames{}, &servers{}), seg: agent.Segment{Dir: dir, Sandbox: &agent.Sandbox{}}}
	c.record.SessionID = "session"
	first := c.suspend([]request{requestOf(*calls["c1"]), requestOf(*calls["c2"])})
	if first.Fault != nil || len(first.Interrupts) != 2 {
		t.Fatalf("%+v", first)
	}
	if err := c.write(&record.Info{}, nil); err != nil {
		t.Fatal(err)
	}
	prompt, out := resumeRecord(t, dir, calls)
	if !strings.Contains(prompt, "out of disk") || !strings.Contains(prompt, "1 more that you wait for") {
		t.Errorf("the prompt is %q", prompt)
	}
	mustStillWait(t, out, calls["c2"])
}

// earlierRecord is a session's record of a version that kept the work in it, without the id of a
// task.
const earlierRecord = `{
  "sessionId": "session", "sessions": ["session"], "agentName": "a", "agentVersion": "1", "cwd": "/workspace",
  "asked": [
    {"interrupt": "call-c1", "what": "work", "title": "build", "kind": "s", "spanId": "span-1",
     "work": {"callId": "c1", "server": "s", "tool": "build", "arguments": {"n": 1}, "job": {"key": "k", "folderKey": "f"}}},
    {"interrupt": "call-c2", "what": "work", "title": "train", "kind": "s", "toolCallId": "call_7", "spanId": "span-2",
     "work": {"callId": "c2", "server": "s", "tool": "train", "arguments": {"n": 2},
      "task": {"taskId": "", "era": "2025-11-25", "status": "", "createdAt": "0001-01-01T00:00:00Z", "ttlMs": null, "session": {"era": "", "version": ""}}}}
  ]
}`

// A rollout that an earlier version has suspended is resumed.
func TestARecordOfAnEarlierVersionIsRead(t *testing.T) {
	dir, calls := t.TempDir(), waitingCalls()
	if err := os.WriteFile(filepath.Join(dir, FileSession), []byte(earlierRecord), 0o600); err != nil {
		t.Fatal(err)
	}
	prompt, out := resumeRecord(t, dir, calls)
	if !strings.Contains(prompt, "build") || !strings.Contains(prompt, "out of disk") {
		t.Errorf("the prompt is %q", prompt)
	}
	mustStillWait(t, out, calls["c2"])
}
