package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
)

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	var got []time.Duration
	for failures := range 6 {
		got = append(got, backoff(time.Second, 10*time.Second, failures))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRetryable(t *testing.T) {
	for _, test := range []struct {
		on       []string
		category fault.Category
		want     bool
	}{
		{nil, fault.Exit, false},
		{[]string{"timeout"}, fault.Exit, false},
		{[]string{"timeout", "exit"}, fault.Exit, true},
		{[]string{"*"}, fault.NoOutput, true},
		{[]string{"*", "suspensions"}, fault.Suspensions, false}, // it would only be suspended again
	} {
		if got := retryable(test.on, test.category); got != test.want {
			t.Errorf("retry.on %v, category %s: %v, expected %v", test.on, test.category, got, test.want)
		}
	}
}

func TestResumeDocument(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	resume, deliveries := resumeDocument([]store.Trigger{
		{ID: "t1", InterruptID: "a", Status: store.StatusSuccessful, Payload: json.RawMessage(`{"x":1}`), DeliveredAt: at},
		{ID: "t2", InterruptID: "b", Status: store.StatusFaulted, Fault: fault.New("job", "it broke"), DeliveredAt: at},
		{ID: "t3", InterruptID: "c", Status: store.StatusSuccessful, DeliveredAt: at},
	})
	want := `{"a":{"x":1},"b":{"error":{"code":"job","message":"it broke"}},"c":null}`
	if got, err := json.Marshal(resume); err != nil || string(got) != want {
		t.Errorf("resume is %s, expected %s (%v)", got, want, err)
	}
	want = `{"triggerId":"t2","status":"faulted","payload":null,"error":{"code":"job","message":"it broke"},"receivedAt":"2026-01-02T03:04:05Z"}`
	if got, err := json.Marshal(deliveries["b"]); err != nil || string(got) != want {
		t.Errorf("deliveries[b] is %s, expected %s (%v)", got, want, err)
	}
}

// The eval set's folder is looked for where it was relative to the store, then relative to the command's folder, then beside the store.
func TestFindBaseDir(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"project/sets", "project/.evalrun", "elsewhere/sets", "unpacked/.evalrun"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plan := plans.Plan{BaseDir: "../sets", WorkDir: "sets"}
	for _, test := range []struct{ name, store, workDir, want string }{
		{"in its place", "project/.evalrun", "elsewhere", "project/sets"},
		{"the store was moved, the command runs in a checkout", "unpacked/.evalrun", "elsewhere", "elsewhere/sets"},
		{"the store was moved and nothing else is there", "unpacked/.evalrun", "unpacked", "unpacked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := store.Open(filepath.Join(dir, test.store), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			r := New(Options{Store: s, WorkDir: filepath.Join(dir, test.workDir)})
			if got := r.findBaseDir(plan); got != filepath.Join(dir, test.want) {
				t.Errorf("got %s, expected %s", got, filepath.Join(dir, test.want))
			}
		})
	}
}

func TestSocketFolderTakesThePlaceOfOneThatWasLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left, err := socketFolder("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "mcp.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := socketFolder("other")
	if err != nil {
		t.Fatal(err)
	}
	again, err := socketFolder("one")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if want := []string{again, other}; err != nil || len(found) != 2 || !slices.Contains(want, found[0]) || !slices.Contains(want, found[1]) {
		t.Errorf("there are %v, want %v", found, want)
	}
}
