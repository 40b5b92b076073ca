package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/schemas"
)

// FuzzOpen reads anything as a results document: it is refused with a message or read to its end,
// and never panics.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{
		``, `{`, `[]`, `{"schemaVersion":"1.0"}`,
		`{"schemaVersion":"1.0","runId":"r","storeId":"s","storePath":".","revision":1,"final":true,"evaluationSetResults":[{"evaluationId":"e","clocks":{}}],"datasetEvaluatorResults":{}}`,
		`{"schemaVersion":"1.0","runId":1}`, `{"evaluationSetResults":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "results.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a message")
			}
			return
		}
		if r.RunID == "" || r.StoreID == "" {
			t.Errorf("a document without run or store was accepted: %+v", r.Head)
		}
		if err := r.Rollouts(func(*schemas.Rollout) error { return nil }); err != nil {
			t.Errorf("the document was accepted and cannot be read: %v", err)
		}
	})
}
