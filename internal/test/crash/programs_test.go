package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary play the programs of the scenario: agent, local job and command
// evaluator.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "agent":
			exitWith(playAgent())
		case "job":
			exitWith(playJob())
		case "evaluator":
			exitWith(playEvaluator())
		case "waiting-evaluator":
			exitWith(playWaitingEvaluator())
		case "counting-evaluator":
			exitWith(playCountingEvaluator())
		}
	}
	os.Exit(m.Run())
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// What an agent waits for that waits for a person, and for one after a job.
const (
	asksPerson    = "Person"
	jobThenPerson = "JobThenPerson"
)

// agentInput says what the agent of one evaluation does.
type agentInput struct {
	// Process is what it waits for, in each of Rounds suspensions for Parallel jobs at once under
	// ids that come again.
	Process  string `json:"process,omitempty"`
	Rounds   int    `json:"rounds,omitempty"`
	Parallel int    `json:"parallel,omitempty"`
	// Key, if set, is what the keys of external jobs begin with; Poison is what the agent does
	// instead of its work.
	Key    string `json:"key,omitempty"`
	Poison string `json:"poison,omitempty"`
	// Millis is how long a segment takes.
	Millis int `json:"millis,omitempty"`
}

// key is that of the external job of a round.
func (in agentInput) key(round int) string { return fmt.Sprintf("%s-%d", in.Key, round) }

// playAgent counts its segments in its workspace: a segment that is repeated must find the
// workspace as it was, or the count is wrong.
func playAgent() error {
	var in struct {
		Input     agentInput                 `json:"input"`
		Resume    map[string]json.RawMessage `json:"resume"`
		Workspace string                     `json:"workspace"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	if in.Input.Poison != "" {
		return playPoison(in.Input.Poison, in.Workspace)
	}
	time.Sleep(time.Duration(in.Input.Millis) * time.Millisecond)
	steps := filepath.Join(in.Workspace, "steps")
	if err := appendLine(steps, "segment"); err != nil {
		return err
	}
	rounds, err := countLines(steps)
	if err != nil {
		return err
	}
	// answered keeps which interrupts of this round have been answered.
	answered := filepath.Join(in.Workspace, "answered")
	for id := range in.Resume {
		if err := appendLine(answered, id); err != nil {
			return err
		}
	}
	n, err := countLines(answered)
	if err != nil {
		return err
	}
	if in.Input.Process == "Elsewhere" && in.Input.Key != "" {
		for _, payload := range in.Resume {
			if want := fmt.Sprintf(`{"key":%q}`, in.Input.key(n-1)); string(payload) != want {
				return fmt.Errorf("got the answer %s, expected %s", payload, want)
			}
		}
	}
	parallel := max(in.Input.Parallel, 1)
	if n >= in.Input.Rounds*parallel {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"answers": n, "segmentsCounted": rounds > 0})
	}
	if in.Resume != nil && n%parallel != 0 {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"__interrupt__": pending(in.Input, answered, n-n%parallel)})
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"__interrupt__": pending(in.Input, answered, n)})
}

// pending are the interrupts of the round whose first answer is the n-th that are not answered.
func pending(in agentInput, answered string, n int) []any {
	data, _ := os.ReadFile(answered) // none yet
	done := map[string]bool{}
	for i, id := range strings.Fields(string(data)) {
		if i >= n {
			done[id] = true
		}
	}
	var out []any
	for i := range max(in.Parallel, 1) {
		id := fmt.Sprintf("interrupt-%d", i)
		value := map[string]any{"name": in.Process, "input_arguments": map[string]any{"i": i}}
		if in.Process == asksPerson || in.Process == jobThenPerson && n > 0 {
			value = map[string]any{"title": "Go on?"}
		}
		if in.Process == "Elsewhere" && in.Key != "" {
			value = map[string]any{"job": map[string]any{"key": in.key(n)}}
		}
		if !done[id] {
			out = append(out, map[string]any{"id": id, "value": value})
		}
	}
	return out
}

// playJob leaves a mark for each start of a local job, under the key that it got.
func playJob() error {
	var in struct {
		Key string `json:"key"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	if err := appendLine(filepath.Join(os.Getenv("CRASHTEST_DIR"), "job-"+in.Key), "started"); err != nil {
		return err
	}
	fmt.Println(`{"job":"done"}`)
	return nil
}

// playEvaluator gives every rollout the score 1 whose agent has left its workspace.
func playEvaluator() error {
	var in struct {
		Workspace string `json:"workspace"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(in.Workspace, "steps")); err != nil {
		return fmt.Errorf("the workspace is not what the agent has left: %w", err)
	}
	fmt.Println(`{"score":1}`)
	return nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

func countLines(path string) (int, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	return strings.Count(string(data), "\n"), err
}
