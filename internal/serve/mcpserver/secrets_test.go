package mcpserver_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// What an agent tells of its secrets reaches no client. Every byte that the servers of these tests
// send and log is listened to; here the agent really tells one.
func TestNoSecretReachesAClient(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	eras(t, func(t *testing.T, era mcp.Era) {
		w := newWorld(t)
		c := w.connect(t, era, w.token)
		id := c.Task("run_eval_set", `{"evalSet":"tells"}`)
		c.Until(id, "completed")
		if text, _, err := c.Result(id); err != nil || !strings.Contains(text, "failed") {
			t.Errorf("%s %v", text, err)
		}
		plain := w.plain(t, w.token)
		ran := tool(plain, "run_eval_set", `{"evalSet":"tells"}`)
		if results := string(tool(plain, "get_results", `{"runId":"`+ran.Text("runId")+`"}`).JSON()); !strings.Contains(results, `"answer":"[redacted:PLANTED]"`) {
			t.Errorf("%s", results)
		}
	})
}
