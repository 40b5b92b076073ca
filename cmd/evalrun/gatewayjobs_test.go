package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// The contract of jobs passes through the gateway, and a handle outlives it. The endpoint of all
// servers gives handles, too, but does not advertise them.
func TestGatewayPassesOnJobs(t *testing.T) {
	testenv.NeedSlow(t)
	const job = "uipath.com/job"
	bin, dir := t.TempDir(), t.TempDir()
	if err := testenv.Build(bin, testenv.JobsServer); err != nil {
		t.Fatal(err)
	}
	jobs, err := service.New(service.Options{Dir: filepath.Join(dir, "jobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = jobs.Close() })
	orchestrator := httptest.NewServer(jobs)
	t.Cleanup(orchestrator.Close)
	config := filepath.Join(dir, "mcp.json")
	servers := fmt.Sprintf(`{"mcpServers":{"rpa":{"command":%q,"args":["server","--service",%q]}}}`, filepath.Join(bin, "jobs"), orchestrator.URL)
	if err := os.WriteFile(config, []byte(servers), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for endpoint, tool := range map[string]string{"rpa": "run_process", "all": "rpa_run_process"} {
			t.Run(string(era)+" "+endpoint, func(t *testing.T) {
				t.Parallel()
				g := &gatewayProcess{t: t, args: []string{config, "--store", t.TempDir(), "--aggregate"}}
				connect := func() *mcp.Client {
					g.start()
					g.servers["tasks"] = g.servers[endpoint]
					return g.connect(mcp.ClientOptions{Protocol: era})
				}
				call := func(c *mcp.Client, arguments, meta string) jsonobj.Object {
					return callGateway(t, c, mcp.MethodToolsCall, fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{%q:%s}}`, tool, arguments, job, meta))
				}
				c := connect()
				defer func() { g.kill() }()
				said, err := jsonobj.ParseObject(c.InitializeResult())
				if want := map[string]string{"rpa": `{"version":1}`}[endpoint]; err != nil || string(said.Object("_meta").Get(job)) != want {
					t.Errorf("%s: %v", said.JSON(), err)
				}
				started := call(c, `{"process":"invoice","arguments":{"ms":0}}`, `{"version":1}`)
				handle := started.Object("_meta").Get(job)
				if handle == nil {
					t.Fatalf("%s", started.JSON())
				}
				g.kill()
				if fetched := call(connect(), "null", string(handle)).JSON(); !strings.Contains(string(fetched), `INV-`) {
					t.Errorf("%s: %s", handle, fetched)
				}
			})
		}
	}
}
