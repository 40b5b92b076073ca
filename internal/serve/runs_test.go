package serve_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestARunIsStartedAndWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	started := w.start("greet")
	if done := w.reaches(started.RunID, "successful"); !done.Final {
		t.Errorf("%+v", done)
	}
	if line := w.audit.String(); !strings.Contains(line, `"action":"run","object":"`+started.RunID) {
		t.Errorf("the audit log has %q", line)
	}
}

func TestTheSameKeyIsTheSameRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"evalSet": "greet", "epochs": 2}`
	var first, second run
	w.must(http.StatusCreated, "POST", "/v1/runs", body, "Idempotency-Key", "k").decode(t, &first)
	w.must(http.StatusOK, "POST", "/v1/runs", strings.ReplaceAll(body, " ", "\n"), "Idempotency-Key", "k").decode(t, &second)
	if first.RunID != second.RunID {
		t.Errorf("%s and %s", first.RunID, second.RunID)
	}
	w.must(http.StatusConflict, "POST", "/v1/runs", `{"evalSet": "greet"}`, "Idempotency-Key", "k")
}
