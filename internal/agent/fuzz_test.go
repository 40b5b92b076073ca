package agent_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
)

// FuzzParseEntry reads anything as an agent entry. What is accepted survives being stored.
func FuzzParseEntry(f *testing.F) {
	for _, seed := range []string{
		`{"type":"function","command":["a","b"],"env":{"A":"${B}"},"timeout":"1m"}`, `"claude"`, `{"type":"acp"}`, `{"type":"function","command":[]}`,
		`{"type":"function","command":["a"],"output":"file","outputFile":"../x"}`, `[]`, `{"type":"function","command":["a"],"resumeWhen":"all","stdin":"input"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := input.Parse("agent.json", data)
		if err != nil {
			return
		}
		var r input.Reader
		e := agent.ParseEntry(&r, n)
		if r.Problems.Err(false) != nil {
			return
		}
		if err := e.Check(); err != nil {
			t.Errorf("the entry was accepted, and no agent can be made of it: %v", err)
		}
		stored, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var again agent.Entry
		if err := json.Unmarshal(stored, &again); err != nil || !reflect.DeepEqual(e, again) {
			t.Errorf("stored as %s it comes back as %+v, %v", stored, again, err)
		}
	})
}
