package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// secretOf is what the servers of the task fixture know.
func secretOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:12]
}

// copyTask copies a task of the fixtures, with an instruction for the scripted model.
func copyTask(t *testing.T, name, instruction string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(testenv.Top(t), "fixtures", "tasks", name))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name, "instruction.md"), []byte(instruction), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAgents drives each real agent through the task with MCP servers, a permission, a job, and the
// evaluators of tool calls, several agents beside each other. Its output is a table of what each did,
// and of what it does not do by its nature.
func TestAgents(t *testing.T) {
	var table strings.Builder
	row := func(cells ...string) {
		_, _ = fmt.Fprintf(&table, "%-10s | %-8s | %-15s | %-17s | %-10s | %-36s | %s\n", cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]) // to memory
	}
	row("agent", "MCP task", "asks by default", "permission", "job", "tool calls", "why")
	var rows [][]string
	t.Cleanup(func() {
		for _, cells := range rows {
			row(cells...)
		}
		t.Logf("real agents, as measured now:\n%s", table.String())
	})
	for _, name := range []string{"claude", "opencode", "gemini", "codex", "qwen", "kimi", "copilot"} {
		cells := []string{name, "not run", "not run", "not run", "not run", "not run", nature[name]}
		rows = append(rows, cells)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driven := func(step string, drive func(t *testing.T) []string, at ...int) {
				t.Run(step, func(t *testing.T) {
					testenv.Need(t, testenv.Lab, sandbox.Available())
					for _, i := range at {
						cells[i] = "FAILED"
					}
					if did := drive(t); !t.Failed() {
						for n, i := range at {
							cells[i] = did[n]
						}
					}
				})
			}
			driven("task", func(t *testing.T) []string { driveTask(t, name); return []string{"score 1"} }, 1)
			driven("default", func(t *testing.T) []string {
				return []string{map[bool]string{true: "yes", false: "no"}[asksByDefault(t, name)]}
			}, 2)
			driven("permission", func(t *testing.T) []string { return []string{"1 call, by " + drivePermission(t, name)} }, 3)
			driven("job", func(t *testing.T) []string {
				session, scores := driveJob(t, name, "invoice", "INV-")
				return []string{"by " + session, strings.Join(scores, ", ")}
			}, 4, 5)
		})
	}
}

// nature is why an agent does not do something, or does it another way.
var nature = map[string]string{
	"claude":   "asks before every tool of a server",
	"opencode": "asks only for tools that its config names, and before it has the arguments: the gateway decides",
	"gemini":   "tells no arguments when it asks: the gateway decides; a session that was loaded within a minute is lost: replay",
	"codex":    "asks only in the mode read-only (INITIAL_AGENT_MODE), not in the registry's agent-full-access",
	"qwen":     "asks only with --approval-mode default, not with the registry's yolo",

	"kimi":    "tells no arguments when it asks: the gateway decides",
	"copilot": "names the server when it announces the call, and not when it asks; cannot resume: load",
}

// asksByDefault reports whether an agent asks for permission with the registry's settings.
func asksByDefault(t *testing.T, name string) bool {
	m := startModel(t)
	j := &jobs{t: t, url: "http://127.0.0.1:1/no-job-service", mcp: recordServer(t)}
	dir := t.TempDir()
	args := append([]string{"run", "-o", "results.json", "--allow-suspended", "--agent", m.agentEntry(dir, name, map[string]any{"permissions": "suspend"})},
		j.evalSet(dir, `[[CALL read_record {"id":"7"}]] [[SAY all done]]`, "all done")...)
	out, code := evalrunAny(t, dir, args...)
	r := results(t, dir)
	switch r.Status {
	case "suspended":
		return true
	case "completed":
		if r.Score == nil || *r.Score != 1 || r.MCPServers[0].Calls != 1 {
			t.Errorf("%+v", r)
		}
	default:
		t.Fatalf("exit code %d: %s", code, out)
	}
	return false
}

