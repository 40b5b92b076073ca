package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// The official conformance suite (@modelcontextprotocol/conformance) against the SDK's
// everything-server behind `evalrun gateway`, and against our client. Scenarios that a requirement
// set does not score, such as those of the tasks extension, which everything-server does not have,
// are run by the suite and do not count.

// conformance is what the suite needs: a Node.js and its script.
type conformance struct{ node, script string }

func theSuite(t *testing.T) conformance {
	t.Helper()
	node, script := testenv.Node(t), testenv.LabFile(t, "conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js")
	return conformance{node, script}
}

// run runs the suite, whose exit code says whether everything that is scored has passed or was
// expected to fail.
func (c conformance) run(t *testing.T, expectedFailures string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if expectedFailures != "" {
		file := filepath.Join(t.TempDir(), "baseline.yml")
		if err := os.WriteFile(file, []byte(expectedFailures), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--expected-failures", file)
	}
	out, err := exec.CommandContext(ctx, c.node, append([]string{c.script}, args...)...).CombinedOutput()
	_, summary, found := strings.Cut(string(out), "SUMMARY ===")
	if err != nil || !found {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.SplitSeq(summary, "\n") {
		if strings.HasPrefix(line, "Total") || strings.HasPrefix(line, "✗") {
			t.Log(line)
		}
	}
}

// build builds a command of this module, or of one that it needs, for a test and its subtests.
func build(t testing.TB, pkg string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return path
}

const (
	evalrunProgram   = "github.com/evalrun/evalrun/cmd/evalrun"
	clientProgram    = "github.com/evalrun/evalrun/internal/test/conformanceclient"
	everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"
)

// startEverything starts the everything-server over HTTP and returns its URL. Only if it is
// stateless it speaks 2026-07-28.
func startEverything(t *testing.T, program string, stateless bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command(program, "-http="+address, fmt.Sprintf("-stateless=%v", stateless)))
	var conn net.Conn
	testenv.Eventually(func() bool { // it does not say when it listens
		conn, err = net.Dial("tcp", address)
		return !errors.Is(err, syscall.ECONNREFUSED)
	})
	if err != nil {
		t.Fatalf("everything-server: %v", err)
	}
	_ = conn.Close()
	return "http://" + address
}

// start starts a process that ends with the test.
func start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait() // it was told to end
	})
}

// startGateway starts `evalrun gateway` in front of a server as it is declared in a file, and
// returns the URL of its endpoint, which bears the token.
func startGateway(t *testing.T, evalrun, server string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(config, []byte(`{"mcpServers":{"everything":`+server+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(evalrun, "gateway", config, "--store", filepath.Join(filepath.Dir(config), "store"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	var printed struct {
		MCPServers map[string]struct {
			URL     string
			Headers map[string]string
		}
	}
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&printed); err != nil {
		t.Fatalf("evalrun gateway: %v", err)
	}
	s := printed.MCPServers["everything"]
	token := strings.TrimPrefix(s.Headers["Authorization"], "Bearer ")
	return strings.Replace(s.URL, "/mcp/", "/t/"+token+"/mcp/", 1)
}

func TestConformanceOfTheGateway(t *testing.T) {
	c := theSuite(t)
	evalrun, everything := build(t, evalrunProgram), build(t, everythingServer)
	overHTTP := func(stateless bool) func(t *testing.T) string {
		return func(t *testing.T) string {
			return fmt.Sprintf(`{"type":"http","url":%q}`, startEverything(t, everything, stateless))
		}
	}
	overStdio := func(*testing.T) string { return fmt.Sprintf(`{"command":%q}`, everything) }
	for _, test := range []struct {
		name         string
		requirements string
		server       func(t *testing.T) string
		// failures are the scenarios that fail for reasons which lie with the server.
		failures string
	}{
		{"2026-07-28", "2026-07-28", overHTTP(true), ""},
		{"2025-11-25", "2025-11-25", overHTTP(false), ""},
		{"2026-07-28 over stdio", "2026-07-28", overStdio, ""},
		{"2025-11-25 over stdio", "2025-11-25", overStdio, ""},
		// Its questions have no keys in Legacy, and its SDK asks only once there for tools that are
		// written for input requests.
		{"2026-07-28 of a legacy server", "2026-07-28", overHTTP(false), "server: [input-required-result-basic-elicitation, input-required-result-multi-round]"},
		// Without sessions it cannot ask, and directly it fails in the same.
		{
			"2025-11-25 of a server without sessions", "2025-11-25", overHTTP(true),
			"server: [tools-call-sampling, tools-call-elicitation, elicitation-sep1034-defaults, elicitation-sep1330-enums]",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.run(t, test.failures, "server", "--url", startGateway(t, evalrun, test.server(t)), "--requirements", test.requirements)
		})
	}
}

// Our client has no OAuth: servers that want it are given their credentials as headers.
func TestConformanceOfTheClient(t *testing.T) {
	c := theSuite(t)
	client := build(t, clientProgram)
	for requirements, scenarios := range map[string]string{
		"2026-07-28": "tools_call request-metadata sep-2322-client-request-state http-standard-headers http-custom-headers http-invalid-tool-headers " +
			"json-schema-ref-no-deref json-schema-2020-12-preservation",
		"2025-11-25": "initialize tools_call elicitation-sep1034-client-defaults sse-retry json-schema-2020-12-preservation",
	} {
		for scenario := range strings.FieldsSeq(scenarios) {
			t.Run(requirements+" "+scenario, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, c.node, c.script, "client", "--command", client,
					"--scenario", scenario, "--spec-version", requirements)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
