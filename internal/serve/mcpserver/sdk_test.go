package mcpserver_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// bearing sends a token with every request.
type bearing struct{ token string }

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// The official SDK for Go knows no tasks: its clients get results.
func TestClientsOfTheGoSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, version := range []string{mcp.Version2025_06_18, mcp.Version2025_11_25, mcp.Version2026_07_28} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := sdk.NewClient(&sdk.Implementation{Name: "plain", Version: "1"}, nil)
			s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: w.base + "/mcp", HTTPClient: &http.Client{Transport: bearing{w.token}}},
				&sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			tools, err := s.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 9 {
				t.Fatal(tools, err)
			}
			r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_eval_set", Arguments: map[string]any{"evalSet": "done"}})
			if err != nil || r.IsError {
				t.Fatal(r, err)
			}
			document, err := json.Marshal(r.StructuredContent)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, string(document), `"status":"successful"`)
		})
	}
}

// The official SDK for TypeScript knows tasks of 2025-11-25.
func TestAClientOfTheTypeScriptSDK(t *testing.T) {
	t.Parallel()
	node, installed := testenv.Node(t), testenv.LabFile(t, "everything/node_modules/@modelcontextprotocol/sdk/package.json")
	w := newWorld(t)
	cmd := exec.Command(node, "testdata/client.mjs", installed, w.base+"/mcp", w.token)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type run struct{ RunID, Status string }
	var saw struct {
		Tools, Statuses, Asked, List []string
		TaskID                       string
		Result, Again, Plain         run
		Task                         struct{ Status string }
	}
	if err := json.Unmarshal(out, &saw); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := run{saw.TaskID, "successful"}
	if saw.Result != want || saw.Again != want || saw.Plain.Status != "successful" || saw.Task.Status != "completed" || !slices.Contains(saw.List, saw.TaskID) {
		t.Errorf("%s", out)
	}
	if strings.Join(saw.Asked, "|") != "Go on?" || !slices.Contains(saw.Statuses, "input_required") || !slices.Contains(saw.Tools, "run_eval_set optional") || !slices.Contains(saw.Tools, "deliver forbidden") {
		t.Errorf("%s", out)
	}
}