// driveTask has an agent complete the task with servers over stdio and HTTP, in an environment
// without network.
func driveTask(t *testing.T, name string) {
	m := startModel(t)
	dir := copyTask(t, "mcp", fmt.Sprintf(`Find out what is in the vault. [[CALL read_note {"name":"vault"}]] [[CALL open_vault {"key":%q}]] [[CALL submit_answer {"answer":%q}]] [[SAY all done]]`,
		secretOf("key of the vault"), secretOf("what is in the vault")))
	evalrun(t, dir, 0, "run", "--agent", m.agentEntry(dir, name, nil), "-o", "results.json", "mcp")

	r := results(t, dir)
	if r.Score == nil || *r.Score != 1 || r.Isolation != "bwrap" {
		t.Errorf("score %v in %s, want 1 in bwrap", r.Score, r.Isolation)
	}
	if got := fmt.Sprint(r.MCPServers); got != "[{notes stdio sent 2 0} {vault http sent 1 0}]" {
		t.Errorf("servers: %s", got)
	}
	if !strings.Contains(r.AgentExecutionOutput.Result.Output.Content, "all done") {
		t.Errorf("output: %+v", r.AgentExecutionOutput.Result.Output)
	}
	// claude and qwen ask for a suggestion when their turn is over, at times before the end of the
	// turn has reached us, and the agent may be ended before that call is answered.
	asksMore := name == "claude" || name == "qwen"
	if main := r.Usage.Model.Main; main.Calls != 4 && (!asksMore || main.Calls != 5) || main.InputTokens != 100*main.Calls && (!asksMore || main.InputTokens != 400) {
		t.Errorf("usage: %+v", r.Usage)
	}
	// The servers' own logs, and what the model was shown.
	if notes, vault := calls(t, dir, "notes"), calls(t, dir, "vault"); fmt.Sprint(notes, vault) != "[read_note submit_answer] [open_vault]" {
		t.Errorf("the servers saw %v and %v", notes, vault)
	}
	seen := m.requests()
	last := seen[len(seen)-1].history()
	for _, want := range []string{"read_note", "open_vault", "submit_answer", secretOf("what is in the vault")} {
		if !strings.Contains(last, want) {
			t.Errorf("the model was not shown %q:\n%s", want, last)
		}
	}
	for _, r := range seen {
		if !strings.Contains(r.Auth, modelKey) {
			t.Errorf("the model was called with %q", r.Auth)
		}
	}
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
}

// calls are the tools that a server of the task was asked for, by its own log.
func calls(t *testing.T, dir, server string) (tools []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".evalrun/runs/*/rollouts/*/artifacts", server+".jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the log of %s: %v %v", server, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var call struct {
			Tool string `json:"tool"`
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatal(err)
		}
		tools = append(tools, call.Tool)
	}
	return tools
}

// asking says how an agent is made to ask before it hands in its answer, and how its session is
// gone on with.
var asking = map[string]struct {
	more   map[string]any
	resume string
}{
	"claude": {resume: "resume"},
	"codex":  {resume: "resume", more: map[string]any{"env": map[string]string{"INITIAL_AGENT_MODE": "read-only"}}},
	"gemini": {resume: "replay"},

	"kimi":    {resume: "resume"},
	"copilot": {resume: "load"},

	"qwen": {resume: "resume"}, // the lab's command has its mode from QWEN_MODE, see model.asks
	"opencode": {resume: "resume", more: map[string]any{"env": map[string]string{
		"OPENCODE_CONFIG_CONTENT": `{"autoupdate":false,"share":"disabled","model":"evalrun/{model}","small_model":"evalrun/{model}","enabled_providers":["evalrun"],"permission":{"notes_submit_answer":"ask"},` +
			`"provider":{"evalrun":{"npm":"@ai-sdk/openai-compatible","name":"evalrun","options":{"baseURL":"{modelURL}","apiKey":"{modelKey}"},"models":{"{model}":{"name":"{model}","limit":{"context":200000,"output":8192}}}}}}`,
	}}},
}

// drivePermission has an agent ask a person: the rollout is suspended and its process gone; a new
// process goes on with the session, does what was allowed unasked, and the model is shown the whole
// history.
func drivePermission(t *testing.T, name string) (session string) {
	call := fmt.Sprintf(`[[CALL submit_answer {"answer":%q}]]`, secretOf("what is in the vault"))
	how := asking[name]
	m := startModel(t)
	m.asks = true
	dir := copyTask(t, "mcp", "The codeword is petunia. "+call+" [[SAY first turn over]]")
	more := map[string]any{"permissions": "suspend"}
	maps.Copy(more, how.more)
	evalrun(t, dir, 75, "run", "--agent", m.agentEntry(dir, name, more), "-o", "results.json", "mcp")

	r := results(t, dir)
	if r.Status != "suspended" || r.AgentExecutionOutput.Result.Trigger.Type != "TASK" || r.Score != nil {
		t.Fatalf("%+v", r)
	}
	nothingLeft(t, dir, r)
	before := len(m.requests())

	reason := "go ahead " + call + " [[SAY second turn over]]"
	evalrun(t, dir, 0, "approve", r.AgentExecutionOutput.Result.Trigger.TriggerID, "--reason", reason)
	evalrun(t, dir, 0, "resume", "results.json")

	r = results(t, dir)
	if r.Score == nil || *r.Score != 1 {
		t.Errorf("score %v: %+v", r.Score, r)
	}
	if len(r.ResumedBy) != 1 || r.ResumedBy[0].Session != how.resume {
		t.Errorf("the session was gone on with by %v, want %s", r.ResumedBy, how.resume)
	}
	history := m.requests()[before].history()
	for _, want := range []string{"petunia", "submit_answer", "A person has allowed it", "go ahead"} {
		if !strings.Contains(history, want) {
			t.Errorf("the model's first request after the resume lacks %q:\n%s", want, history)
		}
	}
	if tools := calls(t, dir, "notes"); len(tools) != 1 {
		t.Errorf("the server was called %v", tools)
	}
	// A call that was rejected first was made once.
	if got := fmt.Sprint(r.MCPServers); got != "[{notes stdio sent 1 0} {vault http sent 0 0}]" {
		t.Errorf("servers: %s", got)
	}
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
	return how.resume
}
