package labtest

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
	if err := os.CopyFS(filepath.Join(dir, name), os.DirFS("../../../fixtures/tasks/"+name)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name, "instruction.md"), []byte(instruction), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var agents = []string{"opencode", "claude", "gemini"}

// TestMCPTask has each agent complete the task with servers over stdio and HTTP, in an environment without network.
func TestMCPTask(t *testing.T) {
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
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
			// claude asks for a suggestion when its turn is over, at times before the end of the turn has reached us.
			if main := r.Usage.Model.Main; main.Calls != 4 && (name != "claude" || main.Calls != 5) || main.InputTokens != 100*main.Calls {
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
		})
	}
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

// asking says how an agent is made to ask before it hands in its answer, and how its session is gone on with.
var asking = map[string]struct {
	more   map[string]any
	resume string
	// again is whether the scripted model has to be told once more what to do: a replay repeats the whole script.
	again bool
}{
	"claude": {resume: "resume", again: true},
	"gemini": {resume: "replay"},
	"opencode": {resume: "resume", again: true, more: map[string]any{"env": map[string]string{
		"OPENCODE_CONFIG_CONTENT": `{"autoupdate":false,"share":"disabled","model":"evalrun/{model}","small_model":"evalrun/{model}","enabled_providers":["evalrun"],"permission":{"notes_submit_answer":"ask"},` +
			`"provider":{"evalrun":{"npm":"@ai-sdk/openai-compatible","name":"evalrun","options":{"baseURL":"{modelURL}","apiKey":"{modelKey}"},"models":{"{model}":{"name":"{model}","limit":{"context":200000,"output":8192}}}}}}`,
	}}},
}

// TestSuspendedByPermission has each agent ask a person: the rollout is suspended and its process gone; a new process goes on with the session,
// does what was allowed unasked, and the model is shown the whole history.
func TestSuspendedByPermission(t *testing.T) {
	call := fmt.Sprintf(`[[CALL submit_answer {"answer":%q}]]`, secretOf("what is in the vault"))
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
			how := asking[name]
			m := startModel(t)
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

			reason := "go ahead"
			if how.again {
				reason += " " + call + " [[SAY second turn over]]"
			}
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
			nothingLeft(t, dir, r)
			keyIsNowhere(t, dir)
		})
	}
}
