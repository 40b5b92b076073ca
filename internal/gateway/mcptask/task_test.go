package mcptask

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
)

// What servers get wrong about a task does not make it anything else.
func TestOddTasksAreTasks(t *testing.T) {
	for doc, want := range map[string]struct {
		ttl, poll int64 // -1: none
		created   bool
	}{
		`{"taskId":"t","status":"working","ttl":60000,"pollInterval":500,"createdAt":"2026-07-28T12:00:00Z"}`:       {60000, 500, true},
		`{"taskId":"t","status":"working","ttlMs":60000,"pollIntervalMs":500,"createdAt":"2026-07-28T12:00:00.5Z"}`: {60000, 500, true},
		`{"taskId":"t","status":"working","ttl":300000.0,"pollInterval":0.5e3,"createdAt":"yesterday"}`:             {300000, 500, false},
		`{"taskId":"t","status":"working","ttl":1e300,"pollInterval":-1,"createdAt":1785240000}`:                    {-1, 0, false},
		`{"taskId":"t","status":"working","ttl":"60000","pollInterval":"1s","createdAt":null}`:                      {-1, 0, false},
		`{"taskId":"t","status":"working","ttl":null,"result":null,"error":null,"inputRequests":null}`:              {-1, 0, false},
		`{"taskId":"t","status":"working","statusMessage":7,"inputRequests":[]}`:                                    {-1, 0, false},
	} {
		var w Wire
		if err := json.Unmarshal([]byte(doc), &w); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		ttl := int64(-1)
		if w.TTL != nil {
			ttl = *w.TTL
		}
		if w.TaskID != "t" || w.Status != Working || ttl != want.ttl || w.PollInterval != want.poll || w.CreatedAt.IsZero() == want.created || w.Result != nil || w.Error != nil {
			t.Errorf("%s: %+v, ttl %d", doc, w, ttl)
		}
		task := &wait.MCPTask{CreatedAt: time.Now()}
		if w.Apply(task); task.ExpiresAt().IsZero() != (want.ttl < 0) {
			t.Errorf("%s expires at %v", doc, task.ExpiresAt())
		}
	}
}
