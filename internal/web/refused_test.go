package web_test

import (
	"strings"
	"testing"
)

// The page of a rollout says what its agent was refused, and nothing if that is nothing.
func TestRefusedConnectionsAreOnThePage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	path := "/runs/" + d.runID + "/rollouts/" + d.trigger("a").RolloutID
	if _, page := d.do("GET", path, nil); strings.Contains(page, "allowlist") {
		t.Error(page)
	}
	spoil(t, d.store.Dir(), `UPDATE segments SET info = '{"refusedConnections": {"total": 3, "hosts": [{"host": "<i>.test:443", "reason": "no", "connections": 2}]}}' WHERE rollout_id = ?`, d.trigger("a").RolloutID)
	if _, page := d.do("GET", path, nil); !strings.Contains(page, "allowlist: 3 connections were refused: &lt;i&gt;.test:443 (2 times) and 1 more") {
		t.Error(page)
	}
}
