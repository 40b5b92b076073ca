package rollout

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func TestResumeDocument(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	resume, deliveries := resumeDocument([]store.Trigger{
		{ID: "t1", InterruptID: "a", Status: store.StatusSuccessful, Payload: json.RawMessage(`{"x":1}`), DeliveredAt: at},
		{ID: "t2", InterruptID: "b", Status: store.StatusFaulted, Fault: &fault.Fault{Category: "job", Message: "it broke"}, DeliveredAt: at},
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
