package sources

import (
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// FuzzParseJobs reads anything as the key jobs. What is accepted survives being stored.
func FuzzParseJobs(f *testing.F) {
	for _, seed := range []string{
		`{"P":{"source":"external"}}`, `{"*":{"source":"exec","command":["a"],"env":{"A":"${B}"},"timeout":"1s"}}`,
		`{"P":{"source":"http","start":{"url":"https://h/{triggerId}","body":{"a":"{inputArguments}"}},"status":{"url":"https://h/{itemKey}","done":".x"}}}`,
		`{"P":{"source":"http","status":{"url":"::","done":"."}}}`, `[]`, `{"P":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := input.Parse("jobs.json", data)
		if err != nil {
			return
		}
		var r input.Reader
		jobs := wait.ParseJobs(&r, n)
		if r.Problems.Err(false) != nil {
			return
		}
		stored, err := json.Marshal(jobs)
		if err != nil {
			t.Fatal(err)
		}
		var again wait.Jobs
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatalf("%v in %s", err, stored)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(stored) {
			t.Errorf("stored as %s, then as %s, %v", stored, twice, err)
		}
	})
}
