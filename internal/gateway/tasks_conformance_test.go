package gateway_test

import (
	"context"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/tasks"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// The scenarios of the official suite for the tasks extension, against our task server behind the
// gateway. tasks-status-notifications is missing: the suite skips it (TestTasksOf2026 has its own).
func TestConformanceOfTasks(t *testing.T) {
	c := theSuite(t)
	for _, test := range []struct {
		era taskserver.Era
		// not are scenarios that the server's era cannot pass: it asks one question at a time, and
		// only when there is a task.
		not string
	}{{taskserver.Modern, ""}, {taskserver.Legacy, "tasks-mrtr-input tasks-mrtr-composition"}} {
		t.Run("of a "+string(test.era)+" server", func(t *testing.T) {
			s, err := taskserver.New(taskserver.Options{Era: test.era})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(s)
			defer server.Close()
			defer s.Close()
			st, err := sqlite.Open(t.TempDir(), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			g, err := gateway.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			tasks, err := tasks.New(tasks.Options{Store: st, Strict: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{{Name: "tasks", Target: mcp.Target{URL: server.URL}}}, Tasks: tasks})
			if err != nil {
				t.Fatal(err)
			}
			for _, scenario := range strings.Fields(`tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal tasks-mrtr-input
				tasks-request-headers tasks-dispatch-and-envelope tasks-required-task-error tasks-mrtr-composition`) {
				t.Run(scenario, func(t *testing.T) {
					if strings.Contains(test.not, scenario) {
						t.Skip("the era of the server cannot")
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					out, err := exec.CommandContext(ctx, c.node, c.script, "server", "--url", a.URLWithToken("tasks"), "--scenario", scenario, "--force").CombinedOutput()
					passed := regexp.MustCompile(`Passed: ([1-9][0-9]*)/([0-9]+), 0 failed`).FindSubmatch(out)
					if err != nil || passed == nil || string(passed[1]) != string(passed[2]) {
						t.Fatalf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
