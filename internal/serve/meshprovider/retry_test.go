package meshprovider

import (
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// TestTheCategoryOfAFault is not what an agent says in its message.
func TestTheCategoryOfAFault(t *testing.T) {
	j := &job{capability: service.MeshCapability{RetryOn: []fault.Category{"exit"}}}
	for text, want := range map[string]bool{
		"exit: status 3": true,
		"2 of 5 rollouts faulted; the first: exit: status 3":                      true,
		"2 of 5 rollouts faulted; the first: timeout: it said; the first: exit: ": false,
		"timeout: it said; the first: exit: 3":                                    false,
		"exit: it said; the first: timeout: 3":                                    true,
	} {
		if got := j.retryable(store.Job{Status: store.JobFailed, Error: text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
